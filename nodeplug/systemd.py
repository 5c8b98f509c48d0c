"""Notifications to systemd (sd_notify(3)): one datagram to the socket in NOTIFY_SOCKET."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable

_PATIENCE = 0.5  # seconds that a busy systemd may hold up the loop
_AGAIN = 1.0  # seconds until what was not heard is said again


def notify(state: str) -> bool:
    """Send `READY=1`, `STOPPING=1` or `STATUS=...`; tell whether it was taken. Without systemd this does nothing."""
    try:
        with _socket() as out:
            return _send(out, state)
    except OSError:  # no descriptor is left: the daemon works nevertheless
        return False


async def notify_ready(ready: Callable[[], Awaitable[object]]) -> None:
    """Tell systemd that we are ready once `ready` returns, until it has heard that.

    It ends a service of which it does not hear that, after the TimeoutStartSec.
    """
    await ready()
    while not notify("READY=1"):  # noqa: ASYNC110 - nobody tells when it can hear again
        await asyncio.sleep(_AGAIN)


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


def _send(out: socket.socket, state: str) -> bool:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address.startswith(("/", "@")):
        try:
            out.sendto(state.encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)
        except OSError:  # busy, or nobody listens any more: that must not stop a daemon that works
            return False
    return True


def _watchdog_seconds() -> float:
    """Return after how long a silence systemd acts; 0: never (sd_watchdog_enabled(3))."""
    microseconds, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not (microseconds.isascii() and microseconds.isdecimal()) or pid not in ("", str(os.getpid())):
        return 0.0
    return int(microseconds[:18]) / 1e6
