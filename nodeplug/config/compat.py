"""`compat`: one key for everything that another program expects of a resource's devices.

| value | programs | what it sets, unless the resource sets it |
|---|---|---|
| `sriov` | Multus, sriov-cni, DPDK images | `ids: pciBusID`, `PCIDEVICE_<NAME>`, `PCIDEVICE_<NAME>_INFO` and |
| | | device-info files; `k8s.cni.cncf.io/deviceID` and `k8s.cni.cncf.io/resourceName` |
| `kubevirt` | virt-launcher | `PCI_RESOURCE_<NAME>`, `MDEV_PCI_RESOURCE_<NAME>` or `USB_RESOURCE_<NAME>`; |
| | | `access` for its user |
| `nvidia` | NVIDIA's runtime, dcgm-exporter | `ids: uuid`, `NVIDIA_VISIBLE_DEVICES` |

NAME is the resource's in capitals, with `_` for `.` and `/`; other characters stay, because the programs expect them.
Several devices are joined by commas. In claims KubeVirt reads attributes that the devices have anyway.

Sources: sriov-network-device-plugin (PCIDEVICE_), Multus (its DRA client), KubeVirt (ResourceNameToEnvVar; the PCI,
mdev and USB device plugins; VEP 10), NVIDIA's device plugin (deviceListStrategy envvar, deviceIDStrategy uuid).
"""

from collections.abc import Mapping

from msgspec import Struct

from hostdevices.device import PCI_BUS_ID
from nodeplug.config.document import Document, Path
from nodeplug.config.schema import Compat
from nodeplug.config.selectors import KINDS
from resources.resource import Ids, NodeAccess
from resources.selector import Selection, concerns

NVIDIA_VARIABLE = "NVIDIA_VISIBLE_DEVICES"
_QEMU = 107  # the user of virt-launcher

_KUBEVIRT = {
    "usb": ("USB_RESOURCE", "{usbAddress}"),
    "mdev": ("MDEV_PCI_RESOURCE", "{uuid}"),
    "vfio": ("PCI_RESOURCE", f"{{{PCI_BUS_ID}}}"),
}
_WITH_VFIO = frozenset({"pci", "qat", "vfio"})  # kinds that can be held by a vfio driver


class CompatDefaults(Struct, frozen=True):
    """What a resource has unless it sets the value itself."""

    ids: Ids = "identity"
    env: Mapping[str, str] = {}
    attributes: Mapping[str, str] = {}
    access: NodeAccess | None = None
    device_info: str = ""


def compat_defaults(
    document: Document, path: Path, word: Compat, name: str, selector: Selection, *, is_auxiliary: bool = False
) -> CompatDefaults:
    """Return what `word`, at `path`, means for the resource `name`; findings go to the document.

    `is_auxiliary`: its devices are sub-functions, which CNI plugins find by their names on the auxiliary bus.
    """
    if word == "nvidia":
        return CompatDefaults("uuid", {NVIDIA_VARIABLE: "{uuid}"})
    if word == "sriov":
        address = "{auxiliary}" if is_auxiliary else f"{{{PCI_BUS_ID}}}"
        cni = {"k8s.cni.cncf.io/deviceID": address, "k8s.cni.cncf.io/resourceName": name}
        variable = _variable("PCIDEVICE", name)
        return CompatDefaults("pciBusID", {variable: address}, cni, device_info=f"{variable}_INFO")
    meant = {kind for kind in KINDS if concerns(selector, kind)}
    kinds = {"vfio" if kind in _WITH_VFIO else kind for kind in meant}
    hint = "add `kind: vfio`, `kind: mdev` or `kind: usb`"
    if len(meant) == 1 and not kinds & _KUBEVIRT.keys():
        document.at(path, f"KubeVirt cannot pass a machine a device of kind {meant.pop()}", hint)
        return CompatDefaults()
    if len(kinds) != 1 or not kinds & _KUBEVIRT.keys():
        document.at(path, "KubeVirt asks for PCI, mediated and USB devices in different ways", hint)
        return CompatDefaults()
    (kind,) = kinds
    prefix, value = _KUBEVIRT[kind]
    return CompatDefaults(env={_variable(prefix, name): value}, access=NodeAccess(_QEMU, _QEMU))


def _variable(prefix: str, name: str) -> str:
    return f"{prefix}_{name.upper().replace('.', '_').replace('/', '_')}"
