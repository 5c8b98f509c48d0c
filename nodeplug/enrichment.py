"""Data that a scan does not read: health over time, and data of libraries, drivers and other daemons about devices."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from folderwatch import is_missing
from hostdevices import Device, Host, Inventory
from hostdevices.health import HealthTracker
from nodeplug.config import Config
from nodeplug.fronts import ddp_profiles, may_have_uplinks, own_probes
from resources.assignment import Assignment
from resources.vhost_net import with_vhost_net

if TYPE_CHECKING:
    from dra_plugin import DraPlugin
    from nvml import NvmlMonitor
    from userspace import NvidiaUserspace


Source = Callable[[Inventory], Inventory]


def sources(
    config: Config, host: Host, nvml: Source | None, driver_files: Source | None, *, is_here: bool = True
) -> tuple[Source, ...]:
    """Return who adds to an inventory what `config` asks for, but for health over time, in the order of asking.

    Of a machine that is not this one (`is_here`) nobody can be asked who has no file on it.
    """
    found: list[Source] = []
    if is_here and may_have_uplinks(config):
        from nodeplug.ways_out import with_ways_out  # for network cards alone

        found.append(partial(with_ways_out, host))
    if nvml is not None:
        found.append(nvml)
    if is_here and (profiles := ddp_profiles(config)) is not None:
        found.append(profiles.enrich)
    if is_here and (probes := own_probes(config)) is not None:  # once others have said what a device is called
        found.append(probes.enrich)
    if pipes := [resource.mps for resource in config.resources if resource.mps]:
        from userspace import with_mps  # for GPUs alone

        found.append(lambda inventory: with_mps(host, inventory, pipes, config.settings.driver_root))
    found.append(lambda inventory: with_vhost_net(host, inventory, config.resources))
    if driver_files is not None:
        found.append(driver_files)
    return tuple(found)


class Enrichment:
    """Adds to inventories what one configuration asks for. `enrich` is called in threads, one at a time."""

    def __init__(
        self,
        config: Config,
        host: Host,
        health: HealthTracker,
        nvml: "NvmlMonitor | None" = None,
        dra: "DraPlugin | None" = None,
    ) -> None:
        """Ask nobody yet. `health` is what is remembered from before."""
        self._host = host
        self._health = health
        self._dra = dra
        self.driver_files = _driver_files(config, host)
        files = self.driver_files.enrich if self.driver_files is not None else None
        self._sources = sources(config, host, nvml.enrich if nvml is not None else None, files)
        self._assigned: Assignment | None = None  # the last one, of `_known`
        self._known: Mapping[str, Device] = {}

    def assigned(self, inventory: Inventory, assignment: Assignment) -> None:
        """Take note of who offers what of an inventory."""
        self._known, self._assigned = inventory.devices, assignment

    def enrich(self, inventory: Inventory) -> Inventory:
        """Return the inventory with all that. Blocks for as long as sysfs, libraries and other daemons do."""
        found = self._health.sample(self._host, inventory, self._concerned(inventory))
        for add in self._sources:
            found = add(found)
        return self._dra.with_original_devices(found) if self._dra is not None else found

    def _concerned(self, inventory: Inventory) -> Collection[str] | None:
        """Return whose health counts: of what is offered, and of what may be once this is assigned. None for all.

        That is what is new or another one, and with it what waited for it, such as the rest of a group.
        """
        if self._assigned is None:
            return None
        offered, known = self._assigned.owners.keys(), self._known
        new = [
            i
            for i, device in inventory.devices.items()
            if i not in offered and (old := known.get(i)) is not device and old != device
        ]
        return {*offered, *new, *(x.device.id for x in self._assigned.rest if x.is_refused)} if new else offered


def _driver_files(config: Config, host: Host) -> "NvidiaUserspace | None":
    """Return what gives containers a driver's files; None where nobody is to have them, or has them from before."""
    folder = Path(config.settings.state_directory) / "userspace"
    if not (any(resource.userspace for resource in config.resources) or not is_missing(folder)):
        return None
    from nodeplug.driver_files import driver_files  # for GPUs alone

    return driver_files(config, host)
