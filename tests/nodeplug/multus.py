"""What Multus does to find the devices of a pod's claims, and what is known of them.

Facts of Multus after 4.3 (pkg/draclient, GetPodResourceMap: claims that are made from templates, by the attributes of
slices) and of network-attachment-definition-client 1.7.7 (pkg/utils, getDPDeviceInfoPath).
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

DEVICE_ID, RESOURCE_NAME = "k8s.cni.cncf.io/deviceID", "k8s.cni.cncf.io/resourceName"


def devices_of(
    pod: Mapping[str, Any], claims: Sequence[Mapping[str, Any]], slices: Sequence[Mapping[str, Any]]
) -> dict[str, list[str]]:
    """The ids of what a pod has by claims, by the resource that a network's annotation names."""
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
    """What is known of a device: in the network's status of the pod it is `device-info`."""
    return json.loads((folder / f"{resource.replace('/', '-')}-{device.replace('/', '-')}-device.json").read_text())
