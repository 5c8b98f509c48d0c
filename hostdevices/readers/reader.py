"""A reader: a pure function from a `Host` to one class of devices, and everything else about the class.

The `Reader` of a class has everything about it: its kernel events, its attributes
with their types, its health, its presets. What the program needs across classes is derived from the readers
(hostdevices/attributes.py, health.py, resources/presets.py, docs/device-classes.md). docs/add-a-device-class.md shows
how one is added.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from hostdevices.device import Device
from hostdevices.errors import UnreadableFile
from hostdevices.host import Host
from hostdevices.inventory import Problem
from hostdevices.readers.previous_scan import PreviousScan
from hostdevices.readers.signals import Sample
from hostdevices.readers.sysfs import natural_order

Finding: TypeAlias = Device | Problem
AttributeType: TypeAlias = Literal["text", "hexadecimal", "integer", "boolean", "version"]
Value: TypeAlias = bool | int | str
"""A preset's condition on an attribute: a value, a glob, a comparison; one of several."""


class Attribute(Struct, frozen=True):
    """The type of an attribute, and its meaning beyond its name."""

    type: AttributeType
    about: str = ""


class PresetFacts(Struct, frozen=True):
    """Devices of a reader's kind with the values of `having`, and without those of `lacking`; `help` is for people.

    `is_dangerous`: all of them are, so a resource needs `dangerous: true` (resources/danger.py).
    """

    help: str
    having: Mapping[str, Value | tuple[Value, ...]] = {}
    lacking: Mapping[str, Value | tuple[Value, ...]] = {}
    is_dangerous: bool = False


class Reader(Struct, frozen=True, eq=False):
    """One device class. `read` yields devices and problems, again whenever a uevent of `subsystems` arrives.

    `read_again` does so with the results of the last scan (previous_scan.py).

    `attributes` are those that it adds to the ones of every location (location.py).

    `signals` takes a sample of a device's health. Without it, the signals of its PCI function count. They count for
    every device on the function unless `is_judged_by_function` is False. Signals without kernel events are polled.

    `can_be_renumbered`: another device can have the same node later. False only if the kernel fixes the name.
    """

    kind: str
    subsystems: frozenset[str]
    read: Callable[[Host], Iterator[Finding]]
    read_again: Callable[[Host, PreviousScan], Iterator[Finding]] | None = None
    one_per: str = ""  # what one device is, for the page
    attributes: Mapping[str, Attribute] = {}
    presets: Mapping[str, PresetFacts] = {}
    signals: Callable[[Sample, str], None] | None = None
    is_judged_by_function: bool = True
    is_polled: bool = False
    needs_node: bool = False  # without its device node it is useless, and unhealthy
    can_be_renumbered: bool = True


def attributes(table: str) -> Mapping[str, Attribute]:
    """Read attributes from lines of name, type and, if the name does not suffice, the meaning."""
    rows = (line.split(None, 2) for line in table.strip().splitlines())
    found = {name: Attribute(type_, "".join(about)) for name, type_, *about in rows}  # type: ignore[arg-type]
    unknown = [name for name, attribute in found.items() if attribute.type not in get_args(AttributeType)]
    assert not unknown, f"no such type: {unknown}"
    return found


def each(syspaths: Iterable[str], make: Callable[[str], Device | None]) -> Iterator[Finding]:
    """Yield the device that `make` returns for each syspath; an unreadable one is a problem of that one only."""
    for syspath in syspaths:
        try:
            device = make(syspath)
        except UnreadableFile as error:
            yield Problem.of(syspath, error)
        else:
            if device is not None:
                yield device


def entries(host: Host, folder: str, wanted: Callable[[str], bool] = bool) -> Iterator[str]:
    """Yield the syspaths of the links of a class or bus folder in the kernel's order: ttyS9 before ttyS10."""
    for name in sorted(host.list(folder), key=natural_order):
        if wanted(name) and (syspath := host.resolve(f"{folder}/{name}")) is not None:
            yield syspath
