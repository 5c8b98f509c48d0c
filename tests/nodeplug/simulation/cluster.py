"""Claims, and the scheduler's and API server's view of them: which claims are wanted, and who holds units.

A holder is a pod whose containers run or can still start, or a claim that was prepared and not unprepared since.
"""

import asyncio
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from dra_plugin.driver import ClaimRef, PreparedDevice
from kubeletapi.podresources.v1 import api_pb2 as podresources
from resourceapi.objects import ObjectMeta, v1, write_object
from tests.nodeplug.simulation.host import HardwareUse, SimulatedHost
from tests.nodeplug.simulation.kubelet import KnownClaim, Kubelet, Pod

DRIVER, NODE = "nodeplug.dev", "worker-1"


class Claim(Struct, eq=False):
    """A claim as known to the cluster and the kubelet."""

    name: str
    uid: str
    pod: str  # the uid of the pod that uses it
    results: tuple[v1.DeviceRequestAllocationResult, ...]
    body: Mapping[str, Any]
    in_api: bool = True
    answer: tuple[PreparedDevice, ...] | None = None  # the answer, if it was prepared and not unprepared since
    running: tuple[PreparedDevice, ...] = ()  # the answer that its pod's containers use
    ended: bool = False  # its pod has ended, and the kubelet will unprepare it
    forgotten: bool = False  # the kubelet does not know it any more
    asked: bool = False  # a call has named it, so the node can know it
    disturbed: bool = False  # the answer can be wrong: after a reboot, or if a device was replaced
    moves: Mapping[str, object] = {}  # the places of its devices at the time of the answer
    takes: Mapping[str, HardwareUse] = {}  # by unit, at the time of the answer
    given: Mapping[str, frozenset[str]] = {}  # the devices of each result at the time of the answer
    opened: frozenset[str] = frozenset()  # the devices that its pod's containers have open
    paths: Mapping[str, str] = {}  # by device: the path in the containers; "" means the host's path

    @property
    def ref(self) -> ClaimRef:
        return ClaimRef("default", self.name, self.uid)

    @property
    def names(self) -> list[str]:
        """The units of its leases."""
        return [unit(x, self.uid) for x in self.results]

    @property
    def devices(self) -> frozenset[str]:
        """All devices of its answer."""
        return frozenset[str]().union(*self.given.values())


class Holder(Struct, frozen=True):
    """The holder of a unit. The same API and resource manage units of one `owner`, and keep them apart.

    `devices` belong to the unit, the containers have `opened` open, and hold `parts` only in part.
    """

    owner: str
    api: str
    lease: tuple[str, str]  # resource or uid of the claim, unit
    takes: HardwareUse
    devices: frozenset[str]
    opened: frozenset[str]
    parts: frozenset[str] = frozenset()


def unit(result: v1.DeviceRequestAllocationResult, uid: str) -> str:
    """The name of a result in leases (dra_plugin/preparing/claim_plan.py)."""
    if result.admin_access:
        return f"{result.device}@{uid}"
    return f"{result.device}/{result.share_id}" if result.share_id else result.device


class Cluster:
    """Everything except the daemon."""

    def __init__(self, host: SimulatedHost, kubelet: Kubelet) -> None:
        self.kubelet = kubelet
        self.pods: list[Pod] = []  # the running ones
        self.claims: list[Claim] = []
        self.server_is_up = True
        self.asked_for: dict[str, asyncio.Event] = {}  # by claim: set once the API server is asked for it
        self._host = host
        self._numbers = itertools.count(1)

    def number(self) -> int:
        """An unused number."""
        return next(self._numbers)

    def uid(self) -> str:
        """An unused uid."""
        return f"{self.number():08x}-0000-4000-8000-000000000000"

    def add_claim(self, name: str, uid: str, results: Sequence[v1.DeviceRequestAllocationResult]) -> Claim:
        """Create a claim with the results of the scheduler."""
        claim = Claim(name, uid, self.uid(), tuple(results), _body(name, uid, results))
        self.claims.append(claim)
        return claim

    def allocate_again(self, claim: Claim, results: Sequence[v1.DeviceRequestAllocationResult]) -> None:
        """Allocate other devices to a claim; its old devices are free."""
        claim.results, claim.body = tuple(results), _body(claim.name, claim.uid, results)
        claim.answer, claim.ended, claim.forgotten = None, False, False
        self.end_claim_pod(claim)
        claim.pod = self.uid()

    def deallocate(self, claim: Claim) -> None:
        """Deallocate a claim; the node does not need it any more."""
        claim.body = _body(claim.name, claim.uid)
        claim.answer, claim.asked, claim.ended, claim.forgotten = None, False, False, True
        self.end_claim_pod(claim)
        self.drop_ended_claims()

    def drop_ended_claims(self) -> None:
        """Apply what the daemon can find out by itself: deleted claims without a pod do not need their devices."""
        for claim in self.claims:
            if not claim.in_api and not claim.running:
                claim.answer = None
        self.claims = [x for x in self.claims if x.in_api or x.running or not x.forgotten]
        known = {x.uid: KnownClaim(x.name, x.uid, x.pod, x.running) for x in self.claims if x.asked and not x.forgotten}
        if self.kubelet.is_up and known != self.kubelet.claims:
            self.kubelet.claims = known
            self.kubelet.write_claims()

    def end_claim_pod(self, claim: Claim) -> None:
        """End the containers that use a claim."""
        claim.running, claim.opened = (), frozenset()
        self._host.end_pod(claim.pod)

    def holders(self) -> Iterator[Holder]:
        """Yield the holder of each unit."""
        for pod in self.pods:
            for x in pod.units:
                owner = f"{pod.resource}/{pod.shares}/{pod.ids}"
                yield Holder(owner, "device-plugin", (pod.resource, x), pod.takes[x], pod.devices[x], pod.opened(x))
        for claim in self.claims:
            if claim.answer is not None or claim.running:
                parts = frozenset[str]().union(*(x.part for x in claim.takes.values()))
                for x, takes in claim.takes.items():
                    devices = claim.given.get(x.partition("/")[0], frozenset())  # nothing for admin access
                    yield Holder(claim.uid, "dra", (claim.uid, x), takes, devices, claim.opened, parts)

    def list_pods(self) -> podresources.ListPodResourcesResponse | None:
        """Implements `wire.Peers`."""
        kubelet = self.kubelet
        if not kubelet.is_up:
            return None
        listed = [*kubelet.list_units()]
        if kubelet.knows_pods and kubelet.false_answer != "no pods":
            listed += [_listed(x) for x in self.claims if x.running]
        return podresources.ListPodResourcesResponse(pod_resources=listed)

    def claim(self, path: str) -> Mapping[str, Any] | None:
        """Implements `wire.Peers`."""
        if not self.server_is_up:
            raise ConnectionError("connection refused")
        name = path.removesuffix("/status").rpartition("/")[2]
        if (asked := self.asked_for.pop(name, None)) is not None:
            asked.set()
        return next((x.body for x in self.claims if x.in_api and x.name == name), None)


def _listed(claim: Claim) -> podresources.PodResources:
    devices = [
        podresources.ClaimResource(driver_name=DRIVER, pool_name=x.pool, device_name=x.device, share_id=x.share_id)
        for x in claim.running
    ]
    resource = podresources.DynamicResource(claim_name=claim.name, claim_namespace="default", claim_resources=devices)
    container = podresources.ContainerResources(name="main", dynamic_resources=[resource])
    return podresources.PodResources(name=f"of-{claim.uid}", namespace="default", containers=[container])


def _body(name: str, uid: str, results: Sequence[v1.DeviceRequestAllocationResult] = ()) -> Mapping[str, Any]:
    devices = v1.DeviceAllocationResult(results=tuple(results))
    claim = v1.ResourceClaim(
        metadata=ObjectMeta(namespace="default", name=name, uid=uid),
        status=v1.ResourceClaimStatus(allocation=v1.AllocationResult(devices=devices) if results else None),
    )
    return write_object(claim)


def result(request: str, device: str, **options: Any) -> v1.DeviceRequestAllocationResult:
    """A request's result on this node."""
    return v1.DeviceRequestAllocationResult(request=request, driver=DRIVER, pool=NODE, device=device, **options)
