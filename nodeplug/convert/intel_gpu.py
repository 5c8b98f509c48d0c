"""Intel's GPU plugin: GPUs under the name of their kernel driver, optionally for several containers.

Source: intel/intel-device-plugins-for-kubernetes, cmd/gpu_plugin/README.md, and the operator's GpuDevicePlugin.
"""

from collections.abc import Iterator
from typing import Literal

from msgspec import field

from hostdevices import Host
from nodeplug.convert.conversion import LeftOut, Offered, Values, one_or_all
from nodeplug.convert.intel import Plugin, Shared, offered

_DRIVERS = ("i915", "xe")
_HEALTH = (
    "health comes from the kernel alone, not from Level-Zero or xpumd; critical temperatures are the sensors' own,"
    " and other limits a probe's (settings.healthDirectory)."
)
_LINKS = "links below /dev/dri/by-path are not made in containers: nothing is mounted over /dev (`bypath`)."
_MONITORING = "it is access to all GPUs while pods use them: docs/recipes.md, All GPUs for an exporter"


class Gpu(Shared, frozen=True, rename="camel"):
    """The settings; those that only the command line has come last."""

    allow_ids: str = field(default="", name="allowIDs")
    deny_ids: str = field(default="", name="denyIDs")
    preferred_allocation_policy: Literal["none", "balanced", "packed"] = "none"
    bypath_mode: Literal["single", "none", "all"] = "single"
    monitoring_mode: Literal["single", "split"] = "single"
    enable_monitoring: bool = False
    health_management: bool = False
    xpumd_endpoint: str = ""
    temp_limit: int = 0
    gpu_temp_limit: int = 0
    memory_temp_limit: int = 0
    wsl: bool = False


def _resources(file: Gpu, domain: str, _host: Host) -> Iterator[Offered | LeftOut]:
    if file.wsl:
        yield LeftOut(f"{domain}/dxg", "nodeplug does not support GPUs of Windows (WSL)")
        return
    remarks = file.remarks()
    if file.bypath_mode != "none":
        remarks.append(_LINKS)
    limits = (file.temp_limit, file.gpu_temp_limit, file.memory_temp_limit)
    if file.health_management or file.xpumd_endpoint or any(limits):
        remarks.append(_HEALTH)
    for driver in _DRIVERS:
        select: Values = {"preset": "intel-gpu", "attributes": {"driver": driver}}
        if file.allow_ids:
            select["attributes"]["device"] = one_or_all(_ids(file.allow_ids))
        if file.deny_ids:
            select["not"] = {"attributes": {"device": one_or_all(_ids(file.deny_ids))}}
        values: Values = {"select": select}
        if file.shared_dev_num > 1 and file.preferred_allocation_policy != "none":
            values["preferred"] = "spread" if file.preferred_allocation_policy == "balanced" else "packed"
        yield offered(f"{domain}/{driver}", values, remarks, file.shared_dev_num)
        remarks = []
    if file.enable_monitoring:
        names = [f"{driver}_monitoring" for driver in _DRIVERS] if file.monitoring_mode == "split" else ["monitoring"]
        for name in names:
            yield LeftOut(f"{domain}/{name}", _MONITORING)


def _ids(text: str) -> list[str]:
    """Return the device ids of `0x56c0,0x56c1` in the form of attributes."""
    return [x.strip().lower().removeprefix("0x").zfill(4) for x in text.split(",") if x.strip()]


PLUGIN = Plugin(
    "gpu",
    Gpu,
    _resources,
    {
        "allocation-policy": "preferredAllocationPolicy",
        "allow-ids": "allowIDs",
        "bypath": "bypathMode",
        "deny-ids": "denyIDs",
        "enable-monitoring": "enableMonitoring",
        "gpu-temp-limit": "gpuTempLimit",
        "health-management": "healthManagement",
        "memory-temp-limit": "memoryTempLimit",
        "monitoring-mode": "monitoringMode",
        "shared-dev-num": "sharedDevNum",
        "temp-limit": "tempLimit",
        "wsl": "wsl",
        "xpumd-endpoint": "xpumdEndpoint",
    },
)
"""The plugin and its conversion."""
