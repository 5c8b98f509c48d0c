"""The claimed devices of a container, for the runtime, for pod resources and for the pod's status.

Source: DRA specification, sections 1.8, 4.6 and 4.10; correction 31.
"""

from collections.abc import Iterator

import msgspec

from checkpoint.kubelet_claims import PreparedDevice
from kubelet.dramanager.claim_info import ClaimInfo, ClaimInfoCache
from kubelet.dramanager.health_cache import HealthCache
from kubelet.dramanager.references import references
from kubelet.errors import ClaimError
from kubelet.release import EXTENDED_RESOURCE, Release
from kubeletapi.podresources.v1 import api_pb2 as podresources
from resourceapi.objects.core import Container, ContainerStatus, Pod, PodStatus, ResourceHealth, ResourceStatus
from resourceapi.objects.pod_requests import container_limits


class ClaimUsage:
    """Finds the claims and the device health of the containers of a node's pods."""

    def __init__(self, cache: ClaimInfoCache, health: HealthCache, release: Release) -> None:
        """Use the rules of a kubelet of `release`."""
        self._cache = cache
        self._health = health
        self._release = release

    def container_devices(self, pod: Pod, container: Container) -> list[PreparedDevice]:
        """Return the devices of a container, repeated for each of its references. Raises `ClaimError`."""
        uses = [(use.name, use.request) for use in container.resources.claims]
        uses += [("", request) for request in self._extended_requests(pod, container)]
        return [
            device
            for key, request in uses
            for info in self._claims(pod, key)
            for _, device in info.prepared_devices()
            if not request or not device.request_names or request in device.request_names
        ]

    def container_claims(self, pod: Pod, container: Container) -> list[ClaimInfo]:
        """Return the claims that a container refers to, in the pod's order. Raises `ClaimError`."""
        used = [use.name for use in container.resources.claims]
        if self._release.lists_claims_once:
            used = list(dict.fromkeys(used))
        keys = [each.name for each in pod.spec.resource_claims for name in used if name == each.name]
        if self._extended_requests(pod, container):
            keys.append("")
        return [info for key in keys for info in self._claims(pod, key)]

    def dynamic_resources(self, pod: Pod, container: str) -> list[podresources.DynamicResource]:
        """Return the entries of pod resources: all devices of each claim.

        Like in the kubelet, each entry also has the CDI ids of the driver's devices before it.
        """
        try:
            infos = self.container_claims(pod, pod.container(container))
        except ClaimError:
            return []  # not prepared yet
        found = []
        for info in infos:
            resources = []
            for driver, devices in info.devices.items():
                ids: list[podresources.CDIDevice] = []
                for device in devices or ():
                    ids += (podresources.CDIDevice(name=id_) for id_ in device.cdi_device_ids or ())
                    resource = podresources.ClaimResource(
                        cdi_devices=ids, driver_name=driver, pool_name=device.pool_name, device_name=device.device_name
                    )
                    if isinstance(device.share_id, str):
                        resource.share_id = device.share_id
                    resources.append(resource)
            found.append(
                podresources.DynamicResource(
                    claim_name=info.name, claim_namespace=info.namespace, claim_resources=resources
                )
            )
        return found

    def with_health(self, pod: Pod, status: PodStatus) -> PodStatus:
        """Return `status` with the health of the claimed devices of each app container."""
        statuses = tuple(self._container_with_health(pod, each) for each in status.container_statuses)
        return msgspec.structs.replace(status, container_statuses=statuses)

    def _container_with_health(self, pod: Pod, status: ContainerStatus) -> ContainerStatus:
        updated = {each.name: each for each in status.allocated_resources_status}
        for use in pod.container(status.name).resources.claims:
            name = f"claim:{use.name}/{use.request}" if use.request else f"claim:{use.name}"
            devices: dict[str, ResourceHealth] = {}
            for each in self._health_of_claim(pod, use.name, use.request):
                devices.setdefault(each.resource_id, each)  # of devices with the same CDI id, the first is shown
            if devices:
                updated[name] = ResourceStatus(name=name, resources=tuple(devices.values()))
            else:
                updated.pop(name, None)
        return msgspec.structs.replace(status, allocated_resources_status=tuple(updated.values()))

    def _health_of_claim(self, pod: Pod, key: str, request: str) -> Iterator[ResourceHealth]:
        try:
            infos = self._claims(pod, key)
        except ClaimError:
            return  # not prepared yet, or not any more
        base = request.partition("/")[0]
        for driver, device in (each for info in infos for each in info.prepared_devices()):
            if base and device.request_names and base not in device.request_names:
                continue
            state, message = self._health.get(driver, device.pool_name, device.device_name)
            id_ = next(iter(device.cdi_device_ids or ()), f"{driver}/{device.pool_name}/{device.device_name}")
            yield ResourceHealth(resource_id=id_, health=state, message=message or None)

    def _claims(self, pod: Pod, key: str) -> list[ClaimInfo]:
        """Return the claims for a pod's name for them: none if none was needed. Raises `ClaimError`.

        An empty key is the claim of the pod's extended resources.
        """
        found = []
        for name in (each.claim for each in references(pod, self._release) if each.key == key):
            info = self._cache.get(pod.metadata.namespace, name)
            if info is None:
                raise ClaimError(
                    f"internal error: unable to get claim info for ResourceClaim {name}"
                    f" in namespace {pod.metadata.namespace}"
                )
            found.append(info)
        return found

    def _extended_requests(self, pod: Pod, container: Container) -> list[str]:
        """Return the requests of the pod's special claim that represent extended resources of the container."""
        status = pod.status.extended_resource_claim_status if self._release.has(EXTENDED_RESOURCE) else None
        limits = container_limits(container)
        return [
            each.request_name
            for each in (status.request_mappings if status is not None else ())
            if each.container_name == container.name and limits.get(each.resource_name, 0)
        ]
