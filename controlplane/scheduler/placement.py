"""Which node can run a pod: first its claims are checked, then each node. The texts are kube-scheduler's.

Faithful for devices; otherwise only node selectors, required node affinity and `unschedulable` are respected. There
are no scores: the first node by name that fits is used.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from controlplane.scheduler.cluster_cache import ClusterCache
from controlplane.scheduler.extended import (
    ExtendedResourceClaim,
    classes_by_resource,
    extended_resource_claim,
    plugin_requests,
)
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
from resourceapi.objects.selectors import node_matches, pod_selects
from resourceapi.objects.v1 import AllocationResult, DeviceRequest, ResourceClaim, ResourceSlice

FILTER_TIMEOUT = 10.0
"""The longest time, in seconds, that the search on one node can take."""
MAX_USERS = 256
"""The most pods that can share a claim."""


class Unschedulable(Exception):
    """The pod cannot be placed now; the text is the reason.

    `blocking_claim` is a claim of the pod that has no other user and whose allocation excludes some node.
    """

    def __init__(self, text: str, blocking_claim: ResourceClaim | None = None) -> None:
        super().__init__(text)
        self.blocking_claim = blocking_claim


class Snapshot(Struct, frozen=True):
    """Everything that placements depend on, at one moment."""

    nodes: Sequence[Node]
    classes: DeviceClasses
    by_resource: Mapping[str, str]  # extended resource -> class
    slices: Sequence[ResourceSlice]  # with the taints of DeviceTaintRules
    state: AllocatedState
    used: Mapping[str, Counter[str]]  # node -> units of device plugins that its pods use
    index: SliceIndex
    features: Features


class Placement(Struct, frozen=True):
    """The node for a pod, and what is allocated there.

    `claims` are the pod's, in order. `allocations` belong to those without one, in the same order; the last one belongs
    to `extended_claim`, a claim that is still to be created, if there is one.
    """

    node: Node
    claims: tuple[ResourceClaim, ...]
    allocations: tuple[AllocationResult, ...] = ()
    extended_claim: ExtendedResourceClaim | None = None


def take_snapshot(
    cluster: ClusterCache, slices: Sequence[ResourceSlice], index: SliceIndex, features: Features
) -> Snapshot:
    """Return the cluster's current state. `slices` are its slices with the taints of DeviceTaintRules."""
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
    """Return the claims that the pod needs; the claim for extended resources is last. Raises Unschedulable."""
    found: dict[str, ResourceClaim] = {}
    for reference in pod.spec.resource_claims:
        try:
            name, must_own = claim_name(pod, reference)
            if name is None:
                continue
            claim = _usable_claim(cluster, pod, name)
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
    extended_status = pod.status.extended_resource_claim_status
    if extended_status is not None:
        found[extended_status.resource_claim_name] = _usable_claim(cluster, pod, extended_status.resource_claim_name)
    return tuple(found.values())


def place(pod: Pod, claims: tuple[ResourceClaim, ...], snapshot: Snapshot) -> Placement:
    """Return the first node that can run the pod. Blocks during the search.

    Raises Unschedulable; AllocationError for faults of the claims that are the same on every node.
    """
    if not snapshot.nodes:
        raise Unschedulable("no nodes available to schedule pods")
    needed = tuple(claim for claim in claims if claim.status.allocation is None)
    allocator = Allocator(snapshot.features, snapshot.state, snapshot.classes, snapshot.slices, index=snapshot.index)
    reasons: Counter[str] = Counter()
    blocking_claim: ResourceClaim | None = None
    for node in snapshot.nodes:
        refusals = _refusals(pod, node, snapshot)
        bound_elsewhere = _bound_elsewhere(claims, node)
        if bound_elsewhere:
            refusals.append("resourceclaim not available on the node")
            blocking_claim = blocking_claim or next(
                (claim for claim in bound_elsewhere if _is_only_user(pod, claim)), None
            )
        extended_claim = None
        if pod.status.extended_resource_claim_status is None:
            extended_claim = extended_resource_claim(pod, node, snapshot.by_resource)
        unallocated = needed if extended_claim is None else (*needed, extended_claim.claim)
        if unallocated and not refusals:
            try:
                allocations = allocator.allocate(node, unallocated, timeout=FILTER_TIMEOUT)
            except NodeError as error:
                refusals.append(str(error))
            else:
                if allocations is not None:
                    return Placement(node, claims, tuple(allocations), extended_claim)
                refusals.append("cannot allocate all claims")
        elif not refusals:
            return Placement(node, claims)
        reasons.update(refusals)
    summary = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    raise Unschedulable(f"0/{len(snapshot.nodes)} nodes are available: {summary}.", blocking_claim)


def _usable_claim(cluster: ClusterCache, pod: Pod, name: str) -> ResourceClaim:
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
    """The reasons against the node, apart from devices of classes."""
    found = []
    if node.spec.unschedulable:
        found.append("node(s) were unschedulable")
    if not pod_selects(pod, node):
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
