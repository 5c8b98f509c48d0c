"""Random histories ("simulations") of a node that offers its devices through both of the kubelet's APIs.

    python -m tests.nodeplug.simulation 10000

A simulation consists of a made-up host, the real code of both plugins on one real ledger and real files, a kubelet, a
scheduler and an API server that can be wrong or down, and random steps. Steps include the daemon's death at any effect
on the disk. `rules` checks the invariants after each step. Only the daemon's operating system is replaced: its threads
and clock (`process`), its disk (`disk`), its connections (`wire`).
"""
