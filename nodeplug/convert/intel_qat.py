"""Intel's QAT plugin: virtual functions under the name of the services that their card is configured for.

So names depend on the existing functions, if there are any: `qat.intel.com/cy`, `.../dc`, `.../sym`.

Source: intel/intel-device-plugins-for-kubernetes, cmd/qat_plugin/README.md, and the operator's QatDevicePlugin.
"""

from collections.abc import Iterator
from typing import Literal

from hostdevices import Device, Host, scan
from hostdevices.readers.intel_io import QAT
from nodeplug.convert.conversion import LeftOut, Offered, Values, one_or_all
from nodeplug.convert.intel import Plugin, Spec, numbered, offered

_BOUND = "it offers functions that use vfio-pci; the plugin created and bound them, and nodeplug does not."
_BALANCED = "nodeplug chooses functions that are close together; before, they came from all cards in turn (balanced)."
_GUESSED = "nothing here has such a function: this is one of the names there can be; convert it on a node with them."
_MAX_DEVICES = 64
_CRYPTOGRAPHY = ("sym;asym", "asym;sym")
_DEVICES = {
    "dh895xccvf": ("0442", "0443"),
    "c4xxxvf": ("18a1",),
    "c3xxxvf": ("19e3",),
    "4xxxvf": ("4941", "4943", "4945"),
    "420xxvf": ("4947",),
    "6xxxvf": ("4949",),
    "c6xxvf": ("37c9",),
    "d15xxvf": ("6f55",),
}
_WITH_SERVICES = frozenset({"4941", "4943", "4945", "4947", "4949"})


class Qat(Spec, frozen=True, rename="camel"):
    """The settings."""

    dpdk_driver: Literal["vfio-pci", "igb_uio"] = "vfio-pci"
    kernel_vf_drivers: str | tuple[str, ...] = ("4xxxvf", "420xxvf")
    max_num_devices: int = _MAX_DEVICES
    preferred_allocation_policy: Literal["", "balanced", "packed"] = ""


def _resources(file: Qat, domain: str, host: Host) -> Iterator[Offered | LeftOut]:
    if file.dpdk_driver != "vfio-pci":
        yield LeftOut(f"{domain}/...", "nodeplug offers functions of vfio-pci and not of igb_uio (dpdkDriver)")
        return
    drivers = file.kernel_vf_drivers
    drivers = tuple(drivers.split(",")) if isinstance(drivers, str) else drivers
    if unknown := [x for x in drivers if x not in _DEVICES]:
        yield LeftOut(f"{domain}/...", f"kernelVfDrivers: {', '.join(unknown)} is not known; {', '.join(_DEVICES)} are")
    wanted = [x for driver in drivers for x in _DEVICES.get(driver, ())]
    there = [x for x in scan(host, (QAT,)).devices.values() if x.attributes.get("device") in wanted]
    if file.max_num_devices != _MAX_DEVICES and not 0 < len(there) <= file.max_num_devices:
        reason = f"maxNumDevices is {file.max_num_devices}, and there are {len(there)} here"
        yield LeftOut(f"{domain}/...", f"{reason}: select the devices by `pciBusID`, or leave it out")
        return
    remarks = [*file.remarks(), _BOUND, numbered("QAT")]
    if file.preferred_allocation_policy == "balanced":
        remarks.append(_BALANCED)
    names = dict.fromkeys(map(_service, there))
    for service in names or _usual(wanted):
        attributes: Values = {"vendor": "8086", "driver": "vfio-pci"}
        if service == "generic":
            attributes["device"] = one_or_all([x for x in wanted if x not in _WITH_SERVICES] or wanted)
        else:
            attributes["device"] = one_or_all([x for x in wanted if x in _WITH_SERVICES])
            attributes["services"] = list(_CRYPTOGRAPHY) if service == "cy" else service.replace("-", ";")
        values: Values = {
            "select": {"preset": "qat", "attributes": attributes},
            "ids": "pciBusID",
            "env": {"QAT0": "{pciBusID}"},
        }
        yield offered(f"{domain}/{service}", values, remarks + ([] if names else [_GUESSED]))
        remarks = []


def _service(device: Device) -> str:
    """Return the name of a function's resource: from the services of its card, if these are configurable."""
    services = str(device.attributes.get("services", ""))
    if device.attributes.get("device") not in _WITH_SERVICES or not services:
        return "generic"
    return "cy" if services in _CRYPTOGRAPHY else services.replace(";", "-")


def _usual(wanted: list[str]) -> list[str]:
    usual = ["cy", "dc"] if any(x in _WITH_SERVICES for x in wanted) else []
    return usual + (["generic"] if any(x not in _WITH_SERVICES for x in wanted) else [])


PLUGIN = Plugin(
    "qat",
    Qat,
    _resources,
    {
        "allocation-policy": "preferredAllocationPolicy",
        "dpdk-driver": "dpdkDriver",
        "kernel-vf-drivers": "kernelVfDrivers",
        "max-num-devices": "maxNumDevices",
    },
)
"""The plugin and its conversion."""
