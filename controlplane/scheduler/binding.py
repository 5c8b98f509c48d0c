"""Executes a placement: allocates and reserves the claims, waits for binding conditions, binds the pod.

Devices are checked in the order of their results, so a device that is not ready hides the failure of a later one. Every
step can be repeated. After a failure, the next attempt reads from the objects what was done, and completes or reverts
it.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from controlplane.scheduler.cluster_cache import ClusterCache
from controlplane.scheduler.cluster_writer import ClusterWriter
from controlplane.scheduler.placement import Placement
from resourceapi.objects import Condition, is_reserved_for, quoted_text, to_dict
from resourceapi.objects.core import Pod, PodExtendedResourceClaimStatus
from resourceapi.objects.v1 import (
    AllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)


class BindingFailed(Exception):
    """A device does not become ready. The text is kube-scheduler's."""


class Binder:
    """Executes placements. `binding_timeout` is in seconds; `wake_at` requests another pass at that time."""

    def __init__(
        self,
        cluster: ClusterCache,
        writer: ClusterWriter,
        binding_timeout: float,
        now: Callable[[], datetime],
        wake_at: Callable[[datetime], None],
    ) -> None:
        self._cluster, self._writer = cluster, writer
        self._timeout = timedelta(seconds=binding_timeout)
        self._now = now
        self._wake_at = wake_at

    async def bind(self, pod: Pod, placement: Placement) -> None:
        """Bind the pod, or do the steps that are possible now. Raises BindingFailed, Outdated, ClientError."""
        allocations = iter(placement.allocations)
        claims = [await self._reserve(pod, claim, allocations) for claim in placement.claims]
        if placement.extended_claim is not None:
            pod, extended_claim = await self._create_extended_claim(pod, placement, next(allocations))
            claims.append(extended_claim)
        node = placement.node.metadata.name
        is_reserved_now = any(claim not in placement.claims for claim in claims)
        if is_reserved_now and any(True for claim in claims for _ in _devices_with_conditions(claim)):
            text = f"waiting for binding conditions for device on node {node}"
            await self._writer.record_event(pod, "BindingConditionsPending", text, is_warning=False)
        for claim in claims:
            await self._check_conditions(claim)
        if not all(readiness(claim).is_ready for claim in claims):
            return  # the driver's next status update starts another pass
        bound = await self._writer.bind(pod, node)
        path = f"{pod.metadata.namespace}/{pod.metadata.name}"
        await self._writer.record_event(bound, "Scheduled", f"Successfully assigned {path} to {node}", is_warning=False)

    async def _reserve(self, pod: Pod, claim: ResourceClaim, allocations: Iterator[AllocationResult]) -> ResourceClaim:
        """Return the claim, allocated and reserved for the pod."""
        if claim.status.allocation is not None and is_reserved_for(claim, pod):
            return claim
        if claim.status.allocation is not None:
            return await self._writer.reserve(claim, pod)
        claim = await self._writer.protect(claim)
        allocation = replace(next(allocations), allocation_timestamp=self._now().replace(microsecond=0))
        return await self._writer.reserve(claim, pod, allocation)

    async def _create_extended_claim(
        self, pod: Pod, placement: Placement, allocation: AllocationResult
    ) -> tuple[Pod, ResourceClaim]:
        """Create the claim for extended resources; the pod's status names it only once it is allocated."""
        assert placement.extended_claim is not None, "there is an allocation for it"
        claim = await self._writer.create_claim(placement.extended_claim.claim)
        claim = await self._reserve(pod, claim, iter((allocation,)))
        status = PodExtendedResourceClaimStatus(
            request_mappings=placement.extended_claim.mappings, resource_claim_name=claim.metadata.name
        )
        return await self._writer.set_pod_status(pod, {"extendedResourceClaimStatus": to_dict(status)}), claim

    async def _check_conditions(self, claim: ResourceClaim) -> None:
        """Deallocate the claim if one of its devices failed or timed out. Raises BindingFailed."""
        allocation = claim.status.allocation
        assert allocation is not None, "it was reserved"
        is_ready, failure = readiness(claim)
        if is_ready:
            return
        due = (allocation.allocation_timestamp or self._now()) + self._timeout
        name = claim.metadata.name
        if failure is not None:
            why = f"failed: claim={name}, reason={failure.reason}, message={quoted_text(failure.message)}"
        elif due <= self._now():
            why = f"timeout: claim={name}"
        else:
            self._wake_at(due)
            return
        if not self._is_in_use(claim):
            emptied = replace(claim.status, allocation=None, reserved_for=())
            await self._writer.set_claim_status(replace(claim, status=emptied))
        raise BindingFailed(f"device binding {why}")

    def _is_in_use(self, claim: ResourceClaim) -> bool:
        """Return whether a pod that uses the claim is bound to a node."""
        users = {user.uid for user in claim.status.reserved_for}
        return any(pod.spec.node_name and pod.metadata.uid in users for pod in self._cluster.pods.objects.values())


class Readiness(NamedTuple):
    """Whether all conditions that binding waits for are true; `failure` is one that forbids binding."""

    is_ready: bool
    failure: Condition | None = None


def readiness(claim: ResourceClaim) -> Readiness:
    """Return whether a claim's devices are ready. The result describes the first device that is not."""
    for result, true in _devices_with_conditions(claim):
        failure = next((true[name] for name in result.binding_failure_conditions if name in true), None)
        if failure is not None or not true.keys() >= set(result.binding_conditions):
            return Readiness(False, failure)
    return Readiness(True)


def _devices_with_conditions(
    claim: ResourceClaim,
) -> Iterator[tuple[DeviceRequestAllocationResult, dict[str, Condition]]]:
    """Each device with binding conditions, and those of its conditions that are true."""
    assert claim.status.allocation is not None, "only allocated claims are asked about"
    for result in claim.status.allocation.devices.results:
        if not result.binding_conditions:
            continue
        device = (result.driver, result.pool, result.device)  # the scheduler ignores the share
        status = next((x for x in claim.status.devices if (x.driver, x.pool, x.device) == device), None)
        conditions = status.conditions if status is not None else ()
        yield result, {condition.type: condition for condition in conditions if condition.status == "True"}
