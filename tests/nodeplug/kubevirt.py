"""What virt-launcher does to find the devices of its machine.

Facts of KubeVirt: pkg/virt-launcher/virtwrap/device/hostdevice (AddressPool), pkg/util (ResourceNameToEnvVar), the USB
plugin's `bus:device`; VEP 10 for claims (KEP-5304 metadata: `mdevUUID` goes before the address).
"""

from collections.abc import Mapping
from typing import Any

PCI, MDEV, USB = "PCI_RESOURCE", "MDEV_PCI_RESOURCE", "USB_RESOURCE"


def variable(prefix: str, resource: str) -> str:
    """Where it looks for the devices of a resource."""
    return f"{prefix}_{resource.upper().replace('/', '_').replace('.', '_')}"


def addresses(env: Mapping[str, str], prefix: str, resource: str) -> list[str]:
    """Take a variable apart: one entry for each of the machine's devices of this resource, in order."""
    text = env.get(variable(prefix, resource), "").removesuffix(",")
    return text.split(",") if text else []


def usb(address: str) -> tuple[int, int]:
    """Read the address of a USB device."""
    bus, number = address.split(":")
    return int(bus), int(number)


def from_metadata(content: Mapping[str, Any], request: str) -> tuple[str, str]:
    """Find a claim's device in its metadata: what it is known by, and that."""
    (device,) = next(x["devices"] for x in content["requests"] if x["name"] == request)
    found = device["attributes"]
    for name in ("mdevUUID", "resource.kubernetes.io/pciBusID"):
        if name in found:
            return name.rpartition("/")[2], found[name]["string"]
    raise LookupError(found)
