"""Devices for a virtual machine or a user-space driver: IOMMU groups, vfio cdevs, mediated devices.

The kernel isolates whole IOMMU groups, so a group is one device: it is within each of its functions, and whoever owns
one of them owns the group. The kernel assigns the group's number; the identity is the address of its first function.

A vGPU is a mediated device, or on newer kernels a virtual function that NVIDIA's driver holds; without a
chosen type it is not one.
Source: NVIDIA's vGPU documentation (vendor-specific VFIO framework).
"""

import re
from collections.abc import Iterator

from hostdevices.device import PCI_BUS_ID, AttributeValue, Device, Devnode
from hostdevices.host import Host
from hostdevices.identity import device_id
from hostdevices.readers.pci import ADDRESS, PciFunctions, function_above, pci_id
from hostdevices.readers.reader import Finding, PresetFacts, Reader, attributes, each, entries
from hostdevices.readers.signals import Sample
from hostdevices.readers.sysfs import devnodes, hexadecimal, known, natural, numa_nodes, shared_node, text

_GROUPS = "/sys/kernel/iommu_groups"
_GROUP = re.compile(r"(noiommu-)?([0-9]+)")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_VGPU_TYPE = "nvidia/current_vgpu_type"
_BRIDGE = "06"  # PCI base class; bridges do not block a group


def read_vfio(host: Host) -> Iterator[Finding]:
    """Yield one device per IOMMU group with a vfio node or with vfio cdevs, and per cdev without an IOMMU."""
    functions = PciFunctions(host)
    cdevs = {host.resolve(f"{path}/device") or "": path for path in entries(host, "/sys/class/vfio-dev")}
    # Each group once, by its number; the value is the name of its node's folder, which some kernels omit.
    groups = {found[2]: name for name in host.list("/sys/class/vfio") if (found := _GROUP.fullmatch(name))}
    for function in cdevs:
        if (number := host.link(f"{function}/iommu_group")) and number.isdecimal():
            groups.setdefault(number, "")

    def group(syspath: str) -> Device | None:
        number = syspath.rpartition("/")[2]
        members = group_members(host, number)
        if not members or all(_UUID.fullmatch(x.rpartition("/")[2]) for x in members):
            return None  # mediated devices have a reader of their own
        name = groups[number]
        nodes = devnodes(host, f"/sys/class/vfio/{name}") + shared_node(host, "/dev/vfio/vfio") if name else ()
        facts: dict[str, AttributeValue | None] = {"iommuGroup": int(number), "noiommu": name.startswith("noiommu")}
        return _device(host, functions, members, nodes, cdevs, facts)

    yield from each((f"{_GROUPS}/{number}" for number in sorted(groups, key=int)), group)
    alone = sorted(function for function in cdevs if function and host.link(f"{function}/iommu_group") is None)
    yield from each(alone, lambda function: _device(host, functions, (function,), (), cdevs, {"noiommu": True}))


def group_members(host: Host, group: str) -> tuple[str, ...]:
    """Return the syspaths of an IOMMU group's devices in the order of their names."""
    folder = f"{_GROUPS}/{group}/devices"
    return tuple(filter(None, (host.resolve(f"{folder}/{name}") for name in host.list(folder))))


def group_id(host: Host, syspath: str) -> str | None:
    """Return the device id of a function's IOMMU group; None if it is in none."""
    group = host.link(f"{syspath}/iommu_group")
    members = group_members(host, group) if group else ()
    return device_id("vfio", endpoints(host, members)[0].rpartition("/")[2]) if members else None


def endpoints(host: Host, members: tuple[str, ...]) -> list[str]:
    """Return the members of a group without bridges, which need no driver."""
    bridges = {x for x in members if (hexadecimal(host, f"{x}/class", 6) or "").startswith(_BRIDGE)}
    return [x for x in members if x not in bridges] or list(members)


def viability_problem(host: Host, members: tuple[str, ...]) -> str:
    """Return what prevents a group from being opened: a member held by an ordinary driver; empty if nothing does."""
    for member in members:
        driver = host.link(f"{member}/driver")
        if driver is None or "vfio" in driver or host.exists(f"{member}/vfio-dev"):
            continue
        if (hexadecimal(host, f"{member}/class", 6) or "").startswith(_BRIDGE):
            continue
        return f"{member.rpartition('/')[2]} of the same IOMMU group is held by driver {driver}"
    return ""


def _device(
    host: Host,
    functions: PciFunctions,
    members: tuple[str, ...],
    nodes: tuple[Devnode, ...],
    cdevs: dict[str, str],
    facts: dict[str, AttributeValue | None],
) -> Device | None:
    ours = endpoints(host, members)
    first = ours[0]
    name = first.rpartition("/")[2]
    cdev_nodes = tuple(node for member in members if member in cdevs for node in devnodes(host, cdevs[member]))
    if cdev_nodes:
        cdev_nodes += shared_node(host, "/dev/iommu")
    if not nodes and not cdev_nodes:
        return None
    is_pci = ADDRESS.fullmatch(name) is not None
    addresses = tuple(filter(ADDRESS.fullmatch, (x.rpartition("/")[2] for x in ours)))
    of_function = {**functions.shared(first), "class": hexadecimal(host, f"{first}/class", 6)} if is_pci else {}
    return Device(
        id=device_id("vfio", name),
        kind="vfio",
        name=name,
        syspath=first,
        attributes=known(
            {
                "name": name,
                "bus": "pci" if is_pci else "platform",
                "driver": host.link(f"{first}/driver"),
                **of_function,
                **facts,
                "functions": len(ours),
                "vgpuType": natural(host, f"{first}/{_VGPU_TYPE}") or None,
                "viable": not viability_problem(host, members),
                "iommufd": bool(cdev_nodes),
            }
        ),
        devnodes=nodes + cdev_nodes,
        numa_nodes=tuple(sorted({node for member in ours for node in numa_nodes(host, member)})),
        parents=tuple(map(pci_id, addresses)),
        functions=addresses if len(addresses) > 1 else (),
    )


def read_mdev(host: Host) -> Iterator[Finding]:
    """Yield one device per mediated device.

    It has no address of its own, and not its parent's: a consumer that took it for one would take the whole parent.
    `mdevUUID` is the attribute that KubeVirt reads (VEP 10); otherwise it reads an address.
    """
    functions = PciFunctions(host)

    def mdev(syspath: str) -> Device | None:
        uuid = syspath.rpartition("/")[2]
        group = host.link(f"{syspath}/iommu_group") or ""
        parent = function_above(syspath)
        node = shared_node(host, f"/dev/vfio/{group}") if group.isdecimal() else ()
        nodes = node + shared_node(host, "/dev/vfio/vfio") if node else ()
        if cdevs := tuple(x for at in entries(host, f"{syspath}/vfio-dev") for x in devnodes(host, at)):
            nodes += cdevs + shared_node(host, "/dev/iommu")
        of_parent = functions.shared(parent) if parent else {}
        return Device(
            id=device_id("mdev", uuid),
            kind="mdev",
            name=uuid,
            syspath=syspath,
            attributes=known(
                {
                    "name": uuid,
                    "bus": "mdev",
                    "driver": host.link(f"{syspath}/driver"),
                    **{name: value for name, value in of_parent.items() if name != PCI_BUS_ID},
                    "parent": parent.rpartition("/")[2] if parent else None,
                    "uuid": uuid,
                    "mdevUUID": uuid,
                    "type": host.link(f"{syspath}/mdev_type"),
                    "model": text(host, f"{syspath}/mdev_type/name"),
                    "iommuGroup": int(group) if group.isdecimal() else None,
                }
            ),
            devnodes=nodes,
            numa_nodes=numa_nodes(host, syspath),
            parents=(pci_id(parent.rpartition("/")[2]),) if parent else (),
        )

    yield from each(entries(host, "/sys/bus/mdev/devices", lambda x: _UUID.fullmatch(x) is not None), mdev)


def vfio_signals(sample: Sample, syspath: str) -> None:
    """Take whether the group can be opened."""
    if sample.host.read(f"{syspath}/{_VGPU_TYPE}") == "0":
        sample.faults["vgpu"] = f"no type of vGPU is chosen for it ({_VGPU_TYPE})"
    group = sample.host.link(f"{syspath}/iommu_group")
    if group and (reason := viability_problem(sample.host, group_members(sample.host, group))):
        sample.faults["group"] = reason


VFIO = Reader(
    "vfio",
    frozenset({"vfio", "vfio-dev", "pci"}),
    read_vfio,
    one_per="IOMMU group held by a vfio driver, or vfio cdev",
    attributes=attributes("""
        class       hexadecimal  the PCI class of its first function
        iommuGroup  integer      the number of the IOMMU group now
        functions   integer      how many functions the group has
        noiommu     boolean      no IOMMU protects the node from it
        viable      boolean      no function of the group has another driver
        iommufd     boolean      it has device nodes for iommufd
        vgpuType    integer      of a vGPU that is a virtual function: the number of its type
    """),
    presets={"vfio": PresetFacts("IOMMU groups held by a vfio driver, each with all its functions")},
    signals=vfio_signals,
    is_polled=True,
    needs_node=True,
)
MDEV = Reader(
    "mdev",
    frozenset({"mdev", "vfio"}),
    read_mdev,
    one_per="mediated device",
    attributes=attributes("""
        uuid        text
        mdevUUID    text     the same, under KubeVirt's name
        parent      text     the address of its parent function
        type        text     the name of its type in sysfs: "nvidia-222"
        model       text     the readable name of its type: "GRID T4-1B"
        iommuGroup  integer  the number of the IOMMU group now
    """),
    presets={"mdev": PresetFacts("mediated devices, e.g. vGPUs")},
    needs_node=True,
)
READERS = (VFIO, MDEV)
