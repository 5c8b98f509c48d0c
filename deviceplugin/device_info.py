"""What Multus, CNI plugins and DPDK images learn about a PCI device besides its address.

| for | as |
|---|---|
| Multus and CNI plugins | a file of the Device Information Specification, version 1.1.0 (k8snetworkplumbingwg) |
| the container | `PCIDEVICE_<NAME>_INFO`: by address the kind of the device and the paths of its nodes |

Multus finds the file of a claim's device by its attributes in slices, `k8s.cni.cncf.io/resourceName` and
`.../deviceID`. A function whose vDPA device is driven through vhost is described as that, with the node by which CNI
plugins attach it. So is a virtio one, which has no node, and for which the SR-IOV plugin writes no path either.

Sources: Device Information Specification 3.1.3, 3.1.4, 4.1; sriov-network-device-plugin 3.11: `StoreDeviceInfoFile` of
pkg/netdevice, and the `GetEnvVal` of pkg/infoprovider (`uio`, `vfio`, `vdpa`, `rdma`, `vhost`); for claims, Multus
after 4.3 (pkg/draclient, `GetPodResourceMap`; pkg/multus, `CmdAdd`) and dra-driver-sriov
(pkg/devicestate/deviceinfo.go).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import msgspec

from hostdevices.device import PCI_BUS_ID, Device
from resources.resource import VHOST_NET, Resource
from resources.template import MAX_BYTES, ValueTooLong

VERSION = "1.1.0"
_VFIO = "/dev/vfio/vfio"
_RDMA_NODES = ("uverbs", "umad", "issm", "rdma_cm")
_VHOST_VDPA = re.compile(r"/dev/vhost-vdpa-[0-9]+")
_UIO = re.compile(r"/dev/uio[0-9]+")
_GROUP = re.compile(r"/dev/vfio/(?:devices/vfio|noiommu-)?[0-9]+")

Part: TypeAlias = Callable[[str], Device | None]
"""Returns a device by its id."""


def file_name(resource: str, unit: str) -> str:
    """Return the name of a unit's file (specification 4.1)."""
    return f"{resource}-{unit}-device.json".replace("/", "-")


def files_of(resource: Resource, units: Mapping[str, Device], part: Part) -> dict[str, bytes]:
    """Return the files of a resource's units, by name."""
    found = {unit: file_content(device, part, vhost_net=resource.vhost_net) for unit, device in units.items()}
    return {file_name(resource.name, unit): content for unit, content in found.items() if content}


def file_content(device: Device, part: Part, *, vhost_net: bool = False) -> bytes:
    """Return the content of a device's file; empty for a device without an address."""
    address = device.attributes.get(PCI_BUS_ID)
    if address is None or "auxiliary" in device.attributes:  # a sub-function has its parent's address
        return b""
    places = {"pci-address": address, "pf-pci-address": device.attributes.get("pf")}
    if vdpa := _vdpa(device, part):
        return _encoded("vdpa", {"parent-device": vdpa.name, "driver": "vhost", "path": _vdpa_path(device), **places})
    if device.attributes.get("vdpaType") == "virtio" and (name := device.attributes.get("vdpa")):
        return _encoded("vdpa", {"parent-device": name, "driver": "virtio", **places})
    found = {
        **places,
        "rdma-device": _rdma_name(device, part),
        "vhost-net": VHOST_NET[0] if vhost_net else None,
    }
    return _encoded("pci", found)


def _encoded(kind: str, found: Mapping[str, object]) -> bytes:
    present = {key: value for key, value in found.items() if value}
    return msgspec.json.encode({"type": kind, "version": VERSION, kind: present})


def variable(
    devices: Iterable[Device],
    part: Part,
    *,
    of: str,
    vhost_net: bool = False,
    additional: Mapping[str, Mapping[str, str]] | None = None,
) -> str:
    """Return the value of `PCIDEVICE_<NAME>_INFO` (`of`). Raises `ValueTooLong`.

    `additional` are configured values, by address; those under `*` apply to all devices.
    """
    described = {_cni_name(x): _info(x, part, vhost_net) for x in devices}
    for address, found in described.items():
        if extra := {key: text for name in ("*", address) for key, text in (additional or {}).get(name, {}).items()}:
            found["extra"] = extra
    text = msgspec.json.encode(described, order="sorted")
    if len(text) > MAX_BYTES:
        raise ValueTooLong(f"variable {of}: more than {MAX_BYTES} bytes; request fewer devices in one container")
    return text.decode()


def _info(device: Device, part: Part, vhost_net: bool) -> dict[str, dict[str, str]]:
    paths = _paths(device)
    found = {"generic": {"deviceID": _cni_name(device)}}
    rdma = {node: path for node in _RDMA_NODES for path in paths if node in path.rpartition("/")[2]}
    if name := _rdma_name(device, part):
        rdma["rdma_dev"] = name
    if rdma:
        found["rdma"] = rdma
    if group := next(filter(_GROUP.fullmatch, paths), ""):
        found["vfio"] = {"mount": _VFIO, "dev-mount": group} if _VFIO in paths else {"dev-mount": group}
    if uio := next(filter(_UIO.fullmatch, paths), ""):
        found["uio"] = {"mount": uio}
    if path := _vdpa_path(device):
        found["vdpa"] = {"mount": path}
    if vhost_net:
        found["vhost"] = dict(zip(("net-mount", "tun-mount"), VHOST_NET, strict=True))
    return found


def _cni_name(device: Device) -> str:
    """Return the name by which CNI plugins find a device: a sub-function's on its bus, otherwise the PCI address."""
    return str(device.attributes.get("auxiliary") or device.attributes.get(PCI_BUS_ID, device.id))


def _rdma_name(device: Device, part: Part) -> str:
    parts = (part(i) for i in sorted(device.ids))
    return next((x.name for x in parts if x is not None and x.kind == "rdma"), "")


def _vdpa(device: Device, part: Part) -> Device | None:
    """Return the vDPA device of a function that is allocated with its node."""
    if not _vdpa_path(device):
        return None
    return next((x for i in sorted(device.ids) if (x := part(i)) is not None and x.kind == "vdpa"), None)


def _vdpa_path(device: Device) -> str:
    found = (x.container_path or x.path for x in device.devnodes if _VHOST_VDPA.fullmatch(x.path))
    return next(found, "")


def _paths(device: Device) -> list[str]:
    return [node.container_path or node.path for node in device.devnodes]
