"""What a reader is: a pure function from a `Host` to one class of devices, and the kernel events that concern it."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from msgspec import Struct

from hostdevices.device import Device
from hostdevices.host import Host, UnreadableFile
from hostdevices.inventory import Problem
from hostdevices.readers.sysfs import natural_order

Finding: TypeAlias = Device | Problem


class Reader(Struct, frozen=True):
    """One device class. `read` yields devices and problems, again whenever a uevent of `subsystems` arrives."""

    kind: str
    subsystems: frozenset[str]
    read: Callable[[Host], Iterator[Finding]]


def each(syspaths: Iterable[str], make: Callable[[str], Device | None]) -> Iterator[Finding]:
    """Yield what `make` says of each syspath; what cannot be read is a problem of that one only."""
    for syspath in syspaths:
        try:
            device = make(syspath)
        except UnreadableFile as error:
            yield Problem(syspath, str(error))
        else:
            if device is not None:
                yield device


def entries(host: Host, folder: str, wanted: Callable[[str], bool] = bool) -> Iterator[str]:
    """Yield the syspaths behind the links of a class or bus folder, as the kernel counts: ttyS9 before ttyS10."""
    for name in sorted(host.list(folder), key=natural_order):
        if wanted(name) and (syspath := host.resolve(f"{folder}/{name}")) is not None:
            yield syspath
