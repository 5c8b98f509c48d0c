"""AMD's k8s-device-plugin: GPUs and their partitions under one name, or each kind of partition under its own.

With `mixed`, names depend on how the GPUs are partitioned: `amd.com/cpx_nps4`. For GPUs of virtual machines
(`driver_type`), a device is an IOMMU group. The settings of its operator's DeviceConfig are the program's flags.

Source: ROCm/k8s-device-plugin, docs/user-guide/configuration.md, cmd/k8s-device-plugin; ROCm/gpu-operator,
internal/plugin (SetDevicePluginAsDesired).
"""

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct, field

from hostdevices import Device, Host, scan
from hostdevices.readers.gpu import GPU
from nodeplug.config import Finding
from nodeplug.config.tree import Mapping as Keys
from nodeplug.config.tree import Scalar, Unreadable
from nodeplug.convert.conversion import LeftOut, Offered, Values
from nodeplug.convert.wrapping import Wrapping, below, key

_GPU = "gpu"
_MACHINES = {"vf-passthrough": "gpu_vf", "pf-passthrough": "gpu_pf"}  # names with `mixed`, by driver_type
_OFF = "its device plugin is off (spec.devicePlugin.enableDevicePlugin), and offers nothing"
_PARTITIONS = "partitions of a GPU have the same PCI address, so their ids are nodeplug's own; before, they were mixed."
_CONVERT = "the partitions of GPUs are known only on a machine that has them: run convert there, or with --root"
_FILE = "CONFIG_FILE_PATH: the plugin does not read that file (device_count), and offers all GPUs."
_PULSE = "pulse: nodeplug checks health at each scan and by amdgpu's counters; it does not use AMD's exporter."


class Counted(Struct, frozen=True):
    """How many GPUs of a node are offered."""

    device_count: int | None = None


class File(Struct, frozen=True):
    """The file; further keys are the flags, the variable and the labels of nodes."""

    gpu: Counted = Counted()
    device_count: int | None = None
    resource_naming_strategy: Literal["single", "mixed"] = "single"
    driver_type: Literal["", "container", "vf-passthrough", "pf-passthrough"] = ""
    pulse: int = 0
    config_file: str = ""
    node_selector: dict[str, str] = field(default_factory=dict, name="nodeSelector")


def _settings(root: Keys) -> Keys:
    """Return the flags that the operator passes to the program. Raises `Unreadable`."""
    plugin = below(root, "spec", "devicePlugin")
    if (
        isinstance(plugin, Keys)
        and isinstance(on := below(plugin, "enableDevicePlugin"), Scalar)
        and on.text == "false"
    ):
        raise Unreadable(Finding(on.line, on.column, _OFF))
    arguments = below(plugin, "devicePluginArguments")
    entries = list(arguments.entries) if isinstance(arguments, Keys) else []
    driver = below(root, "spec", "driver", "driverType")
    if isinstance(driver, Scalar):
        entries.append((key("driver_type", driver), driver))
        if driver.text in _MACHINES and all(name.text != "resource_naming_strategy" for name, _ in entries):
            entries.append((key("resource_naming_strategy", driver), key("mixed", driver)))
    entries.append((key("pulse", root), key("30", root)))
    if (selector := below(root, "spec", "selector")) is not None:
        entries.append((key("nodeSelector", selector), selector))
    return Keys(tuple(entries), root.line, root.column)


WRAPPING = Wrapping(
    kind="DeviceConfig",
    api_group="amd.com",
    settings=_settings,
    image="rocm/k8s-device-plugin",
    helpers=frozenset({"k8s-node-labeller"}),
    flags={x: x for x in ("driver_type", "pulse", "resource_naming_strategy")},
    variables={"AMD_GPU_DEVICE_COUNT": "device_count", "CONFIG_FILE_PATH": "config_file"},
)
"""The containers of its settings other than its file."""


def resources(file: File, domain: str, host: Host) -> Iterator[Offered | LeftOut]:
    """Yield one resource, or one for each existing kind of partition."""
    if file.driver_type in _MACHINES:
        yield _passthrough_resource(file, domain)
        return
    there = [x for x in scan(host, (GPU,)).devices.values() if x.attributes.get("vendor") == "1002"]
    most = file.device_count if file.device_count is not None else file.gpu.device_count
    if most is not None and not 0 < len(there) <= most:
        reason = f"{most} of the GPUs are offered, and there are {len(there)} here (device_count)"
        yield LeftOut(f"{domain}/{_GPU}", f"{reason}: select the devices by `pciBusID`, or leave it out")
        return
    kinds = {_kind(x) for x in there} if file.resource_naming_strategy == "mixed" else set()
    remarks = [*([_PULSE] if file.pulse else []), *([_FILE] if file.config_file else [])]
    for kind in sorted(kinds) or [_GPU]:
        select: Values = {"preset": "amd-gpu"}
        members = there
        if file.resource_naming_strategy == "mixed":
            compute, _, memory = kind.partition("_")
            members = [x for x in there if _kind(x) == kind]
            modes = {"computePartition": compute.upper(), "memoryPartition": memory.upper()}
            select |= {"attributes": modes} if memory else {"not": {"attributes": {"computePartition": "*"}}}
        values: Values = {"name": f"{domain}/{kind}", "select": select if len(select) > 1 else "amd-gpu"}
        if any("partition" in x.attributes for x in members):
            remarks.append(_PARTITIONS)
        else:
            values["ids"] = "pciBusID"
        yield Offered(values, tuple(remarks))
        remarks = []
    if file.resource_naming_strategy == "mixed" and not there:
        yield LeftOut(f"{domain}/..._nps...", _CONVERT)


def _passthrough_resource(file: File, domain: str) -> Offered:
    """Return the resource of GPUs for virtual machines: GPUs, or their virtual functions, bound to vfio-pci."""
    select: Values = {"kind": "vfio", "attributes": {"vendor": "1002", "driver": "vfio-pci", "class": ["03*", "12*"]}}
    if file.driver_type == "vf-passthrough":
        select["attributes"]["sriov"] = "vf"
    else:
        select["not"] = {"attributes": {"sriov": "vf"}}
    name = _MACHINES[file.driver_type] if file.resource_naming_strategy == "mixed" else _GPU
    values: Values = {"name": f"{domain}/{name}", "select": select, "compat": "kubevirt"}
    return Offered(values)


def _kind(device: Device) -> str:
    """Return the plugin's name for a GPU, by how it is partitioned."""
    modes = [device.attributes.get(x) for x in ("computePartition", "memoryPartition")]
    return "_".join(str(x).lower() for x in modes) if all(modes) else _GPU
