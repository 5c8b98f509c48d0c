"""Telling systemd how we are (sd_notify(3)): one datagram to the socket that it names."""

import asyncio
import contextlib
import os
import socket

_PATIENCE = 0.5  # seconds that a busy systemd may hold up the loop


def notify(state: str) -> None:
    """Send `READY=1`, `STOPPING=1` or `STATUS=...`; without systemd this does nothing."""
    with contextlib.suppress(OSError), _socket() as out:  # no descriptor is left: the daemon works nevertheless
        _send(out, state)


async def watchdog() -> None:
    """Tell systemd that the loop turns, twice as often as its WatchdogSec wants to hear it, until cancelled.

    Without one there is nothing to do. A loop that stands still is killed, and the process started again.
    """
    if seconds := _watchdog_seconds():
        with _socket() as out:  # kept, so that it is there while the process or the node has no descriptor left
            while True:
                _send(out, "WATCHDOG=1")
                await asyncio.sleep(seconds / 2)
    await asyncio.get_running_loop().create_future()


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    made.settimeout(_PATIENCE)
    return made


def _send(out: socket.socket, state: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address.startswith(("/", "@")):
        with contextlib.suppress(OSError):  # nobody listens any more: that must not stop a daemon that works
            out.sendto(state.encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)


def _watchdog_seconds() -> float:
    """Return after how long a silence systemd acts; 0: never (sd_watchdog_enabled(3))."""
    microseconds, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not (microseconds.isascii() and microseconds.isdecimal()) or pid not in ("", str(os.getpid())):
        return 0.0
    return int(microseconds[:18]) / 1e6
