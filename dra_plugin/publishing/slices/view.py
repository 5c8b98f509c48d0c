"""The slices on the API server, as far as they are known: what the watch reported, and what this driver wrote since.

The watch is late: until it has caught up, or `ttl` seconds have passed, the answers to the driver's own writes take
precedence. Deletions by others are distinguished, because the slices must be restored soon. Source: DRA node
specification, 3.6. Pure: every method that depends on time gets it as an argument, in seconds.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from resourceapi.objects import v1


class PoolChanges(Struct, frozen=True):
    """Names of pools: those with any change, and those from which another program deleted slices."""

    changed_pools: frozenset[str] = frozenset()
    deleted_from: frozenset[str] = frozenset()


class _OwnWrite(Struct, frozen=True):
    """An object as stored by one of the driver's own writes, and until when it takes precedence."""

    stored: v1.ResourceSlice
    until: float


class View:
    """The stored slices of one driver."""

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self._watched: dict[str, v1.ResourceSlice] = {}
        self._own_writes: dict[str, _OwnWrite] = {}
        self._deleted: dict[str, float] = {}  # deleted, and until when late events about it are ignored
        self._being_deleted: set[str] = set()  # the driver is about to delete these

    def listed(self, slices: Iterable[v1.ResourceSlice], version: str, now: float) -> PoolChanges:
        """Process a full list from the watch, at a resource version of the server."""
        before = dict(self._watched)
        at = _number(version)
        # an object deleted long ago that is listed is not a late event: the server was restored from a backup
        self._deleted = {key: until for key, until in self._deleted.items() if until > now}
        for name, own in list(self._own_writes.items()):
            if own.until <= now or (at is not None and (_version(own.stored) or 0) <= at):
                before.setdefault(name, own.stored)
                del self._own_writes[name]
        self._watched = {each.metadata.name: each for each in slices if _key(each) not in self._deleted}
        missing = [each for name, each in before.items() if name not in self._watched]
        deleted_from = {each.spec.pool.name for each in missing if self._mark_deleted(each, now)}
        changed_pools = {each.spec.pool.name for each in (*before.values(), *self._watched.values())}
        return PoolChanges(frozenset(changed_pools), frozenset(deleted_from))

    def changed(self, stored: v1.ResourceSlice) -> PoolChanges:
        """Process a created or changed slice from the watch."""
        name, before = stored.metadata.name, self._watched.get(stored.metadata.name)
        if _key(stored) in self._deleted or (before is not None and _is_newer(before, stored)):
            return PoolChanges()
        self._watched[name] = stored
        own = self._own_writes.get(name)
        if own is not None and not _is_newer(own.stored, stored):
            del self._own_writes[name]
        pools = {stored.spec.pool.name} | ({before.spec.pool.name} if before else set())
        return PoolChanges(frozenset(pools))

    def removed(self, stored: v1.ResourceSlice, now: float) -> PoolChanges:
        """Process a deleted slice from the watch."""
        pool = frozenset({stored.spec.pool.name})
        return PoolChanges(pool, pool if self._mark_deleted(stored, now) else frozenset())

    def record_write(self, stored: v1.ResourceSlice, now: float) -> bool:
        """Record the answer to a create or update; return whether the slice still exists."""
        if _key(stored) in self._deleted:  # the event of its deletion came before the answer
            return False
        watched = self._watched.get(stored.metadata.name)
        if watched is None or _is_newer(stored, watched):
            self._own_writes[stored.metadata.name] = _OwnWrite(stored, now + self._ttl)
        return True

    def deleting(self, stored: v1.ResourceSlice) -> None:
        """Record that the driver is about to delete a slice: the watch's event can come before the server's answer."""
        self._being_deleted.add(_key(stored))

    def deletion_failed(self, stored: v1.ResourceSlice) -> None:
        """Record that a slice could not be deleted."""
        self._being_deleted.discard(_key(stored))

    def deleted(self, stored: v1.ResourceSlice, now: float) -> None:
        """Record that the driver deleted a slice, or that the server has no such slice."""
        self._mark_deleted(stored, now)
        self._being_deleted.discard(_key(stored))

    def pool(self, name: str, now: float) -> list[v1.ResourceSlice]:
        """Return the slices of a pool."""
        return [each for each in self._all(now) if each.spec.pool.name == name]

    def own_writes_until(self, name: str) -> float:
        """Return until when the driver's own writes to a pool take precedence; 0 if the watch has caught up."""
        return max(
            (each.until for each in self._own_writes.values() if each.stored.spec.pool.name == name), default=0.0
        )

    def _all(self, now: float) -> Iterator[v1.ResourceSlice]:
        own = {name: each.stored for name, each in self._own_writes.items() if each.until > now}
        yield from (self._watched | own).values()

    def _mark_deleted(self, stored: v1.ResourceSlice, now: float) -> bool:
        """Remove a slice; return whether its deletion was unexpected."""
        name, key = stored.metadata.name, _key(stored)
        if name in self._watched and _key(self._watched[name]) == key:
            del self._watched[name]
        if name in self._own_writes and _key(self._own_writes[name].stored) == key:
            del self._own_writes[name]
        is_unexpected = key not in self._deleted and key not in self._being_deleted
        self._deleted.pop(key, None)
        self._deleted[key] = now + self._ttl
        while (first := next(iter(self._deleted))) != key and self._deleted[first] <= now:  # sorted by time
            del self._deleted[first]
        return is_unexpected


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
