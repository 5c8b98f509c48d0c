"""The reads of a host that are in progress, and those that do not return.

A driver whose hardware is gone may never answer a read of its attributes (aer_dev_fatal, hwmon), and nothing can get
such a thread out of the kernel. So:

1. Code that reads much does so in its own thread, an `Attempt`, which records each read before it begins.
2. A read that takes longer than `TIMEOUT` is stuck. Its attempt is abandoned: the thread ends as soon as the read
   returns, and nothing waits for it. Another attempt begins and skips the hardware of the stuck read: a read of
   anything there raises `ReadStuck`, which affects only the devices on this hardware.
3. At most `MAX_STUCK` threads are stuck at a time; with so many no attempt begins.
4. When a stuck read returns, its hardware is read again.
"""

import logging
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from msgspec import Struct

from hostdevices.errors import HostExhausted, ReadStuck

TIMEOUT = 2.0  # seconds
MAX_STUCK = 8

# Units that fail separately: a PCI function, a USB device.
_HARDWARE = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]|[0-9]+-[0-9]+(\.[0-9]+)*")
_log = logging.getLogger(__name__)
T = TypeVar("T")


class StuckRead(Struct, frozen=True):
    """A read that has not returned."""

    path: str
    since: float  # time.monotonic()

    def __str__(self) -> str:
        """Return a text that stays the same while the read is stuck."""
        return f"reading {self.path} does not return"


class _Abandoned(BaseException):
    """Ends the thread of an abandoned attempt."""


class Reads:
    """The reads of one host: `Host` reads its files through `call`."""

    def __init__(self, limit: float = TIMEOUT) -> None:
        """Begin without any; a read is stuck after `limit` seconds."""
        self.limit = limit
        self._attempt = threading.local()
        self._stuck: dict[str, StuckRead] = {}  # by hardware; only single keys are replaced: other threads read it

    @property
    def stuck(self) -> tuple[StuckRead, ...]:
        """Return the reads that have not returned."""
        return tuple(self._stuck.values())

    @property
    def is_full(self) -> bool:
        """Return whether so many threads are stuck that no attempt can begin."""
        return len(self._stuck) >= MAX_STUCK

    def call(self, operation: Callable[..., T], path: str, *arguments: object) -> T:
        """Return `operation(path, ...)`, recorded as in progress meanwhile if this thread is an attempt's.

        Raises `ReadStuck` if the same read has not returned.
        """
        attempt: Attempt[object] | None = getattr(self._attempt, "now", None)
        if attempt is None:
            return operation(path, *arguments)
        for stuck in self.stuck if self._stuck else ():
            if stuck.path == path:
                raise ReadStuck(str(stuck))
        attempt.in_progress = (path, time.monotonic())
        try:
            return operation(path, *arguments)
        finally:
            attempt.in_progress = None
            if attempt.is_abandoned:
                raise _Abandoned

    def raise_if_stuck(self, path: str) -> None:
        """Raise `ReadStuck` if `path` is a file of hardware with a stuck read."""
        if self._stuck and (stuck := self._stuck.get(_hardware(path))):
            raise ReadStuck(str(stuck))

    def attempt(self, work: Callable[[], T], on_return: Callable[[], None] = lambda: None) -> "Attempt[T]":
        """Begin `work` in a thread; `on_return` is called there if it was abandoned as stuck and its read returns."""
        return Attempt(self, work, on_return)

    def run(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, which can be started several times; reads that do not return are skipped.

        Raises `HostExhausted`, and what `work` raises.
        """
        while True:
            attempt = self.attempt(work)
            while not attempt.wait(self.limit / 2):
                if attempt.is_stuck() and not self.is_full:
                    attempt.abandon_as_stuck()
                    break
            else:
                return attempt.future.result()

    def enter(self, attempt: "Attempt[T]") -> None:
        """Record this thread's reads in `attempt` from now on."""
        self._attempt.now = attempt

    def add(self, stuck: StuckRead) -> None:
        """Skip the hardware of a read from now on."""
        self._stuck[_hardware(stuck.path)] = stuck
        extra = {"is_current": lambda: self._stuck.get(_hardware(stuck.path)) is stuck}
        _log.error("%s; its device is unhealthy until it does", stuck, extra=extra)

    def remove(self, stuck: StuckRead) -> None:
        """Read the hardware again: the read has returned."""
        if self._stuck.get(_hardware(stuck.path)) is stuck:
            del self._stuck[_hardware(stuck.path)]
        _log.warning("reading %s returned after %.0f s", stuck.path, time.monotonic() - stuck.since)


class Attempt(Generic[T]):
    """Work on a host in its own thread, which starts at once. Its end is never waited for at exit.

    If no thread is available, it ends with `HostExhausted`.
    """

    def __init__(self, reads: Reads, work: Callable[[], T], on_return: Callable[[], None]) -> None:
        self.future: Future[T] = Future()
        self.in_progress: tuple[str, float] | None = None  # the path that is being read, and since when
        self.is_abandoned = False
        self._reads = reads
        self._work = work
        self._on_return = on_return
        self._lock = threading.Lock()  # between the end of the work and the moment when it is abandoned
        self._stuck_read: StuckRead | None = None
        self._late: tuple[str, float] | None = None
        self.future.set_running_or_notify_cancel()
        try:
            threading.Thread(target=self._run, name="hostdevices-scan", daemon=True).start()
        except RuntimeError as error:  # the process, its cgroup or the node can have no other thread now
            self.future.set_exception(HostExhausted(f"the host cannot be read: {error}"))

    def wait(self, seconds: float) -> bool:
        """Block until the work is done, at most `seconds`; return whether it is."""
        try:
            self.future.exception(seconds)
        except TimeoutError:
            return False
        return True

    def is_stuck(self) -> bool:
        """Return whether the same read has been in progress for too long, at this call and at the one before.

        Two calls are needed because a machine that suspended this thread has suspended the reading thread too.
        """
        in_progress = self.in_progress
        was_late = in_progress is not None and in_progress is self._late
        is_late = in_progress is not None and time.monotonic() - in_progress[1] >= self._reads.limit
        self._late = in_progress if is_late else None
        return is_late and was_late

    def abandon_as_stuck(self) -> None:
        """End it after the present read, and skip the hardware of that until it returns."""
        with self._lock:
            in_progress = self.in_progress
            if in_progress is not None and not self.future.done():
                self._stuck_read = StuckRead(*in_progress)
                self._reads.add(self._stuck_read)
        self.is_abandoned = True

    def abandon(self) -> None:
        """End it after the present read: its result is no longer needed."""
        self.is_abandoned = True

    def _run(self) -> None:
        self._reads.enter(self)
        try:
            result = self._work()
        except BaseException as error:
            with self._lock:
                self.future.set_exception(error)
        else:
            with self._lock:
                self.future.set_result(result)
        if self._stuck_read is not None:
            self._reads.remove(self._stuck_read)
            self._on_return()


def _hardware(path: str) -> str:
    """Return the unit that a file belongs to: the nearest PCI function or USB device, else its folder."""
    folder, _, _ = path.rpartition("/")
    return next(filter(_HARDWARE.fullmatch, reversed(folder.split("/"))), folder)
