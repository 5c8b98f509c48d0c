"""The DRA side as a whole: all resources of a configuration that are offered through DRA, fed by assignments.

assignment -> offers -> ResourceSlices, health        kubelet -> claims -> leases, CDI, metadata -> kubelet
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from msgspec import Struct

from checkpoint import Api, Lease, Ledger
from dra_plugin.claims import ApiClaims
from dra_plugin.driver import Driver
from dra_plugin.health import DeviceHealth, HealthBoard
from dra_plugin.kubelet_plugin import Folders, KubeletPlugin
from dra_plugin.offers import Offers
from dra_plugin.pool import driver_resources
from dra_plugin.prepare import Paths, Preparer
from dra_plugin.slices import Controller, Owner
from hostdevices import Device, Host
from hostdevices.resource import Resource
from resourceapi.client import Client

API: Api = "dra"
_REGISTRATION_PATIENCE = 10.0  # seconds; a kubelet that is down is no reason to hide the devices for good
_METADATA = "dra-device-metadata"  # a folder in the driver's own
log = logging.getLogger("nodeplug.dra")


class Place(Struct, frozen=True):
    """Who the driver is, and where the kubelet and the container runtime look, on this host."""

    driver: str
    node: str
    folders: Folders
    pod_resources: Path  # the socket
    cdi: Path
    pod_uid: str = ""  # of the pod that the driver runs in, if it does; an update starts the next one beside it
    allowed_mounts: tuple[str, ...] = ()


class DraStatus(Struct, frozen=True):
    """How the DRA side stands, for people and metrics."""

    devices: int
    healthy: int
    claims: int
    registered: bool
    slice_writes: int
    last_error: str


class DraPlugin:
    """The resources of a configuration that are offered through DRA. Belongs to the loop."""

    def __init__(self, resources: Sequence[Resource], host: Host, client: Client, place: Place) -> None:
        """Prepare. `client` talks to the API server, from threads; it is closed when we stop."""
        self._client = client
        self._place = place
        self._host = host
        self._offers = Offers(resources)
        self._health = HealthBoard()
        self._claims = ApiClaims(client)
        self._driver: asyncio.Future[Driver] = asyncio.get_running_loop().create_future()
        self._kubelet = KubeletPlugin(
            place.driver, self._driver, self._claims, self._health, place.folders, place.pod_uid
        )
        self._slices = Controller(client, place.driver, Owner.node(place.node), on_error=self._slices_failed)
        self._names = [resource.name for resource in resources]
        self._ledger: Ledger | None = None
        self._preparer: Preparer | None = None
        self._assigned: Mapping[str, tuple[Device, ...]] = {}
        self._published = False
        self._publishing: asyncio.Task[None] | None = None

    async def serve_early(self) -> None:
        """Let the kubelet find us while another instance still has the state: its calls wait for `start`.

        So no call of an update meets a closed door. Only with a pod uid: without one the sockets have one name.
        """
        if self._place.pod_uid:
            await self._kubelet.start()

    async def take(self, ledger: Ledger) -> None:
        """Take over the state: what a crash left half done is undone, what containers need is put back."""
        place = self._place
        paths = Paths(cdi=place.cdi, pod_resources=place.pod_resources, metadata=place.folders.data / _METADATA)
        self._ledger = ledger
        self._preparer = Preparer(
            place.driver,
            place.node,
            self._host,
            ledger,
            paths,
            self._offers.find,
            self._offers.attributes,
            claims=self._claims.on_server,
            allowed_mounts=place.allowed_mounts,
        )
        ledger.observe(self._leases_changed)
        ledger.ask_before_refusing(self._preparer.reconcile)
        await self._preparer.repair()

    async def update(self, assigned: Mapping[str, tuple[Device, ...]]) -> None:
        """Take over which devices each resource has now; slices and health that changed are told."""
        self._assigned = assigned
        if self._preparer is not None:
            self._preparer.update({name: assigned.get(name, ()) for name in self._names})
        self._refresh()

    async def start(self) -> None:
        """Serve and publish. Call `take` and `update` before."""
        assert self._preparer is not None
        await self._preparer.recall()
        self._driver.set_result(self._preparer)
        await self._kubelet.start()
        self._preparer.start()
        self._publishing = asyncio.create_task(self._publish())

    async def _publish(self) -> None:
        """Publish what the kubelet can be asked for: a pod that comes before waits 60 to 90 s for its second try."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REGISTRATION_PATIENCE):
                await self._kubelet.registered()
        await self._slices.start()

    async def stop(self) -> None:
        """Sign off and stop serving; leases, CDI files and slices stay. Idempotent."""
        self._client.close()
        if self._publishing is not None:
            self._publishing.cancel()
            await asyncio.wait([self._publishing])
        await self._kubelet.stop()
        await self._slices.stop()
        if self._preparer is not None:
            await self._preparer.stop()
        self._claims.close()
        self._driver.cancel()

    def status(self) -> DraStatus:
        """Tell how the DRA side stands."""
        registration = self._kubelet.registration_status
        written = self._slices.statistics
        healths = self._reports()
        return DraStatus(
            devices=len(healths),
            healthy=sum(health.healthy is True for health in healths),
            claims=len({lease.holder for lease in self._leases()}),
            registered=registration is not None and registration.registered,
            slice_writes=written.creates + written.updates + written.deletes,
            last_error="; ".join(
                filter(None, (registration.error if registration else "", *self._kubelet.errors, self._slices.problem))
            ),
        )

    def _refresh(self) -> None:
        """Tell slices and health, if anything that they say has changed."""
        ledger = self._ledger
        assert ledger is not None
        leased = {lease.unit.partition("@")[0].partition("/")[0] for lease in self._leases()}
        withheld = {each.device: each.reason for each in ledger.withheld()}
        if (
            not self._offers.update(self._assigned, leased=leased, obstacles=ledger.obstacles(API), withheld=withheld)
            and self._published
        ):
            return
        self._published = True
        self._slices.update(driver_resources(self._offers, self._place.node, self._place.driver))
        self._health.publish(self._reports())

    def _reports(self) -> list[DeviceHealth]:
        pool = self._place.node
        return [DeviceHealth(pool, x.name, x.device.health.healthy, x.device.health.reason) for x in self._offers]

    def _leases(self) -> list[Lease]:
        return [] if self._ledger is None else [lease for lease in self._ledger.leases() if lease.api == API]

    def _leases_changed(self, apis: Set[Api]) -> None:
        """Show at once what the other API has taken, and let go of what was kept for a claim that ended."""
        del apis
        if self._published:
            self._refresh()

    def _slices_failed(self, error: Exception, what: str) -> None:
        problem = f"{what}: {error}"
        level = logging.DEBUG if problem in self._slices.problem else logging.WARNING
        log.log(level, "ResourceSlices: %s; it is tried again", problem)
