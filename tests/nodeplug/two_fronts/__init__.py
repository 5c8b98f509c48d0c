"""Random lives of a node that offers its devices through both of the kubelet's APIs.

    python -m tests.nodeplug.two_fronts 10000

One life: a made-up host, the real code of both fronts on one real ledger and real files, a kubelet, a scheduler and an
API server that may be wrong or gone, and steps in a random order, among them death at any effect on the disk. After
each step `rules` says what must be true. What the daemon gets from its operating system is replaced, and nothing of
the daemon: its threads and clock (`process`), its disk (`disk`), its connections (`wire`).
"""
