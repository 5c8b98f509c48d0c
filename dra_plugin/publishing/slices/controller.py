"""Publishes ResourceSlices: keeps the driver's desired slices on the API server, whatever others do to them.

One task synchronizes one pool after another (`publisher`) when it is due (`queue`), on the basis of the slices that a
second task watches on the server (`view`). Source: DRA node specification, section 3.
"""

import asyncio
import logging
import time

from dra_plugin.publishing.slices.compare import comparable
from dra_plugin.publishing.slices.conflicts import ConflictDetector
from dra_plugin.publishing.slices.desired import DriverResources, InvalidPool
from dra_plugin.publishing.slices.owner import Owner
from dra_plugin.publishing.slices.publisher import ErrorHandler, Publisher, Statistics, SyncFailed
from dra_plugin.publishing.slices.queue import Limits, Queue
from dra_plugin.publishing.slices.storage import ApiStorage
from dra_plugin.publishing.slices.view import PoolChanges
from resourceapi.client import AsyncClient, Event, Informer
from resourceapi.objects import v1

_SYNCING, _WATCHING = "processing ResourceSlice objects", "watching ResourceSlices"
_WATCH_PROBLEM_TTL = 120.0  # seconds for which a failure of the watch counts; a watch that stays down fails more often
log = logging.getLogger("nodeplug.dra")


class Controller:
    """Keeps one driver's slices as desired; all methods are for the loop's thread.

    `owner` is normally the Node: then only slices of that node are read and written. With `reconcile_pool` exactly the
    slices of that pool are, and they have no node name. `sync_delay` is the time in seconds between a watch event and
    the synchronization of its pool; slices that others deleted are restored at once. `mutation_ttl` is how long the
    driver's own writes take precedence over older data of the watch, in seconds. `tries_taints`: see `Publisher`.
    Raises ValueError for an empty driver name.

    Nothing is written or deleted before a desired state is set, which can be empty.
    """

    def __init__(
        self,
        client: AsyncClient,
        driver: str,
        owner: Owner | None,
        *,
        resources: DriverResources | None = None,
        reconcile_pool: str = "",
        sync_delay: float = 30.0,
        mutation_ttl: float = 60.0,
        on_error: ErrorHandler | None = None,
        limits: Limits | None = None,
        tries_taints: bool = False,
    ) -> None:
        if not driver:
            raise ValueError("DRA driver name is empty")
        storage = ApiStorage(client)
        self._on_error = on_error or _log
        self._publisher = Publisher(
            storage,
            driver,
            owner,
            reconcile_pool=reconcile_pool,
            mutation_ttl=mutation_ttl,
            on_error=self._on_error,
            tries_taints=tries_taints,
        )
        selector = f"spec.driver={driver},spec.nodeName={self._publisher.node_name}"
        self._informer = Informer(storage.slices, self._on_event, self._watch_failed, field_selector=selector)
        self._queue = Queue(limits or Limits())
        self._sync_delay = sync_delay
        self._is_desired = asyncio.Event()
        self._listed = asyncio.Event()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._problems: dict[str, str] = {}  # by pool
        self._conflicts = ConflictDetector()
        self._watch_problem, self._watch_failed_at = "", 0.0
        if resources is not None:
            self.update(resources)

    async def run(self) -> None:
        """Publish until cancelled, whether or not a server is reachable. Published slices stay."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informer.run())
            group.create_task(self._work())

    def update(self, resources: DriverResources) -> None:
        """Replace the desired state; it is stored in the background."""
        now = time.monotonic()
        self._conflicts.desired_version += 1
        for name in self._publisher.set_desired(resources):
            self._queue.add(name, now)
            self._idle.clear()
        self._is_desired.set()
        self._wake.set()

    async def wait_synced(self) -> None:
        """Wait until every pool desired so far was synchronized: it is stored, or `on_error` was called."""
        await self._idle.wait()

    @property
    def is_stored(self) -> bool:
        """Return whether everything desired so far is stored, as far as the server supports it."""
        return self._idle.is_set() and not self._problems

    @property
    def statistics(self) -> Statistics:
        """Return how much was written."""
        return self._publisher.statistics

    @property
    def problem(self) -> str:
        """Return what keeps the slices from being as desired now, in words; empty if nothing does.

        During a call of `on_error` this does not contain the new problem yet.
        """
        # a recovery of the watch is not reported
        is_watch_lost = time.monotonic() - self._watch_failed_at < _WATCH_PROBLEM_TTL
        problems = (self._watch_problem if is_watch_lost else "", *self._problems.values())
        return "; ".join((*filter(None, problems), *map(str, self._publisher.dropped)))

    async def _work(self) -> None:
        await self._is_desired.wait()  # slices of an earlier process stay until the desired state is known
        while True:
            await self._listed.wait()
            name = self._queue.pop(time.monotonic())
            if name is None:
                self._idle.set()
                await self._wait_until_due()
            else:
                self._idle.clear()
                await self._sync(name)

    async def _wait_until_due(self) -> None:
        """Wait until a pool is due."""
        self._wake.clear()
        due = self._queue.next_due()
        try:
            async with asyncio.timeout(None if due is None else max(0.0, due - time.monotonic())):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _sync(self, name: str) -> None:
        before, version = self._publisher.statistics, self._conflicts.desired_version
        try:
            await self._publisher.sync(name)
        except SyncFailed as error:
            self._failed(name, error, error.retry_after)
            if error.may_have_created:
                self._listed.clear()
                self._informer.relist()
        except InvalidPool as error:  # trying again is useless until another pool is desired
            self._queue.succeeded(name)
            self._report(name, error, "pool validation failed")
        except Exception as error:  # a nonsensical answer must not stop the publishing of other pools
            self._failed(name, error, 0.0)
        else:
            self._problems.pop(name, None)
            self._queue.succeeded(name)
            self._conflicts.note_synced(name, version, before, self._publisher.statistics)
        due = self._publisher.recheck_at(name)
        if due is not None:
            self._queue.add(name, due)

    def _failed(self, name: str, error: Exception, retry_after: float) -> None:
        self._queue.failed(name, time.monotonic(), retry_after)
        self._report(name, error, _SYNCING)

    def _report(self, name: str, error: Exception, what: str) -> None:
        self._on_error(error, what)
        self._problems[name] = f"{what}: {error}"

    def _on_event(self, event: Event[v1.ResourceSlice]) -> None:
        self._watch_problem = ""
        found = tuple(map(comparable, event.items))
        match event.type:
            case "LISTED":
                self._conflicts.desired_version += 1
                changes = self._publisher.listed(found, event.version)
                self._listed.set()
            case "DELETED":
                changes = self._publisher.removed(found[0])
            case _:
                changes = self._publisher.changed(found[0])
        self._plan(changes)

    def _plan(self, changes: PoolChanges) -> None:
        """Queue the pools of an event.

        The driver's own writes come back as events, so only deletions by others are urgent.
        """
        now = time.monotonic()
        for name in changes.changed_pools:
            self._queue.add(name, now + self._sync_delay)
        for name in changes.deleted_from:
            if self._publisher.is_desired(name):
                self._queue.slices_deleted(name, now)
        self._wake.set()

    def _watch_failed(self, error: Exception) -> None:
        self._on_error(error, _WATCHING)
        self._watch_problem, self._watch_failed_at = f"{_WATCHING}: {error}", time.monotonic()


def _log(error: Exception, message: str) -> None:
    log.warning("%s: %s%s", message, error, "" if isinstance(error, InvalidPool) else "; nodeplug tries again")
