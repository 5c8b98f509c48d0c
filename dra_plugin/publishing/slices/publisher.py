"""Synchronizes one pool: compare, write, and learn from the answers. Scheduling and connections are elsewhere.

Source: DRA node specification, 3.4 to 3.9. Error texts are those of the reference library.
"""

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import NoReturn, Protocol

from msgspec import Struct
from msgspec.structs import replace

from dra_plugin.publishing.slices.compare import is_as_desired
from dra_plugin.publishing.slices.desired import DriverResources, Slice, normalized, validate
from dra_plugin.publishing.slices.dropped import DroppedFieldsError, content, is_dropped
from dra_plugin.publishing.slices.owner import Owner
from dra_plugin.publishing.slices.slice_plan import Origin, plan
from dra_plugin.publishing.slices.view import PoolChanges, View
from resourceapi.client import ClientError, Refused, Unreachable
from resourceapi.objects import v1
from resourceapi.objects.meta import OwnerReference

ErrorHandler = Callable[[Exception, str], None]
"""Called for problems in the background, with a short message. All are retried: none is a reason to stop."""

_Write = Callable[..., Awaitable[v1.ResourceSlice]]
_MAX_ATTEMPTS = 4  # attempts at a pool whose slices others change at the same time


class Statistics(Struct, frozen=True):
    """Successful writes since the start; deleting a slice that was gone already does not count."""

    creates: int = 0
    updates: int = 0
    deletes: int = 0


class Storage(Protocol):
    """The API server. Every call raises ClientError; the returned slices are comparable (see `compare`)."""

    async def create(self, wanted: v1.ResourceSlice, *, dry_run: bool = False) -> v1.ResourceSlice:
        """Return the new slice as it was stored, or as it would be."""
        ...

    async def update(self, wanted: v1.ResourceSlice, *, dry_run: bool = False) -> v1.ResourceSlice:
        """Return the changed slice as it was stored, or as it would be."""
        ...

    async def delete(self, stored: v1.ResourceSlice) -> None:
        """Delete exactly this version of this slice."""
        ...

    async def get(self, name: str) -> v1.ResourceSlice:
        """Return a slice as it is now."""
        ...

    async def node_uid(self, name: str) -> str:
        """Return the uid of a Node."""
        ...


class SyncFailed(Exception):
    """The synchronization of a pool ended early; the text names the step, and the cause the reason.

    `retry_after` is the delay that the server asked for, in seconds. `may_have_created` is true if something might
    have been created.
    """

    def __init__(self, step: str, cause: ClientError, *, may_have_created: bool = False) -> None:
        super().__init__(f"{step}: {cause}")
        self.retry_after = (isinstance(cause, Refused) and cause.retry_after) or 0.0
        self.may_have_created = may_have_created


class _Outdated(Exception):
    """A slice or the desired state has changed meanwhile; the view was refreshed."""

    def __init__(self, failure: SyncFailed) -> None:
        super().__init__(str(failure))
        self.failure = failure


class _StoredForm(Struct, frozen=True):
    """The slice that the server stored for a desired one; `dropped` is set if it lacks more than defaults explain."""

    desired: Slice
    stored: Slice
    dropped: DroppedFieldsError | None = None


class Publisher:
    """One driver's desired slices, the stored ones, and the writes that make them equal.

    With `tries_taints` a dry run checks that the server stores taints before a slice with taints is written. If the
    server does not, `on_error` gets a DroppedFieldsError and can desire another state before anything is written: a
    device that a taint must protect is never published without it.
    """

    def __init__(
        self,
        storage: Storage,
        driver: str,
        owner: Owner | None,
        *,
        reconcile_pool: str,
        mutation_ttl: float,
        on_error: ErrorHandler,
        clock: Callable[[], float] = time.monotonic,
        tries_taints: bool = False,
    ) -> None:
        self._storage = storage
        self._tries_taints, self._has_tried_taints = tries_taints, False  # whether this server stores them
        self._owner = owner
        is_local = owner is not None and owner.is_node and not reconcile_pool
        self._origin = Origin(driver, owner, owner.name if owner and is_local else "")
        self._reconcile_pool = reconcile_pool
        self._on_error = on_error
        self._clock = clock
        self._ttl = mutation_ttl
        self._created: dict[str, float] = {}  # by pool: when a slice was last created
        self._node_uid = ""
        self._desired = DriverResources()
        self._stored_forms: dict[tuple[str, int], _StoredForm] = {}  # by pool and index
        self.view = View(mutation_ttl)
        self.statistics = Statistics()

    @property
    def node_name(self) -> str:
        """Return the node that the slices are local to; empty if there is none."""
        return self._origin.node_name

    @property
    def dropped(self) -> list[DroppedFieldsError]:
        """Return what the server does not store now, slice by slice. Thread-safe."""
        return [each.dropped for each in list(self._stored_forms.values()) if each.dropped is not None]

    def is_desired(self, pool: str) -> bool:
        """Return whether a pool is desired."""
        return pool in self._desired.pools

    def set_desired(self, resources: DriverResources) -> frozenset[str]:
        """Replace the desired state; return the pools to synchronize."""
        if self._reconcile_pool and resources.pools.keys() not in (set(), {self._reconcile_pool}):
            error = ValueError(
                f'ReconcilePoolWithName="{self._reconcile_pool}", but found {len(resources.pools)} pools;'
                " expected exactly one pool with this name"
            )
            self._on_error(error, "processing update DriverResources")
            return frozenset()
        before, self._desired = self._desired, normalized(resources)
        wanted = {(name, i): each for name, pool in self._desired.pools.items() for i, each in enumerate(pool.slices)}
        self._stored_forms = {place: x for place, x in self._stored_forms.items() if wanted.get(place) == x.desired}
        return frozenset(before.pools.keys() | self._desired.pools.keys())

    def listed(self, slices: tuple[v1.ResourceSlice, ...], version: str) -> PoolChanges:
        """Process a full list from the watch. The server might be a new one, so its limitations are detected again."""
        self._stored_forms.clear()
        self._has_tried_taints = False
        return self._apply_changes(self.view.listed(filter(self._is_own, slices), version, self._clock()))

    def changed(self, stored: v1.ResourceSlice) -> PoolChanges:
        """Process a changed slice from the watch."""
        return self._apply_changes(self.view.changed(stored)) if self._is_own(stored) else PoolChanges()

    def removed(self, stored: v1.ResourceSlice) -> PoolChanges:
        """Process a deleted slice from the watch."""
        return self._apply_changes(self.view.removed(stored, self._clock())) if self._is_own(stored) else PoolChanges()

    async def sync(self, name: str) -> None:
        """Write what a pool needs. Raises SyncFailed, and InvalidPool if any desired pool is invalid."""
        for _ in range(_MAX_ATTEMPTS):
            validate(self._desired)
            try:
                await self._sync(name)
            except _Outdated as outdated:
                failure = outdated.failure
            else:
                return
        raise failure from failure.__cause__

    def recheck_at(self, name: str) -> float | None:
        """Return when to synchronize a pool again: once a working watch must have delivered the driver's own writes."""
        moment = max(self._created.get(name, 0.0) + self._ttl, self.view.own_writes_until(name))
        return moment if moment > self._clock() else None

    async def _sync(self, name: str) -> None:
        wanted = self._desired.pools.get(name)
        pool = wanted and replace(
            wanted, slices=tuple(self._as_storable(name, *each) for each in enumerate(wanted.slices))
        )
        writes = plan(self._origin, name, pool, self.view.pool(name, self._clock()))
        for stored in writes.delete:
            await self._delete(stored)
        if pool is None or wanted is None:
            return
        for index, changed in writes.update:
            await self._dry_run(name, index, changed, self._storage.update, "update ResourceSlice")
            stored = await self._update(changed)
            self._record_result(name, index, wanted.slices[index], changed, stored, "update ResourceSlice")
        for index, new in writes.create:
            await self._dry_run(name, index, new, self._storage.create, "create ResourceSlice")
            stored = await self._create(new)
            self._created[name] = self._clock()
            self._record_result(name, index, wanted.slices[index], new, stored, "create ResourceSlice")

    async def _dry_run(self, pool: str, index: int, sent: v1.ResourceSlice, write: _Write, message: str) -> None:
        """Check that the server stores taints. Raises _Outdated after reporting one that does not."""
        if not self._tries_taints or self._has_tried_taints or not any(device.taints for device in sent.spec.devices):
            return
        try:
            stored = await write(sent, dry_run=True)
        except ClientError:
            return  # the write itself will report what is wrong; some servers refuse dry runs
        self._has_tried_taints = True
        dropped = DroppedFieldsError(pool, index, content(sent.spec), content(stored.spec))
        if dropped.loses_taints:
            self._on_error(dropped, message)
            raise _Outdated(SyncFailed(message, ClientError(str(dropped))))

    async def _delete(self, stored: v1.ResourceSlice) -> None:
        self.view.deleting(stored)
        try:
            await self._storage.delete(stored)
        except ClientError as error:
            self.view.deletion_failed(stored)
            if isinstance(error, Refused) and error.is_missing:
                self.view.deleted(stored, self._clock())
                return
            await self._raise_failure("remove slices", error, stored)
        self.view.deleted(stored, self._clock())
        self._count(deletes=1)

    async def _update(self, changed: v1.ResourceSlice) -> v1.ResourceSlice:
        try:
            stored = await self._storage.update(changed)
        except ClientError as error:
            await self._raise_failure("update resource slice", error, changed)
        self._count(updates=1)
        return stored

    async def _create(self, new: v1.ResourceSlice) -> v1.ResourceSlice:
        metadata = replace(new.metadata, owner_references=await self._owner_references())
        try:
            stored = await self._storage.create(replace(new, metadata=metadata))
        except ClientError as error:
            may_have_created = isinstance(error, Unreachable) or (isinstance(error, Refused) and error.code >= 500)
            raise SyncFailed("create resource slice", error, may_have_created=may_have_created) from error
        self._count(creates=1)
        return stored

    async def _raise_failure(self, step: str, error: ClientError, target: v1.ResourceSlice) -> NoReturn:
        """Raise SyncFailed; or, if others changed the slice, refresh the view and raise _Outdated."""
        failure = SyncFailed(step, error)
        failure.__cause__ = error
        if not isinstance(error, Refused) or not (error.is_conflict or error.is_missing):
            raise failure
        try:
            now = await self._storage.get(target.metadata.name)
        except Refused as refused:
            if not refused.is_missing:
                raise failure from error
            self._on_deleted(target)
        except ClientError:
            raise failure from error
        else:
            if now.metadata.uid != target.metadata.uid:
                self._on_deleted(target)
            self.view.changed(now)
        raise _Outdated(failure)

    def _on_deleted(self, stored: v1.ResourceSlice) -> None:
        self.view.deleted(stored, self._clock())
        self._node_uid = ""

    def _record_result(
        self,
        pool: str,
        index: int,
        desired: Slice,
        sent: v1.ResourceSlice,
        stored: v1.ResourceSlice,
        message: str,
    ) -> None:
        """Record what the server made of a slice."""
        if not self.view.record_write(stored, self._clock()):
            raise _Outdated(SyncFailed(message, ClientError(f"{stored.metadata.name} was deleted at once")))
        if is_as_desired(desired, stored.spec):
            self._stored_forms.pop((pool, index), None)
            return
        actual, dropped = content(stored.spec), None
        if is_dropped(sent, stored, datetime.now(UTC)):
            dropped = DroppedFieldsError(pool, index, desired, actual)
        self._stored_forms[pool, index] = _StoredForm(desired, actual, dropped)
        if dropped is not None:
            self._on_error(dropped, message)

    def _as_storable(self, pool: str, index: int, desired: Slice) -> Slice:
        """Return the slice, or what the server made of it at the last write: writing it again would change nothing."""
        form = self._stored_forms.get((pool, index))
        return form.stored if form is not None and form.desired == desired else desired

    async def _owner_references(self) -> tuple[OwnerReference, ...]:
        owner = self._owner
        if owner is None:
            return ()
        uid = owner.uid or self._node_uid
        if owner.is_node and not uid:
            try:
                uid = self._node_uid = await self._storage.node_uid(owner.name)
            except ClientError as error:
                raise SyncFailed(f'retrieve node "{owner.name}"', error) from error
        reference = OwnerReference(
            api_version=owner.api_version, kind=owner.kind, name=owner.name, uid=uid, controller=True
        )
        return (reference,)

    def _is_own(self, stored: v1.ResourceSlice) -> bool:
        return not self._reconcile_pool or stored.spec.pool.name == self._reconcile_pool

    def _apply_changes(self, changes: PoolChanges) -> PoolChanges:
        """Forget the Node's uid if slices vanished: they might have gone with it, and a new Node has another uid."""
        if changes.deleted_from:
            self._node_uid = ""
        return changes

    def _count(self, creates: int = 0, updates: int = 0, deletes: int = 0) -> None:
        now = self.statistics
        self.statistics = Statistics(now.creates + creates, now.updates + updates, now.deletes + deletes)
