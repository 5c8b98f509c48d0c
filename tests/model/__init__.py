"""A small model of the holders on a node, explored completely, and compared with the real ledger and reconciler.

node.py       two devices, two pods of the device plugin API and a claim, a kubelet, and the rules of leases
explorer.py   every reachable state, and traces with every step of the daemon
real.py       the same with the real ledger, reconciler and witnesses, action by action
              (python -m tests.model visits all states, with --ledger it runs the traces)
"""
