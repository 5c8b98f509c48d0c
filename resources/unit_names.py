"""The name of a device in the device plugin API: our own id, or the id that other programs expect.

A device whose name is missing or is not unique in its resource is refused: a kubelet would treat two devices with one
name as one.
"""

import re
from collections.abc import Iterator, Sequence
from typing import get_args

from hostdevices.device import PCI_BUS_ID, Device
from hostdevices.identity import MAX_LENGTH
from resources.attribute_settings import providing_setting
from resources.resource import Ids

SHARE = "::"
"""Separates a name that is not our own id from the number of a share, as in NVIDIA's device plugin."""
MAX_NAME_BYTES = MAX_LENGTH - 1
"""The most bytes of a name that is not our own id; with its separator, no unit is longer than one of ours."""

_ATTRIBUTES = {"pciBusID": PCI_BUS_ID, "uuid": "uuid", "auxiliary": "auxiliary"}
_PLAIN = re.compile(r"[!-~]+")


def unit_name(ids: Ids, device: Device) -> str:
    """Return the name of a device; empty if it has none."""
    if ids == "identity":
        return device.id
    if ids == "path":
        return device.devnodes[0].path if len(device.devnodes) == 1 else ""
    value = device.attributes.get(_ATTRIBUTES[ids])
    return value if isinstance(value, str) else ""


def unit_names(device: Device) -> Iterator[str]:
    """Yield every name that a device can have, whichever the configuration chooses."""
    yield from filter(None, (unit_name(each, device) for each in get_args(Ids)))


def naming_problems(ids: Ids, devices: Sequence[Device]) -> dict[str, str]:
    """Return, by device id, why devices of one resource cannot be listed under such names; the others can."""
    if ids == "identity":
        return {}
    holders: dict[str, list[str]] = {}
    for device in devices:
        holders.setdefault(unit_name(ids, device), []).append(device.id)
    return {
        device.id: why for device in devices if (why := _naming_problem(ids, device, holders[unit_name(ids, device)]))
    }


def _naming_problem(ids: Ids, device: Device, holders: Sequence[str]) -> str:
    name = unit_name(ids, device)
    if ids == "path" and not name:
        number = len(device.devnodes)
        return f"`ids: path` names devices with one node, and it has {number}" + "; choose it with `nodes`" * bool(
            number
        )
    if not name:
        return f"it has no {ids}, which `ids: {ids}` uses as its id{providing_setting(ids, device)}"
    if not _PLAIN.fullmatch(name) or SHARE in name or len(name) > MAX_NAME_BYTES:
        return f"its {ids} {name!r} cannot be an id: at most {MAX_NAME_BYTES} plain characters, without {SHARE}"
    others = [x for x in holders if x != device.id]
    if others:
        return (
            f"`ids: {ids}` would name it {name}, and {', '.join(others)}, too; put them in a group, or leave `ids` out"
        )
    return ""
