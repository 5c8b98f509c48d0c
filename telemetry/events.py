"""The latest events, the oldest first, in a ring. A reader that is too slow misses some, and gets their number.

Rules:
1. The ring has `MAX_EVENTS` events of bounded length. For a reader, only the number of what it has read is kept, so one
   that never reads costs nothing.
2. A kubelet repeats a refused call every few seconds. A refusal that is already in the ring moves to its end, with a
   count, and does not appear twice.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from msgspec import Struct

EventKind: TypeAlias = Literal[
    "registered",
    "kubelet-restarted",
    "plugged",
    "unplugged",
    "unhealthy",
    "healthy",
    "allocated",
    "holder-known",
    "released",
    "evicted",
    "refused",
    "withheld",
    "readmitted",
    "set-aside",
    "reloaded",
    "reload-refused",
]
WARNINGS: Final[frozenset[EventKind]] = frozenset(
    {"unplugged", "unhealthy", "evicted", "refused", "set-aside", "reload-refused"}
)
"""The kinds that an administrator might have to act on."""
MAX_EVENTS: Final = 500
MAX_TEXT: Final = 500  # characters of each text


class Event(Struct, frozen=True, gc=False):
    """Something that happened. Names are a contract with scripts.

    `time` is when it happened (last), in seconds since the epoch. `device` is the id of the device or unit; several are
    separated by commas, and if only a few are named the message has their number. `holder` is as in leases
    (`checkpoint/lease.py`), empty while unknown. `count`: how often it has happened.
    """

    number: int
    time: float
    kind: EventKind
    message: str
    resource: str = ""
    device: str = ""
    holder: str = ""
    count: int = 1

    @property
    def is_warning(self) -> bool:
        """Return whether an administrator might have to act on it."""
        return self.kind in WARNINGS


class EventLog:
    """The ring, and the tasks that wait for further events. Belongs to the loop."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """Start empty; `clock` returns seconds since the epoch."""
        self.counts: Counter[EventKind] = Counter()  # since the start
        self.latest = 0
        """The number of the latest event; 0 before the first."""
        self.began = clock()
        """When the log was created: the numbers are valid only together with this time."""
        self._clock = clock
        self._events: dict[object, Event] = {}  # in the order of their numbers
        self._listeners: list[Callable[[Event], None]] = []
        self._lost = 0  # the number of the latest event that was dropped from the ring
        self.waiting = 0  # number of tasks that wait for the next event
        self._next: asyncio.Event | None = None  # set with the next event, if any task waits

    def record(self, kind: EventKind, message: str, *, resource: str = "", device: str = "", holder: str = "") -> Event:
        """Add an event to the ring, which drops its oldest one if it is full; return the event."""
        self.latest += 1
        self.counts[kind] += 1
        if len(message) + len(resource) + len(device) + len(holder) > MAX_TEXT:
            message, resource, device, holder = (text[:MAX_TEXT] for text in (message, resource, device, holder))
        key: object = self.latest
        count = 1
        if kind == "refused":
            key = (message, resource, device, holder)
            if (before := self._events.pop(key, None)) is not None:
                count += before.count
        event = Event(self.latest, self._clock(), kind, message, resource, device, holder, count)
        self._events[key] = event
        if len(self._events) > MAX_EVENTS:
            self._lost = self._events.pop(next(iter(self._events))).number
        if self._next is not None:
            self.release()
        for listener in self._listeners:
            listener(event)
        return event

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call `listener` with each event; it must be fast. Return a function that ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def since(self, number: int) -> tuple[Event, ...]:
        """Return the events in the ring after a number, the oldest first; after 0 all of them."""
        if number >= self.latest:
            return ()
        return tuple(event for event in self._events.values() if event.number > number)

    def has_lost_events_after(self, number: int) -> bool:
        """Return whether any events after a number were dropped from the ring."""
        return number < self._lost

    async def wait(self, number: int) -> None:
        """Wait for an event after a number, or for `release`."""
        if number >= self.latest:
            if self._next is None:
                self._next = asyncio.Event()
            self.waiting += 1
            try:
                await self._next.wait()
            finally:
                self.waiting -= 1

    def release(self) -> None:
        """Let all waiting tasks continue."""
        if self._next is not None:
            self._next.set()
            self._next = None
