"""The program: configuration, the daemon that connects the other packages, and the command line."""

import os

__all__: list[str] = []

# gRPC's core logs to standard error what our own logs report with more context. It reads this variable when it is
# loaded.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
