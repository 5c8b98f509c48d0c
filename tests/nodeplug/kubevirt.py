"""How virt-launcher finds the devices of its virtual machine.

Source: KubeVirt 1.9: pkg/virt-launcher/virtwrap/device/hostdevice (AddressPool, createUSBHostDevice; for claims
createHostDeviceForHostDevice: `mdevUUID` takes precedence over the address), pkg/util (ResourceNameToEnvVar), pkg/dra
(resolveDevice).
"""

from collections.abc import Iterable, Mapping
from typing import Any

VERSION = "metadata.resource.k8s.io/v1alpha1"
PCI, MDEV, USB = "PCI_RESOURCE", "MDEV_PCI_RESOURCE", "USB_RESOURCE"


def variable(prefix: str, resource: str) -> str:
    """The variable that contains the devices of a resource."""
    return f"{prefix}_{resource.upper().replace('/', '_').replace('.', '_')}"


def addresses(env: Mapping[str, str], prefix: str, resource: str) -> list[str]:
    """Split a variable: one entry for each device of this resource, in order."""
    text = env.get(variable(prefix, resource), "").removesuffix(",")
    return text.split(",") if text else []


def usb(address: str) -> tuple[int, int]:
    """Parse the address of a USB device."""
    bus, number = address.split(":")
    return int(bus), int(number)


def from_metadata(stream: Iterable[Mapping[str, Any]], request: str) -> tuple[str, str]:
    """Find a claim's device in the metadata of one request: the name of its address attribute, and the value.

    `decodeMetadataFromStream` uses the first object of the only version that it knows; `resolveDevice` uses the request
    with exactly this name, which must have one device.
    """
    content = next(each for each in stream if each["apiVersion"] == VERSION)
    requests = {each["name"]: each["devices"] for each in content["requests"]}
    if request not in requests:
        raise LookupError(f'request "{request}" not found (available requests: {[*requests]})')
    (device,) = requests[request]
    found = device["attributes"]
    for name in ("mdevUUID", "resource.kubernetes.io/pciBusID"):
        if name in found:
            return name.rpartition("/")[2], found[name]["string"]
    raise LookupError(found)
