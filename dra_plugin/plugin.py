"""The DRA side as a whole: all resources of a configuration that are offered through DRA, fed by assignments.

    assignment -> offers -> ResourceSlices, health        kubelet -> claims -> leases, CDI, metadata -> kubelet

It also runs without any resource, as long as claims have devices that were offered before: their pods must end.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path

from msgspec import Struct, structs

from checkpoint import Lease, Ledger
from checkpoint.holdings import ClaimName
from dra_plugin.claim_restorer import ClaimRestorer
from dra_plugin.driver import API, Driver
from dra_plugin.lease_devices import devices_from_leases
from dra_plugin.preparing.claim_locks import ClaimLocks
from dra_plugin.preparing.claim_plan import name_of
from dra_plugin.preparing.device_status import StatusWriter
from dra_plugin.preparing.prepare import Paths, Preparer
from dra_plugin.preparing.spec_watch import SpecWatch
from dra_plugin.publishing.offers import Offered, Offers
from dra_plugin.publishing.pool import driver_resources
from dra_plugin.publishing.slices import Controller, DroppedFieldsError, InvalidPool, Owner
from dra_plugin.serving.claims import ApiClaims, NoClaims
from dra_plugin.serving.health import DeviceHealth, HealthPublisher
from dra_plugin.serving.kubelet_plugin import Folders, KubeletPlugin
from folderwatch import FolderWatcher, check_mounts
from grpcunix import Transport
from hostdevices import Device, Host, Inventory
from hostdevices.presence import Presence
from resourceapi.client import AsyncClient
from resources.resource import Resource
from telemetry import Telemetry

_REGISTRATION_TIMEOUT = 10.0  # seconds; after that the devices are published even if the kubelet is down
_REPAIR_RETRY = 30.0  # seconds
_METADATA = "dra-device-metadata"  # a folder in the driver's data folder
log = logging.getLogger("nodeplug.dra")


class DriverOptions(Struct, frozen=True):
    """The driver's identity, and the host's paths that the kubelet and the container runtime use."""

    driver: str
    node: str
    folders: Folders
    cdi: Path
    pod_uid: str = ""  # uid of the driver's own pod, if it runs in one; a rolling update starts the next pod beside it
    allowed_mounts: tuple[str, ...] = ()
    transport: Transport = "builtin"
    oci_runtime: str = ""  # the setting `ociRuntime`
    recheck: float = 30.0  # seconds between checks that the folders are still the node's


class DraStatus(Struct, frozen=True):
    """State of the DRA side, for people and metrics."""

    devices: int
    healthy: int
    claims: int
    registered: bool
    slice_writes: int
    last_error: str
    registrations: int = 0
    withheld: int = 0
    published: bool = True  # stored once, or nothing to store: no API server, or another instance owns the ledger


class DraPlugin:
    """Offers a configuration's DRA resources while `run` runs. Belongs to the loop."""

    def __init__(
        self,
        resources: Sequence[Resource],
        host: Host,
        presence: Presence,
        ledger: Ledger,
        client: AsyncClient | None,
        options: DriverOptions,
        watcher: FolderWatcher,
        telemetry: Telemetry | None = None,
    ) -> None:
        """Prepare. `client` talks to the API server; without one nothing is published, and no claim can be prepared."""
        self._telemetry = telemetry or Telemetry()
        self._client = client
        self._options = options
        self._ledger = ledger
        self._assigned: Mapping[str, tuple[Device, ...]] = {}
        self._offers = Offers(
            resources,
            self._blocking_lease,
            lambda names, of: devices_from_leases(names, ledger.leases(), of),
            presence.has_device,
        )
        self._health = HealthPublisher()
        claim_locks = ClaimLocks()
        self._claims = ApiClaims(client, options.driver, options.node) if client else None
        self._statuses = StatusWriter(options.driver, self._claims.on_server) if self._claims else None
        self._preparer = Preparer(
            options.driver,
            options.node,
            host,
            presence,
            ledger,
            Paths(cdi=options.cdi, metadata=options.folders.data / _METADATA),
            self._offers.find,
            self._offers.attributes,
            claim_locks,
            statuses=self._statuses,
            allowed_mounts=options.allowed_mounts,
            runtime=options.oci_runtime,
        )
        self.restorer = ClaimRestorer(self._claims, self._preparer)
        self._driver: asyncio.Future[Driver] = asyncio.get_running_loop().create_future()
        self._kubelet = KubeletPlugin(
            options.driver,
            self._driver,
            self._claims or NoClaims(),
            self._health,
            options.folders,
            watcher,
            claim_locks,
            options.pod_uid,
            options.transport,
            self._telemetry,
        )
        owner = Owner.node(options.node)
        self._slices: Controller | None = None
        if client:
            on_error = self._slices_failed
            self._slices = Controller(client, options.driver, owner, on_error=on_error, tries_taints=True)
        self._is_published = self._slices is None
        # true once this instance owns the ledger: until then an older instance publishes
        self._owns_ledger = False
        self._server_drops_taints = False  # the API server does not store taints
        self._updated = asyncio.Event()
        self._noticed_at = 0.0  # when the host reported the change that is not stored yet, by the loop's clock
        self._host_changed = asyncio.Event()
        self._repair_due = asyncio.Event()
        self._spec_watch = SpecWatch(self._preparer, options.cdi, watcher, self._repair_due.set)
        ledger.observe(self._leases_changed)

    async def run(self) -> None:
        """Serve and publish once this instance owns the ledger and `update` was called.

        With a pod uid the sockets open at once, while another instance still owns the ledger, and calls wait: so no
        call fails during a rolling update. Without a pod uid both instances would use the same socket names.
        """
        try:
            # the inner group ends first: at a stop, calls that are under way finish before what they depend on ends
            async with asyncio.TaskGroup() as group, asyncio.TaskGroup() as calls:
                if self._options.pod_uid:
                    calls.create_task(self._kubelet.run(), name="DRA sockets")
                await self._ledger.owned()
                self._owns_ledger = True
                self._repair_due.clear()
                is_repaired = await self._preparer.repair()
                await self._updated.wait()
                self._driver.set_result(self._preparer)
                if not self._options.pod_uid:
                    calls.create_task(self._kubelet.run(), name="DRA sockets")
                group.create_task(self._preparer.run(), name="prepared claims")
                group.create_task(self._repair(is_repaired), name="repair of claims")
                group.create_task(self._spec_watch.run(), name="folder of CDI specs")
                mounts = self._options.folders.registry, self._options.cdi
                group.create_task(check_mounts(lambda: mounts, self._options.recheck), name="mounted folders")
                if self._statuses is not None:
                    group.create_task(self._statuses.run(), name="status of claims")
                if self._slices is not None:
                    group.create_task(self._publish(self._slices), name="ResourceSlices")
                    group.create_task(self._measure_latency(self._slices), name="time until slices are stored")
        finally:
            self._driver.cancel()
            await self._preparer.close()
            if self._client is not None:
                self._client.close()

    def configure(self, resources: Sequence[Resource]) -> None:
        """Offer these resources from the next `update` on. Devices that claims hold stay with the claims."""
        self._offers.configure(resources)

    def update(self, assigned: Mapping[str, tuple[Device, ...]], noticed_at: float | None = None) -> None:
        """Store which devices each resource has now; slices and health that changed are published.

        `noticed_at` is when the host reported the change, by the loop's clock.
        """
        self._assigned = assigned
        self._preparer.update()
        if self._refresh() and noticed_at is not None and not self._host_changed.is_set():
            self._noticed_at = noticed_at
            self._host_changed.set()
        self._updated.set()

    def with_original_devices(self, inventory: Inventory) -> Inventory:
        """Return a scan's inventory with the devices that claims have changed as they were before. Thread-safe."""
        devices = self._preparer.hardware.with_original_devices(inventory.devices)
        return inventory if devices is inventory.devices else structs.replace(inventory, devices=devices)

    async def wanted(self, claims: Sequence[ClaimName]) -> Mapping[str, bool] | None:
        """Return which claims the API server wants prepared; None without an API server (`witnesses`)."""
        return await self._claims.wanted(claims) if self._claims is not None else None

    def status(self) -> DraStatus:
        """Return the state of the DRA side."""
        registration = self._kubelet.registration_status
        written = self._slices.statistics if self._slices else None
        problem = self._slices.problem if self._slices else ""
        self._is_published |= self._owns_ledger and self._slices is not None and self._slices.is_stored
        offered = list(self._offers)
        return DraStatus(
            published=self._is_published or not self._owns_ledger,
            devices=len(offered),
            healthy=sum(x.device.health.healthy and not x.device.withheld for x in offered),
            withheld=sum(bool(x.device.withheld) for x in offered),
            claims=len({lease.owner for lease in self._leases()}),
            registered=registration is not None and registration.registered,
            registrations=self._kubelet.registrations,
            slice_writes=written.creates + written.updates + written.deletes if written else 0,
            last_error="; ".join(
                filter(None, (registration.error if registration else "", *self._kubelet.errors, problem))
            ),
        )

    def devices(self) -> Iterator[tuple[Offered, Lease | None]]:
        """Yield what is offered, with the lease that keeps it from claims and that the scheduler does not know of.

        The holder might have become known since the slices were made.
        """
        for offered in self._offers:
            lease = self._offers.in_use(offered.name)
            yield offered, (lease and self._ledger.get(lease.key)) or lease

    async def _publish(self, slices: Controller) -> None:
        """Publish after registration: a pod that the kubelet cannot prepare waits 60 to 90 s for its second try."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REGISTRATION_TIMEOUT):
                await self._kubelet.registered()
        await slices.run()

    async def _repair(self, is_repaired: bool) -> None:
        """Repair again: when the ledger becomes readable, when lost leases are restored, and while the disk fails."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if is_repaired else _REPAIR_RETRY):
                    await self._repair_due.wait()
            self._repair_due.clear()
            is_repaired = await self._preparer.repair()

    async def _measure_latency(self, slices: Controller) -> None:
        """Measure the time from the host's report of a change to the stored slice."""
        while True:
            await self._host_changed.wait()
            await slices.wait_synced()
            if slices.is_stored:
                seconds = asyncio.get_running_loop().time() - self._noticed_at
                self._telemetry.hotplug[API].observe(seconds)
                self._telemetry.tracer.span("store ResourceSlices", ago=seconds).finish()
            self._host_changed.clear()

    def _refresh(self, changed_ids: Set[str] | None = None) -> bool:
        """Update slices and health if their content has changed; return whether it has."""
        has_changed = self._offers.update(self._assigned, self._leased(), changed_ids) or not self._updated.is_set()
        if has_changed:
            self._publish_state()
        return has_changed

    def _publish_state(self) -> None:
        if self._slices is not None:
            options = self._options
            self._slices.update(
                driver_resources(
                    self._offers, options.node, options.driver, self._leased(), without_taints=self._server_drops_taints
                )
            )
        self._health.publish(self._health_reports())

    def _health_reports(self) -> list[DeviceHealth]:
        pool = self._options.node
        return [DeviceHealth(pool, x.name, x.device.health.healthy, x.device.health.reason) for x in self._offers]

    def _blocking_lease(self, offered: Offered) -> Lease | None:
        """Return the lease that keeps a device from claims and that the scheduler does not know of.

        It belongs to the device plugin API, or to a claim from a configuration that offered the device in another way.
        """
        for _, lease in self._ledger.conflicts("", offered.exclusive, offered.shared):
            if lease.api != API:
                return lease
            now = self._offers.find(name_of(lease.unit))
            was_share = "/" in lease.unit
            if now is None or was_share != now.resource.is_shared:
                return lease
            if not self._offers.is_counted(now.name) and now.name != offered.name:
                return lease
            # even if another device is plugged in there
            is_at_its_port = now.resource.identity == "port" and now.name in lease.exclusive
            if now.exclusive != lease.exclusive and not is_at_its_port:
                return lease
        return None

    def _leases(self) -> list[Lease]:
        return [lease for lease in self._ledger.leases() if lease.api == API]

    def _leased(self) -> frozenset[str]:
        return frozenset(name_of(lease.unit) for lease in self._leases())

    def _leases_changed(self, leases: Sequence[Lease] | None) -> None:
        """Publish at once that a device was leased, and drop what was offered only for a claim that ended."""
        if leases is None:
            self._repair_due.set()
        if not self._updated.is_set():
            return
        self._refresh(None if leases is None else {i for lease in leases for i in lease.devices})

    def _slices_failed(self, error: Exception, what: str) -> None:
        assert self._slices is not None
        slices, reason = self._slices, str(error)
        problem = f"{what}: {reason}"
        level = logging.DEBUG if problem in slices.problem else logging.WARNING
        retry = "" if isinstance(error, InvalidPool) else "; nodeplug tries again"
        log.log(level, "%s%s", problem, retry, extra={"is_current": lambda: reason in slices.problem})
        if isinstance(error, DroppedFieldsError) and error.loses_taints and not self._server_drops_taints:
            log.warning(
                "the API server drops taints: devices that must not be allocated are removed from the slices instead",
                extra={"is_current": lambda: self._server_drops_taints},
            )
            self._server_drops_taints = True
            self._publish_state()
