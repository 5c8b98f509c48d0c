"""What a reader is: a pure function from a `Host` to one class of devices, and the kernel events that concern it."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from msgspec import Struct

from hostdevices.device import Device
from hostdevices.host import Host
from hostdevices.inventory import Problem

Finding: TypeAlias = Device | Problem


class Reader(Struct, frozen=True):
    """One device class. `read` yields devices and problems, again whenever a uevent of `subsystems` arrives."""

    kind: str
    subsystems: frozenset[str]
    read: Callable[[Host], Iterator[Finding]]
