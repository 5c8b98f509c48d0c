"""Telling systemd how we are (sd_notify(3)): one datagram to the socket that it names."""

import os
import socket


def notify(state: str) -> None:
    """Send `READY=1`, `STOPPING=1` or `STATUS=...`; without systemd this does nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
        try:
            out.sendto(state.encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)
        except OSError:
            return  # nobody listens any more: that must not stop a daemon that works
