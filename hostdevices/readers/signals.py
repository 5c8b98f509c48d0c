"""Health signals: present faults, and counters whose growth is a fault. Each reader defines those of its devices.

Rule: a sample wakes no sleeping device and opens no node. If the kernel reports a PCI function as suspended, only
cached files are read.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from hostdevices.host import Host
from hostdevices.readers.sysfs import number, text

AWAKE = (None, "active", "unsupported")
"""The values of power/runtime_status for a device that can be read."""


class ErrorCounter(Struct, frozen=True):
    """A counter of a device, its name, and the growth within a minute above which the device counts as failing."""

    words: str
    limit: int


LINK_LOSSES = ErrorCounter("losses of the link", 2)


class Signals(Struct, frozen=True):
    """One sample of a device: faults by name with their texts, and the values of its counters."""

    faults: Mapping[str, str] = {}
    counters: Mapping[ErrorCounter, int] = {}


class Sample:
    """Collects the signals of one device."""

    def __init__(self, host: Host) -> None:
        """Begin without any."""
        self.host = host
        self.faults: dict[str, str] = {}
        self.counters: dict[ErrorCounter, int] = {}

    def count(self, counter: ErrorCounter, path: str) -> None:
        """Take the number in a file; a missing one is skipped. Raises `UnreadableFile`."""
        value = number(self.host, path)
        if value is not None:
            self.counters[counter] = value

    def expect(self, path: str, *good: str) -> None:
        """Take a fault if a file with the device's state has another value. Raises `UnreadableFile`."""
        state = text(self.host, path)
        if state and state.lower() not in good:
            self.faults["state"] = f"its state is {state}, not {' or '.join(good)}"


def state(path: str, *good: str) -> Callable[[Sample, str], None]:
    """Return the signals of a class whose health is one file: its state, which must be one of `good`."""
    return lambda sample, syspath: sample.expect(f"{syspath}/{path}", *good)
