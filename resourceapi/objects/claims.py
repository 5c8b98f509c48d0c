"""Functions on claims that the scheduler, the kubelet and drivers share (allocator.md 1.6)."""

from collections.abc import Sequence
from typing import NamedTuple

from resourceapi.objects import v1
from resourceapi.objects.core import Pod, PodResourceClaim, Taint, Toleration


class ClaimLookupError(ValueError):
    """A pod's reference names no claim, or a claim that does not belong to the pod."""


class ClaimName(NamedTuple):
    """The claim of a pod's reference: None if none was needed; `must_own`: the pod must own the claim."""

    name: str | None
    must_own: bool


def claim_name(pod: Pod, reference: PodResourceClaim) -> ClaimName:
    """Return the claim that a pod's reference names; raises ClaimLookupError, also if it is not created yet."""
    if reference.resource_claim_name is not None:
        return ClaimName(reference.resource_claim_name, must_own=False)
    if reference.resource_claim_template_name is not None:
        for status in pod.status.resource_claim_statuses:
            if status.name == reference.name:
                return ClaimName(status.resource_claim_name, must_own=True)
        raise ClaimLookupError(f'pod "{_path(pod)}": ResourceClaim not created yet')
    raise ClaimLookupError(
        f'pod "{_path(pod)}", spec.resourceClaim "{reference.name}": none of the supported fields are set'
    )


def check_made_for(claim: v1.ResourceClaim, pod: Pod) -> None:
    """Raise ClaimLookupError unless a claim was created for a pod: same namespace, and the pod controls it."""
    if claim.metadata.namespace != pod.metadata.namespace:
        raise ClaimLookupError(f"ResourceClaim {_path(claim)} is not in the same namespace as Pod {_path(pod)}")
    owners = (owner for owner in claim.metadata.owner_references if owner.controller)
    if not any(owner.uid == pod.metadata.uid for owner in owners):
        raise ClaimLookupError(f"ResourceClaim {_path(claim)} was not created for Pod {_path(pod)} (Pod is not owner)")


def is_reserved_for(claim: v1.ResourceClaim, pod: Pod) -> bool:
    """Return whether the claim is reserved for the pod."""
    return any(user.uid == pod.metadata.uid for user in claim.status.reserved_for)


def config_for_result(
    configs: Sequence[v1.DeviceAllocationConfiguration], result: v1.DeviceRequestAllocationResult
) -> list[v1.DeviceAllocationConfiguration]:
    """Return the opaque configuration for a result, in the order in which it applies."""
    names = {result.request, result.request.partition("/")[0]}
    return [x for x in configs if x.opaque is not None and (not x.requests or not names.isdisjoint(x.requests))]


def tolerates(toleration: v1.DeviceToleration | Toleration, taint: v1.DeviceTaint | Taint) -> bool:
    """Return whether a toleration tolerates a taint of a device or a node."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator in ("", v1.EQUAL):
        return toleration.value == taint.value
    return toleration.operator == v1.EXISTS


def _path(obj: Pod | v1.ResourceClaim) -> str:
    return f"{obj.metadata.namespace}/{obj.metadata.name}"
