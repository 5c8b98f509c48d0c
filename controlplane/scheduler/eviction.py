"""Evicts pods that use a device with a NoExecute taint, at once or when their toleration expires."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta

from controlplane.scheduler.cluster_cache import ClusterCache
from controlplane.scheduler.cluster_writer import ClusterWriter
from controlplane.scheduler.extended import is_extended_resource_claim
from controlplane.scheduler.pods import is_done
from controlplane.structured import DeviceID, selects
from resourceapi.objects import tolerates
from resourceapi.objects.core import Pod
from resourceapi.objects.v1 import (
    NO_EXECUTE,
    DeviceTaint,
    DeviceTaintRule,
    DeviceToleration,
    ResourceClaim,
    ResourceSlice,
)

_CONDITION_REASON = "DeletionByDeviceTaintManager"
_CONDITION_MESSAGE = "Device Taint manager: deleting due to NoExecute taint"


class Evictor:
    """The device taint manager. `wake_at` requests another pass at a later time."""

    def __init__(
        self,
        cluster: ClusterCache,
        writer: ClusterWriter,
        now: Callable[[], datetime],
        wake_at: Callable[[datetime], None],
    ) -> None:
        self._cluster, self._writer = cluster, writer
        self._now = now
        self._wake_at = wake_at

    def pods_to_evict(self) -> list[Pod]:
        """Return the pods that must be deleted now."""
        taints = published_taints(self._cluster.slices.objects.values())
        rules = [each for each in self._cluster.rules.objects.values() if each.spec.taint.effect == NO_EXECUTE]
        if not (taints or rules):
            return []
        now = self._now()
        leaving: dict[str, datetime] = {}  # pod's uid -> time of eviction
        for claim in self._cluster.claims.objects.values():
            if is_extended_resource_claim(claim):
                continue  # the upstream controller checks the claims that pods name, not those for extended resources
            when = eviction_time(claim, taints, rules, now)
            if when is not None:
                leaving |= {x.uid: min(when, leaving.get(x.uid, when)) for x in claim.status.reserved_for}
        found = []
        for pod in self._cluster.pods.objects.values():
            when = leaving.get(pod.metadata.uid)
            if when is None or not pod.spec.node_name or is_done(pod) or pod.metadata.deletion_timestamp is not None:
                continue
            if when <= now:
                found.append(pod)
            else:
                self._wake_at(when)
        return found

    async def evict(self, pod: Pod) -> None:
        """Delete a pod, with an event and a condition that give the reason. Raises Outdated, ClientError."""
        path = f"{pod.metadata.namespace}/{pod.metadata.name}"
        await self._writer.record_event(pod, "DeviceTaintManagerEviction", f"Marking for deletion Pod {path}")
        await self._writer.set_pod_condition(pod, "DisruptionTarget", "True", _CONDITION_REASON, _CONDITION_MESSAGE)
        await self._writer.delete_pod(pod)


def published_taints(slices: Collection[ResourceSlice]) -> dict[DeviceID, list[DeviceTaint]]:
    """The NoExecute taints that drivers publish. Slices of older generations of a pool are ignored."""
    newest: dict[tuple[str, str], int] = {}
    for each in slices:
        pool = each.spec.driver, each.spec.pool.name
        newest[pool] = max(each.spec.pool.generation, newest.get(pool, each.spec.pool.generation))
    return {
        DeviceID(each.spec.driver, each.spec.pool.name, device.name): taints
        for each in slices
        if each.spec.pool.generation == newest[each.spec.driver, each.spec.pool.name]
        for device in each.spec.devices
        if (taints := [taint for taint in device.taints if taint.effect == NO_EXECUTE])
    }


def eviction_time(
    claim: ResourceClaim,
    taints: Mapping[DeviceID, Sequence[DeviceTaint]],
    rules: Sequence[DeviceTaintRule],
    now: datetime,
) -> datetime | None:
    """Return when the claim's users must be evicted because of NoExecute taints of their devices; None for never.

    A rule also applies to devices that no slice has any more.
    """
    if claim.status.allocation is None:
        return None
    times = []
    for result in claim.status.allocation.devices.results:
        device = DeviceID(result.driver, result.pool, result.device)
        found = [*taints.get(device, ()), *(rule.spec.taint for rule in rules if selects(rule, device))]
        times += [_end_of_toleration(taint, result.tolerations, now) for taint in found]
    return min((when for when in times if when is not None), default=None)


def _end_of_toleration(taint: DeviceTaint, tolerations: Sequence[DeviceToleration], now: datetime) -> datetime | None:
    """The end of the toleration of a taint; None for never. The shortest of several tolerations counts.

    Only a toleration that names the effect keeps a pod running. One without an effect is enough for allocation only.
    """
    added = taint.time_added or now
    naming = (each for each in tolerations if each.effect == NO_EXECUTE)
    matching = [each.toleration_seconds for each in naming if tolerates(each, taint)]
    if not matching:
        return added
    if None in matching:
        return None
    return added + timedelta(seconds=max(0, min(each for each in matching if each is not None)))
