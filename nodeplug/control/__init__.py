"""Questions to the running daemon: a socket in the state directory that root alone can open, and one file per question.

nodeplug status -> client -> control.sock -> server -> status.py -> the daemon's state
"""

__all__: list[str] = []
