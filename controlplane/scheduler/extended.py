"""Extended resources that device classes provide: a pod requests `example.com/gpu: 2` and gets a claim.

The scheduler makes one claim for them per pod, with a request `container-<i>-request-<j>` for each container and
resource: i counts init containers and containers, j the container's resources by name (dra-node.md 5.7). Init
containers that end before the others start share their devices.
"""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime

from msgspec import Struct

from controlplane.scheduler.pods import device_plugin_requests, extended_requests, owner_reference
from resourceapi.objects import ObjectMeta
from resourceapi.objects.core import (
    Container,
    ContainerExtendedResourceRequest,
    Node,
    Pod,
)
from resourceapi.objects.v1 import (
    EXACT_COUNT,
    EXTENDED_RESOURCE_CLAIM,
    FINALIZER,
    IMPLICIT_RESOURCE_PREFIX,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)


def classes_by_resource(classes: Collection[DeviceClass]) -> dict[str, str]:
    """Extended resource -> the class that provides it: the newest; of equally old ones, the first by name."""
    found = {f"{IMPLICIT_RESOURCE_PREFIX}{each.metadata.name}": each.metadata.name for each in classes}
    by_name = sorted(classes, key=lambda x: x.metadata.name, reverse=True)
    for each in sorted(by_name, key=_creation_time):  # later entries overwrite earlier ones
        if each.spec.extended_resource_name:
            found[each.spec.extended_resource_name] = each.metadata.name
    return found


class ExtendedResourceClaim(Struct, frozen=True):
    """A claim to create for extended resources, still without a name, and which container uses which request."""

    claim: ResourceClaim
    mappings: tuple[ContainerExtendedResourceRequest, ...]


def extended_resource_claim(pod: Pod, node: Node, classes: Mapping[str, str]) -> ExtendedResourceClaim | None:
    """Return the claim for what the pod gets from classes on this node; None if it needs none."""
    amounts = (
        name for container in pod.all_containers for name, n in extended_requests(container).items() if n.value()
    )
    requests: list[DeviceRequest] = []
    mappings: list[ContainerExtendedResourceRequest] = []
    for resource in sorted({name for name in amounts if _is_provided_by_class(name, node, classes)}):
        counts, uses = _counts_and_uses(pod, resource)
        requests += (_request(name, classes[resource], count) for name, count in counts.items())
        mappings += (
            ContainerExtendedResourceRequest(container_name=container, resource_name=resource, request_name=name)
            for container, name in uses
        )
    if not requests:
        return None
    requests.sort(key=lambda request: request.name)
    metadata = ObjectMeta(
        generate_name=f"{pod.metadata.name}-extended-resources-",
        namespace=pod.metadata.namespace,
        annotations={EXTENDED_RESOURCE_CLAIM: "true"},
        finalizers=(FINALIZER,),
        owner_references=(owner_reference(pod),),
    )
    claim = ResourceClaim(metadata=metadata, spec=ResourceClaimSpec(devices=DeviceClaim(requests=tuple(requests))))
    return ExtendedResourceClaim(claim, tuple(mappings))


def plugin_requests(pod: Pod, node: Node, classes: Mapping[str, str]) -> dict[str, int]:
    """Resource -> whole units that the pod needs from device plugins on this node."""
    return {
        name: n for name, n in device_plugin_requests(pod).items() if not _is_provided_by_class(name, node, classes)
    }


def is_extended_resource_claim(claim: ResourceClaim) -> bool:
    """Return whether a claim was made for extended resources."""
    return claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) == "true"


def _counts_and_uses(pod: Pod, resource: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Request -> number of devices of a resource; and (container, request) for the requests that each container uses.

    Init containers that end use the devices of later containers. What they need beyond that is one request, as large as
    the largest of these needs.
    """
    needed = {
        number: (container, amount.value())
        for number, container in enumerate(pod.all_containers)
        if (amount := extended_requests(container).get(resource)) is not None and amount.value() > 0
    }
    names = {number: _request_name(number, container, resource) for number, (container, _) in needed.items()}
    long_running = {
        n: count for n, (each, count) in needed.items() if each.is_sidecar or not pod.is_init_container(each)
    }
    counts = {names[number]: count for number, count in long_running.items()}
    uses = [(needed[number][0].name, names[number]) for number in long_running]
    init_uses: list[tuple[str, str | None]] = []
    largest_excess, excess_request = 0, ""
    for number in sorted(needed.keys() - long_running.keys()):
        container, missing = needed[number]
        for later, count in long_running.items():
            if later > number and missing > 0:
                init_uses.append((container.name, names[later]))
                missing -= count
        if missing > 0:
            init_uses.append((container.name, None))
        if missing > largest_excess:
            largest_excess, excess_request = missing, names[number]
    if largest_excess:
        counts[excess_request] = largest_excess
    return counts, [*uses, *((container, name or excess_request) for container, name in init_uses)]


def _request_name(number: int, container: Container, resource: str) -> str:
    names = sorted({*container.resources.limits, *container.resources.requests})
    return f"container-{number}-request-{names.index(resource)}"


def _request(name: str, device_class: str, count: int) -> DeviceRequest:
    exactly = ExactDeviceRequest(device_class_name=device_class, allocation_mode=EXACT_COUNT, count=count)
    return DeviceRequest(name=name, exactly=exactly)


def _is_provided_by_class(resource: str, node: Node, classes: Mapping[str, str]) -> bool:
    """Return whether a class provides the resource on this node. A device plugin that offers some takes precedence."""
    if resource not in classes:
        return False
    offered = node.status.allocatable.get(resource)
    return offered is None or offered.value() == 0


def _creation_time(device_class: DeviceClass) -> datetime:
    return device_class.metadata.creation_timestamp or datetime.min.replace(tzinfo=UTC)
