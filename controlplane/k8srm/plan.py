"""What to write to schedule a pod: the node to bind it to, and the status of its claims.

Rules: claims that are already allocated keep their devices, and the pod goes to their node. All others are allocated
together on one node. Configuration objects that classes and claims refer to are copied into the status in their current
state, without managedFields; if one is missing, nothing is allocated. Pure: `schedule` reads and writes. Source:
allocator specification 6.3.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from controlplane.k8srm.amounts import quantity_of
from controlplane.k8srm.errors import K8srmError
from controlplane.k8srm.holdings import resources_of
from controlplane.k8srm.load import ClusterObjects, ObjectName
from controlplane.k8srm.pods import PodClaim, claims_of_pod
from controlplane.k8srm.solve import Outcome, select_node
from controlplane.k8srm.translate import Assignment, allocation_of
from controlplane.k8srm.types import DeviceAllocation, DeviceClaim, with_status
from controlplane.structured.capacity import billionths
from resourceapi.objects.core import Pod

Lookup = Callable[[ObjectName], dict[str, Any] | None]
"""Returns any object, for configuration; None if it does not exist."""


class Plan(Struct, frozen=True):
    """What to do for a pod. Nothing if `outcome` has no node; then `conflicts` are further reasons."""

    outcome: Outcome
    claims: tuple[PodClaim, ...] = ()  # with the status to write
    conflicts: tuple[str, ...] = ()


def plan(pod: Pod, cluster: ClusterObjects, lookup: Lookup, *, verbose: bool = False, timeout: float = 10.0) -> Plan:
    """Plan how to schedule a pod; `timeout` is in seconds for each node. Raises K8srmError."""
    if pod.spec.node_name:
        raise K8srmError(f"pod {pod.metadata.name} is bound to node {pod.spec.node_name} already")
    used = claims_of_pod(pod, cluster)
    pending = [each.claim for each in used if not each.claim.status.allocations]
    nodes, conflicts = _eligible_nodes(cluster, [each.claim for each in used if each.claim.status.allocations])
    outcome = select_node(pending, cluster, nodes, verbose=verbose, timeout=timeout)
    if outcome.node is None:
        return Plan(outcome, conflicts=tuple(conflicts))
    assignments = iter(outcome.assignments)
    planned = []
    for each in used:
        claim = each.claim
        if not claim.status.allocations:
            claim = _with_allocations(claim, next(assignments), cluster, lookup)
        names = tuple(dict.fromkeys([*claim.status.pod_names, pod.metadata.name]))
        planned.append(PodClaim(with_status(claim, pod_names=names), each.is_new))
    return Plan(outcome, tuple(planned), tuple(conflicts))


def _eligible_nodes(cluster: ClusterObjects, allocated: Iterable[DeviceClaim]) -> tuple[list[str], list[str]]:
    """The nodes that have all allocated devices, and the reasons against the other nodes."""
    nodes, conflicts = cluster.node_names, []
    for claim in allocated:
        for allocation in claim.status.allocations:
            pool = cluster.pools.get(allocation.device_pool_name)
            if pool is None:
                raise K8srmError(
                    f"claim {claim.metadata.name} has a device of pool {allocation.device_pool_name}, which is gone; "
                    "clear its status to have it allocated again"
                )
            if pool.spec.node_name and nodes != [pool.spec.node_name]:
                nodes = [node for node in nodes if node == pool.spec.node_name]
                conflicts.append(f"claim {claim.metadata.name} is allocated on node {pool.spec.node_name}")
    return nodes, conflicts


def _with_allocations(
    claim: DeviceClaim, assignments: Sequence[Assignment], cluster: ClusterObjects, lookup: Lookup
) -> DeviceClaim:
    """The claim with its devices and copied configurations. Raises K8srmError if one is missing."""
    classes = dict.fromkeys(
        device.requirement.candidates[device.pool][device.device].device_class for device in assignments
    )
    details = {device.requirement.id: device.requirement.detail for device in assignments}
    class_configs = [
        _copied_configuration(ObjectName(x.api_version, x.kind, x.namespace, x.name), f"device class {name}", lookup)
        for name in classes
        for x in cluster.classes[name].spec.configs
    ]
    namespace = claim.metadata.namespace or "default"
    claim_configs = [
        _copied_configuration(
            ObjectName(x.api_version, x.kind, namespace, x.name), f"claim {claim.metadata.name}", lookup
        )
        for detail in details.values()
        for x in detail.configs
    ]
    return with_status(
        claim,
        class_configs=tuple(class_configs),
        claim_configs=tuple(claim_configs),
        allocations=tuple(_allocation(device, cluster) for device in assignments),
    )


def _allocation(assignment: Assignment, cluster: ClusterObjects) -> DeviceAllocation:
    """A device in a claim's status; amounts have suffixes in the format of the device's capacity."""
    device = next(x for x in cluster.pools[assignment.pool].spec.devices if x.name == assignment.device)
    formats = {name: resource.capacity.format for name, resource in resources_of(device).items()}
    allocation = allocation_of(assignment)
    return replace(
        allocation,
        allocations=tuple(
            replace(x, allocation=quantity_of(billionths(x.allocation), formats[x.name]))
            for x in allocation.allocations
        ),
    )


def _copied_configuration(name: ObjectName, user: str, lookup: Lookup) -> dict[str, Any]:
    found = lookup(name)
    if found is None:
        raise K8srmError(f"{user} refers to {name} ({name.api_version}), which does not exist; create it first")
    metadata = {name: value for name, value in found.get("metadata", {}).items() if name != "managedFields"}
    return {**found, "metadata": metadata}
