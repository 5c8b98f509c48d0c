"""Properties of pods that the scheduler needs."""

from collections.abc import Mapping
from typing import Any

from resourceapi.objects import Quantity
from resourceapi.objects.core import Container, Pod
from resourceapi.objects.meta import KubernetesObject, OwnerReference
from resourceapi.objects.pod_requests import peak


def is_done(pod: Pod) -> bool:
    """Return whether the pod will never run (again)."""
    if pod.status.is_terminal:
        return True
    return pod.metadata.deletion_timestamp is not None and not pod.spec.node_name


def is_gated(pod: Pod) -> bool:
    """Return whether the pod has scheduling gates."""
    unknown = pod.spec.unknown_fields
    return unknown is not None and bool(unknown.get("schedulingGates"))


def condition(pod: Pod, type_: str) -> Mapping[str, Any]:
    """The pod's condition of this type; empty if it has none."""
    unknown = pod.status.unknown_fields
    found = unknown.get("conditions") or () if unknown is not None else ()
    return next((each for each in found if each.get("type") == type_), {})


def extended_requests(container: Container) -> dict[str, Quantity]:
    """The extended resources that a container requests. A limit without a request counts as a request."""
    amounts = {**container.resources.limits, **container.resources.requests}
    return {name: amount for name, amount in amounts.items() if "/" in name}


def device_plugin_requests(pod: Pod) -> dict[str, int]:
    """Resource -> whole units that the pod needs from device plugins at one time; without what a claim provides."""
    mapped = pod.status.extended_resource_claim_status
    by_claim = {(x.container_name, x.resource_name) for x in mapped.request_mappings} if mapped else set()

    def of(container: Container) -> dict[str, int]:
        requests = extended_requests(container).items()
        return {name: amount.value() for name, amount in requests if (container.name, name) not in by_claim}

    return peak(pod, of)


def owner_reference(pod: Pod) -> OwnerReference:
    """The owner reference for objects that belong to the pod."""
    return OwnerReference(
        api_version="v1",
        kind="Pod",
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        controller=True,
    )


def owning_pod(obj: KubernetesObject) -> OwnerReference | None:
    """The reference to the pod that an object was made for; None if there is none."""
    for owner in obj.metadata.owner_references:
        if owner.controller and (owner.api_version, owner.kind) == ("v1", "Pod"):
            return owner
    return None
