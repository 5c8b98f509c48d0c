"""The recent events of a kind's objects, for watchers that reconnect and lists at an older version.

Events are kept as JSON, the latest ones also as objects. With thousands of objects, each full run of Python's garbage
collector would stop the server for 100 ms or more; bytes cost it nothing.
"""

import bisect
from collections import deque
from typing import NamedTuple

import msgspec

from controlplane.apiserver.kinds import Key, Plain
from controlplane.apiserver.subscriptions import Mark

EVENTS = 10_000
"""The number of events of a kind that are kept for watchers that reconnect."""

BYTES = 32 * 1024 * 1024
"""The most bytes of JSON that are kept for the events of a kind."""

_LATEST = 16  # watchers need these


class Expired(Exception):
    """The requested history is no longer kept; `oldest` is the first version that is."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"history begins at {oldest}")
        self.oldest = oldest


class Event(NamedTuple):
    """A change of an object: `old` is None for a new one, `new` for a deleted one (then `last` is its last state)."""

    version: int
    key: Key
    old: Plain | None
    new: Plain | None
    last: Plain


class _Kept(NamedTuple):
    version: int
    key: Key
    values: bytes
    marks: tuple[Mark, ...]


class History:
    """The events of a kind after the version `oldest`, limited by `events` (a number) and `size` (bytes of JSON)."""

    def __init__(self, oldest: int, events: int = EVENTS, size: int = BYTES) -> None:
        self._oldest = oldest
        self._most, self._most_bytes = events, size
        self._kept: list[_Kept] = []
        self._bytes = 0
        self._latest: deque[Event] = deque(maxlen=_LATEST)

    def append(self, event: Event, marks: tuple[Mark, ...] = ()) -> None:
        """Add an event; drop the older half if there are too many."""
        self._latest.append(event)
        values = msgspec.json.encode((event.old, event.new, event.last if event.new is None else None))
        self._kept.append(_Kept(event.version, event.key, values, marks))
        self._bytes += len(values)
        if len(self._kept) > 2 * self._most or self._bytes > self._most_bytes:
            half = len(self._kept) // 2 or 1
            self._oldest = self._kept[half - 1].version
            self._bytes -= sum(len(kept.values) for kept in self._kept[:half])
            del self._kept[:half]

    def after(self, version: int, mark: Mark | None = None) -> list[Event]:
        """Return the events after a version, of the objects with `mark` if it is not None. Raises Expired."""
        if version < self._oldest:
            raise Expired(self._oldest)
        if not self._kept or self._kept[-1].version <= version:
            return []
        later = self._kept[bisect.bisect_right(self._kept, version, key=lambda kept: kept.version) :]
        if len(later) <= len(self._latest):
            latest = list(self._latest)[-len(later) :]
            return [event for event, kept in zip(latest, later, strict=True) if mark is None or mark in kept.marks]
        return [_event(kept) for kept in later if mark is None or mark in kept.marks]


def _event(kept: _Kept) -> Event:
    old, new, last = msgspec.json.decode(kept.values)
    return Event(kept.version, kept.key, old, new, new if last is None else last)
