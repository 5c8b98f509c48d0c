"""The program: configuration, the daemon that wires the rooms, and the command line."""

__all__: list[str] = []
