"""Free TCP ports, for servers that need their port before they start."""

import contextlib
import socket


def free_ports(number: int) -> list[int]:
    """Return distinct ports that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
