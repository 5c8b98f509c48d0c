"""Which node can take a pod: first what its claims say, then node by node, in the words of kube-scheduler.

Faithful about devices; of everything else only node selectors and cordons are looked at. No scores: the first node by
name that fits is taken.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from controlplane.scheduler.cluster_cache import ClusterCache
from controlplane.scheduler.extended import SpecialClaim, classes_by_resource, plugin_requests, special_claim
from controlplane.scheduler.pods import device_plugin_requests, is_done
from controlplane.structured import (
    AllocatedState,
    Allocator,
    DeviceClasses,
    Features,
    NodeError,
    SliceIndex,
)
from resourceapi.objects import ClaimLookupError, check_made_for, claim_name, is_reserved_for
from resourceapi.objects.core import Node, Pod
from resourceapi.objects.selectors import node_matches
from resourceapi.objects.v1 import AllocationResult, DeviceRequest, ResourceClaim, ResourceSlice

FILTER_TIMEOUT = 10.0
"""Seconds that the search on one node may take."""
MAX_USERS = 256
"""How many pods can share a claim."""


class Unschedulable(Exception):
    """The pod has no place now; the text says why.

    `in_the_way` is a claim of the pod whose allocation keeps it from some node, and that nobody else uses.
    """

    def __init__(self, text: str, in_the_way: ResourceClaim | None = None) -> None:
        super().__init__(text)
        self.in_the_way = in_the_way


class Snapshot(Struct, frozen=True):
    """What decides about placements, at one moment."""

    nodes: Sequence[Node]
    classes: DeviceClasses
    by_resource: Mapping[str, str]  # extended resource -> class
    slices: Sequence[ResourceSlice]  # with the taints of rules
    state: AllocatedState
    used: Mapping[str, Counter[str]]  # node -> what its pods have from device plugins
    index: SliceIndex
    features: Features


class Placement(Struct, frozen=True):
    """Where a pod goes and what it gets there.

    `claims` are the pod's, in order; `allocations` are for those that have none yet, in the same order; the last one
    is for `special`, a claim that is to be made, if there is one.
    """

    node: Node
    claims: tuple[ResourceClaim, ...]
    allocations: tuple[AllocationResult, ...] = ()
    special: SpecialClaim | None = None


def take_snapshot(
    cluster: ClusterCache, slices: Sequence[ResourceSlice], index: SliceIndex, features: Features
) -> Snapshot:
    """The cluster as it is now; `slices` are its slices with the taints of rules."""
    used: dict[str, Counter[str]] = {}
    for pod in cluster.pods.objects.values():
        if pod.spec.node_name and not is_done(pod):
            used.setdefault(pod.spec.node_name, Counter()).update(device_plugin_requests(pod))
    classes = tuple(cluster.classes.objects.values())
    return Snapshot(
        nodes=sorted(cluster.nodes.objects.values(), key=lambda node: node.metadata.name),
        classes=DeviceClasses(classes),
        by_resource=classes_by_resource(classes),
        slices=slices,
        state=AllocatedState.from_claims(cluster.claims.objects.values()),
        used=used,
        index=index,
        features=features,
    )


def claims_of(pod: Pod, cluster: ClusterCache) -> tuple[ResourceClaim, ...]:
    """The claims that the pod needs, those for extended resources at last. Raises Unschedulable."""
    found: dict[str, ResourceClaim] = {}
    for reference in pod.spec.resource_claims:
        try:
            name, must_own = claim_name(pod, reference)
            if name is None:
                continue
            claim = _existing(cluster, pod, name)
            if must_own:
                check_made_for(claim, pod)
        except ClaimLookupError as error:
            raise Unschedulable(str(error)) from error
        found[name] = claim
        if claim.status.allocation is None:
            for request in claim.spec.devices.requests:
                _check_classes(request, cluster)
        elif len(claim.status.reserved_for) >= MAX_USERS and not is_reserved_for(claim, pod):
            raise Unschedulable("resourceclaim in use")
    special = pod.status.extended_resource_claim_status
    if special is not None:
        found[special.resource_claim_name] = _existing(cluster, pod, special.resource_claim_name)
    return tuple(found.values())


def place(pod: Pod, claims: tuple[ResourceClaim, ...], snapshot: Snapshot) -> Placement:
    """The first node that can take the pod. Blocks while it searches.

    Raises Unschedulable; AllocationError for what is wrong with the claims wherever the pod would go.
    """
    if not snapshot.nodes:
        raise Unschedulable("no nodes available to schedule pods")
    needed = tuple(claim for claim in claims if claim.status.allocation is None)
    allocator = Allocator(snapshot.features, snapshot.state, snapshot.classes, snapshot.slices, index=snapshot.index)
    reasons: Counter[str] = Counter()
    in_the_way: ResourceClaim | None = None
    for node in snapshot.nodes:
        refusals = _refusals(pod, node, snapshot)
        bound_elsewhere = _bound_elsewhere(claims, node)
        if bound_elsewhere:
            refusals.append("resourceclaim not available on the node")
            in_the_way = in_the_way or next((claim for claim in bound_elsewhere if _is_only_user(pod, claim)), None)
        special = None
        if pod.status.extended_resource_claim_status is None:
            special = special_claim(pod, node, snapshot.by_resource)
        unallocated = needed if special is None else (*needed, special.claim)
        if unallocated and not refusals:
            try:
                allocations = allocator.allocate(node, unallocated, timeout=FILTER_TIMEOUT)
            except NodeError as error:
                refusals.append(str(error))
            else:
                if allocations is not None:
                    return Placement(node, claims, tuple(allocations), special)
                refusals.append("cannot allocate all claims")
        elif not refusals:
            return Placement(node, claims)
        reasons.update(refusals)
    summary = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    raise Unschedulable(f"0/{len(snapshot.nodes)} nodes are available: {summary}.", in_the_way)


def _existing(cluster: ClusterCache, pod: Pod, name: str) -> ResourceClaim:
    claim = cluster.claims.get(pod.metadata.namespace, name)
    if claim is None:
        raise Unschedulable(f'resourceclaim.resource.k8s.io "{name}" not found')
    if claim.metadata.deletion_timestamp is not None:
        raise Unschedulable(f'resourceclaim "{name}" is being deleted')
    return claim


def _check_classes(request: DeviceRequest, cluster: ClusterCache) -> None:
    wanted = [(f"{request.name}/{each.name}", each.device_class_name) for each in request.first_available]
    if request.exactly is not None:
        wanted.append((request.name, request.exactly.device_class_name))
    for name, device_class in wanted:
        if cluster.classes.get("", device_class) is None:
            raise Unschedulable(f"request {name}: device class {device_class} does not exist")


def _refusals(pod: Pod, node: Node, snapshot: Snapshot) -> list[str]:
    """What keeps the pod off the node, devices of classes aside."""
    found = []
    labels = node.metadata.labels
    if node.spec.unschedulable:
        found.append("node(s) were unschedulable")
    if any(labels.get(name) != value for name, value in pod.spec.node_selector.items()):
        found.append("node(s) didn't match Pod's node affinity/selector")
    used = snapshot.used.get(node.metadata.name, Counter())
    for resource, count in plugin_requests(pod, node, snapshot.by_resource).items():
        offered = node.status.allocatable.get(resource)
        if offered is None or offered.value() - used[resource] < count:
            found.append(f"Insufficient {resource}")
    return found


def _bound_elsewhere(claims: Sequence[ResourceClaim], node: Node) -> list[ResourceClaim]:
    """The claims whose devices cannot be used on the node."""
    return [
        claim
        for claim in claims
        if claim.status.allocation is not None
        and claim.status.allocation.node_selector is not None
        and not node_matches(claim.status.allocation.node_selector, node)
    ]


def _is_only_user(pod: Pod, claim: ResourceClaim) -> bool:
    return all(user.uid == pod.metadata.uid for user in claim.status.reserved_for)
