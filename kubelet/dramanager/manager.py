"""The DRA manager: claims are prepared before a pod's sandbox is created, and unprepared after its containers ended.

Source: DRA specification, section 4; corrections 19-36; observations 53-76; changes-1.37, section 2.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import UNSET

from checkpoint.kubelet_claims import PreparedDevice
from kubelet.clock import Clock
from kubelet.dramanager.claim_info import ClaimInfo, ClaimInfoCache
from kubelet.dramanager.cluster import Cluster, ClusterError
from kubelet.dramanager.drivers import DriverHandler
from kubelet.dramanager.health_cache import DeviceHealth, HealthCache
from kubelet.dramanager.health_streams import HealthStreams
from kubelet.dramanager.plugins import PREPARE, UNPREPARE, PluginStore
from kubelet.dramanager.references import Reference, references
from kubelet.dramanager.slices import SliceWiper
from kubelet.dramanager.usage import ClaimUsage
from kubelet.errors import ClaimError, PluginCallError
from kubelet.metrics import KubeletMetrics
from kubelet.release import LATEST, RESOURCE_HEALTH_STATUS, Release
from kubelet.rpc import DEFAULT_TIMEOUTS, Timeouts
from kubeletapi.podresources.v1 import api_pb2 as podresources
from resourceapi.objects import ClaimLookupError, check_made_for, is_reserved_for
from resourceapi.objects.core import Container, Pod, PodStatus

RECONCILE_PERIOD = 60.0  # seconds
UPDATE_QUEUE_LENGTH = 100
ANY_DRIVER = "<any>"

log = logging.getLogger(__name__)


def _ignore_change(kind: str, about: str, text: str) -> None:
    """Ignore the change: the default of `on_change`."""


class DRAManager:
    """Prepares and unprepares the claims of this node's pods."""

    def __init__(
        self,
        folder: Path,
        cluster: Cluster,
        node_name: str,
        *,
        clock: Clock,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        release: Release = LATEST,
        metrics: KubeletMetrics | None = None,
        on_change: Callable[[str, str, str], None] = _ignore_change,
    ) -> None:
        """The DRA manager of a kubelet of `release` whose state files are in `folder`.

        `on_change` is called after each change with: what happened, the driver or pod, and details.
        """
        self.cache = ClaimInfoCache(folder, release)
        self.health = HealthCache(folder, clock, release)
        self.plugins = PluginStore()
        self.wiper = SliceWiper(cluster, node_name, clock)
        self._cluster = cluster
        self._clock = clock
        self._metrics = metrics or KubeletMetrics(clock)
        self._release = release
        self._usage = ClaimUsage(self.cache, self.health, release)
        self._on_change = on_change
        self._streams = HealthStreams(release, clock, self._health_reported, self._health_ended)
        self._handler = DriverHandler(self.plugins, self._streams, self.wiper, timeouts, self._metrics, on_change)
        self._updates: asyncio.Queue[list[str]] = asyncio.Queue(UPDATE_QUEUE_LENGTH)
        self._reconciling: asyncio.Task[None] | None = None

    async def start(
        self, active_pods: Callable[[], Collection[str]], sources_ready: Callable[[], bool] = lambda: True
    ) -> None:
        """Read the state, delete the node's slices, start to unprepare claims of inactive pods. Raises `ClaimError`.

        `active_pods` returns uids; they are complete when `sources_ready` returns true.
        """
        await self.cache.load()
        await self.health.load()
        self.wiper.wipe_all()
        self._reconciling = asyncio.create_task(self._reconcile(active_pods, sources_ready), name="claims of old pods")

    async def stop(self, *, discard: bool = False) -> None:
        """Close all connections and end all tasks. Idempotent, safe before `start`.

        With `discard`, writes of state files that have not begun are dropped.
        """
        reconciling, self._reconciling = self._reconciling, None
        if reconciling is not None:
            reconciling.cancel()
            await asyncio.gather(reconciling, return_exceptions=True)
        await self._handler.stop()
        await self.wiper.stop()  # after the connections are closed, because each close schedules a deletion of slices
        await self.cache.close(discard=discard)
        await self.health.close(discard=discard)

    def get_watcher_handler(self) -> DriverHandler:
        """Return the handler for plugins of the type `DRAPlugin` in `plugins_registry`."""
        return self._handler

    async def prepare_resources(self, pod: Pod) -> None:
        """Prepare all claims of a pod that are not prepared. Raises `ClaimError`, after which it can be called again.

        The state is written for every pod, even without claims; the same holds for `unprepare_resources`.
        """
        try:
            with self._metrics.measure_operation("PrepareResources"):
                await self._prepare(pod)
        except ClaimError as error:
            raise ClaimError(f"prepare dynamic resources: {error}") from error

    async def unprepare_resources(self, pod: Pod) -> None:
        """Unprepare the claims that only this pod refers to. Raises `ClaimError`, after which it can be called again.

        The claims need not exist in the cluster. Before 1.37 the claims are those that the pod's spec names, even if
        they have no reference to the pod.
        """
        try:
            with self._metrics.measure_operation("UnprepareResources"):
                await self._unprepare(pod.uid, self._claims_to_unprepare(pod))
        except ClaimError as error:
            raise ClaimError(f"unprepare dynamic resources: {error}") from error

    def pod_might_need_to_unprepare_resources(self, uid: str) -> bool:
        """Return whether a claim has a reference to the pod."""
        return bool(self.cache.of_pod(uid))

    def get_resources(self, pod: Pod, container: Container) -> tuple[str, ...]:
        """Return a container's CDI ids; an id is repeated for each reference that it serves. Raises `ClaimError`."""
        devices = self._usage.container_devices(pod, container)
        return tuple(id_ for device in devices for id_ in device.cdi_device_ids or ())

    def get_container_claim_infos(self, pod: Pod, container: Container) -> list[ClaimInfo]:
        """Return the claims that a container refers to, the one of extended resources last. Raises `ClaimError`."""
        return self._usage.container_claims(pod, container)

    def get_dynamic_resources(self, pod: Pod, container: str) -> list[podresources.DynamicResource]:
        """Return the entries of pod resources for a container's claims."""
        return self._usage.dynamic_resources(pod, container)

    def update_allocated_resources_status(self, pod: Pod, status: PodStatus) -> PodStatus:
        """Return `status` with the health of the claimed devices of each app container."""
        if not self._release.has(RESOURCE_HEALTH_STATUS):
            return status
        return self._usage.with_health(pod, status)

    def updates(self) -> asyncio.Queue[list[str]]:
        """Return the queue of the uids of pods whose devices changed their health; a full queue drops updates."""
        return self._updates

    def claims_in_use(self) -> dict[str, int]:
        """Return driver -> number of prepared claims, for the metric `dra_resource_claims_in_use`; `<any>` is all."""
        claims = [info for info in self.cache.claims() if info.is_prepared]
        return {ANY_DRIVER: len(claims), **Counter(driver for info in claims for driver in info.devices)}

    async def _prepare(self, pod: Pod) -> None:
        # A claim for which the pod has two names is requested twice and answered once, so such a pod never starts.
        wanted = [await self._read_claim(pod, each) for each in references(pod, self._release)]
        infos = [await self._add_reference(pod, info) for info in wanted]
        new = [info for info in infos if not info.is_prepared]
        for driver, batch in _by_driver(new).items():
            answers = await self._call(PREPARE, driver, batch)
            for info in dict.fromkeys(batch):
                if info.uid in answers:
                    devices = map(self._device, answers[info.uid].devices)
                    info.add_devices(driver, devices, replace=self._release.replaces_prepared_devices)
            _check_complete(PREPARE, answers, batch)
        for info in new:
            info.is_prepared = True
        await self.cache.save()
        if new:
            self._on_change("prepared", f"{pod.metadata.namespace}/{pod.metadata.name}", _names(new))

    async def _read_claim(self, pod: Pod, reference: Reference) -> ClaimInfo:
        """Read a claim from the cluster; check that the pod can use it and that its drivers are registered."""
        try:
            claim = await self._cluster.get_claim(pod.metadata.namespace, reference.claim)
        except ClusterError as error:
            raise ClaimError(f"fetch ResourceClaim {reference.claim}: {error}") from error
        if reference.must_own:
            try:
                check_made_for(claim, pod)
            except ClaimLookupError as error:
                word = self._release.pod_word
                text = str(error).replace("for Pod ", f"for {word} ").replace("(Pod is", f"({word} is")
                raise ClaimError(text) from error
        if not is_reserved_for(claim, pod):
            raise ClaimError(
                f"pod {pod.metadata.name} ({pod.uid}) is not allowed to use ResourceClaim {claim.metadata.name}"
                f" ({claim.metadata.uid})"
            )
        info = ClaimInfo.from_claim(claim, self._release)
        for driver in info.devices:
            self.plugins.get(driver)
        return info

    async def _add_reference(self, pod: Pod, info: ClaimInfo) -> ClaimInfo:
        """Record on disk that a pod uses a claim; return the cached claim."""
        known = self.cache.get(info.namespace, info.name)
        if known is not None and known.uid != info.uid:
            raise ClaimError(
                f"old ResourceClaim with same name {known.name} and different UID {known.uid} still exists"
                " (previous pod force-deleted?!)"
            )
        if known is not None and known.is_unpreparing and self._release.refuses_unpreparing_claims:
            raise ClaimError(f"ResourceClaim {known.name} is being unprepared")
        info = known or self.cache.add(info)
        info.pods.add(pod.uid)
        await self.cache.save("cache")
        return info

    def _claims_to_unprepare(self, pod: Pod) -> list[ClaimInfo]:
        """Return the claims to unprepare when the pod ends; before 1.37, repeated as often as the spec names them."""
        known = self.cache.of_pod(pod.uid) if self._release.unprepares_referenced_claims else []
        if known:
            return known
        named = [self.cache.get(pod.metadata.namespace, each.claim) for each in references(pod, self._release)]
        return [] if self._release.unprepares_referenced_claims else [info for info in named if info is not None]

    async def _unprepare(self, uid: str, infos: Iterable[ClaimInfo]) -> None:
        last: list[ClaimInfo] = []
        shared = False
        for info in infos:
            if len(info.pods) > 1:
                info.pods.discard(uid)
                shared = True
            else:
                info.is_unpreparing = True
                last.append(info)
        for driver, batch in _by_driver(last).items():
            answers = await self._call(UNPREPARE, driver, batch)
            _check_complete(UNPREPARE, answers, batch)
        for info in last:
            self.cache.delete(info)
        await self.cache.save()
        if last or shared:
            self._on_change("unprepared", uid, _names(last))

    async def _call(self, method: str, driver: str, batch: Sequence[ClaimInfo]) -> Mapping[str, Any]:
        """Call a driver once for all claims. Raises `ClaimError` if the call or one of the claims failed."""
        plugin = self.plugins.get(driver)
        try:
            answers = await plugin.call(method, batch)
        except PluginCallError as error:
            raise ClaimError(f"{method}: {error}") from error
        names = {info.uid: info.name for info in batch}
        for uid, each in answers.items():
            if uid not in names:
                raise ClaimError(f"{method} returned result for unknown claim UID {uid}")
            if each.error:
                raise ClaimError(f"{method} failed for ResourceClaim {names[uid]}: {each.error}")
        return answers

    async def _reconcile(self, active_pods: Callable[[], Collection[str]], sources_ready: Callable[[], bool]) -> None:
        while True:
            await self._clock.sleep(RECONCILE_PERIOD)
            if not sources_ready():
                continue
            for uid in sorted(self.cache.pods().difference(active_pods())):
                try:
                    await self._unprepare(uid, self.cache.of_pod(uid))
                except ClaimError as error:
                    log.error("claims of the inactive pod %s: %s", uid, error)

    def _health_reported(self, driver: str, reports: list[DeviceHealth]) -> None:
        changed = self.health.update(driver, reports)
        self._update_pods(driver, changed)
        if changed:
            self._on_change("health", driver, "")

    def _health_ended(self, driver: str) -> None:
        self.health.clear_driver(driver)  # the pods' statuses stay as they are

    def _device(self, device: Any) -> PreparedDevice:
        """Convert a driver's answer to the checkpoint's form, in which empty lists are null."""
        share = device.share_id if device.HasField("share_id") else None
        return PreparedDevice(
            device.pool_name,
            device.device_name,
            share if self._release.has_share_ids else UNSET,
            list(device.request_names) or None,
            list(device.cdi_device_ids) or None,
        )

    def _update_pods(self, driver: str, changed: Iterable[DeviceHealth]) -> None:
        keys = {(each.pool, each.device) for each in changed}
        pods = {
            uid
            for info in self.cache.claims()
            if any(
                owner == driver and (device.pool_name, device.device_name) in keys
                for owner, device in info.prepared_devices()
            )
            for uid in info.pods
        }
        if not pods:
            return
        try:
            self._updates.put_nowait(sorted(pods))
        except asyncio.QueueFull:
            log.warning("health update channel is full, discarding pod updates: %s", sorted(pods))


def _by_driver(infos: Iterable[ClaimInfo]) -> dict[str, list[ClaimInfo]]:
    batches: dict[str, list[ClaimInfo]] = {}
    for info in infos:
        for driver in info.devices:
            batches.setdefault(driver, []).append(info)
    return batches


def _check_complete(method: str, answers: Mapping[str, Any], batch: Sequence[ClaimInfo]) -> None:
    missing = len(batch) - len(answers)
    if missing:
        raise ClaimError(f"{method} skipped {missing} ResourceClaims")


def _names(infos: Iterable[ClaimInfo]) -> str:
    return ", ".join(info.name for info in infos)
