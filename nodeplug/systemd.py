"""Telling systemd how we are (sd_notify(3)): one datagram to the socket that it names."""

import asyncio
import os
import socket

_PATIENCE = 0.5  # seconds that a busy systemd may hold up the loop


def notify(state: str) -> None:
    """Send `READY=1`, `STOPPING=1` or `STATUS=...`; without systemd this does nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
        out.settimeout(_PATIENCE)
        try:
            out.sendto(state.encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)
        except OSError:
            return  # nobody listens any more: that must not stop a daemon that works


async def watchdog() -> None:
    """Tell systemd that the loop turns, twice as often as its WatchdogSec wants to hear it, until cancelled.

    Without one there is nothing to do. A loop that stands still is killed, and the process started again.
    """
    seconds = _watchdog_seconds()
    while seconds:
        notify("WATCHDOG=1")
        await asyncio.sleep(seconds / 2)
    await asyncio.get_running_loop().create_future()


def _watchdog_seconds() -> float:
    """Return after how long a silence systemd acts; 0: never (sd_watchdog_enabled(3))."""
    microseconds, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not (microseconds.isascii() and microseconds.isdecimal()) or pid not in ("", str(os.getpid())):
        return 0.0
    return int(microseconds[:18]) / 1e6
