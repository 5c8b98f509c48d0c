"""How Multus finds the devices of a pod's claims, and their device information.

Source: Multus after 4.3 (pkg/draclient, GetPodResourceMap: claims created from templates, by the attributes of
slices), and network-attachment-definition-client 1.7.7 (pkg/utils, getDPDeviceInfoPath).
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

DEVICE_ID, RESOURCE_NAME = "k8s.cni.cncf.io/deviceID", "k8s.cni.cncf.io/resourceName"


def devices_of(
    pod: Mapping[str, Any], claims: Sequence[Mapping[str, Any]], slices: Sequence[Mapping[str, Any]]
) -> dict[str, list[str]]:
    """The ids of a pod's claimed devices, by the resource name in a network's annotation."""
    named = {claim["metadata"]["name"]: claim for claim in claims}
    published = {
        (each["spec"]["driver"], each["spec"]["pool"]["name"], device["name"]): device["attributes"]
        for each in slices
        for device in each["spec"].get("devices", ())
    }
    found: dict[str, list[str]] = {}
    for status in pod["status"].get("resourceClaimStatuses", ()):
        for result in named[status["resourceClaimName"]]["status"]["allocation"]["devices"]["results"]:
            attributes = published.get((result["driver"], result["pool"], result["device"]), {})
            if DEVICE_ID in attributes and RESOURCE_NAME in attributes:
                found.setdefault(attributes[RESOURCE_NAME]["string"], []).append(attributes[DEVICE_ID]["string"])
    return {resource: sorted(ids) for resource, ids in found.items()}


def device_info(folder: Path, resource: str, device: str) -> Any:
    """The information about a device, which becomes `device-info` in the pod's network status."""
    return json.loads((folder / f"{resource.replace('/', '-')}-{device.replace('/', '-')}-device.json").read_text())
