"""What sysfs says about a device's health, per class: faults that are there now, and counters whose growth is one.

Rule: nothing here wakes a sleeping device. Where the kernel says that a PCI function is suspended, only cached files
are read. Sources: Linux Documentation/ABI/testing (sysfs-bus-pci, sysfs-bus-pci-devices-aer_stats, sysfs-class-net,
sysfs-class-infiniband, sysfs-driver-qat, sysfs-driver-dma-idxd, sysfs-driver-habanalabs) and hwmon/sysfs-interface.
"""

import re
from collections.abc import Callable, Mapping

from msgspec import Struct

from hostdevices.device import Device
from hostdevices.host import Host, UnreadableFile
from hostdevices.readers.pci import function_above
from hostdevices.readers.sysfs import hexadecimal, number, text, text_value
from hostdevices.readers.vfio import group_members, why_not_viable

_DEAD = b"\xff" * 8  # a virtual function has ffff ffff as vendor and device even when alive: look at eight bytes
_IFF_UP = 0x1
_AWAKE = (None, "active", "unsupported")
_AER_TOTAL = re.compile(r"TOTAL_ERR_[A-Z]+ ([0-9]+)")
_UNCORRECTABLE = re.compile(r"ue: *([0-9]+)")
_TEMPERATURE = re.compile(r"(temp[0-9]+)_input")
_ALARM = re.compile(r"((fan|in|temp)[0-9]+)_(crit_|emergency_)?alarm")


class Signals(Struct, frozen=True):
    """One look at a device: faults by a name and in words, and counters by the names of `health.Thresholds`."""

    faults: Mapping[str, str] = {}
    counters: Mapping[str, int] = {}


def signals(host: Host, device: Device) -> Signals:
    """Return what sysfs says about `device` now. Missing files say nothing; unreadable ones are a fault."""
    faults: dict[str, str] = {}
    counters: dict[str, int] = {}
    look = _LOOKS.get(device.kind)
    try:
        function = function_above(device.syspath)
        if function is not None and device.kind != "usb":
            _look_at_function(host, function, faults, counters)
        if look is not None:
            look(host, device.syspath, faults, counters)
    except UnreadableFile as error:
        faults["unreadable"] = str(error)
    return Signals(faults, counters)


def _look_at_function(host: Host, function: str, faults: dict[str, str], counters: dict[str, int]) -> None:
    runtime = host.read(f"{function}/power/runtime_status")
    if runtime == "error":
        faults["power"] = "its power management failed (runtime status: error)"
    if host.read(f"{function}/power_state") == "D3cold" and runtime in _AWAKE:
        faults["power"] = "it has lost power (D3cold)"
    for severity in ("fatal", "nonfatal", "correctable"):
        total = _AER_TOTAL.search(host.read(f"{function}/aer_dev_{severity}") or "")
        if total:
            counters[f"aer_{severity}"] = int(total[1])
    if runtime not in _AWAKE:
        return
    if host.read_bytes(f"{function}/config", len(_DEAD)) == _DEAD:
        faults["config"] = "it does not answer on the PCI bus (its configuration reads as all ones)"
    for name in host.list(f"{function}/hwmon"):
        _look_at_sensors(host, f"{function}/hwmon/{name}", faults)


def _look_at_sensors(host: Host, folder: str, faults: dict[str, str]) -> None:
    for name in host.list(folder):
        if (sensor := _TEMPERATURE.fullmatch(name)) is not None:
            now, critical = number(host, f"{folder}/{name}"), number(host, f"{folder}/{sensor[1]}_crit")
            if now is not None and critical and now >= critical:
                label = text(host, f"{folder}/{sensor[1]}_label") or sensor[1]
                faults[name] = f"{label}: {now // 1000} °C, critical is {critical // 1000} °C"
        elif (sensor := _ALARM.fullmatch(name)) is not None and host.read(f"{folder}/{name}") == "1":
            faults[name] = f"{sensor[1]}: the sensor's alarm is on"


def _look_at_nic(host: Host, syspath: str, faults: dict[str, str], counters: dict[str, int]) -> None:
    flags = int(hexadecimal(host, f"{syspath}/flags", 8) or "0", 16)
    # An interface that is down waits to be configured by whoever gets it: its link says nothing yet.
    if flags & _IFF_UP and host.read(f"{syspath}/carrier") == "0":
        faults["carrier"] = "it has no carrier: cable or peer is gone"
    _count(host, f"{syspath}/carrier_down_count", "link_flaps", counters)


def _look_at_rdma(host: Host, syspath: str, faults: dict[str, str], counters: dict[str, int]) -> None:
    ports = host.list(f"{syspath}/ports")
    states = {port: (text(host, f"{syspath}/ports/{port}/state") or "").partition(":")[2].strip() for port in ports}
    if states and "ACTIVE" not in states.values():
        faults["port"] = "no port is active: " + ", ".join(f"port {x} is {y or 'unknown'}" for x, y in states.items())
    flaps = [number(host, f"{syspath}/ports/{port}/counters/link_downed") or 0 for port in ports]
    if flaps:
        counters["link_flaps"] = sum(flaps)


def _look_at_gpu(host: Host, syspath: str, _faults: dict[str, str], counters: dict[str, int]) -> None:
    if host.read(f"{syspath}/power/runtime_status") not in _AWAKE:
        return
    blocks = [x for x in host.list(f"{syspath}/ras") if x.endswith("_err_count")]
    found = (_UNCORRECTABLE.search(host.read(f"{syspath}/ras/{x}") or "") for x in blocks)
    if blocks:
        counters["uncorrectable_memory"] = sum(int(x[1]) for x in found if x)
    _count(host, f"{syspath}/pcie_replay_count", "pcie_replays", counters)


def _look_at_state(path: str, *good: str) -> "_Look":
    def look(host: Host, syspath: str, faults: dict[str, str], _counters: dict[str, int]) -> None:
        state = text(host, f"{syspath}/{path}")
        if state and state.lower() not in good:
            faults["state"] = f"its state is {state}, not {' or '.join(good)}"

    return look


def _look_at_dsa(host: Host, syspath: str, faults: dict[str, str], counters: dict[str, int]) -> None:
    _look_at_state("state", "enabled")(host, syspath, faults, counters)
    accelerator = syspath.rpartition("/")[0]
    state = text(host, f"{accelerator}/state")
    if state and state != "enabled":
        faults["accelerator"] = f"its accelerator's state is {state}, not enabled"
    errors = host.read(f"{accelerator}/errors") or ""
    if any(character not in "0x \n" for character in errors):
        faults["errors"] = f"its accelerator reports errors: {text_value(errors)}"


def _look_at_qat(host: Host, syspath: str, faults: dict[str, str], counters: dict[str, int]) -> None:
    physical = host.resolve(f"{syspath}/physfn") or syspath
    _look_at_state("qat/state", "up")(host, physical, faults, counters)
    _count(host, f"{physical}/qat_ras/errors_fatal", "engine_fatal", counters)
    driver, address = host.link(f"{physical}/driver"), physical.rpartition("/")[2]
    if host.read(f"/sys/kernel/debug/qat_{driver}_{address}/heartbeat/status") == "-1":
        faults["heartbeat"] = "its firmware's heart has stopped beating"


def _look_at_vfio(host: Host, syspath: str, faults: dict[str, str], _counters: dict[str, int]) -> None:
    group = host.link(f"{syspath}/iommu_group")
    if group and (reason := why_not_viable(host, group_members(host, group))):
        faults["group"] = reason


def _look_at_usb(host: Host, syspath: str, faults: dict[str, str], counters: dict[str, int]) -> None:
    if host.read(f"{syspath}/authorized") == "0":
        faults["authorized"] = "it is not authorized (usbguard, or the administrator)"
    if host.read(f"{syspath}/power/runtime_status") == "error":
        faults["power"] = "its power management failed (runtime status: error)"
    _count(host, f"{syspath}/port/over_current_count", "overcurrent", counters)


def _count(host: Host, path: str, name: str, counters: dict[str, int]) -> None:
    value = number(host, path)
    if value is not None:
        counters[name] = value


_Look = Callable[[Host, str, dict[str, str], dict[str, int]], None]
_LOOKS: Mapping[str, _Look] = {
    "accel": _look_at_state("device/status", "operational"),
    "block": _look_at_state("device/state", "running", "live"),
    "dsa": _look_at_dsa,
    "gpu": _look_at_gpu,
    "nic": _look_at_nic,
    "nvme": _look_at_state("state", "live"),
    "qat": _look_at_qat,
    "rdma": _look_at_rdma,
    "usb": _look_at_usb,
    "vfio": _look_at_vfio,
}
