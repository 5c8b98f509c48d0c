"""`Inventory`: an immutable snapshot of the host's devices; `Diff`: what changed between two of them."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from hostdevices.device import Device
from hostdevices.errors import ReadStuck, UnreadableFile


class Problem(Struct, frozen=True, order=True):
    """Something that could not be read: a problem of one device, never of the scan."""

    where: str  # the syspath or file
    reason: str
    is_stuck: bool = False  # whether a read does not return
    hidden_kind: str = ""  # a whole kind of devices that could not be read: some or all of them were not seen

    @classmethod
    def of(cls, where: str, error: UnreadableFile, hidden_kind: str = "") -> "Problem":
        """Return the problem that `where` could not be read."""
        return cls(where, str(error), isinstance(error, ReadStuck), hidden_kind)


class Inventory(Struct, frozen=True):
    """The host's devices by id, and what could not be read."""

    devices: Mapping[str, Device] = {}
    problems: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, devices: Iterable[Device], problems: Iterable[Problem] = ()) -> "Inventory":
        """Collect devices in the order of their ids. A second device with the same id becomes a problem."""
        kept: dict[str, Device] = {}
        found = list(problems)
        for device in devices:
            first = kept.setdefault(device.id, device)
            if first is not device:
                found.append(Problem(device.syspath or device.name, f"has the same id {device.id} as {first.syspath}"))
        return cls({i: kept[i] for i in sorted(kept)}, tuple(sorted(set(found))))

    def sharing(self, before: "Inventory") -> "Inventory":
        """Return the same inventory with the objects of `before` for unchanged devices, which speeds up comparing."""
        known = before.devices
        devices = {
            i: old if (old := known.get(i)) is not None and old == device else device
            for i, device in self.devices.items()
        }
        return Inventory(devices, self.problems)


def known_ids(devices: Mapping[str, Device]) -> frozenset[str]:
    """Return the ids of these devices: their present ones, and those in `parents`.

    The other ids of a device are among its parents, beside the wholes that it is a part of (readers/usb.py).
    """
    return frozenset(devices).union(*{device.parents for device in devices.values()})


class Diff(Struct, frozen=True):
    """The changes from one inventory to the next; `changed` holds the new values."""

    added: tuple[Device, ...] = ()
    removed: tuple[Device, ...] = ()
    changed: tuple[Device, ...] = ()

    def __bool__(self) -> bool:
        """Return whether anything differs."""
        return bool(self.added or self.removed or self.changed)


def diff(old: Inventory, new: Inventory) -> Diff:
    """Compare two inventories by device id."""
    added = [d for i, d in new.devices.items() if i not in old.devices]
    removed = [d for i, d in old.devices.items() if i not in new.devices]
    both = ((old.devices[i], d) for i, d in new.devices.items() if i in old.devices)
    changed = [d for before, d in both if before is not d and before != d]
    return Diff(tuple(added), tuple(removed), tuple(changed))
