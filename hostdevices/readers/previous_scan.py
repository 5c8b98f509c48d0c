"""The devices of the previous scan that no event has affected since.

For a class with thousands of devices, each of which is read only from its own files and those of its parents, one
change does not cause a read of all: a reader with `read_again` reads only devices that are not here. For a full scan
this is empty, so it finds changes without an event.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate

from msgspec import Struct

from hostdevices.device import Device


class PreviousScan(Struct, frozen=True):
    """Devices of one reader, and the paths of events since they were read."""

    devices: Sequence[Device] = ()
    named: frozenset[str] = frozenset()

    def known(self, where: Callable[[Device], str]) -> dict[str, Device]:
        """Return the devices by the path from `where`, except those that an event concerns, or a part or whole of."""
        below = tuple(f"{path}/" for path in self.named)
        near = {folder for path in self.named for folder in accumulate(path.split("/"), "{}/{}".format)}
        found = ((where(device), device) for device in self.devices)
        return {path: device for path, device in found if path not in near and not path.startswith(below)}


NOTHING = PreviousScan()
