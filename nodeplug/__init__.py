"""The program: configuration, the daemon that connects the other packages, and the command line."""

import os

__all__: list[str] = []

# gRPC's core prints to standard error what our own logs say better; it reads this when it is loaded
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
