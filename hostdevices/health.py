"""Health from sysfs: signals -> verdict with its reason.

Rules:
1. A device node is never opened, and nothing is read that would wake a sleeping device.
2. A fault counts after two samples in a row, and ends after three samples without it. These count at once: a fault in
   the first sample of a device, a device without its node, and a read that does not return.
3. Only the growth of a counter within the last minute counts, and not its value before the first sample.
4. A reason stays unchanged while the same faults exist, so that a changing temperature causes no new event.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final

from msgspec import Struct, structs

from hostdevices.conclusive_calls import call_conclusively
from hostdevices.device import HEALTHY, Device, Health
from hostdevices.errors import ReadStuck, UnreadableFile
from hostdevices.host import Host
from hostdevices.inventory import Inventory
from hostdevices.readers import BY_KIND, readers_of
from hostdevices.readers.pci import function_above, function_signals
from hostdevices.readers.signals import ErrorCounter, Sample, Signals

INTERVAL = 5.0  # seconds between samples of one device
FAIL_AFTER = 2  # bad samples in a row
RECOVER_AFTER = 3  # good samples in a row
WINDOW = 60.0  # seconds for which a counter's growth counts

_NEVER = float("-inf")
_NOTHING: Final = frozenset[str]()  # one object for thousands of devices
STUCK = "stuck"  # the fault of a read that does not return; it counts at once


def signals(host: Host, device: Device) -> Signals:
    """Return the present signals of `device` in sysfs. Missing files give none; unreadable ones are a fault."""
    sample = Sample(host)
    reader = BY_KIND.get(device.kind)
    try:
        function = function_above(device.syspath)
        if function is not None and (reader is None or reader.is_judged_by_function):
            card = device.attributes.get("pfName")
            function_signals(sample, function, card if isinstance(card, str) else None)
        if reader is not None and reader.signals is not None:
            reader.signals(sample, device.syspath)
    except ReadStuck as error:
        sample.faults[STUCK] = str(error)
    except UnreadableFile as error:
        sample.faults["unreadable"] = str(error)
    return Signals(sample.faults, sample.counters)


def has_signals(device: Device) -> bool:
    """Return whether sysfs can have health signals of `device`; if not, `signals` is always empty."""
    reader = BY_KIND.get(device.kind)
    if reader is not None and reader.signals is not None:
        return True
    return (reader is None or reader.is_judged_by_function) and function_above(device.syspath) is not None


class HealthHistory(Struct, frozen=True, gc=False):
    """The health history of one device."""

    syspath: str
    health: Health = HEALTHY
    faults: frozenset[str] = _NOTHING  # names of the faults behind the verdict
    failed_samples: int = 0  # in a row
    passed_samples: int = 0
    sampled: float = _NEVER
    counters: Mapping[ErrorCounter, int] = {}
    growth: tuple[tuple[float, ErrorCounter, int], ...] = ()  # time, counter and increase of each growth


def next_health(before: HealthHistory, seen: Signals, now: float) -> HealthHistory:
    """Return the history after one more sample. Pure; `now` in seconds of any clock that never goes back."""
    # The growth at the last sample counts again, however long ago that was: one sample alone never decides.
    growth = tuple(x for x in before.growth if x[0] > now - WINDOW or x[0] == before.sampled) + tuple(
        (now, name, value - before.counters[name])
        for name, value in seen.counters.items()
        if value > before.counters.get(name, value)
    )
    faults = {**seen.faults, **_grown_too_fast(growth)}
    first = before.sampled == _NEVER
    failed_samples, passed_samples = (before.failed_samples + 1, 0) if faults else (0, before.passed_samples + 1)
    health, counted = before.health, before.faults
    if faults and (failed_samples >= FAIL_AFTER or first or not health.healthy or STUCK in faults):
        if counted != faults.keys():
            health, counted = Health(False, "; ".join(faults.values())), frozenset(faults)
    elif not faults and passed_samples >= RECOVER_AFTER:
        health, counted = HEALTHY, _NOTHING
    counters = {**before.counters, **seen.counters} if seen.counters else before.counters
    return HealthHistory(before.syspath, health, counted, failed_samples, passed_samples, now, counters, growth)


def _grown_too_fast(growth: Iterable[tuple[float, ErrorCounter, int]]) -> dict[str, str]:
    sums: dict[ErrorCounter, int] = {}
    for _, counter, increase in growth:
        sums[counter] = sums.get(counter, 0) + increase
    return {
        counter.words: f"{total} {counter.words} within a minute"
        for counter, total in sums.items()
        if total > counter.limit
    }


def needs_polling(devices: Iterable[Device]) -> bool:
    """Return whether any of these devices, or of the members of a group, has signals without kernel events."""
    return any(reader.is_polled for device in devices for reader in readers_of(device))


class HealthTracker:
    """Keeps the history of each device between samples."""

    def __init__(self, interval: float = INTERVAL, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without any history: each device's first sample decides alone.

        A device is read once in `interval` s.
        """
        self._interval = interval
        self._clock = clock
        self._histories: dict[str, HealthHistory] = {}

    def sample(self, host: Host, inventory: Inventory, offered: Collection[str] | None = None) -> Inventory:
        """Return the inventory with the devices' health; call it after each scan, and at the interval if polled.

        Devices whose ids are not in `offered` are skipped (default: none is). A device that was read within the
        interval keeps its verdict; devices without signals, which can be thousands, have no history. Blocks for as long
        as sysfs does: call it in a thread. Raises `HostExhausted`, and then keeps its state.
        """
        now = self._clock()
        meant = inventory.devices.keys() if offered is None else offered
        histories: dict[str, HealthHistory] = {}
        devices = dict(inventory.devices)
        for identity in meant:
            device = devices.get(identity)
            # A device that the scan could not read starts a new history when it can be read.
            if device is None or not device.health.healthy:
                continue
            health = HEALTHY
            if has_signals(device):
                histories[identity] = history = self._next(host, device, now)
                health = history.health
            if _lacks_node(device):
                health = Health(False, "it has no device node")
            if health != device.health:
                devices[identity] = structs.replace(device, health=health)
        self._histories = histories
        return Inventory(devices, inventory.problems)

    def _next(self, host: Host, device: Device, now: float) -> HealthHistory:
        history = self._histories.get(device.id)
        if history is None or history.syspath != device.syspath:  # new, or plugged in elsewhere
            history = HealthHistory(device.syspath)
        if now - history.sampled < self._interval * 0.9:  # timers are not exact
            return history
        return next_health(history, call_conclusively(partial(signals, host, device)), now)


def _lacks_node(device: Device) -> bool:
    reader = BY_KIND.get(device.kind)
    return reader is not None and reader.needs_node and not device.devnodes
