"""KubeVirt: the host devices that virtual machines can have (`permittedHostDevices`), which virt-handler offers.

Its operator's HyperConverged has the same, with two keys under another name.

Source: KubeVirt user guide (host devices assignment), its API reference (PermittedHostDevices), virt-handler's
pkg/virt-handler/device-manager (`discoverPermittedHostPCIDevices`, `shouldPermitNvidia`), and
hyperconverged-cluster-operator, docs/cluster-configuration.md.
"""

import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct

from hostdevices import Host, scan
from hostdevices.readers.usb import USB
from nodeplug.convert.conversion import LeftOut, Offered, Values

_IDS = re.compile(r"([0-9A-Fa-f]{4}):([0-9A-Fa-f]{4})")
_VFIO, _NVIDIA = "vfio-pci", "10de"
_NVIDIAS: tuple[Values, ...] = ({"driver": _VFIO}, {"driver": "nvidia", "vgpuType": ">0"})
_OTHERS = (
    "another plugin offers it (externalResourceProvider): convert that one's file; if it is NVIDIA's"
    " kubevirt-gpu-device-plugin, which has no file, remove this key"
)
_REMARK = "set `externalResourceProvider: true` for it in KubeVirt."
_SET = "all matching devices of a node are one device, even if one of them is missing; before, only a complete set was."


class PciDevice(Struct, frozen=True, rename="camel"):
    """PCI functions by vendor and device: bound to vfio-pci, or virtual ones that are NVIDIA's vGPUs."""

    resource_name: str
    pci_vendor_selector: str = ""
    pci_device_selector: str = ""
    external_resource_provider: bool = False
    disabled: bool = False


class MediatedDevice(Struct, frozen=True, rename="camel"):
    """Mediated devices by the name of their type, in which `_` can stand for a space."""

    mdev_name_selector: str
    resource_name: str
    external_resource_provider: bool = False
    disabled: bool = False


class UsbSelector(Struct, frozen=True):
    """A USB device by vendor and product."""

    vendor: str
    product: str


class UsbDevices(Struct, frozen=True, rename="camel"):
    """USB devices that go together, one for each selector."""

    resource_name: str
    selectors: tuple[UsbSelector, ...] = ()
    external_resource_provider: bool = False
    disabled: bool = False


_Entry: TypeAlias = PciDevice | MediatedDevice | UsbDevices


class Permitted(Struct, frozen=True, rename="camel"):
    """The devices that machines can have."""

    pci_host_devices: tuple[PciDevice, ...] = ()
    mediated_devices: tuple[MediatedDevice, ...] = ()
    usb: tuple[UsbDevices, ...] = ()
    usb_host_devices: tuple[UsbDevices, ...] = ()


class File(Struct, frozen=True, rename="camel"):
    """The part of an object that concerns devices."""

    permitted_host_devices: Permitted


def resources(file: File, domain: str, host: Host) -> Iterator[Offered | LeftOut]:
    """Yield a resource for each name that virt-handler itself offers."""
    permitted = file.permitted_host_devices
    usb = (*permitted.usb, *permitted.usb_host_devices)
    entries: tuple[_Entry, ...] = (*permitted.pci_host_devices, *permitted.mediated_devices, *usb)
    for each in entries:
        if each.disabled:
            continue
        name = each.resource_name if "/" in each.resource_name else f"{domain}/{each.resource_name}"
        if each.external_resource_provider:
            yield LeftOut(name, _OTHERS)
            continue
        select = _usb(each.selectors, host) if isinstance(each, UsbDevices) else _select(each)
        if isinstance(select, str):
            yield LeftOut(name, select)
            continue
        values: Values = {"name": name, "select": select, "compat": "kubevirt"}
        remarks = [_REMARK]
        if isinstance(each, MediatedDevice):
            values["ids"] = "uuid"  # as in virt-handler
        if isinstance(each, UsbDevices) and "any" in select:
            values["group"] = {"attribute": "bus"}  # an attribute that all of them have in common
            remarks.append(_SET)
        yield Offered(values, tuple(remarks))


def _select(each: PciDevice | MediatedDevice) -> Values | str:
    """Return the selector, or why there is none."""
    if isinstance(each, MediatedDevice):
        return {"kind": "mdev", "attributes": {"model": re.sub("[ _]", "?", each.mdev_name_selector)}}
    selector = each.pci_vendor_selector or each.pci_device_selector
    if (ids := _IDS.fullmatch(selector)) is None:
        return f"{selector or 'its selector'} is not vendor and device, as 10de:1eb8"
    vendor, device = ids[1].lower(), ids[2].lower()
    held: Values = {"driver": _VFIO} if vendor != _NVIDIA else {}
    select: Values = {"kind": "vfio", "attributes": {"vendor": vendor, "device": device, **held}}
    return select | ({} if held else {"any": [{"attributes": x} for x in _NVIDIAS]})


def _usb(selectors: Sequence[UsbSelector], host: Host) -> Values | str:
    """Return the selector of a set of USB devices, or why there is none."""
    meant = [{"vendor": _four_digits(x.vendor), "product": _four_digits(x.product)} for x in selectors]
    if not meant:
        return "it does not select USB devices (selectors)"
    if len(meant) == 1:
        return {"kind": "usb", "attributes": meant[0]}
    there = [x.attributes for x in scan(host, (USB,)).devices.values() if x.kind == "usb"]
    if any(meant.count(x) > 1 or sum(x.items() <= y.items() for y in there) > 1 for x in meant):
        return "there are several devices with one of its USB ids, and nodeplug would offer all of them as one device"
    return {"kind": "usb", "any": [{"attributes": attributes} for attributes in meant]}


def _four_digits(digits: str) -> str:
    return digits.lower().removeprefix("0x").zfill(4)
