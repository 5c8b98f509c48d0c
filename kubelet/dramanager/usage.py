"""Which claimed devices a container uses, and how it shows: to the runtime, in pod resources, in the pod's status.

Source: DRA specification, sections 1.8, 4.6 and 4.10; correction 31.
"""

from collections.abc import Iterator

import msgspec

from checkpoint.kubelet_claims import PreparedDevice
from kubelet.dramanager.claim_info import ClaimInfo, ClaimInfoCache
from kubelet.dramanager.health_cache import HealthCache
from kubelet.dramanager.references import references
from kubelet.errors import ClaimError
from kubelet.pods import Container, ContainerStatus, Pod, PodStatus, ResourceHealth, ResourceStatus
from kubeletapi.podresources.v1 import api_pb2 as podresources


def container_devices(cache: ClaimInfoCache, pod: Pod, container: Container) -> list[PreparedDevice]:
    """The devices that a container gets, once for each of its references. Raises `ClaimError`."""
    uses = [(use.name, {use.request} if use.request else None) for use in container.resources.claims]
    extended = _extended_requests(pod, container)
    if extended:
        uses.append(("", extended))
    return [
        device
        for key, requests in uses
        for info in _claims(cache, pod, key)
        for _, device in info.prepared_devices()
        if requests is None or not device.request_names or not requests.isdisjoint(device.request_names)
    ]


def container_claims(cache: ClaimInfoCache, pod: Pod, container: Container) -> list[ClaimInfo]:
    """The claims that a container refers to, in the pod's order. Raises `ClaimError`."""
    uses = container.resources.claims
    keys = [each.name for each in pod.spec.resource_claims for use in uses if use.name == each.name]
    if _extended_requests(pod, container):
        keys.append("")
    return [info for key in keys for info in _claims(cache, pod, key)]


def dynamic_resources(cache: ClaimInfoCache, pod: Pod, container: str) -> list[podresources.DynamicResource]:
    """What pod resources tells: all devices of each claim, each entry with the CDI ids of those before it, too."""
    try:
        infos = container_claims(cache, pod, pod.container(container))
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


def with_health(cache: ClaimInfoCache, health: HealthCache, pod: Pod, status: PodStatus) -> PodStatus:
    """`status` with the health of the claimed devices of each app container."""
    statuses = tuple(_container_with_health(cache, health, pod, each) for each in status.container_statuses)
    return msgspec.structs.replace(status, container_statuses=statuses)


def _container_with_health(
    cache: ClaimInfoCache, health: HealthCache, pod: Pod, status: ContainerStatus
) -> ContainerStatus:
    updated = {each.name: each for each in status.allocated_resources_status}
    for use in pod.container(status.name).resources.claims:
        name = f"claim:{use.name}/{use.request}" if use.request else f"claim:{use.name}"
        devices = {each.resource_id: each for each in _health_of_claim(cache, health, pod, use.name, use.request)}
        if devices:
            updated[name] = ResourceStatus(name, tuple(devices.values()))
        else:
            updated.pop(name, None)
    return msgspec.structs.replace(status, allocated_resources_status=tuple(updated.values()))


def _health_of_claim(
    cache: ClaimInfoCache, health: HealthCache, pod: Pod, key: str, request: str
) -> Iterator[ResourceHealth]:
    try:
        infos = _claims(cache, pod, key)
    except ClaimError:
        return  # not prepared yet, or no more
    for driver, device in (each for info in infos for each in info.prepared_devices()):
        served = {name.partition("/")[0] for name in device.request_names or ()}
        if request and served and request not in served:
            continue
        state, message = health.get(driver, device.pool_name, device.device_name)
        id_ = next(iter(device.cdi_device_ids or ()), f"{driver}/{device.pool_name}/{device.device_name}")
        yield ResourceHealth(id_, state, message)


def _claims(cache: ClaimInfoCache, pod: Pod, key: str) -> list[ClaimInfo]:
    """The claim behind a pod's name for it (empty: the one of its extended resources), nothing if none was needed."""
    found = []
    for name in (each.claim for each in references(pod) if each.key == key):
        info = cache.get(pod.metadata.namespace, name)
        if info is None:
            raise ClaimError(
                f"internal error: unable to get claim info for ResourceClaim {name}"
                f" in namespace {pod.metadata.namespace}"
            )
        found.append(info)
    return found


def _extended_requests(pod: Pod, container: Container) -> set[str]:
    """The requests of the pod's special claim that stand for extended resources of the container."""
    status = pod.status.extended_resource_claim_status
    limits = container.limits()
    return {
        each.request_name
        for each in (status.request_mappings if status is not None else ())
        if each.container_name == container.name and limits.get(each.resource_name, 0)
    }
