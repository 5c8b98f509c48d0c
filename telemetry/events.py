"""The latest events, the oldest first, in a ring. A reader that is too slow misses some, and gets their number.

Rules:
1. The ring has `MOST` events of bounded length. For a reader, only the number of what it has read is kept, so one that
   never reads costs nothing.
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
"""Of what somebody may have to do something about."""
MOST: Final = 500
LONGEST: Final = 500  # characters of each text


class Event(Struct, frozen=True, gc=False):
    """Something that happened. Names are a contract with scripts.

    `time` is when, or when last, in seconds since the epoch. `device` is the device's id, or the unit's; several are
    separated by commas, and after a few of them the message says how many there are. `holder` is as leases have it
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
        """Tell whether somebody may have to do something about it."""
        return self.kind in WARNINGS


class EventLog:
    """The ring, and who waits for what comes next. Belongs to the loop."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """Begin without any; `clock` returns seconds since the epoch."""
        self.counts: Counter[EventKind] = Counter()  # of all there ever were
        self.latest = 0
        """The number of the latest event; 0 before the first."""
        self.began = clock()
        """When the log did: another one's numbers mean other events."""
        self._clock = clock
        self._events: dict[object, Event] = {}  # in the order of their numbers
        self._listeners: list[Callable[[Event], None]] = []
        self._lost = 0  # the number of the latest event that the ring has no more
        self.waiting = 0  # how many wait for the next event
        self._next: asyncio.Event | None = None  # set with the next event, if anybody waits

    def record(self, kind: EventKind, message: str, *, resource: str = "", device: str = "", holder: str = "") -> Event:
        """Add an event to the ring, from which the oldest goes where it is full; return it."""
        self.latest += 1
        self.counts[kind] += 1
        if len(message) + len(resource) + len(device) + len(holder) > LONGEST:
            message, resource, device, holder = (text[:LONGEST] for text in (message, resource, device, holder))
        key: object = self.latest
        count = 1
        if kind == "refused":
            key = (message, resource, device, holder)
            if (before := self._events.pop(key, None)) is not None:
                count += before.count
        event = Event(self.latest, self._clock(), kind, message, resource, device, holder, count)
        self._events[key] = event
        if len(self._events) > MOST:
            self._lost = self._events.pop(next(iter(self._events))).number
        if self._next is not None:
            self.release()
        for listener in self._listeners:
            listener(event)
        return event

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Have `listener` called with each event, which it must not take long over; return what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def since(self, number: int) -> tuple[Event, ...]:
        """Return what the ring has of the events after one, the oldest first; after 0 all of it."""
        if number >= self.latest:
            return ()
        return tuple(event for event in self._events.values() if event.number > number)

    def lost_after(self, number: int) -> bool:
        """Tell whether events after one are in the ring no more."""
        return number < self._lost

    async def wait(self, number: int) -> None:
        """Return once there is an event after one, or after `release`."""
        if number >= self.latest:
            if self._next is None:
                self._next = asyncio.Event()
            self.waiting += 1
            try:
                await self._next.wait()
            finally:
                self.waiting -= 1

    def release(self) -> None:
        """Have all that wait go on."""
        if self._next is not None:
            self._next.set()
            self._next = None
