"""The cluster's part in a life: pods and claims, who has what by rights, and what the daemon can learn of it.

A holder is a pod of the device plugin API or a claim that was told yes and that nobody has undone since.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from dra_plugin.driver import ClaimRef, PreparedDevice
from kubeletapi.podresources.v1 import api_pb2 as podresources
from resourceapi.objects import ObjectMeta, v1, write_object
from tests.nodeplug.two_fronts.daemon import DRIVER, NODE
from tests.nodeplug.two_fronts.host import Takes, takes


class Pod(Struct, eq=False):
    """A pod that got units through the device plugin API; the kubelet lists it once it has `recorded` the answer."""

    name: str
    resource: str
    units: tuple[str, ...]
    recorded: bool = False


class Claim(Struct, eq=False):
    """A claim as the cluster and the kubelet know it."""

    name: str
    uid: str
    results: tuple[v1.DeviceRequestAllocationResult, ...]
    body: Mapping[str, Any]
    in_api: bool = True
    answer: tuple[PreparedDevice, ...] | None = None  # told yes, and not undone since
    listed: tuple[PreparedDevice, ...] = ()  # what pod-resources names, while its pod runs
    ended: bool = False  # its pod is over, the kubelet will have it unprepared
    forgotten: bool = False  # the kubelet knows nothing of it any more
    asked: bool = False  # somebody has asked for it, so the node may know it
    is_contested: bool = False  # another claim of its name was there, too: its metadata may be the other's
    disturbed: bool = False  # what was answered may be wrong by now: a reboot, another device in the place of one
    moves: Mapping[str, int] = {}  # of its devices' nodes, when it was answered

    @property
    def ref(self) -> ClaimRef:
        return ClaimRef("default", self.name, self.uid)

    @property
    def names(self) -> list[str]:
        """The units of its leases."""
        return [unit(x, self.uid) for x in self.results]


def unit(result: v1.DeviceRequestAllocationResult, uid: str) -> str:
    """How a lease names a result (checkpoint, shared decisions)."""
    if result.admin_access:
        return f"{result.device}@{uid}"
    return f"{result.device}/{result.share_id}" if result.share_id else result.device


class Cluster:
    """Everybody but the daemon."""

    def __init__(self) -> None:
        self.pods: list[Pod] = []
        self.claims: list[Claim] = []
        self.kubelet_is_up = True
        self.server_is_up = True
        self._numbers = itertools.count(1)

    def number(self) -> int:
        """A number that nobody has yet."""
        return next(self._numbers)

    def add_claim(self, name: str, uid: str, results: Sequence[v1.DeviceRequestAllocationResult]) -> Claim:
        """Make a claim that the scheduler gave `results`."""
        claim = Claim(name, uid, tuple(results), _body(name, uid, results))
        for other in self.claims:
            other.is_contested = other.is_contested or other.name == name
        self.claims.append(claim)
        return claim

    def allocate_anew(self, claim: Claim, results: Sequence[v1.DeviceRequestAllocationResult]) -> None:
        """Give a claim other devices: what it had, nobody has any more."""
        claim.results, claim.body = tuple(results), _body(claim.name, claim.uid, results)
        claim.answer, claim.listed, claim.ended = None, (), False

    def settle(self) -> None:
        """Take note of what the daemon may find out by itself: nobody wants these claims prepared any more."""
        for claim in self.claims:
            if not claim.in_api and not claim.listed:
                claim.answer = None
        self.claims = [x for x in self.claims if x.in_api or x.listed or not x.forgotten]

    def holders(self) -> Iterator[tuple[str, str, str, Takes]]:
        """Who was told yes: the party, its API, a unit, and what there is to it."""
        for pod in self.pods:
            yield from ((pod.resource, "device-plugin", x, takes(x, "device-plugin")) for x in pod.units)
        for claim in self.claims:
            if claim.answer is not None:
                yield from ((f"claim/{claim.uid}", "dra", x, takes(x, "dra")) for x in claim.names)

    def list_pods(self) -> podresources.ListPodResourcesResponse | None:
        """See `wire.Peers`."""
        if not self.kubelet_is_up:
            return None
        return podresources.ListPodResourcesResponse(
            pod_resources=[
                *(_listed(x.name, devices=[_units(x)]) for x in self.pods if x.recorded),
                *(_listed(f"of-{x.uid}", dynamic_resources=[_dynamic(x)]) for x in self.claims if x.listed),
            ]
        )

    def claim(self, path: str) -> Mapping[str, Any] | None:
        """See `wire.Peers`."""
        if not self.server_is_up:
            raise ConnectionError("connection refused")
        name = path.removesuffix("/status").rpartition("/")[2]
        return next((x.body for x in self.claims if x.in_api and x.name == name), None)


def _listed(name: str, **has: Any) -> podresources.PodResources:
    container = podresources.ContainerResources(name="main", **has)
    return podresources.PodResources(name=name, namespace="default", containers=[container])


def _units(pod: Pod) -> podresources.ContainerDevices:
    return podresources.ContainerDevices(resource_name=pod.resource, device_ids=pod.units)


def _dynamic(claim: Claim) -> podresources.DynamicResource:
    devices = [
        podresources.ClaimResource(driver_name=DRIVER, pool_name=x.pool, device_name=x.device, share_id=x.share_id)
        for x in claim.listed
    ]
    return podresources.DynamicResource(claim_name=claim.name, claim_namespace="default", claim_resources=devices)


def _body(name: str, uid: str, results: Sequence[v1.DeviceRequestAllocationResult]) -> Mapping[str, Any]:
    devices = v1.DeviceAllocationResult(results=tuple(results))
    claim = v1.ResourceClaim(
        metadata=ObjectMeta(namespace="default", name=name, uid=uid),
        status=v1.ResourceClaimStatus(allocation=v1.AllocationResult(devices=devices)),
    )
    return write_object(claim)


def result(request: str, device: str, **options: Any) -> v1.DeviceRequestAllocationResult:
    """What a request got on this node."""
    return v1.DeviceRequestAllocationResult(request=request, driver=DRIVER, pool=NODE, device=device, **options)
