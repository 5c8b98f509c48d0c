"""Wake-ups from the kernel and from udev, over netlink.

A wake-up is never a fact. It says which subsystem to read again, or that everything must be read because events were
lost. What is there is only ever read from the host (watch.py).

Network devices announce themselves in their own network namespace only, but the kernel numbers all events in one
sequence: a gap may be another namespace's business. It may also close a moment later, because newer kernels number an
event before they queue for sending it.
"""

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

import pyudev

Wake: TypeAlias = Callable[[str | None, str], None]
"""Called on the loop with the subsystem and syspath of the device that an event concerns.

The syspath is empty where the event is of no device, the subsystem None when anything may have changed.
"""

RECEIVE_BUFFER = 16 << 20  # bytes; the default of 208 KiB holds some 200 events
_UDEVD = b"libudev\0"
_OFFSET = struct.Struct("=8xIII")  # udevd's header: magic, its size, where the properties begin
_FEWEST = 32  # bytes of properties, as libudev would have it
GAP_GRACE = 1.0  # seconds from a gap to the rescan; also the least time between two rescans for gaps
_CHUNK = 64  # events read before the loop gets its turn

_log = logging.getLogger(__name__)


class Source(Protocol):
    """Something outside that says when to look at the host again."""

    def start(self, wake: Wake) -> None:
        """Begin to call `wake` on the running loop. Raises OSError or ImportError where the source is not to be had."""
        ...

    def close(self) -> None:
        """Stop, and give back every file descriptor and thread."""
        ...


class Gaps:
    """Counts the events of a sequence that have not arrived."""

    def __init__(self) -> None:
        """Begin before the first event; whatever number it has opens no gap."""
        self._last = 0
        self.missing = 0

    def note(self, number: int) -> None:
        """Take the number of an event that arrived, 0 for an event without one."""
        if not number:
            return
        if number > self._last:
            self.missing += number - self._last - 1 if self._last else 0
            self._last = number
        elif self.missing:
            self.missing -= 1

    def forget(self) -> None:
        """Give up the missing ones: the rescan that they asked for is on its way."""
        self.missing = 0


class UdevEvents:
    """Events of the kernel, or of udevd once its rules have run, without a thread and without polling."""

    def __init__(self, source: Literal["kernel", "udev"] = "kernel") -> None:
        """Choose whose events to hear; nothing is opened yet."""
        self._source = source
        self._monitor: pyudev.Monitor | None = None
        self._socket: socket.socket | None = None  # the monitor's own, once more: libudev does not show all of it
        self._wake: Wake = lambda *_: None
        self._gaps = Gaps()
        self._gap_timer: asyncio.TimerHandle | None = None

    def start(self, wake: Wake) -> None:
        """Open the socket and call `wake` for each event.

        Raises OSError where netlink is not to be had, ImportError without libudev.
        """
        self._wake = wake
        monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source=self._source)
        try:
            monitor.set_receive_buffer_size(RECEIVE_BUFFER)
        except OSError:
            # Needs CAP_NET_ADMIN. A burst that does not fit is reported as ENOBUFS, and repaired.
            _log.debug("%s events: the receive buffer stays at its default size", self._source)
        monitor.start()
        self._monitor, self._socket = monitor, socket.socket(fileno=os.dup(monitor.fileno()))
        asyncio.get_running_loop().add_reader(monitor.fileno(), self._readable)

    def close(self) -> None:
        """Close the socket; closing again changes nothing."""
        if self._gap_timer:
            self._gap_timer.cancel()
            self._gap_timer = None
        if self._monitor is not None:
            asyncio.get_running_loop().remove_reader(self._monitor.fileno())
            self._monitor = None  # pyudev closes the socket with the last reference
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _readable(self) -> None:
        for _ in range(_CHUNK):
            if self._monitor is None or self._socket is None:
                return
            try:
                if self._source == "udev" and _drop_if_fatal(self._socket):
                    self._wake(None, "")
                    continue
                event = self._monitor.poll(0)
            except OSError:
                self._overflowed(self._socket)
                return
            except ValueError:  # libudev: no event. Another root's that sends as udevd does, or one that it cannot read
                self._wake(None, "")
                continue
            if event is None:
                return
            if self._source == "kernel":  # udevd runs rules side by side: its events come in any order
                self._gaps.note(event.sequence_number)
                if self._gaps.missing and self._gap_timer is None:
                    self._gap_timer = asyncio.get_running_loop().call_later(GAP_GRACE, self._gap_is_old)
            try:
                subsystem, syspath = event.subsystem, f"/sys{event.device_path}"
            except UnicodeDecodeError:
                continue  # host.py: what has such a name does not exist
            self._wake(subsystem, syspath)

    def _overflowed(self, same_socket: socket.socket) -> None:
        """Repair ENOBUFS. The error stays on the socket, readable for ever, until somebody asks for it.

        Where the socket has none libudev could not read a message, of which whoever sends them may send any number.
        """
        if error := same_socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            _log.warning("%s events were lost (%s): reading everything", self._source, os.strerror(error))
        self._gaps = Gaps()
        self._wake(None, "")

    def _gap_is_old(self) -> None:
        self._gap_timer = None
        if self._gaps.missing:
            self._gaps.forget()
            self._wake(None, "")


def _drop_if_fatal(same_socket: socket.socket) -> bool:
    """Take the next message away where libudev would read beyond it, and tell so.

    libudev adds to the offset in 32 bits, which may overflow, and dies. Whoever is root in this network namespace, a
    pod of the host's network with CAP_NET_ADMIN, say, may send as udevd does. Raises OSError.
    """
    header = bytearray(_OFFSET.size)
    try:
        length = same_socket.recv_into(header, 0, socket.MSG_PEEK | socket.MSG_TRUNC | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    if not header.startswith(_UDEVD) or _OFFSET.unpack(header)[2] + _FEWEST <= length:
        return False
    same_socket.recv(1, socket.MSG_DONTWAIT)
    return True
