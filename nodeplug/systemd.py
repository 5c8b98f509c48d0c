"""Notifications to systemd (sd_notify(3)): one datagram to the socket in NOTIFY_SOCKET."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable

_SEND_TIMEOUT = 0.5  # the longest time, in seconds, that a busy systemd delays the loop
_RETRY = 1.0  # seconds until a message that was not delivered is sent again


def notify(state: str) -> bool:
    """Send `READY=1`, `STOPPING=1` or `STATUS=...`; return whether it was delivered. Does nothing without systemd."""
    try:
        with _socket() as out:
            return _send(out, state)
    except OSError:  # no descriptor is available: the daemon works nevertheless
        return False


async def notify_ready(ready: Callable[[], Awaitable[object]]) -> None:
    """Report readiness to systemd once `ready` returns, until that is delivered.

    Systemd ends a service that does not report it within TimeoutStartSec.
    """
    await ready()
    while not notify("READY=1"):  # noqa: ASYNC110 - no event announces when the socket has room
        await asyncio.sleep(_RETRY)


async def watchdog() -> None:
    """Report to systemd that the loop runs, twice as often as its WatchdogSec requires, until cancelled.

    Without WatchdogSec there is nothing to do. Systemd kills and restarts a process whose loop hangs.
    """
    if seconds := _watchdog_seconds():
        with _socket() as out:  # kept open, so that it works while the process or the node has no descriptor left
            while True:
                _send(out, "WATCHDOG=1")
                await asyncio.sleep(seconds / 2)
    await asyncio.get_running_loop().create_future()


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    made.settimeout(_SEND_TIMEOUT)
    return made


def _send(out: socket.socket, state: str) -> bool:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address.startswith(("/", "@")):
        try:
            out.sendto(state.encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)
        except OSError:  # busy, or no longer listening: a daemon that works must not stop for that
            return False
    return True


def _watchdog_seconds() -> float:
    """Return after how many seconds of silence systemd acts; 0: never (sd_watchdog_enabled(3))."""
    microseconds, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not (microseconds.isascii() and microseconds.isdecimal()) or pid not in ("", str(os.getpid())):
        return 0.0
    return int(microseconds[:18]) / 1e6
