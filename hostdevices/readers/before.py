"""What the scan before this one found, of which no event says that it is another one.

A class of which a node may have thousands, each of which is read from its own files and those of its parents alone, is
not read again for one that comes or goes: a reader with `read_again` reads what it does not find here. A full scan
finds nothing here, so what no event told is found by that.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate

from msgspec import Struct

from hostdevices.device import Device


class Before(Struct, frozen=True):
    """Devices of one reader, and the paths of events since they were read."""

    devices: Sequence[Device] = ()
    named: frozenset[str] = frozenset()

    def known(self, where: Callable[[Device], str]) -> dict[str, Device]:
        """Return the devices by the path from `where`, except those that an event concerns, or a part or whole of."""
        below = tuple(f"{path}/" for path in self.named)
        near = {folder for path in self.named for folder in accumulate(path.split("/"), "{}/{}".format)}
        found = ((where(device), device) for device in self.devices)
        return {path: device for path, device in found if path not in near and not path.startswith(below)}


NOTHING = Before()
