"""CDI devices that other programs define, such as NVIDIA's toolkit, and that containers get with a device of ours.

A name is `vendor/class=device`. Its kind is fixed; the device part can use attributes: `nvidia.com/gpu={uuid}`.
"""

import re
from collections.abc import Iterable

from hostdevices.device import Device
from resources import template

_DEVICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")  # as runtimes require it, for values of the hardware


def foreign_names(templates: Iterable[str], device: Device) -> tuple[str, ...]:
    """Fill the names for one device that has all their attributes, each once. Raises `FieldMissing`, `ValueTooLong`."""
    filled = (template.render(text, [device.id], [device], of=f"the CDI device {text}") for text in templates)
    return tuple(dict.fromkeys(filled))


def cdi_name_problem(templates: Iterable[str], device: Device) -> str:
    """Return why a device cannot have such names; empty if it can."""
    for text in templates:
        if field := template.missing(text, device):
            return f"it has no {field}, which cdiDevices uses"
    for name in foreign_names(templates, device):
        if not _DEVICE.fullmatch(name.partition("=")[2]):
            return f"cdiDevices would be {name!r} for it, which is not the name of a CDI device"
    return ""
