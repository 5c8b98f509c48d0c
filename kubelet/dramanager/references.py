"""The claims that a pod refers to, with the pod's names for them.

Source: DRA specification, section 4.5, phase 1.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kubelet.errors import ClaimError
from kubelet.release import EXTENDED_RESOURCE, Release
from resourceapi.objects import ClaimLookupError, claim_name
from resourceapi.objects.core import Pod


class Reference(NamedTuple):
    """A claim of a pod. `key` is the pod's name for it, empty for the claim of its extended resources.

    `must_own`: the claim was created for this pod from a template.
    """

    key: str
    claim: str
    must_own: bool


def references(pod: Pod, release: Release) -> Iterator[Reference]:
    """Yield the references to a pod's claims; those for which no claim was needed are skipped. Raises `ClaimError`."""
    for each in pod.spec.resource_claims:
        try:
            name, must_own = claim_name(pod, each)
        except ClaimLookupError as error:
            raise ClaimError(str(error)) from error
        if name is not None:
            yield Reference(each.name, name, must_own)
    extended = pod.status.extended_resource_claim_status
    if release.has(EXTENDED_RESOURCE) and extended is not None and extended.resource_claim_name:
        yield Reference("", extended.resource_claim_name, must_own=False)


def has_claims(pod: Pod) -> bool:
    """Return whether the pod has any claims."""
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None
