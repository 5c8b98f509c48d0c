"""Pods that have to go because a device of theirs got a NoExecute taint, at once or when their toleration runs out."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from controlplane.scheduler.cluster_cache import ClusterCache
from controlplane.scheduler.cluster_writer import ClusterWriter
from controlplane.scheduler.extended import is_special
from controlplane.scheduler.pods import is_done
from controlplane.structured import DeviceID
from resourceapi.objects import tolerates
from resourceapi.objects.core import Pod
from resourceapi.objects.v1 import NO_EXECUTE, DeviceTaint, DeviceToleration, ResourceClaim, ResourceSlice

_REASON = "DeletionByDeviceTaintManager"
_MESSAGE = "Device Taint manager: deleting due to NoExecute taint"


class Evictor:
    """The device taint manager. `wake_at` asks for another pass at a later time."""

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

    def due(self, slices: Sequence[ResourceSlice]) -> list[Pod]:
        """The pods that have to go now; `slices` have the taints of rules."""
        taints = {
            DeviceID(each.spec.driver, each.spec.pool.name, device.name): device.taints
            for each in slices
            for device in each.spec.devices
            if any(taint.effect == NO_EXECUTE for taint in device.taints)
        }
        if not taints:
            return []
        now = self._now()
        leaving: dict[str, datetime] = {}  # pod's uid -> when
        for claim in self._cluster.claims.objects.values():
            if is_special(claim):
                continue  # the controller looks at the claims that pods name, not at those of extended resources
            when = eviction_time(claim, taints, now)
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
        """Delete a pod and say why. Raises Outdated, ClientError."""
        path = f"{pod.metadata.namespace}/{pod.metadata.name}"
        await self._writer.record_event(pod, "DeviceTaintManagerEviction", f"Marking for deletion Pod {path}")
        await self._writer.set_pod_condition(pod, "DisruptionTarget", "True", _REASON, _MESSAGE)
        await self._writer.delete_pod(pod)


def eviction_time(
    claim: ResourceClaim, taints: Mapping[DeviceID, Sequence[DeviceTaint]], now: datetime
) -> datetime | None:
    """When the claim's users have to go because of their devices' taints; None if they may stay."""
    if claim.status.allocation is None:
        return None
    times = [
        when
        for result in claim.status.allocation.devices.results
        for taint in taints.get(DeviceID(result.driver, result.pool, result.device), ())
        if taint.effect == NO_EXECUTE and (when := _end_of_toleration(taint, result.tolerations, now)) is not None
    ]
    return min(times, default=None)


def _end_of_toleration(taint: DeviceTaint, tolerations: Sequence[DeviceToleration], now: datetime) -> datetime | None:
    """When a taint is not tolerated any more; None for never. The shortest of several tolerations counts.

    Only a toleration that names the effect keeps a pod; one for every effect is enough to be given the device.
    """
    added = taint.time_added or now
    naming = (each for each in tolerations if each.effect == NO_EXECUTE)
    matching = [each.toleration_seconds for each in naming if tolerates(each, taint)]
    if not matching:
        return added
    if None in matching:
        return None
    return added + timedelta(seconds=max(0, min(each for each in matching if each is not None)))
