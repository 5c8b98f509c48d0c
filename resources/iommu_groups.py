"""Functions that change their driver for a claim, each with all other functions of its IOMMU group.

The kernel isolates whole groups, so a group changes as a whole and has one holder. The device is the first function
that a resource selects. The others belong to it, also those that no selector matches, such as the sound function of a
graphics card. Bridges do not belong to it.

Source: Linux, driver-api/vfio.rst (groups).
"""

from collections.abc import Callable, Iterable, Sequence

from hostdevices.device import Device
from resources.groups import Bundle, Grouping

_GROUP = "iommuGroup"
_BRIDGE = "06"  # PCI base class


def whole_groups(devices: Sequence[Device], functions: Iterable[Device], refusal: Callable[[Device], str]) -> Grouping:
    """Group each of `devices` with the `functions` of its IOMMU group; `refusal` returns why one is not available."""
    groups: dict[object, list[Device]] = {}
    for function in functions:
        if (number := function.attributes.get(_GROUP)) is not None and not _is_bridge(function):
            groups.setdefault(number, []).append(function)
    bundles: dict[object, Bundle] = {}
    left_out: dict[str, str] = {}
    selected = {device.id for device in devices}
    for device in sorted(devices, key=lambda device: device.id):
        if why := _binding_problem(device):
            left_out[device.id] = why
            continue
        number = device.attributes[_GROUP]
        others = [x for x in groups[number] if x.id != device.id]
        refused = ((x, refusal(x)) for x in others if x.id not in selected)
        if found := next(((x, why) for x, why in refused if why), None):
            left_out[device.id] = f"{found[0].id} of the same IOMMU group is unavailable: {found[1]}"
        elif number not in bundles:
            bundles[number] = Bundle(device.id, (device, *others), ())
    return Grouping(tuple(bundles.values()), left_out)


def _binding_problem(device: Device) -> str:
    if device.kind != "pci":
        return "only PCI functions can be bound to another driver"
    if _is_bridge(device):
        return "it is a bridge"
    if _GROUP not in device.attributes:
        return "it is in no IOMMU group: the IOMMU is off (firmware, kernel command line), or does not reach it"
    return ""


def _is_bridge(device: Device) -> bool:
    return str(device.attributes.get("class", "")).startswith(_BRIDGE)
