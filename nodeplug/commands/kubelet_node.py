"""The status of a node that a stand-in kubelet reports: the machine, its capacity, its conditions, and its heartbeat.

Source: the kubelet's `nodestatus/setters.go` and `kubelet_node_status.go`; kubernetes.io "Nodes", "Leases". The name is
the only address, because nothing listens at any.
"""

import os
import platform
from collections.abc import Mapping
from typing import Any

from nodeplug.commands.kubelet_status import stamped
from nodeplug.version import VERSION
from resourceapi.objects.names import is_extended_resource
from resourceapi.objects.quantity import Quantity
from resourceapi.objects.release import Release

Json = dict[str, Any]

NODE_ANNOTATIONS = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
"""The annotations that a kubelet with its defaults sets; clients add theirs by JSON patches to this map."""

_MAX_PODS = 110  # the kubelet's default
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # Go's names, if they differ
_PRESSURES = {
    "MemoryPressure": ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
}


def node_labels(name: str) -> Json:
    """Return the labels by which pods select nodes."""
    what = {"os": "linux", "arch": _architecture()}
    made = {f"{group}/{key}": value for group in ("kubernetes.io", "beta.kubernetes.io") for key, value in what.items()}
    return made | {"kubernetes.io/hostname": name}


def node_status(
    name: str, release: Release, capacity: Mapping[str, int], allocatable: Mapping[str, int], before: Json, now: str
) -> Json:
    """Return the fields of a node's status that a kubelet writes; None deletes a field.

    `capacity` and `allocatable` are of devices, `before` is the status that the server has, empty at first; `now` is a
    time as the API writes it. Extended resources that others added to the capacity there are allocatable, too.
    """
    machine = _machine()
    had = before.get("capacity", {})
    others = {key: amount for key, amount in had.items() if is_extended_resource(key) and key not in capacity}
    without = {key: None for key in before.get("allocatable", ()) if is_extended_resource(key) and key not in had}
    earlier = {each["type"]: each for each in before.get("conditions", ())}
    found = [_condition(type_, "False", *why) for type_, why in _PRESSURES.items()]
    found.append(_condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"))
    return {
        "addresses": [{"type": "Hostname", "address": name}],
        "capacity": machine | _quantities(capacity),
        "allocatable": without | others | machine | _quantities(allocatable),
        "conditions": [stamped(each, earlier.get(each["type"], {}), now) for each in found],
        "nodeInfo": _node_info(release),
    }


def is_reported(reported: Json, status: Json) -> bool:
    """Return whether the status that the server has contains what a kubelet reports; it can contain more."""
    if not status:
        return False
    conditions = {each["type"]: each for each in status.get("conditions", ())}
    return (
        all(_contains(status.get(key, {}), reported[key]) for key in ("capacity", "allocatable", "nodeInfo"))
        and all(_contains(conditions.get(each["type"], {}), each) for each in reported["conditions"])
        and all(each in status.get("addresses", ()) for each in reported["addresses"])
    )


def _contains(found: Json, wanted: Json) -> bool:
    return all(found.get(key) == value for key, value in wanted.items())


def kibibytes(count: int) -> str:
    """Return bytes, rounded down to Ki, as the API writes them: 2048Ki is `2Mi`."""
    return str(Quantity.of(count // 1024 * 1024, "BinarySI"))


def with_heartbeat(status: Json, now: str) -> Json:
    """Return a node's status for a write: each of its conditions has the heartbeat `now`."""
    return status | {"conditions": [each | {"lastHeartbeatTime": now} for each in status["conditions"]]}


def _machine() -> Json:
    pages, disk = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), os.statvfs("/")
    found = _quantities({"cpu": os.cpu_count() or 1, "pods": _MAX_PODS})
    return found | {"memory": kibibytes(pages), "ephemeral-storage": kibibytes(disk.f_blocks * disk.f_frsize)}


def _node_info(release: Release) -> Json:
    return {
        "architecture": _architecture(),
        "operatingSystem": "linux",
        "kernelVersion": platform.release(),
        "osImage": _os_image(),
        "kubeletVersion": f"v{release.version}.{release.patch}",
        "containerRuntimeVersion": f"nodeplug://{VERSION}",
    }


def _os_image() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return ""


def _architecture() -> str:
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def _condition(type_: str, status: str, reason: str, message: str) -> Json:
    return {"type": type_, "status": status, "reason": reason, "message": message}


def _quantities(counts: Mapping[str, int]) -> Json:
    """Return numbers as the API writes them: 60000 is `60k`."""
    return {name: str(Quantity.of(count)) for name, count in counts.items()}
