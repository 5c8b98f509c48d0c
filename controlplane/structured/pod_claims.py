"""Which claims a pod refers to, whether it may use them, and what its devices are configured with.

Source: allocator specification 1.6 (package resourceclaim of k8s.io/dynamic-resource-allocation).
"""

from collections.abc import Iterable
from typing import NamedTuple

from resourceapi.objects.core import Pod, PodResourceClaim
from resourceapi.objects.meta import ObjectMeta
from resourceapi.objects.v1 import (
    DeviceAllocationConfiguration,
    DeviceRequestAllocationResult,
    OpaqueDeviceConfiguration,
    ResourceClaim,
)


class PodClaimError(Exception):
    """A pod's claim that is not there yet, not described, or not the pod's."""


class ClaimReference(NamedTuple):
    """The claim that a pod means; `name` is None where it was decided that none is needed."""

    name: str | None
    must_check_owner: bool


def referenced_claim(pod: Pod, claim: PodResourceClaim) -> ClaimReference:
    """The claim behind an entry of the pod's spec.

    A claim made from a template is found in the pod's status, and its owner has to be checked with `check_is_for_pod`.
    Raises PodClaimError.
    """
    if claim.resource_claim_name is not None:
        return ClaimReference(claim.resource_claim_name, must_check_owner=False)
    if claim.resource_claim_template_name is None:
        raise PodClaimError(
            f'pod "{_path(pod.metadata)}", spec.resourceClaim "{claim.name}": none of the supported fields are set'
        )
    for status in pod.status.resource_claim_statuses:
        if status.name == claim.name:
            return ClaimReference(status.resource_claim_name, must_check_owner=True)
    raise PodClaimError(f'pod "{_path(pod.metadata)}": ResourceClaim not created yet')


def check_is_for_pod(pod: Pod, claim: ResourceClaim) -> None:
    """Raises PodClaimError unless the claim was made for the pod."""
    names = f"ResourceClaim {_path(claim.metadata)}", f"Pod {_path(pod.metadata)}"
    if claim.metadata.namespace != pod.metadata.namespace:
        raise PodClaimError(f"{names[0]} is not in the same namespace as {names[1]}")
    if not any(owner.controller and owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references):
        raise PodClaimError(f"{names[0]} was not created for {names[1]} (Pod is not owner)")


def is_reserved_for_pod(pod: Pod, claim: ResourceClaim) -> bool:
    """Whether the pod may use the claim."""
    return any(user.uid == pod.metadata.uid for user in claim.status.reserved_for)


def can_be_reserved(claim: ResourceClaim) -> bool:
    """Whether one more pod may use the claim: always, claims have no exclusive users."""
    del claim
    return True


def config_for_result(
    configs: Iterable[DeviceAllocationConfiguration], result: DeviceRequestAllocationResult
) -> list[OpaqueDeviceConfiguration]:
    """The opaque configuration of an allocated device: for all requests, for its own, or for its alternative."""
    names = {result.request, result.request.partition("/")[0]}
    return [
        config.opaque
        for config in configs
        if config.opaque is not None and (not config.requests or not names.isdisjoint(config.requests))
    ]


def _path(metadata: ObjectMeta) -> str:
    return f"{metadata.namespace}/{metadata.name}"
