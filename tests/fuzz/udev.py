"""Messages of udevd and the kernel, forged and damaged: each can wake the listener, and none ends it.

They are sent in a network namespace that a thread creates, so that no other process receives them.
"""

import asyncio
import ctypes
import functools
import os
import socket
import struct
import threading
from pathlib import Path
from random import Random

from hostdevices.watching.uevents import UdevEvents
from tests.fuzz.mutation import mutated

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_UEVENTS = 15  # NETLINK_KOBJECT_UEVENT
_UDEVD_GROUP = 2
_PROPERTIES = b"ACTION=change\0DEVPATH=/devices/virtual/mem/%s\0SUBSYSTEM=%s\0SEQNUM=7\0"
_WORDS = (b"libudev\0", b"\xfe\xed\xca\xfe", b"=", b"\0", b"SUBSYSTEM=", b"DEVPATH=/../..", b"\xff\xff\xff\xff", b"@")
_LAST = "last"  # subsystem of the message that follows each random one


class _Listener:
    """A listener and a sender in their own namespace, and the listener's event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.woken: asyncio.Queue[str | None] = asyncio.Queue()
        self.error: OSError | None = None
        thread = threading.Thread(target=self._open)  # a namespace belongs to a thread, and sockets keep theirs
        thread.start()
        thread.join()
        if self.error is not None:
            raise self.error

    def _open(self) -> None:
        if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK):
            self.error = OSError(ctypes.get_errno(), "no network namespace of one's own")
            return
        self.sender = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _UEVENTS)
        self.loop.run_until_complete(self._listen())

    async def _listen(self) -> None:
        UdevEvents("udev").start(lambda subsystem, _: self.woken.put_nowait(subsystem))

    async def woken_by(self, message: bytes) -> list[str | None]:
        """Return the subsystems that a message woke."""
        for each in (message, _message(b"null", _LAST.encode())):
            self.sender.sendto(each, (0, _UDEVD_GROUP))
        found = []
        async with asyncio.timeout(30):
            while (subsystem := await self.woken.get()) != _LAST:
                found.append(subsystem)
        return found


@functools.cache
def _listener() -> _Listener:
    return _Listener()


def can_listen() -> bool:
    """Return whether this process can create a network namespace."""
    if os.geteuid() != 0 or not Path("/proc/self/ns/net").exists():
        return False
    try:
        _listener()
    except OSError:
        return False
    return True


def _message(name: bytes, subsystem: bytes) -> bytes:
    """Return a message in udevd's format (libudev's source: struct udev_monitor_netlink_header)."""
    properties = _PROPERTIES % (name, subsystem)
    sizes = struct.pack("=III", 40, 40, len(properties))
    return b"libudev\0" + struct.pack("!I", 0xFEEDCAFE) + sizes + bytes(16) + properties


def messages(seed: int) -> str:
    """A damaged message of udevd or the kernel: it wakes a reader, causes a complete rescan, or is ignored."""
    plain = b"change@/devices/virtual/mem/null\0" + _PROPERTIES % (b"null", b"mem")
    seeds = (_message(b"null", b"mem"), _message(b"n" * 500, b"block"), plain)
    heard = _listener()
    message = mutated(Random(seed), seeds, _WORDS)
    found = heard.loop.run_until_complete(heard.woken_by(message)) if message else []
    return "everything" if None in found else "heard" if found else "nothing"
