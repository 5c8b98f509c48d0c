"""Health from sysfs alone: signals -> verdict with its reason.

Rules:
1. A device node is never opened, and nothing is read that would wake a sleeping device.
2. A fault must be seen twice in a row to count, and be gone three times in a row to be forgotten. What is wrong at the
   first sight of a device, and a device without its node, count at once.
3. Of a counter only the growth within the last minute counts: what happened before we looked is history.
4. A reason stays as it is while the same things are wrong, so that a changing temperature is no news.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct, structs

from hostdevices.device import HEALTHY, Device, Health
from hostdevices.health_signals import Signals, signals
from hostdevices.host import Host
from hostdevices.inventory import Inventory

INTERVAL = 5.0  # seconds between samples of one device
FAIL_AFTER = 2  # bad samples in a row
RECOVER_AFTER = 3  # good samples in a row
WINDOW = 60.0  # seconds for which a counter's growth is remembered

POLLED_KINDS = frozenset({"accel", "dsa", "gpu", "nic", "nvme", "pci", "qat", "rdma", "vfio"})
"""Kinds with signals that change without an event of the kernel; others are sampled at rescans only."""

_WITHOUT_SIGNALS = frozenset({"misc", "path"})
_NEED_NODES = frozenset({"dsa", "gpu", "mdev", "nvme", "rdma", "usb", "vfio"})
_NEVER = float("-inf")


class Thresholds(Struct, frozen=True):
    """How much a counter may grow within a minute before the device counts as failing."""

    aer_fatal: int = 0  # PCIe errors after which the link has been reset
    aer_nonfatal: int = 10
    aer_correctable: int = 1000
    pcie_replays: int = 1000
    uncorrectable_memory: int = 0  # events of GPU memory protection (RAS)
    link_flaps: int = 2
    overcurrent: int = 0
    engine_fatal: int = 0  # QAT


_COUNTED = {
    "aer_fatal": "fatal PCIe errors",
    "aer_nonfatal": "non-fatal PCIe errors",
    "aer_correctable": "correctable PCIe errors",
    "pcie_replays": "PCIe replays",
    "uncorrectable_memory": "uncorrectable memory errors",
    "link_flaps": "losses of the link",
    "overcurrent": "over-current events of the USB port",
    "engine_fatal": "fatal errors of the engine",
}


class Course(Struct, frozen=True):
    """What is known of one device from sample to sample."""

    syspath: str
    health: Health = HEALTHY
    wrong: frozenset[str] = frozenset()  # names of the faults behind the verdict
    bad: int = 0  # samples in a row
    good: int = 0
    sampled: float = _NEVER
    counters: Mapping[str, int] = {}
    growth: tuple[tuple[float, str, int], ...] = ()  # when, which counter, by how much


def judge(before: Course, seen: Signals, now: float, thresholds: Thresholds) -> Course:
    """Return the course after one more sample. Pure; `now` in seconds of any clock that never goes back."""
    # What grew at the sample before counts once more, however long ago that was: one sample alone never decides.
    growth = tuple(x for x in before.growth if x[0] > now - WINDOW or x[0] == before.sampled) + tuple(
        (now, name, value - before.counters[name])
        for name, value in seen.counters.items()
        if value > before.counters.get(name, value)
    )
    faults = {**seen.faults, **_grown_too_fast(growth, thresholds)}
    first = before.sampled == _NEVER
    bad, good = (before.bad + 1, 0) if faults else (0, before.good + 1)
    health, wrong = before.health, before.wrong
    if faults and (bad >= FAIL_AFTER or first or not health.healthy):
        if wrong != faults.keys():
            health, wrong = Health(False, "; ".join(faults.values())), frozenset(faults)
    elif not faults and good >= RECOVER_AFTER:
        health, wrong = HEALTHY, frozenset()
    counters = {**before.counters, **seen.counters}
    return Course(before.syspath, health, wrong, bad, good, now, counters, growth)


def _grown_too_fast(growth: Iterable[tuple[float, str, int]], thresholds: Thresholds) -> dict[str, str]:
    sums: dict[str, int] = {}
    for _, name, increase in growth:
        sums[name] = sums.get(name, 0) + increase
    return {
        name: f"{total} {_COUNTED[name]} within a minute"
        for name, total in sums.items()
        if total > getattr(thresholds, name)
    }


def needs_polling(devices: Iterable[Device]) -> bool:
    """Tell whether any of these devices, or of the members of a group, has signals that no kernel event announces."""
    # An id begins with the kind (identity.py).
    kinds = {kind for x in devices for kind in (x.kind, *(member.partition("-")[0] for member in x.members))}
    return not kinds.isdisjoint(POLLED_KINDS)


class HealthTracker:
    """Remembers the course of each device between samples."""

    def __init__(
        self,
        thresholds: Thresholds | None = None,
        interval: float = INTERVAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without any memory: each device's first sample decides alone. A device is read once in `interval` s."""
        self._interval = interval
        self._thresholds = thresholds or Thresholds()
        self._clock = clock
        self._courses: dict[str, Course] = {}

    def sample(self, host: Host, inventory: Inventory, offered: Collection[str] | None = None) -> Inventory:
        """Return the inventory with the devices' health; call it after each scan, and at the interval if polled.

        Devices whose ids are not among `offered` are passed over (all are meant without). A device that was read
        within the interval keeps its verdict. Blocks for as long as sysfs does: call it in a thread.
        """
        now = self._clock()
        meant = inventory.devices.keys() if offered is None else offered
        courses: dict[str, Course] = {}
        devices = dict(inventory.devices)
        for identity in meant:
            device = devices.get(identity)
            if device is not None and device.kind not in _WITHOUT_SIGNALS:
                courses[identity] = course = self._next(host, device, now)
                health = Health(False, "it has no device node") if _lacks_node(device) else course.health
                if health != device.health:
                    devices[identity] = structs.replace(device, health=health)
        self._courses = courses
        return Inventory(devices, inventory.problems)

    def _next(self, host: Host, device: Device, now: float) -> Course:
        course = self._courses.get(device.id)
        if course is None or course.syspath != device.syspath:  # new, or plugged in elsewhere
            course = Course(device.syspath)
        if now - course.sampled < self._interval * 0.9:  # timers are not exact
            return course
        return judge(course, signals(host, device), now, self._thresholds)


def _lacks_node(device: Device) -> bool:
    return device.kind in _NEED_NODES and not device.devnodes
