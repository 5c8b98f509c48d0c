"""The model's actions on the real ledger and reconciler, and on witnesses with real files and folders.

The kubelet, the clock and the connection to pod-resources are those of tests/nodeplug/simulation. The model does not
determine the kubelet's answers, or when it writes its files.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path

from checkpoint import Lease, LeaseRefused, Ledger
from checkpoint.holdings import ClaimName, UnitEntry
from checkpoint.lease import claim_owner
from checkpoint.reconciler import GRACE, Reconciler
from deviceplugin.units import owner_of
from dra_plugin.driver import PreparedDevice
from hostdevices import Host
from hostdevices.pod_cgroups import running_pods
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from kubeletapi.podresources.v1 import api_pb2 as podresources
from resources.resource import Resource
from resources.selector import NOTHING
from tests.checkpoint.build import ManualReconciler
from tests.model.explorer import Trace, follow
from tests.model.node import CLAIM, CLAIMS, Action, State, Unit, device_of
from tests.model.node import Lease as Expected
from tests.nodeplug.simulation import wire
from tests.nodeplug.simulation.cluster import DRIVER, NODE
from tests.nodeplug.simulation.disk import Disk
from tests.nodeplug.simulation.kubelet import Container, KnownClaim, Kubelet, Pod
from tests.nodeplug.simulation.process import Clock, Loop
from witnesses import KubeletFiles, NodeWitnesses, PodResources

_UIDS = tuple(f"0000000{i}-0000-4000-8000-000000000000" for i in range(3))
_DOMAIN = "example.com/"


class Real:
    """One node below an empty `root`: the daemon's part, and the witnesses."""

    def __init__(self, root: Path, clock: Clock, start: State) -> None:
        self._clock = clock
        self._state, self._host = root / "state", root / "host"
        self._configuration: str = start.configuration
        self._has_cgroups = start.has_cgroups
        self._kubelet = Kubelet(root, DRIVER, NODE, Disk())
        self._kubelet.write()  # as after the first list of a plugin
        self._kubelet.write_claims()
        self._root = root
        self._pods: dict[int, Pod] = {}
        self._claim = KnownClaim("claim", _UIDS[CLAIM], _UIDS[CLAIM])
        self._claim_runs = False
        self._is_on_server = True
        self._ledger: Ledger
        self._reconciler: Reconciler
        self._running: asyncio.Task[None] | None = None
        (self._host / "sys").mkdir(parents=True)
        if start.has_cgroups:
            (self._host / "sys/fs/cgroup/kubepods.slice").mkdir(parents=True)
            (self._host / "sys/fs/cgroup/cgroup.controllers").touch()

    # The daemon.

    async def start(self) -> None:
        """Start the daemon; wait for its first pass."""
        self._ledger = Ledger(self._state, "boot", fast_write=1.0)
        await self._ledger.take()
        self._reconciler = ManualReconciler(
            self._ledger,
            NodeWitnesses(
                PodResources(self._kubelet.socket, self.serves, DRIVER, [NODE]),
                KubeletFiles(self._root / "device-plugins", self._root, self.serves, DRIVER),
                lambda: running_pods(Host(self._host)),
                self._wanted,
            ),
        )
        self._reconciler.units = self._reconciler.claims = self
        self._running = asyncio.ensure_future(self._reconciler.run())
        await self._reconciler.refresh()

    async def stop(self) -> None:
        """Stop the daemon; its memory is lost."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
            self._running = None
            await self._ledger.close()

    def leases(self) -> set[Expected]:
        """The leases in the model's form."""
        return {
            Expected(
                unit := _unit(x),
                device_of(unit),
                "claim" if x.api == "dra" else x.owner.removeprefix(_DOMAIN),
                bool(x.holder),
                frozenset(map(_UIDS.index, x.pods)),
            )
            for x in self._ledger.leases()
        }

    # Actions.

    async def do(self, action: Action) -> None:
        """Do an action. Raises `AssertionError` if its result differs from the model's."""
        match action:
            case ("allocate", int(pod), str(resource), str(name), str(outcome)):
                self._kubelet.taken(f"{_DOMAIN}{resource}")  # it checks which units are free
                assert await self._grant((resource, name)) == (outcome != "no"), action
                if outcome == "yes":
                    container = Container("main", (name,), api.ContainerAllocateResponse(), is_init=pod == 1)
                    made = Pod(f"pod-{pod}", _UIDS[pod], f"{_DOMAIN}{resource}", 1, "", [container])
                    self._pods[pod] = made
                    self._kubelet.pods.append(made)
            case ("prepare", str(_), str(name), str(outcome)):
                self._know_claim(self._claim)
                assert await self._grant((CLAIMS, name)) == (outcome != "no"), action
                self._claim = KnownClaim("claim", _UIDS[CLAIM], _UIDS[CLAIM], (PreparedDevice((), NODE, name, ()),))
            case ("record", int(pod)):
                self._kubelet.record(self._pods[pod])
                self._begin(pod)
            case ("start", int(_)):
                self._know_claim(self._claim)
                self._claim_runs = True
                self._begin(CLAIM)
            case ("end", int(holder)):
                if holder == CLAIM:
                    self._claim_runs = False
                else:
                    self._pods[holder].is_over = True
            case ("clean up", int(holder)):
                self._cgroup(holder).rmdir()
            case ("unprepare",):
                await self._ledger.end(self._ledger.of_owner(claim_owner(_UIDS[CLAIM])))
                self._know_claim(None)
            case ("forget",):
                self._know_claim(None)
            case ("delete",):
                self._is_on_server = False
            case ("configure", str(configuration)):
                self._configuration = configuration
            case ("stop the kubelet",):
                self._kubelet.stop()
            case ("start the kubelet",):
                self._kubelet.start()
            case ("learn",):
                self._kubelet.knows_pods = True
            case ("look",):
                await self._reconciler.refresh()
            case ("wait",):
                self._clock.now += GRACE + 1.0
            case ("start",):
                await self.start()
            case ("crash",):
                await self.stop()
        if action[-1] == "death":
            await self.stop()

    async def _grant(self, unit: Unit) -> bool:
        resource, name = unit
        is_claim = resource == CLAIMS
        shares = 2 if self._configuration == "shares" else 1
        offered = Resource(f"{_DOMAIN}{resource}", NOTHING, shares=shares)
        lease = Lease(
            resource=offered.name,
            unit=name,
            api="dra" if is_claim else "device-plugin",
            owner=claim_owner(_UIDS[CLAIM]) if is_claim else owner_of(offered, name, None),
            exclusive=frozenset({f"device-{device_of(unit)}"}),
            holder=f"claim/default/claim/{_UIDS[CLAIM]}" if is_claim else "",
            boot_id="boot",
        )
        try:
            await self._ledger.grant([lease])
        except LeaseRefused:
            return False
        return True

    # The peers.

    def list_pods(self) -> podresources.ListPodResourcesResponse | None:
        """Implements `wire.Peers`."""
        if not self._kubelet.is_up:
            return None
        listed = [*self._kubelet.list_units()]
        if self._kubelet.knows_pods and self._claim_runs:
            devices = [
                podresources.ClaimResource(driver_name=DRIVER, device_name=x.device) for x in self._claim.devices
            ]
            mine = podresources.DynamicResource(claim_name="claim", claim_namespace="default", claim_resources=devices)
            container = podresources.ContainerResources(name="main", dynamic_resources=[mine])
            listed.append(podresources.PodResources(name="of-claim", namespace="default", containers=[container]))
        return podresources.ListPodResourcesResponse(pod_resources=listed)

    def claim(self, path: str) -> None:
        """Implements `wire.Peers`; never called."""
        raise AssertionError(path)

    async def _wanted(self, claims: Sequence[ClaimName]) -> Mapping[str, bool]:
        return {x.uid: self._is_on_server for x in claims}

    def _know_claim(self, claim: KnownClaim | None) -> None:
        self._kubelet.claims = {claim.uid: claim} if claim is not None else {}
        self._kubelet.write_claims()

    def _begin(self, holder: int) -> None:
        if self._has_cgroups:
            self._cgroup(holder).mkdir()

    def _cgroup(self, holder: int) -> Path:
        uid = _UIDS[holder].replace("-", "_")
        return self._host / f"sys/fs/cgroup/kubepods.slice/kubepods-pod{uid}.slice"

    # The reconciler's interface to the plugin APIs.

    def serves(self, resource: str) -> bool:
        """Return whether a resource is ours."""
        return resource.startswith(_DOMAIN)

    def restore_units(self, resource: str, units: Sequence[str], entry: UnitEntry | None) -> Sequence[Lease]:
        """Never called: no device is held without a lease."""
        raise AssertionError(units)

    async def restore_claim(self, claim: ClaimName, units: Set[str]) -> str:
        """Never called: no device is held without a lease."""
        raise AssertionError(claim)

    def republish(self, resources: Iterable[str]) -> None:
        """Make the kubelet write its file, as at a new list."""
        if self._kubelet.is_up:
            self._kubelet.write()

    async def end_claim(self, claim: ClaimName, unless_answered_since: float) -> None:
        """End the claim's leases."""
        await self._ledger.end(
            self._ledger.of_owner(claim_owner(claim.uid)), unless_answered_since=unless_answered_since
        )


def live(root: Path, start: State, trace: Trace) -> None:
    """Run a trace of the model, and compare it; see `compare`."""
    compare(root, start, follow(start, trace))


def compare(root: Path, start: State, trace: Iterable[tuple[Action, State]]) -> None:
    """Run a trace; after each action the leases must be those of the model."""
    clock = Clock()
    loop = Loop(clock)
    real = Real(root, clock, start)

    async def run() -> None:
        await real.start()
        done: list[Action] = []
        try:
            for action, after in trace:
                done.append(action)
                await real.do(action)
                if after.is_up:
                    assert real.leases() == after.leases, "\n".join(map(str, done))
        finally:
            await real.stop()

    with wire.in_place(real):
        try:
            loop.run_until_complete(run())
        finally:
            loop.close()


@contextmanager
def folder() -> Iterator[Path]:
    """An empty folder, in memory if /dev/shm exists."""
    memory = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(prefix="model-", dir=memory if memory.is_dir() else None))
    try:
        yield made
    finally:
        shutil.rmtree(made)


def _unit(lease: Lease) -> Unit:
    return (CLAIMS if lease.api == "dra" else lease.resource.removeprefix(_DOMAIN), lease.unit)
