"""The kubelet's calls in a simulation, and its reactions to the answers."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from deviceplugin.server import DevicePluginServicer
from dra_plugin.driver import ClaimFailed, ClaimRef, PreparedDevice
from dra_plugin.errors import NotAnsweredInTime
from grpcunix import RpcError, Status
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from resources.assignment import Assignment
from tests.nodeplug.simulation import rules
from tests.nodeplug.simulation.cluster import Claim, Cluster
from tests.nodeplug.simulation.daemon import Daemon
from tests.nodeplug.simulation.disk import Disk
from tests.nodeplug.simulation.host import SimulatedHost
from tests.nodeplug.simulation.kubelet import Container, Pod
from tests.nodeplug.simulation.names import device_of
from tests.nodeplug.simulation.runtime import NotStarted, Opened, Runtime

_KINDS = {  # of refusals, by parts of their messages
    "held by another": ("has allocated",),
    "unhealthy": ("is unhealthy",),
    "not offered": ("not offered",),
    "changed since the scan": ("no longer what was offered", "scanned again", "changed since"),
    "stale node": ("the container was allocated",),
    "gone": ("is gone",),
    "the disk refuses": ("No space left", "Read-only", "no lease can be recorded", "CDI spec", "cannot"),
    "not known yet": ("nothing is allocated until they are", "has no lease"),
    "no claim": ("retrieve claim", "not allocated", "got replaced"),
}


class _Context:
    """The context of a call without a deadline."""

    def time_remaining(self) -> float | None:
        return None

    def trace_context(self) -> Mapping[str, str]:
        return {}


_CONTEXT = _Context()


class Calls:
    """Makes the kubelet's calls to one daemon."""

    def __init__(
        self,
        daemon: Daemon,
        cluster: Cluster,
        host: SimulatedHost,
        runtime: Runtime,
        disk: Disk,
        log_event: Callable[[str], None],
    ) -> None:
        self.lists: dict[str, dict[str, bool]] = {}
        self.figures: Counter[str] = Counter()
        self._daemon, self._cluster, self._host, self._disk, self._tell = daemon, cluster, host, disk, log_event
        self._kubelet, self._runtime = cluster.kubelet, runtime
        self._in_flight: set[tuple[str, str]] = set()
        self._listening: dict[str, asyncio.Task[None]] = {}
        self._needs_pre_start: dict[str, bool] = {}
        daemon.registration_changed = self._registration_changed

    @property
    def listening(self) -> Sequence["asyncio.Task[None]"]:
        """The tasks that read lists; they never end by themselves."""
        return [*self._listening.values()]

    def listen(self) -> None:
        """Start to read the lists of all registered resources."""
        for name, servicer in self._daemon.servicers.items():
            self._registration_changed(name, servicer)

    async def stop_listening(self) -> None:
        """Stop reading lists."""
        tasks = self.listening
        self._listening.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # Pods of the device plugin API.

    async def allocate(self, rng: random.Random) -> None:
        """Start a pod that requests units of a resource, mostly healthy ones; a new list can be on its way."""
        used = {x.resource for x in self._cluster.pods if rng.random() < 0.5}
        name = rng.choice(sorted(self._listening.keys() & used) or sorted(self._listening) or [""])
        taken = self._kubelet.taken(name)
        free = [
            unit
            for unit, is_healthy in self.lists.get(name, {}).items()
            if unit not in taken and (name, unit) not in self._in_flight and (is_healthy or rng.random() < 0.2)
        ]
        if not free or not self._kubelet.knows_pods:
            return
        wanted = rng.sample(free, min(len(free), rng.choice((1, 1, 2))))
        containers: list[tuple[str, Sequence[str], bool]] = [(f"c{i}", (unit,), False) for i, unit in enumerate(wanted)]
        if rng.random() < 0.6:
            containers = [("main", tuple(wanted), False)]
        if rng.random() < 0.25:  # an init container, whose devices the next containers can share
            containers.insert(0, ("init", (wanted[0],), True))
            if len(wanted) > 1 and rng.random() < 0.5:
                containers = [("init", (wanted[0],), True), ("main", tuple(wanted[1:]), False)]
        await self.allocate_these(name, containers)

    async def allocate_these(self, name: str, containers: Sequence[tuple[str, Sequence[str], bool]]) -> None:
        """Start a pod whose containers (name, units, whether it is an init container) request these units."""
        pod = Pod(f"pod-{self._cluster.number()}", self._cluster.uid(), name, *self._offer(name))
        mine = {(name, unit) for _, units, _ in containers for unit in units}
        self._in_flight |= mine
        try:
            for container, units, is_init in containers:
                if self._offer(name) != (pod.shares, pod.ids):
                    raise RpcError(Status.UNAVAILABLE, "the configuration has changed")
                assignment = self._daemon.assignment
                answer = await self._allocate(name, units)
                _is_well(assignment, f"{name} {units}", map(self._host.named, units))
                devices = frozenset[str]().union(*map(self._host.devices_of, units))
                pre_start = self._needs_pre_start.get(name, False)
                pod.containers.append(Container(container, tuple(units), answer, is_init, pre_start, devices))
                pod.takes |= {unit: self._host.takes(unit, "device-plugin") for unit in units}
                pod.devices |= {unit: frozenset(self._host.devices_of(unit)) for unit in units}
        except RpcError as refusal:
            self._refused(f"Allocate {name} {containers}", str(refusal))
            pod.is_over = True
            return
        finally:
            self._in_flight -= mine
        if not self._kubelet.is_up:
            return  # the answer is lost
        self._host.begin_pod(pod.uid)
        self._cluster.pods.append(pod)
        self._kubelet.pods.append(pod)
        self.figures["pods"] += 1
        self._tell(f"Allocate {name} {containers}: yes, {pod.name}")
        for started in pod.containers:
            self._start(pod, started)
        rules.exclusive_devices_have_one_holder(self._cluster)

    async def restart(self, pod: Pod, container: Container) -> None:
        """Restart a container of a pod, with the answer that the kubelet stored."""
        if container.needs_pre_start:
            servicer = self._daemon.servicers.get(pod.resource) if pod.resource in self._listening else None
            if servicer is None:
                self.figures["restarts refused: no plugin"] += 1
                return
            request = api.PreStartContainerRequest(devices_ids=container.units)
            try:
                await servicer.pre_start_container(request, _CONTEXT)
            except RpcError as refusal:
                self._refused(f"PreStartContainer {pod.resource} {container.units}", str(refusal))
                return
        self._start(pod, container)

    def _start(self, pod: Pod, container: Container) -> None:
        try:
            opened = self._runtime.start(container.answer)
        except NotStarted as refusal:
            self.figures["starts refused by the runtime"] += 1
            self._tell(f"{pod.name} does not start: {refusal}")
            return
        self.figures["containers"] += 1
        container.opened = self._opened(pod.name, opened, container.devices)
        container.paths = self._at_paths(pod.name, opened, container.devices, container.paths)

    def _opened(self, who: str, opened: Opened, devices: frozenset[str]) -> frozenset[str]:
        """Return the devices that were opened; checks that they are among the allocated ones."""
        allowed = self._host.nodes_of(devices)
        if not opened.keys() <= allowed:
            raise rules.Broken(f"another device: {who} opens {set(opened)}, it was given {set(allowed)}")
        return self._host.behind(opened)

    def _at_paths(
        self, who: str, opened: Opened, devices: frozenset[str], before: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Return the container paths of devices; checks that they are those of the first start."""
        paths = {device: path for numbers, path in opened.items() for device in self._host.behind([numbers]) & devices}
        if before and not paths.items() <= before.items():
            raise rules.Broken(f"another path: {who} had its devices at {before}, and now at {paths}")
        return before or paths

    def _offer(self, name: str) -> tuple[int, str]:
        """The number of shares of each device of a resource, and the kind of its names."""
        return next(((x.shares, x.ids) for x in self._daemon.resources if x.name == name), (1, ""))

    async def _allocate(self, name: str, units: Sequence[str]) -> api.ContainerAllocateResponse:
        request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=units)])
        servicer = self._daemon.servicers.get(name)
        if servicer is None:
            raise RpcError(Status.UNAVAILABLE, "nobody listens")
        response = await servicer.allocate(request, _CONTEXT)
        (found,) = api.AllocateResponse.FromString(response.SerializeToString()).container_responses
        return found

    # Claims.

    async def prepare(self, rng: random.Random) -> None:
        """Prepare some claims, including some that are already prepared."""
        wanted = [x for x in self._cluster.claims if x.in_api and not x.ended]
        await self.prepare_these(rng.sample(wanted, min(len(wanted), rng.choice((1, 1, 2, 3)))))

    async def prepare_these(self, claims: Sequence[Claim]) -> None:
        """Prepare claims."""
        calls = self._daemon.dra.calls if self._daemon.dra is not None else None
        if not claims or calls is None:
            return
        for claim in claims:
            claim.asked = True
            if claim.answer is None or claim.disturbed or self._has_moved(claim):  # even if the answer gets lost
                claim.paths = {}
        self._cluster.drop_ended_claims()  # the kubelet writes its file before the call
        fresh, assignment = [x for x in claims if self._has_nothing(x)], self._daemon.assignment
        try:
            outcomes = await calls.prepare([x.ref for x in claims], 45.0)
        except NotAnsweredInTime as error:
            self._tell(f"prepare {[x.name for x in claims]}: {error}")
            return
        if outcomes.keys() != {x.uid for x in claims}:
            raise rules.Broken(f"answers for {sorted(outcomes)}")
        for claim in claims:
            outcome = outcomes[claim.uid]
            if isinstance(outcome, ClaimFailed):
                self._refused(f"prepare {claim.name} {claim.names}", outcome.reason)
                if claim.answer is not None and not self._may_be_refused(claim):
                    raise rules.Broken(f"{claim.name} was prepared, and is refused now: {outcome.reason}")
                continue
            if claim.answer not in (None, outcome):
                raise rules.Broken(f"{claim.name} was answered {claim.answer}, and now {outcome}")
            if claim in fresh:
                _is_well(assignment, claim.name, (device_of(x.device) for x in claim.results if not x.admin_access))
            self.figures["repeats" if claim.answer else "claims"] += 1
            self._tell(f"prepare {claim.name} {claim.names}: yes")
            if claim.answer is None or claim.disturbed or self._has_moved(claim):  # with a group's current members
                claim.given = {x.device: self._devices_of_result(x) for x in outcome}
                claim.takes = {x: self._host.takes(x, "dra", devices=self._members(claim, x)) for x in claim.names}
            claim.answer = outcome
            if not claim.ended and not claim.forgotten:
                claim.running = outcome
                self._host.begin_pod(claim.pod)
            self._cluster.drop_ended_claims()
            claim.disturbed, claim.moves = False, self._host.places(claim.devices)
            rules.exclusive_devices_have_one_holder(self._cluster)

    def _devices_of_result(self, prepared: PreparedDevice) -> frozenset[str]:
        """The devices of a result. For a group, those that a runtime finds, because its members can have changed."""
        found = self._host.behind(self._runtime.finds(prepared.cdi_device_ids))
        return (
            found
            if found and self._host.is_group(prepared.device)
            else frozenset(self._host.devices_of(prepared.device))
        )

    def _members(self, claim: Claim, unit: str) -> frozenset[str] | None:
        name = self._host.named(unit)
        return claim.given[name] if self._host.is_group(name) else None

    def _has_nothing(self, claim: Claim) -> bool:
        """Return whether the claim has no lease of this boot."""
        ledger = self._daemon.ledger
        leases = ledger.of_owner(f"claim/{claim.uid}")
        return ledger.is_complete and all(x.boot_id != ledger.boot_id for x in leases)

    async def unprepare(self, rng: random.Random) -> None:
        """Unprepare claims of ended pods, some of them again, and one unknown claim."""
        over = [x for x in self._cluster.claims if x.ended and not x.forgotten]
        await self.unprepare_these(rng.sample(over, min(len(over), rng.choice((1, 1, 2, 3)))), rng.random() < 0.1)
        for claim in over:
            if not claim.ended and rng.random() < 0.8:
                claim.in_api, claim.forgotten = False, True

    async def unprepare_these(self, claims: Sequence[Claim], with_unknown: bool = False) -> None:
        """Unprepare claims. From the call on, they are no longer needed."""
        calls = self._daemon.dra.calls if self._daemon.dra is not None else None
        refs = [x.ref for x in claims]
        if with_unknown:
            refs.append(ClaimRef("default", "unknown", "ffffffff-0000-4000-8000-000000000000"))
        if not refs or calls is None:
            return
        for claim in claims:
            claim.answer = None
        try:
            outcomes = await calls.unprepare(refs, 45.0)
        except NotAnsweredInTime as error:
            self._tell(f"unprepare {[x.name for x in refs]}: {error}")
            return
        finally:
            for claim in claims:
                claim.answer = None  # an earlier call to prepare it might have been answered meanwhile
        if outcomes.keys() != {x.uid for x in refs}:
            raise rules.Broken(f"answers for {sorted(outcomes)}")
        for claim in claims:
            if (failed := outcomes[claim.uid]) is not None:
                self._refused(f"unprepare {claim.name}", failed.reason)
                if not self._disk.fails:
                    raise rules.Broken(f"{claim.name} cannot be unprepared: {failed.reason}")
                continue
            self._tell(f"unprepare {claim.name}: yes")
            claim.ended = claim.asked = False
            self.figures["unprepared"] += 1

    def restart_claimed(self, claim: Claim) -> None:
        """Restart a container that uses a claim."""
        try:
            opened = self._runtime.start_claimed(claim.running)
        except NotStarted as refusal:
            self.figures["starts refused by the runtime"] += 1
            self._tell(f"the pod of {claim.name} does not start again: {refusal}")
            return
        self.figures["containers"] += 1
        own = [x.device for x in claim.results if not x.admin_access]  # admin access excludes no other holder
        found = self._opened(claim.name, opened, claim.devices)
        claim.paths = self._at_paths(claim.name, opened, claim.devices, claim.paths)
        claim.opened = found & frozenset[str]().union(*(claim.given[x] for x in own))

    # Lists of the daemon.

    def _registration_changed(self, name: str, servicer: DevicePluginServicer | None) -> None:
        if (before := self._listening.pop(name, None)) is not None:
            before.cancel()
        if servicer is None:
            self.lists[name] = dict.fromkeys(self.lists.get(name, ()), False)
            if self._kubelet.is_up:
                self._kubelet.listens(name, ())
        elif self._kubelet.is_up:
            self._needs_pre_start[name] = servicer.options().pre_start_required
            self._listening[name] = asyncio.ensure_future(self._read_list(name, servicer))

    async def _read_list(self, name: str, servicer: DevicePluginServicer) -> None:
        async for encoded in servicer.list_and_watch(api.Empty(), _CONTEXT):
            self.lists[name] = rules.listed(encoded)
            self._kubelet.listens(name, [x for x, is_healthy in self.lists[name].items() if is_healthy])

    def _refused(self, what: str, reason: str) -> None:
        if "nodeplug failed" in reason:
            raise rules.Broken(f"{what}: {reason}")
        kind = next((kind for kind, words in _KINDS.items() if any(x in reason for x in words)), "other")
        self.figures[f"refused: {kind}"] += 1
        self._tell(f"{what}: refused: {reason}")

    def _has_moved(self, claim: Claim) -> bool:
        return self._host.places(claim.devices) != claim.moves

    def _may_be_refused(self, claim: Claim) -> bool:
        """Return whether a repeated call is allowed to fail (rule 4 of prepare.py), or has to fail now."""
        is_another = claim.disturbed or self._has_moved(claim)
        is_lost = not self._daemon.ledger.is_complete
        return is_another or is_lost or self._disk.fails or not self._cluster.server_is_up or not claim.in_api


def _is_well(assignment: Assignment, what: str, names: Iterable[str]) -> None:
    """Check that no device is allocated that was known to be unhealthy at the time of the call."""
    wanted = {*names}
    for device in (x for offered in assignment.devices.values() for x in offered):
        if device.id in wanted and not device.health.healthy:
            raise rules.Broken(f"ill: {what} is given {device.id}")
