"""The resource claim controller: makes claims from templates, and removes reservations and claims no longer needed.

Each pass checks all pods and claims and does what is missing (dra-node.md 5.5, allocator.md 2.11).
"""

import contextlib

from msgspec.structs import replace

from controlplane.scheduler.cluster_cache import ClusterCache
from controlplane.scheduler.cluster_writer import ClusterWriter
from controlplane.scheduler.extended import is_extended_resource_claim
from controlplane.scheduler.pods import is_done, owner_reference, owning_pod
from resourceapi.client import Refused
from resourceapi.objects import (
    ClaimLookupError,
    ObjectMeta,
    check_made_for,
    claim_name,
    is_reserved_for,
    to_dict,
)
from resourceapi.objects.core import Pod, PodResourceClaim, PodResourceClaimStatus
from resourceapi.objects.v1 import FINALIZER, ResourceClaim, ResourceClaimConsumerReference

POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""The annotation of a claim that was made from a template: the name of the pod's reference to it."""
_MAX_GENERATE_NAME = 57  # a name has at most 63 characters, 5 of them random


class ClaimController:
    """The resource claim controller."""

    def __init__(self, cluster: ClusterCache, writer: ClusterWriter) -> None:
        self._cluster, self._writer = cluster, writer
        self._recorded_failures: dict[tuple[str, str], str] = {}  # (pod's uid, reference) -> the last text

    async def sync_pod(self, pod: Pod) -> None:
        """Make the claims that the pod needs; reserve them if the pod has a node. Raises Outdated, ClientError."""
        if is_done(pod) or pod.metadata.deletion_timestamp is not None:
            return
        made = {}
        for reference in pod.spec.resource_claims:
            if reference.resource_claim_template_name is not None and not self._has_claim(pod, reference):
                claim = self._unrecorded_claim(pod, reference.name) or await self._create_claim(pod, reference)
                if claim is not None:
                    made[reference.name] = claim.metadata.name
        if made:
            known = {status.name: status for status in pod.status.resource_claim_statuses}
            known |= {name: PodResourceClaimStatus(name=name, resource_claim_name=x) for name, x in made.items()}
            statuses = [to_dict(status) for status in known.values()]
            pod = await self._writer.set_pod_status(pod, {"resourceClaimStatuses": statuses})
        if pod.spec.node_name:
            await self._reserve(pod)

    async def sync_claim(self, claim: ResourceClaim) -> None:
        """Remove pods that no longer need the claim from it, and clean it up. Raises Outdated, ClientError."""
        owner = owning_pod(claim)
        pod = self._cluster.pods.get(claim.metadata.namespace, owner.name) if owner is not None else None
        is_stray = pod is not None and _is_stray(claim, pod)
        users = claim.status.reserved_for
        kept = () if is_stray else tuple([user for user in users if await self._is_needed_by(claim, user)])
        if kept:
            if kept != users:
                await self._writer.set_claim_status(replace(claim, status=replace(claim.status, reserved_for=kept)))
            return
        is_unwanted = pod is not None and owner is not None and (pod.metadata.uid != owner.uid or is_done(pod))
        if FINALIZER not in claim.metadata.finalizers:  # then no scheduler allocated it, so it stays allocated
            if users:
                claim = await self._writer.set_claim_status(
                    replace(claim, status=replace(claim.status, reserved_for=()))
                )
        elif users or claim.metadata.deletion_timestamp is not None:
            claim = await self._writer.deallocate(claim)
        if (is_unwanted or is_stray) and claim.metadata.deletion_timestamp is None:
            await self._writer.delete_claim(claim)  # claims of deleted pods are deleted by the garbage collector

    def _has_claim(self, pod: Pod, reference: PodResourceClaim) -> bool:
        """Return whether the pod's reference to a template has its claim, or needs none."""
        try:
            name, _ = claim_name(pod, reference)
        except ClaimLookupError:
            return False
        return name is None or self._cluster.claims.get(pod.metadata.namespace, name) is not None

    def _unrecorded_claim(self, pod: Pod, reference: str) -> ResourceClaim | None:
        """The claim that was already made for the reference, although the pod's status does not name it yet."""
        for claim in self._cluster.claims.objects.values():
            owner = owning_pod(claim)
            is_owned = owner is not None and owner.uid == pod.metadata.uid
            if is_owned and claim.metadata.annotations.get(POD_CLAIM_NAME) == reference:
                return claim
        return None

    async def _create_claim(self, pod: Pod, reference: PodResourceClaim) -> ResourceClaim | None:
        template_name = str(reference.resource_claim_template_name)
        template = self._cluster.templates.get(pod.metadata.namespace, template_name)
        if template is None:
            missing = f'resourceclaimtemplate.resource.k8s.io "{template_name}" not found'
            await self._record_creation_failure(
                pod, reference.name, f'resource claim template "{template_name}": {missing}'
            )
            return None
        metadata = ObjectMeta(
            generate_name=generate_name(pod.metadata.name, reference.name),
            namespace=pod.metadata.namespace,
            labels=template.spec.metadata.labels,
            annotations={**template.spec.metadata.annotations, POD_CLAIM_NAME: reference.name},
            owner_references=(owner_reference(pod),),
        )
        try:
            claim = await self._writer.create_claim(ResourceClaim(metadata=metadata, spec=template.spec.spec))
        except Refused as refusal:
            await self._record_creation_failure(pod, reference.name, f"create ResourceClaim : {refusal.message}")
            raise
        self._recorded_failures.pop((pod.metadata.uid, reference.name), None)
        return claim

    async def _record_creation_failure(self, pod: Pod, reference: str, text: str) -> None:
        """Record, once per text, an event on the pod that says why it has no claim."""
        key = (pod.metadata.uid, reference)
        if self._recorded_failures.get(key) != text:
            existing = {each.metadata.uid for each in self._cluster.pods.objects.values()}
            self._recorded_failures = {
                k: before for k, before in self._recorded_failures.items() if k[0] in existing
            } | {key: text}
            await self._writer.record_event(pod, "FailedResourceClaimCreation", f"PodResourceClaim {reference}: {text}")

    async def _reserve(self, pod: Pod) -> None:
        """Reserve allocated claims for a pod whose node was set without a scheduler."""
        for reference in pod.spec.resource_claims:
            with contextlib.suppress(ClaimLookupError):
                name, must_own = claim_name(pod, reference)
                claim = self._cluster.claims.get(pod.metadata.namespace, name) if name is not None else None
                if claim is None or claim.status.allocation is None or is_reserved_for(claim, pod):
                    continue
                if must_own:
                    check_made_for(claim, pod)
                await self._writer.reserve(claim, pod)

    async def _is_needed_by(self, claim: ResourceClaim, user: ResourceClaimConsumerReference) -> bool:
        """Return whether a user of the claim still needs it. True for users that are not pods.

        Only their own controller can release those.
        """
        if user.api_group or user.resource != "pods":
            return True
        pod = self._cluster.pods.get(claim.metadata.namespace, user.name)
        if pod is None:  # deleted, or too new for the cache
            return await self._writer.pod_exists(user.name, claim.metadata.namespace, user.uid)
        return pod.metadata.uid == user.uid and not is_done(pod)


def generate_name(pod: str, reference: str) -> str:
    """The beginning of a claim's name. If it is too long, both parts are cut in proportion."""
    wanted = f"{pod}-{reference}-"
    if len(wanted) <= _MAX_GENERATE_NAME:
        return wanted
    return "-".join(part[: len(part) * _MAX_GENERATE_NAME // len(wanted)] for part in (pod, reference))


def _is_stray(claim: ResourceClaim, pod: Pod) -> bool:
    """Return whether a claim for extended resources was left behind: its pod's status does not name it."""
    known = pod.status.extended_resource_claim_status
    return is_extended_resource_claim(claim) and (known is None or known.resource_claim_name != claim.metadata.name)
