"""The slices on the API server, as far as they are known: what the watch reported, and what this driver wrote since.

The watch is late: until it has caught up, or `ttl` seconds have passed, the answers to the driver's own writes take
precedence. Deletions by others are distinguished, because the slices must be restored soon. Source: DRA node
specification, 3.6. Pure: every method that depends on time gets it as an argument, in seconds.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from resourceapi.objects import v1


class Noticed(Struct, frozen=True):
    """Names of pools: those with any change, and those from which another program deleted slices."""

    touched: frozenset[str] = frozenset()
    wiped: frozenset[str] = frozenset()


class _Own(Struct, frozen=True):
    """An object as stored by one of the driver's own writes, and until when it takes precedence."""

    stored: v1.ResourceSlice
    until: float


class View:
    """The stored slices of one driver."""

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self._seen: dict[str, v1.ResourceSlice] = {}
        self._own: dict[str, _Own] = {}
        self._gone: dict[str, float] = {}  # deleted, and until when late events about it are ignored
        self._being_deleted: set[str] = set()  # the driver is about to delete these

    def listed(self, slices: Iterable[v1.ResourceSlice], version: str, now: float) -> Noticed:
        """Process a full list from the watch, at a resource version of the server."""
        before = dict(self._seen)
        at = _number(version)
        # an object deleted long ago that is listed is not a late event: the server was restored from a backup
        self._gone = {key: until for key, until in self._gone.items() if until > now}
        for name, own in list(self._own.items()):
            if own.until <= now or (at is not None and (_version(own.stored) or 0) <= at):
                before.setdefault(name, own.stored)
                del self._own[name]
        self._seen = {each.metadata.name: each for each in slices if _key(each) not in self._gone}
        missing = [each for name, each in before.items() if name not in self._seen]
        wiped = {each.spec.pool.name for each in missing if self._bury(each, now)}
        touched = {each.spec.pool.name for each in (*before.values(), *self._seen.values())}
        return Noticed(frozenset(touched), frozenset(wiped))

    def changed(self, stored: v1.ResourceSlice) -> Noticed:
        """Process a created or changed slice from the watch."""
        name, before = stored.metadata.name, self._seen.get(stored.metadata.name)
        if _key(stored) in self._gone or (before is not None and _is_newer(before, stored)):
            return Noticed()
        self._seen[name] = stored
        own = self._own.get(name)
        if own is not None and not _is_newer(own.stored, stored):
            del self._own[name]
        pools = {stored.spec.pool.name} | ({before.spec.pool.name} if before else set())
        return Noticed(frozenset(pools))

    def removed(self, stored: v1.ResourceSlice, now: float) -> Noticed:
        """Process a deleted slice from the watch."""
        pool = frozenset({stored.spec.pool.name})
        return Noticed(pool, pool if self._bury(stored, now) else frozenset())

    def wrote(self, stored: v1.ResourceSlice, now: float) -> bool:
        """Record the answer to a create or update; return whether the slice still exists."""
        if _key(stored) in self._gone:  # the event of its deletion came before the answer
            return False
        seen = self._seen.get(stored.metadata.name)
        if seen is None or _is_newer(stored, seen):
            self._own[stored.metadata.name] = _Own(stored, now + self._ttl)
        return True

    def deleting(self, stored: v1.ResourceSlice) -> None:
        """Record that the driver is about to delete a slice: the watch's event can come before the server's answer."""
        self._being_deleted.add(_key(stored))

    def kept(self, stored: v1.ResourceSlice) -> None:
        """Record that a slice could not be deleted."""
        self._being_deleted.discard(_key(stored))

    def deleted(self, stored: v1.ResourceSlice, now: float) -> None:
        """Record that the driver deleted a slice, or that the server has no such slice."""
        self._bury(stored, now)
        self._being_deleted.discard(_key(stored))

    def pool(self, name: str, now: float) -> list[v1.ResourceSlice]:
        """Return the slices of a pool."""
        return [each for each in self._all(now) if each.spec.pool.name == name]

    def counts_until(self, name: str) -> float:
        """Return until when the driver's own writes to a pool take precedence; 0 if the watch has caught up."""
        return max((each.until for each in self._own.values() if each.stored.spec.pool.name == name), default=0.0)

    def _all(self, now: float) -> Iterator[v1.ResourceSlice]:
        own = {name: each.stored for name, each in self._own.items() if each.until > now}
        yield from (self._seen | own).values()

    def _bury(self, stored: v1.ResourceSlice, now: float) -> bool:
        """Remove a slice; return whether its deletion was unexpected."""
        name, key = stored.metadata.name, _key(stored)
        if name in self._seen and _key(self._seen[name]) == key:
            del self._seen[name]
        if name in self._own and _key(self._own[name].stored) == key:
            del self._own[name]
        is_news = key not in self._gone and key not in self._being_deleted
        self._gone.pop(key, None)
        self._gone[key] = now + self._ttl
        while (first := next(iter(self._gone))) != key and self._gone[first] <= now:  # sorted by time
            del self._gone[first]
        return is_news


def _key(stored: v1.ResourceSlice) -> str:
    return stored.metadata.uid or stored.metadata.name


def _is_newer(one: v1.ResourceSlice, other: v1.ResourceSlice) -> bool:
    """Return whether a version of an object is newer than another; False if that cannot be determined."""
    first, second = _version(one), _version(other)
    return first is not None and second is not None and first > second


def _version(stored: v1.ResourceSlice) -> int | None:
    return _number(stored.metadata.resource_version)


def _number(version: str) -> int | None:
    """Return a version as a number (an empty one is 0); None if it is not a number of 64 bits."""
    return int(version or 0) if not version or (version.isdecimal() and len(version) <= 20) else None
