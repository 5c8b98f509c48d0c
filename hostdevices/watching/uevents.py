"""Wake-ups from the kernel and from udev, over netlink.

A wake-up is never a fact. It names the subsystem to read again, or everything if events were lost. The state is always
read from the host (watch.py).

Network devices announce themselves in their own network namespace only, but the kernel numbers all events in one
sequence: a gap may be an event of another namespace. It may also close a moment later, because newer kernels number an
event before they queue for sending it.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, TypeAlias

from hostdevices.watching.uevent_socket import EventSource, NotAnEvent, UeventSocket

Wake: TypeAlias = Callable[[str | None, str], None]
"""Called on the loop with the subsystem and syspath of the device that an event concerns.

The syspath is empty if the event concerns no device, the subsystem None if anything might have changed.
"""

RECEIVE_BUFFER = 16 << 20  # bytes; the default of 208 KiB holds some 200 events
GAP_GRACE = 1.0  # seconds from a gap to the rescan; also the least time between two rescans for gaps
_CHUNK = 64  # events that are read before other tasks of the loop run

_log = logging.getLogger(__name__)


class Source(Protocol):
    """An external source of wake-ups to read the host again."""

    def start(self, wake: Wake) -> None:
        """Begin to call `wake` on the running loop. Raises OSError if the source is not available."""
        ...

    def close(self) -> None:
        """Stop, and release every file descriptor and thread."""
        ...


class Gaps:
    """Counts the events of a sequence that have not arrived."""

    def __init__(self) -> None:
        """Begin before the first event, whose number opens no gap."""
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
        """Forget the missing ones: the rescan for them has been requested."""
        self.missing = 0


class UdevEvents:
    """Events of the kernel, or of udevd after its rules have run, without a thread and without polling."""

    def __init__(self, source: EventSource = "kernel") -> None:
        """Choose the source; nothing is opened yet."""
        self._source: EventSource = source
        self._socket: UeventSocket | None = None
        self._wake: Wake = lambda *_: None
        self._gaps = Gaps()
        self._gap_timer: asyncio.TimerHandle | None = None

    def start(self, wake: Wake) -> None:
        """Open the socket and call `wake` for each event. Raises OSError if netlink is not available."""
        self._wake = wake
        opened = UeventSocket(self._source, RECEIVE_BUFFER)
        try:
            asyncio.get_running_loop().add_reader(opened.fileno(), self._readable)
        except OSError:
            opened.close()
            raise
        self._socket = opened

    def close(self) -> None:
        """Close the socket. Idempotent."""
        if self._gap_timer:
            self._gap_timer.cancel()
            self._gap_timer = None
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _readable(self) -> None:
        for _ in range(_CHUNK):
            if self._socket is None:
                return
            try:
                event = self._socket.receive()
            except BlockingIOError:
                return
            except OSError as error:  # a burst that did not fit, which is reported once
                self._overflowed(error)
                return
            except NotAnEvent:  # its sender can wake us, and no more
                self._wake(None, "")
                continue
            if event is None:
                continue
            if self._source == "kernel":  # udevd runs rules in parallel: its events come in any order
                self._gaps.note(event.number)
                if self._gaps.missing and self._gap_timer is None:
                    self._gap_timer = asyncio.get_running_loop().call_later(GAP_GRACE, self._gap_is_old)
            try:
                subsystem, syspath = event.subsystem.decode(), f"/sys{event.path.decode()}"
            except UnicodeDecodeError:
                continue  # host.py: a name that is not UTF-8 does not exist
            self._wake(subsystem, syspath)

    def _overflowed(self, error: OSError) -> None:
        _log.warning("%s events were lost (%s): reading everything", self._source, error.strerror)
        self._gaps = Gaps()
        self._wake(None, "")

    def _gap_is_old(self) -> None:
        self._gap_timer = None
        if self._gaps.missing:
            self._gaps.forget()
            self._wake(None, "")
