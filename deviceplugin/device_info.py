"""What Multus, CNI plugins and DPDK images are told of a PCI device beside its address.

| for | as |
|---|---|
| Multus and CNI plugins | a file of the Device Information Specification, version 1.1.0 (k8snetworkplumbingwg) |
| the container | `PCIDEVICE_<NAME>_INFO`: by address what kind of device it is and where its nodes are |

Sources: Device Information Specification 3.1.3, 4.1; sriov-network-device-plugin, `PCIDEVICE_..._INFO`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import msgspec

from hostdevices.device import PCI_BUS_ID, Device
from resources.resource import VHOST_NET
from resources.template import MOST_BYTES, ValueTooLong

VERSION = "1.1.0"
_VFIO = "/dev/vfio/vfio"
_RDMA_NODES = ("uverbs", "umad", "issm", "rdma_cm")
_GROUP = re.compile(r"/dev/vfio/(?:devices/vfio)?[0-9]+")

Part: TypeAlias = Callable[[str], Device | None]
"""Returns a device by its id."""


def file_name(resource: str, unit: str) -> str:
    """Return the name of the file about a unit (specification 4.1)."""
    return f"{resource}-{unit}-device.json".replace("/", "-")


def file_content(device: Device, part: Part, *, vhost_net: bool = False) -> bytes:
    """Return the content of the file about a device; empty for one without an address."""
    address = device.attributes.get(PCI_BUS_ID)
    if address is None or "auxiliary" in device.attributes:  # the address is that of the sub-function's parent
        return b""
    found = {
        "pci-address": address,
        "pf-pci-address": device.attributes.get("pf"),
        "rdma-device": _rdma_name(device, part),
        "vhost-net": VHOST_NET[0] if vhost_net else None,
    }
    told = {key: value for key, value in found.items() if value}
    return msgspec.json.encode({"type": "pci", "version": VERSION, "pci": told})


def variable(
    devices: Iterable[Device],
    part: Part,
    *,
    of: str,
    vhost_net: bool = False,
    additional: Mapping[str, Mapping[str, str]] | None = None,
) -> str:
    """Return the value of `PCIDEVICE_<NAME>_INFO` (`of`). Raises `ValueTooLong`.

    `additional` is what the configuration says besides, by address, and by `*` of all.
    """
    told = {_known_as(x): _told(x, part, vhost_net) for x in devices}
    for address, found in told.items():
        if extra := {key: text for name in ("*", address) for key, text in (additional or {}).get(name, {}).items()}:
            found["extra"] = extra
    text = msgspec.json.encode(told, order="sorted")
    if len(text) > MOST_BYTES:
        raise ValueTooLong(f"variable {of}: more than {MOST_BYTES} bytes; ask for fewer devices in one container")
    return text.decode()


def _told(device: Device, part: Part, vhost_net: bool) -> dict[str, dict[str, str]]:
    paths = _paths(device)
    found = {"generic": {"deviceID": _known_as(device)}}
    rdma = {node: path for node in _RDMA_NODES for path in paths if node in path.rpartition("/")[2]}
    if name := _rdma_name(device, part):
        rdma["rdma_dev"] = name
    if rdma:
        found["rdma"] = rdma
    if group := next((path for path in paths if _GROUP.fullmatch(path)), ""):
        found["vfio"] = {"mount": _VFIO, "dev-mount": group}
    if vhost_net:
        found["vhost"] = dict(zip(("net-mount", "tun-mount"), VHOST_NET, strict=True))
    return found


def _known_as(device: Device) -> str:
    """Return by which name CNI plugins look for a device: a sub-function's on its bus, else the PCI address."""
    return str(device.attributes.get("auxiliary") or device.attributes.get(PCI_BUS_ID, device.id))


def _rdma_name(device: Device, part: Part) -> str:
    parts = (part(i) for i in sorted(device.ids))
    return next((x.name for x in parts if x is not None and x.kind == "rdma"), "")


def _paths(device: Device) -> list[str]:
    return [node.container_path or node.path for node in device.devnodes]
