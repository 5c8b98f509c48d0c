"""The device health in a pod's status: each device of a container's resources at most once.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go (validateContainerStatusAllocatedResourcesStatus).
"""

from collections.abc import Sequence

from controlplane.apiserver.kinds import Plain
from resourceapi.objects import ErrorList, Quantity

_CLAIM = "claim:"
_STATES = ["Healthy", "Unhealthy", "Unknown"]
_MAX_MESSAGE_BYTES = 1024
"""The most bytes of a message."""
_NO_CLAIM = (
    "must match one of the container's resource claims as 'claim:<claimName>/<requestName>' when"
    " container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty"
)
_NO_REQUEST = "must match one of the container's resource requests"


def check_health(errors: ErrorList, spec: Plain, status: Plain) -> None:
    """Check the device health in a pod's status."""
    for member, containers in (("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")):
        known = {each.get("name"): each for each in spec.get(containers) or ()}
        for index, each in enumerate(status.get(member) or ()):
            for number, reported in enumerate(each.get("allocatedResourcesStatus") or ()):
                path = f"status.{member}[{index}].allocatedResourcesStatus[{number}]"
                container = known.get(each.get("name"))
                if container is not None:
                    _check_name(errors, reported.get("name") or "", container, status, path)
                _check_devices(errors, reported.get("resources") or (), f"{path}.resources")
    for index, each in enumerate(status.get("ephemeralContainerStatuses") or ()):
        if each.get("allocatedResourcesStatus"):
            path = f"status.ephemeralContainerStatuses[{index}].allocatedResourcesStatus"
            errors.forbidden(path, "must not be specified in container status")


def _check_name(errors: ErrorList, name: str, container: Plain, status: Plain, path: str) -> None:
    resources = container.get("resources") or {}
    if not name.startswith(_CLAIM):
        if name not in (resources.get("requests") or {}):
            errors.invalid(f"{path}.name", name, _NO_REQUEST)
        return
    pairs = ((each.get("name", ""), each.get("request")) for each in resources.get("claims") or ())
    claims = {f"{_CLAIM}{claim}/{request}" if request else f"{_CLAIM}{claim}" for claim, request in pairs}
    if name not in claims | _extended_resource_claims(container, status):
        errors.invalid(f"{path}.name", name, _NO_CLAIM)


def _extended_resource_claims(container: Plain, status: Plain) -> set[str]:
    """The names of the claim requests that a container got for extended resources."""
    extended = status.get("extendedResourceClaimStatus") or {}
    requests = (container.get("resources") or {}).get("requests") or {}
    return {
        f"{_CLAIM}{extended.get('resourceClaimName', '')}/{each.get('requestName', '')}"
        for each in extended.get("requestMappings") or ()
        if each.get("containerName") == container.get("name")
        and Quantity.parse(str(requests.get(each.get("resourceName"), "0"))) != Quantity.parse("0")
    }


def _check_devices(errors: ErrorList, devices: Sequence[Plain], path: str) -> None:
    seen: set[str] = set()
    for index, each in enumerate(devices):
        here, device, message = f"{path}[{index}]", each.get("resourceID") or "", each.get("message")
        if each.get("health") not in _STATES:
            errors.not_supported(f"{here}.health", each.get("health") or "", _STATES)
        if message == "":
            errors.required(f"{here}.message", "must be non-empty if specified")
        elif message is not None and len(message.encode()) > _MAX_MESSAGE_BYTES:
            errors.too_long(f"{here}.message", _MAX_MESSAGE_BYTES)
        if device in seen:
            errors.duplicate(f"{here}.resourceID", device)
        seen.add(device)
