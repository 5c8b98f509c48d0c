"""Extended resources that device classes stand for: a pod asks for `example.com/gpu: 2` and gets a claim.

The scheduler makes one special claim per pod, with a request `container-<i>-request-<j>` for each container and
resource: i counts init containers and containers, j the container's resources by name (dra-node.md 5.7).
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime

from msgspec import Struct

from controlplane.scheduler.pods import device_plugin_requests, extended_requests, owner_reference
from resourceapi.objects import ObjectMeta
from resourceapi.objects.core import (
    ContainerExtendedResourceRequest,
    Node,
    Pod,
)
from resourceapi.objects.v1 import (
    EXACT_COUNT,
    FINALIZER,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)

ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"


def classes_by_resource(classes: Collection[DeviceClass]) -> dict[str, str]:
    """Extended resource -> the class that stands for it: the newest, of several the first by name."""
    found = {f"{IMPLICIT_PREFIX}{each.metadata.name}": each.metadata.name for each in classes}
    by_name = sorted(classes, key=lambda x: x.metadata.name, reverse=True)
    for each in sorted(by_name, key=_age):  # the later one wins
        if each.spec.extended_resource_name:
            found[each.spec.extended_resource_name] = each.metadata.name
    return found


class SpecialClaim(Struct, frozen=True):
    """A claim to be made for extended resources, without a name yet, and what it provides to which container."""

    claim: ResourceClaim
    mappings: tuple[ContainerExtendedResourceRequest, ...]


def special_claim(pod: Pod, node: Node, classes: Mapping[str, str]) -> SpecialClaim | None:
    """The claim for what the pod gets from classes on this node; None if it needs none."""
    wanted = tuple(_requests(pod, node, classes))
    if not wanted:
        return None
    requests = tuple(
        DeviceRequest(
            name=mapping.request_name,
            exactly=ExactDeviceRequest(
                device_class_name=classes[mapping.resource_name], allocation_mode=EXACT_COUNT, count=count
            ),
        )
        for mapping, count in wanted
    )
    metadata = ObjectMeta(
        generate_name=f"{pod.metadata.name}-extended-resources-",
        namespace=pod.metadata.namespace,
        annotations={ANNOTATION: "true"},
        finalizers=(FINALIZER,),
        owner_references=(owner_reference(pod, blocks_deletion=False),),
    )
    claim = ResourceClaim(metadata=metadata, spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests)))
    return SpecialClaim(claim, tuple(mapping for mapping, _ in wanted))


def plugin_requests(pod: Pod, node: Node, classes: Mapping[str, str]) -> dict[str, int]:
    """Resource -> whole units that the pod needs of device plugins on this node."""
    return {name: n for name, n in device_plugin_requests(pod).items() if not _is_by_class(name, node, classes)}


def is_special(claim: ResourceClaim) -> bool:
    """Whether a claim was made for extended resources."""
    return claim.metadata.annotations.get(ANNOTATION) == "true"


def _requests(
    pod: Pod, node: Node, classes: Mapping[str, str]
) -> Iterator[tuple[ContainerExtendedResourceRequest, int]]:
    for number, container in enumerate(pod.all_containers):
        names = sorted({*container.resources.limits, *container.resources.requests})
        for name, amount in extended_requests(container).items():
            if amount.value() > 0 and _is_by_class(name, node, classes):
                request = f"container-{number}-request-{names.index(name)}"
                yield (
                    ContainerExtendedResourceRequest(
                        container_name=container.name, resource_name=name, request_name=request
                    ),
                    amount.value(),
                )


def _is_by_class(resource: str, node: Node, classes: Mapping[str, str]) -> bool:
    """Whether devices of a class stand for the resource on this node; where a device plugin has some, it goes first."""
    if resource not in classes:
        return False
    offered = node.status.allocatable.get(resource)
    return offered is None or offered.value() == 0


def _age(device_class: DeviceClass) -> datetime:
    return device_class.metadata.creation_timestamp or datetime.min.replace(tzinfo=UTC)
