"""The running daemon answers: a socket in the state directory that root alone can open, and one file per question.

nodeplug status -> client -> control.sock -> server -> status.py -> what the daemon has
"""

__all__: list[str] = []
