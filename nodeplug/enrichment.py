"""Data that a scan does not read: health over time, and data of libraries, drivers and other daemons about devices."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from folderwatch import is_missing
from hostdevices import Device, Host, Inventory
from hostdevices.health import HealthTracker
from nodeplug.config import Config
from nodeplug.parts import ddp_profiles, health_files, may_have_uplinks
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
    """Return the sources that `config` asks for, without health over time, in the order in which they are called.

    Of another machine (not `is_here`), only sources that read its files can be used.
    """
    found: list[Source] = []
    if is_here and may_have_uplinks(config):
        from nodeplug.default_routes import with_default_routes  # imported here: only network cards need it

        found.append(partial(with_default_routes, host))
    if nvml is not None:
        found.append(nvml)
    if is_here and (profiles := ddp_profiles(config)) is not None:
        found.append(profiles.enrich)
    if is_here and (files := health_files(config)) is not None:  # last, when other sources have added device names
        found.append(files.enrich)
    if pipes := [resource.mps for resource in config.resources if resource.mps]:
        from userspace import with_mps  # imported here: only GPUs need it

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
        """Prepare; no source is called yet. `health` is the history so far."""
        self._host = host
        self._health = health
        self._dra = dra
        self.driver_files = _driver_files(config, host)
        files = self.driver_files.enrich if self.driver_files is not None else None
        self._sources = sources(config, host, nvml.enrich if nvml is not None else None, files)
        self._assigned: Assignment | None = None  # the last one, for `_known`
        self._known: Mapping[str, Device] = {}

    def assigned(self, inventory: Inventory, assignment: Assignment) -> None:
        """Record which resource offers which device of an inventory."""
        self._known, self._assigned = inventory.devices, assignment

    def enrich(self, inventory: Inventory) -> Inventory:
        """Return the inventory with all additions. Blocks for as long as sysfs, libraries and other daemons do."""
        found = self._health.sample(self._host, inventory, self._concerned(inventory))
        for add in self._sources:
            found = add(found)
        return self._dra.with_original_devices(found) if self._dra is not None else found

    def _concerned(self, inventory: Inventory) -> Collection[str] | None:
        """Return the devices whose health matters: offered ones, and ones that this scan can add to them. None: all.

        The latter are new or changed devices, and with them those that waited for one, such as the rest of a group.
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
    """Return the provider of a driver's files; None if no resource asks for them and no earlier files exist."""
    folder = Path(config.settings.state_directory) / "userspace"
    if not (any(resource.userspace for resource in config.resources) or not is_missing(folder)):
        return None
    from nodeplug.driver_files import driver_files  # imported here: only GPUs need it

    return driver_files(config, host)
