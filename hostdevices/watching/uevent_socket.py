"""A netlink socket that receives the events of the kernel or of udevd: one message, one event.

The kernel sends `change@/devices/...`, then its properties as KEY=VALUE, each ended by a zero byte. udevd sends the
properties, and more of them, behind a header that says where they begin. Only the few needed fields are read:
libudev and a library for it take more memory than all other code that watches the host.

Other processes with the right can send to such a socket. So only events from port 0, which only the kernel has, count
as the kernel's, and only events from root as udevd's. All others are ignored.
Source: lib/kobject_uevent.c of Linux; struct monitor_netlink_header of systemd.
"""

import contextlib
import socket
import struct
from typing import Literal, TypeAlias

from msgspec import Struct

EventSource: TypeAlias = Literal["kernel", "udev"]

_NETLINK_KOBJECT_UEVENT = 15
_GROUPS: dict[EventSource, int] = {"kernel": 1, "udev": 2}
_SO_RCVBUFFORCE = 33
_MAX_MESSAGE = 16_384  # bytes of a message: the kernel's have at most 2 KiB, udevd's as much as its rules add
_CREDENTIALS = struct.Struct("=iII")  # the sender's: process, user, group
_HEADER = struct.Struct("=8s4sIII")  # udevd's: its name, a number in network order, sizes, where the properties begin
_UDEVD, _MAGIC = b"libudev\0", b"\xfe\xed\xca\xfe"


class NotAnEvent(ValueError):
    """A message that root has sent like udevd, but that is not one of its events."""


class Uevent(Struct, frozen=True):
    """An event of a device, as bytes: names of the kernel need not be text."""

    number: int  # in the kernel's one sequence, from 1; 0 if it has none
    subsystem: bytes
    path: bytes  # below /sys


class UeventSocket:
    """Receives the events of one source. Belongs to one thread; a receive never waits."""

    def __init__(self, source: EventSource, buffer: int) -> None:
        """Open the socket, with room for `buffer` bytes of messages, or for as many as are allowed. Raises OSError."""
        self._source = source
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, _NETLINK_KOBJECT_UEVENT)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)  # up to net.core.rmem_max
            with contextlib.suppress(PermissionError):  # more than that needs CAP_NET_ADMIN
                self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, buffer)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._socket.bind((0, _GROUPS[source]))
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """Return the descriptor that is readable when a message has arrived."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self._socket.close()

    def receive(self) -> Uevent | None:
        """Return the next event; None for a message of another sender.

        Raises `BlockingIOError` if none has arrived, `NotAnEvent`, another OSError if events were lost.
        """
        message, ancillary, flags, (port, group) = self._socket.recvmsg(
            _MAX_MESSAGE, socket.CMSG_SPACE(_CREDENTIALS.size)
        )
        if group != _GROUPS[self._source]:
            return None
        if self._source == "kernel":
            return _event(message.partition(b"\0")[2]) if port == 0 else None
        if not _is_from_root(ancillary):
            return None
        if flags & socket.MSG_TRUNC:
            raise NotAnEvent
        return _event(_properties(message))


def _is_from_root(ancillary: list[tuple[int, int, bytes]]) -> bool:
    return any(
        (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and _CREDENTIALS.unpack(data)[1] == 0
        for level, kind, data in ancillary
    )


def _properties(message: bytes) -> bytes:
    """Return the properties in a message of udevd. Raises `NotAnEvent`."""
    if not message.startswith(_UDEVD):
        return message.partition(b"\0")[2]  # an older udevd's, or the kernel's own, passed on
    if len(message) < _HEADER.size:
        raise NotAnEvent
    _, magic, _, begin, length = _HEADER.unpack_from(message)
    if magic != _MAGIC or begin + length > len(message):
        raise NotAnEvent
    return message[begin : begin + length]


def _event(properties: bytes) -> Uevent:
    """Read the properties of an event. Raises `NotAnEvent`."""
    found = dict(each.partition(b"=")[::2] for each in properties.split(b"\0"))
    subsystem, path, number = found.get(b"SUBSYSTEM"), found.get(b"DEVPATH", b""), found.get(b"SEQNUM", b"")
    if not subsystem or not path.startswith(b"/"):
        raise NotAnEvent
    return Uevent(int(number) if number.isdigit() and len(number) < 20 else 0, subsystem, path)
