"""Claims and the scheduler's and the API server's part in them: who wants what prepared, and who has it.

A holder is a pod whose containers run, or may be about to, or a claim that was answered and that nobody has undone
since.
"""

import asyncio
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from dra_plugin.driver import ClaimRef, PreparedDevice
from kubeletapi.podresources.v1 import api_pb2 as podresources
from resourceapi.objects import ObjectMeta, v1, write_object
from tests.nodeplug.two_fronts.host import LivingHost, Takes
from tests.nodeplug.two_fronts.kubelet import KnownClaim, Kubelet, Pod

DRIVER, NODE = "nodeplug.dev", "worker-1"


class Claim(Struct, eq=False):
    """A claim as the cluster and the kubelet know it."""

    name: str
    uid: str
    pod: str  # the uid of the pod that it is for
    results: tuple[v1.DeviceRequestAllocationResult, ...]
    body: Mapping[str, Any]
    in_api: bool = True
    answer: tuple[PreparedDevice, ...] | None = None  # prepared, and not undone since
    running: tuple[PreparedDevice, ...] = ()  # what the containers of its pod run with
    ended: bool = False  # its pod is over, the kubelet will have it unprepared
    forgotten: bool = False  # the kubelet knows nothing of it any more
    asked: bool = False  # somebody has asked for it, so the node may know it
    disturbed: bool = False  # what was answered may be wrong by now: a reboot, another device in the place of one
    moves: Mapping[str, object] = {}  # of its devices' nodes, when it was answered
    takes: Mapping[str, Takes] = {}  # by unit, when it was answered
    given: Mapping[str, frozenset[str]] = {}  # the devices behind each result, when it was answered
    opened: frozenset[str] = frozenset()  # the devices that containers of its pod have open
    paths: Mapping[str, str] = {}  # by device: where they have it; empty: where it is on the host

    @property
    def ref(self) -> ClaimRef:
        return ClaimRef("default", self.name, self.uid)

    @property
    def names(self) -> list[str]:
        """The units of its leases."""
        return [unit(x, self.uid) for x in self.results]

    @property
    def devices(self) -> frozenset[str]:
        """All devices that it was given."""
        return frozenset[str]().union(*self.given.values())


class Holder(Struct, frozen=True):
    """Somebody who has a unit. Units of one `party` are told apart by whoever gives them out.

    `devices` are behind the unit, `opened` what the containers have open, `parts` what they have not as a whole.
    """

    party: str
    api: str
    lease: tuple[str, str]  # resource or claim's uid, unit
    takes: Takes
    devices: frozenset[str]
    opened: frozenset[str]
    parts: frozenset[str] = frozenset()


def unit(result: v1.DeviceRequestAllocationResult, uid: str) -> str:
    """How a lease names a result (dra_plugin/preparing/claim_plan.py)."""
    if result.admin_access:
        return f"{result.device}@{uid}"
    return f"{result.device}/{result.share_id}" if result.share_id else result.device


class Cluster:
    """Everybody but the daemon."""

    def __init__(self, host: LivingHost, kubelet: Kubelet) -> None:
        self.kubelet = kubelet
        self.pods: list[Pod] = []  # those that run
        self.claims: list[Claim] = []
        self.server_is_up = True
        self.asked_for: dict[str, asyncio.Event] = {}  # claims: set once somebody asks the API server for one
        self._host = host
        self._numbers = itertools.count(1)

    def number(self) -> int:
        """A number that nobody has yet."""
        return next(self._numbers)

    def uid(self) -> str:
        """A uid that nobody has yet."""
        return f"{self.number():08x}-0000-4000-8000-000000000000"

    def add_claim(self, name: str, uid: str, results: Sequence[v1.DeviceRequestAllocationResult]) -> Claim:
        """Make a claim that the scheduler gave `results`."""
        claim = Claim(name, uid, self.uid(), tuple(results), _body(name, uid, results))
        self.claims.append(claim)
        return claim

    def allocate_again(self, claim: Claim, results: Sequence[v1.DeviceRequestAllocationResult]) -> None:
        """Give a claim other devices: what it had, nobody has any more."""
        claim.results, claim.body = tuple(results), _body(claim.name, claim.uid, results)
        claim.answer, claim.ended, claim.forgotten = None, False, False
        self.end_claim_pod(claim)
        claim.pod = self.uid()

    def deallocate(self, claim: Claim) -> None:
        """Take from a claim what it has; nobody on the node wants it any more."""
        claim.body = _body(claim.name, claim.uid)
        claim.answer, claim.asked, claim.ended, claim.forgotten = None, False, False, True
        self.end_claim_pod(claim)
        self.settle()

    def settle(self) -> None:
        """Take note of what the daemon may find out by itself: nobody wants these claims prepared any more."""
        for claim in self.claims:
            if not claim.in_api and not claim.running:
                claim.answer = None
        self.claims = [x for x in self.claims if x.in_api or x.running or not x.forgotten]
        known = {x.uid: KnownClaim(x.name, x.uid, x.pod, x.running) for x in self.claims if x.asked and not x.forgotten}
        if self.kubelet.is_up and known != self.kubelet.claims:
            self.kubelet.claims = known
            self.kubelet.write_claims()

    def end_claim_pod(self, claim: Claim) -> None:
        """Let the containers that run with a claim end."""
        claim.running, claim.opened = (), frozenset()
        self._host.end_pod(claim.pod)

    def holders(self) -> Iterator[Holder]:
        """Return who has what."""
        for pod in self.pods:
            for x in pod.units:
                party = f"{pod.resource}/{pod.shares}/{pod.ids}"
                yield Holder(party, "device-plugin", (pod.resource, x), pod.takes[x], pod.devices[x], pod.opened(x))
        for claim in self.claims:
            if claim.answer is not None or claim.running:
                parts = frozenset[str]().union(*(x.part for x in claim.takes.values()))
                for x, takes in claim.takes.items():
                    given = claim.given.get(x.partition("/")[0], frozenset())  # nothing of an administrator's
                    yield Holder(claim.uid, "dra", (claim.uid, x), takes, given, claim.opened, parts)

    def list_pods(self) -> podresources.ListPodResourcesResponse | None:
        """See `wire.Peers`."""
        kubelet = self.kubelet
        if not kubelet.is_up:
            return None
        listed = [*kubelet.list_units()]
        if kubelet.knows_pods and kubelet.lie != "no pods":
            listed += [_listed(x) for x in self.claims if x.running]
        return podresources.ListPodResourcesResponse(pod_resources=listed)

    def claim(self, path: str) -> Mapping[str, Any] | None:
        """See `wire.Peers`."""
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
    """What a request got on this node."""
    return v1.DeviceRequestAllocationResult(request=request, driver=DRIVER, pool=NODE, device=device, **options)
