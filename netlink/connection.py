"""Requests to the kernel over netlink, each with its answer."""

import errno
import os
import socket
import struct
from collections.abc import Callable
from typing import Self

from netlink.messages import ACK, DONE, ERROR, INTERRUPTED, ROOT_AND_MATCH, Message, message, messages

# bytes of a datagram; the kernel sends at most 32 KiB at once, except for interfaces with hundreds of VFs
_MAX_DATAGRAM = 1 << 18
_TIMEOUT = 5.0  # seconds; the kernel answers during the call of send, once it has its lock
_MAX_DUMPS = 10  # attempts to list something that changes meanwhile
_ANSWER = struct.Struct("=i")
_SOL_NETLINK = 270
_CAP_ACK = 10  # NETLINK_CAP_ACK


class NetlinkError(OSError):
    """The kernel's refusal, with its reason."""


class Connection:
    """A socket in the network namespace of the thread that opens it. Use as a context manager; for one thread."""

    def __init__(self, protocol: int = socket.NETLINK_ROUTE) -> None:
        """Open it for a protocol of netlink. Raises OSError."""
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._sequence = 0
        try:
            self._socket.settimeout(_TIMEOUT)
            self._socket.setsockopt(_SOL_NETLINK, _CAP_ACK, 1)
            self._socket.bind((0, 0))
        except OSError:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the socket."""
        self._socket.close()

    def request(self, kind: int, body: bytes, flags: int = 0) -> list[Message]:
        """Return the answer to a request for one object, or to a change. Raises `NetlinkError`."""
        return self._exchange(kind, body, flags | ACK)[:-1]

    def dump(self, kind: int, body: bytes, is_wanted: Callable[[bytes], bool] | None = None) -> list[Message]:
        """Return a consistent list of all objects, or of those for whose body `is_wanted` is true.

        Raises `NetlinkError`, also if the list changes during every attempt.
        """
        for _ in range(_MAX_DUMPS):
            answer = self._exchange(kind, body, ROOT_AND_MATCH, is_wanted)
            if not any(each.flags & INTERRUPTED for each in answer):
                return answer[:-1]
        raise NetlinkError(errno.EINTR, "the list keeps changing")

    def _exchange(
        self, kind: int, body: bytes, flags: int, is_wanted: Callable[[bytes], bool] | None = None
    ) -> list[Message]:
        """Return the wanted messages of the answer, with the one that ends it."""
        self._sequence += 1
        self._socket.send(message(kind, flags, self._sequence, body))
        found: list[Message] = []
        while True:
            for each in messages(self._receive()):
                if each.sequence != self._sequence:
                    continue
                is_last = each.type in (ERROR, DONE)
                if is_last or each.flags & INTERRUPTED or is_wanted is None or is_wanted(each.body):
                    found.append(each)
                if not is_last:
                    continue
                code = -_ANSWER.unpack_from(each.body)[0] if len(each.body) >= _ANSWER.size else 0
                if code:
                    raise NetlinkError(code, os.strerror(code))
                return found

    def _receive(self) -> bytes:
        try:
            data, _, flags, _ = self._socket.recvmsg(_MAX_DATAGRAM)
        except TimeoutError:
            raise NetlinkError(errno.ETIMEDOUT, f"the kernel has not answered within {_TIMEOUT:g} s") from None
        if flags & socket.MSG_TRUNC:  # what was cut off would seem absent
            raise NetlinkError(errno.EMSGSIZE, f"the kernel sent more than {_MAX_DATAGRAM} bytes at once")
        return data
