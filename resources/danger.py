"""Device nodes with which a container can harm the node or read data of others.

Only a resource with `dangerous: true` offers them, and no resource offers the node's uplink. A node is recognized by
its number if the kernel fixes it (Documentation/admin-guide/devices.txt), because a node can have any name, and
otherwise by its name.
"""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase, translate
from typing import Final

from hostdevices.device import Device, Devnode

DANGEROUS: Final = "`dangerous: true`"
"""The key that a resource needs for them."""

_MEMORY = "gives access to the kernel's memory or I/O ports"
_LOG = "gives access to the kernel's log"
_CONSOLE = "gives access to the node's console"
_STORAGE = "gives access to storage below its file systems"
_POWER = "can reset or power off the node"
_INPUT = "can imitate the node's keyboard"
_CLOCK = "sets the node's clock"
_PROCESSOR = "writes processor registers"
_FIRMWARE = "replaces the node's firmware"
_TRAFFIC = "records the traffic of all USB devices of the node, its keyboard among them"
_FAKE_DEVICES = "creates devices on the node that look like real ones"
_RADIO = "can switch off the node's radios, a link over Wi-Fi among them"
_SESSION = "gives the terminal of a session on the node"
_KEYS = "can clear the node's TPM, and with it the keys of its disks"
_GPUS = "can reconfigure all of the node's GPUs"
_ENGINES = "can stop all of the node's QAT engines"

# (major, minors, effect)
_NUMBERS: tuple[tuple[int, Iterable[int], str], ...] = (
    (1, (1, 2, 4), _MEMORY),
    (1, (11,), _LOG),
    (2, range(256), _SESSION),
    (3, range(256), _SESSION),
    (4, range(64), _CONSOLE),
    (5, (0, 1, 2), _CONSOLE),
    (5, (3,), _LOG),  # ttyprintk: text written there appears in the kernel's log, which other programs act on
    (7, range(256), _CONSOLE),
    (10, (130,), _POWER),
    (10, (135, 228), _CLOCK),  # 228: hpet, whose registers can be mapped
    (10, (137, 203), _FAKE_DEVICES),  # vhci: Bluetooth controllers; cuse: character devices of any name
    (10, (144, 227, 231), _MEMORY),
    (10, (184,), _PROCESSOR),
    (10, (220, 221, 222), _STORAGE),  # mptctl, mpt2ctl, mpt3ctl: any command to the disks of an LSI controller
    (10, (223, 239, 240), _INPUT),
    (10, (224,), _KEYS),
    (10, (234, 235, 236, 237), _STORAGE),
    (10, (242,), _RADIO),
    (21, range(256), _STORAGE),
    (29, range(256), _CONSOLE),  # fb: the screen with the console
    (90, range(1 << 20), _STORAGE),  # mtd: raw flash, which contains firmware
    *((major, range(1 << 20), _SESSION) for major in range(136, 144)),  # /dev/pts
    (162, range(1 << 20), _STORAGE),  # raw, until Linux 5.13
    (202, range(4096), _PROCESSOR),
    (229, range(256), _CONSOLE),  # hvc: a hypervisor's
)

_NAMES: tuple[tuple[str, str], ...] = (
    ("/dev/aac[0-9]*", _STORAGE),  # any command to the disks of an Adaptec controller
    ("/dev/bcachefs*ctl", _STORAGE),
    ("/dev/bsg/*", _STORAGE),
    ("/dev/cachefiles", _STORAGE),  # replaces the content of others' files
    ("/dev/crash", _MEMORY),  # of distributions that restrict /dev/mem
    ("/dev/cros_ec", _FIRMWARE),  # of Chromebooks and Framework's laptops: the embedded controller's flash
    ("/dev/cxl/mem[0-9]*", _STORAGE),  # commands to memory devices, like those of nmem
    ("/dev/efi_capsule_loader", _FIRMWARE),
    ("/dev/fwctl/*", _FIRMWARE),
    ("/dev/hpilo/*", _POWER),
    ("/dev/hsmp", _PROCESSOR),
    ("/dev/ipmi*", _POWER),
    ("/dev/isst_interface", _PROCESSOR),
    ("/dev/mcelog", _MEMORY),
    ("/dev/megadev[0-9]*", _STORAGE),
    ("/dev/megaraid_sas_ioctl_node", _STORAGE),
    ("/dev/mei[0-9]*", _FIRMWARE),  # Intel's management engine
    ("/dev/mmcblk*rpmb", _STORAGE),  # a character device, whose key can be written only once
    ("/dev/mpt*ctl", _STORAGE),
    ("/dev/mst/*", _FIRMWARE),  # of NVIDIA network cards, possibly the uplink
    ("/dev/ndctl[0-9]*", _STORAGE),
    ("/dev/ng[0-9]*", _STORAGE),
    ("/dev/nmem[0-9]*", _STORAGE),
    ("/dev/nvidia-caps/nvidia-cap[01]", _GPUS),  # of NVLink's fabric (0), of MIG (1)
    ("/dev/nvme*", _STORAGE),
    ("/dev/opal-prd", _FIRMWARE),  # POWER's
    ("/dev/pktcdvd/control", _STORAGE),
    ("/dev/pmcsas*", _STORAGE),
    ("/dev/qat_adf_ctl", _ENGINES),
    ("/dev/rshim[0-9]*", _FIRMWARE),  # of BlueField cards, which they can also reset
    ("/dev/rtc*", _CLOCK),
    ("/dev/switchtec[0-9]*", _FIRMWARE),  # of PCIe switches
    ("/dev/tpm[0-9]*", _KEYS),
    ("/dev/tpmrm[0-9]*", _KEYS),
    ("/dev/tw[ael][0-9]*", _STORAGE),  # 3ware controllers
    ("/dev/ubi*", _STORAGE),
    ("/dev/ublk-control", _STORAGE),
    ("/dev/ublkc[0-9]*", _STORAGE),
    ("/dev/usbmon*", _TRAFFIC),
    ("/dev/vboxdrv", _MEMORY),  # runs code in the kernel, as vmmon does
    ("/dev/vc-mem", _MEMORY),  # of a Raspberry Pi
    ("/dev/vcio", _MEMORY),  # its firmware's mailbox, which runs code on a processor that sees all memory
    ("/dev/vduse/control", _FAKE_DEVICES),
    ("/dev/vmcp", _POWER),  # commands of z/VM
    ("/dev/vmmon", _MEMORY),
    ("/dev/vtpmx", _FAKE_DEVICES),
    ("/dev/watchdog*", _POWER),
    ("/dev/wmi/*", _FIRMWARE),  # the vendor's calls to it
    ("/dev/xen/hypercall", _MEMORY),
    ("/dev/xen/privcmd", _MEMORY),
    ("/dev/zfs", _STORAGE),
)


_BY_MAJOR: Final = {  # few devices have such a number or name: for most, one lookup each suffices
    major: tuple(each for each in _NUMBERS if each[0] == major) for major, *_ in _NUMBERS
}
_BUTTON: Final = re.compile(r"[A-Z0-9]+/button/input")  # by its place: a program can forge presses through its node
_ANY_NAME: Final = re.compile("|".join(translate(glob) for glob, _ in _NAMES))


def danger_reason(device: Device) -> str:
    """Return the harm that a container could do to the node with `device`; empty for an ordinary device."""
    for node in device.devnodes:
        if reason := _node_danger(node):
            return f"{node.path} {reason}"
    if device.attributes.get("console") is True:
        return f"it {_CONSOLE}"
    if device.attributes.get("smbus") is True:
        return "it is the board's own bus: who writes to it can ruin memory modules and regulators"
    if device.attributes.get("unconfined") is True:
        return "its DMA can write all of the node's memory, for no IOMMU confines it; bind the function to vfio-pci"
    if master := device.attributes.get("master"):
        return f"it is a part of {master} (an interface of the node, such as a bond or bridge), which would lose it"
    if device.kind == "input" and _BUTTON.match(str(device.attributes.get("phys", ""))):
        return f"it is the power button or its like, and {_POWER}"
    if device.attributes.get("uplinkUnknown") is True:
        return "it may be the node's uplink: this is not known here (see `nodeplug discover`)"
    if device.attributes.get("otherDefaultRoute") is True:
        return "a default route of another table than main leads over it (`ip route show table all default`)"
    return ""


def exclusion_reason(device: Device) -> str:
    """Return why no resource can have `device`, whatever it allows; empty if one can."""
    if device.attributes.get("uplink") is True:
        return "it carries a default route (or, on a node without one, another route); an uplink is never offered"
    return ""


def _node_danger(node: Devnode) -> str:
    if node.kind == "b":
        return f"is a block device and {_STORAGE}"
    for _, minors, reason in _BY_MAJOR.get(node.major, ()):
        if node.minor in minors:
            return reason
    names = [name for name in (node.path, node.target) if _ANY_NAME.match(name)]
    if not names:
        return ""
    return next((reason for glob, reason in _NAMES if any(fnmatchcase(name, glob) for name in names)), "")
