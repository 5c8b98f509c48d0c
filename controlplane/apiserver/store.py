"""The objects, one counter for their versions, and their recent events.

Objects are JSON values in their stored version, and are never changed in place. All changes are made on one event loop,
and each method completes its change before it returns. Threads can read objects too. `commit` publishes changes to
watchers once the journal has them on disk. Answers wait for `commit` too, so that no client sees a change that a crash
could lose.
"""

import bisect
import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Protocol

from controlplane.apiserver.history import BYTES, EVENTS, Event, History
from controlplane.apiserver.kinds import Key, Plain
from controlplane.apiserver.subscriptions import Mark, Subscription, Subscriptions, marks_of


class Journal(Protocol):
    """Keeps changes over restarts."""

    def put(self, version: int, kind_id: str, key: Key, obj: Plain | None) -> None:
        """Keep a change. An object that is None was removed."""

    async def flush(self) -> None:
        """Wait until all earlier changes are durable."""


class _Table:
    """The objects of a kind in the order of their keys, and their history."""

    def __init__(self, history: History) -> None:
        self.objects: dict[Key, Plain] = {}
        self.keys: list[Key] = []
        self.history = history
        self.marked: dict[Mark, tuple[Key, ...]] = {}

    def apply(self, event: Event) -> None:
        before, after = marks_of(event.old), marks_of(event.new)
        for mark in set(before) - set(after):
            self.marked[mark] = tuple(key for key in self.marked[mark] if key != event.key)
            if not self.marked[mark]:
                del self.marked[mark]
        for mark in set(after) - set(before):
            self.marked[mark] = (*self.marked.get(mark, ()), event.key)
        if event.new is None:
            del self.objects[event.key]
            del self.keys[bisect.bisect_left(self.keys, event.key)]
        else:
            if event.key not in self.objects:
                bisect.insort(self.keys, event.key)
            self.objects[event.key] = event.new


class Store:
    """All objects by kind and key, with their recent events, as many as `history` and `history_bytes` allow.

    A `journal` keeps the objects over restarts. Watchers `subscribe`.
    """

    def __init__(self, journal: Journal | None = None, history: int = EVENTS, history_bytes: int = BYTES) -> None:
        self.version = 1
        self.published = 1
        self._oldest = 1
        self._tables: dict[str, _Table] = {}
        self._journal = journal
        self._history, self._history_bytes = history, history_bytes
        self._unpublished: deque[tuple[int, str, tuple[Mark, ...]]] = deque()
        self._subscriptions = Subscriptions()
        self.is_closed = False

    def close(self) -> None:
        """End all watches."""
        self.is_closed = True
        self._subscriptions.wake()

    def load(self, version: int, objects: Iterable[tuple[str, Key, Plain]]) -> None:
        """Load the objects of a journal. History begins here."""
        for kind_id, key, obj in objects:
            self._table(kind_id).apply(Event(0, key, None, obj, obj))
        self.version = self.published = max(self.version, version)
        self.discard_history()

    def discard_history(self) -> None:
        """Drop the history; it begins now."""
        self._oldest = self.version
        for table in self._tables.values():
            table.history = self._new_history()

    def get(self, kind_id: str, key: Key) -> Plain | None:
        """Return an object, or None."""
        return self._table(kind_id).objects.get(key)

    def count(self, kind_id: str) -> int:
        """Return the number of objects of a kind."""
        return len(self._table(kind_id).keys)

    def objects(
        self, kind_id: str, namespace: str = "", after: Key | None = None, mark: Mark | None = None
    ) -> Iterator[Plain]:
        """Return the objects of a kind by namespace and name, those behind the key `after`; without a namespace, all.

        With a mark, only the objects that have it.
        """
        table = self._table(kind_id)
        keys = table.keys if mark is None else sorted(table.marked.get(mark, ()))
        yield from _section(keys, table.objects, namespace, after)

    def objects_at(self, kind_id: str, version: int, namespace: str = "", after: Key | None = None) -> Iterator[Plain]:
        """Like `objects`, as of a version. Raises Expired."""
        table = self._table(kind_id)
        events = self.events_after(kind_id, version)
        if not events:
            yield from _section(table.keys, table.objects, namespace, after)
            return
        objects = dict(table.objects)
        for event in reversed(events):
            if event.old is None:
                objects.pop(event.key, None)
            else:
                objects[event.key] = event.old
        yield from _section(sorted(objects), objects, namespace, after)

    def put(self, kind_id: str, key: Key, obj: Plain) -> Plain:
        """Store a new or changed object. Return it with its new resourceVersion."""
        self.version += 1
        new = _with_version(obj, self.version)
        self._record(kind_id, Event(self.version, key, self.get(kind_id, key), new, new))
        return new

    def remove(self, kind_id: str, key: Key) -> Plain:
        """Remove an object. Return its last state, with the version of its removal."""
        old = self._table(kind_id).objects[key]
        self.version += 1
        gone = _with_version(old, self.version)
        self._record(kind_id, Event(self.version, key, old, None, gone))
        return gone

    def events_after(self, kind_id: str, version: int, mark: Mark | None = None) -> list[Event]:
        """Return the events of a kind's objects, or of those with a mark, after a version. Raises Expired."""
        return self._table(kind_id).history.after(version, mark)

    async def commit(self) -> None:
        """Wait until all changes so far are durable, and publish them to watchers."""
        version = self.version
        if version <= self.published:
            return
        if self._journal is not None:
            await self._journal.flush()
        if version > self.published:
            self.published = version
            while self._unpublished and self._unpublished[0][0] <= version:
                self._subscriptions.publish(*self._unpublished.popleft())

    def subscribe(self, kind_id: str = "", mark: Mark | None = None) -> Subscription:
        """Subscribe to changes of a kind (empty: of all), or of its objects with a mark. End with `unsubscribe`."""
        return self._subscriptions.add(kind_id, mark)

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription."""
        self._subscriptions.remove(subscription)

    def drop(self, kind_id: str) -> None:
        """Remove all objects of a kind that is no longer served."""
        for key in list(self._table(kind_id).keys):
            self.remove(kind_id, key)

    def _record(self, kind_id: str, event: Event) -> None:
        table = self._table(kind_id)
        table.apply(event)
        marks = marks_of(event.old, event.new)
        table.history.append(event, marks)
        self._unpublished.append((event.version, kind_id, marks))
        if self._journal is not None:
            self._journal.put(event.version, kind_id, event.key, event.new)

    def _table(self, kind_id: str) -> _Table:
        table = self._tables.get(kind_id)
        return table if table is not None else self._tables.setdefault(kind_id, _Table(self._new_history()))

    def _new_history(self) -> History:
        return History(self._oldest, self._history, self._history_bytes)


def _section(keys: list[Key], objects: dict[Key, Plain], namespace: str, after: Key | None) -> Iterator[Plain]:
    keys = keys.copy()  # before the lookups: in a thread, other writes can change the list meanwhile
    start = bisect.bisect_right(keys, after) if after is not None else bisect.bisect_left(keys, (namespace, ""))
    for key in itertools.islice(keys, start, None):
        if namespace and key[0] != namespace:
            break
        found = objects.get(key)
        if found is not None:
            yield found


def _with_version(obj: Plain, version: int) -> Plain:
    metadata = {**obj["metadata"]}
    if "resourceVersion" in metadata:
        metadata["resourceVersion"] = str(version)
    else:  # at the position that it has in the API's type
        ordered = {}
        for name in ("name", "generateName", "namespace", "selfLink", "uid"):
            if name in metadata:
                ordered[name] = metadata.pop(name)
        metadata = {**ordered, "resourceVersion": str(version), **metadata}
    return {**obj, "metadata": metadata}
