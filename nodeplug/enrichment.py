"""What a scan does not read: health over time, and what libraries, drivers and other daemons say of devices."""

from collections.abc import Collection, Mapping
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
        self._nvml = nvml
        self._dra = dra
        self._may_have_uplinks = may_have_uplinks(config)
        self._ddp_profiles = ddp_profiles(config)
        self._own_probes = own_probes(config)
        self._resources = config.resources
        self._mps_pipes = [resource.mps for resource in config.resources if resource.mps]
        self._driver_root = config.settings.driver_root
        self.driver_files = _driver_files(config, host)
        self._assigned: Assignment | None = None  # the last one, of `_known`
        self._known: Mapping[str, Device] = {}

    def assigned(self, inventory: Inventory, assignment: Assignment) -> None:
        """Take note of who offers what of an inventory."""
        self._known, self._assigned = inventory.devices, assignment

    def enrich(self, inventory: Inventory) -> Inventory:
        """Return the inventory with all that. Blocks for as long as sysfs, libraries and other daemons do."""
        found = self._health.sample(self._host, inventory, self._concerned(inventory))
        if self._may_have_uplinks:
            from nodeplug.ways_out import with_ways_out  # for network cards alone

            found = with_ways_out(self._host, found)
        if self._nvml is not None:
            found = self._nvml.enrich(found)
        if self._ddp_profiles is not None:
            found = self._ddp_profiles.enrich(found)
        if self._own_probes is not None:  # once others have said what a device is called
            found = self._own_probes.enrich(found)
        if self._mps_pipes:
            from userspace import with_mps  # for GPUs alone

            found = with_mps(self._host, found, self._mps_pipes, self._driver_root)
        found = with_vhost_net(self._host, found, self._resources)
        if self.driver_files is not None:
            found = self.driver_files.enrich(found)
        return self._dra.with_lent(found) if self._dra is not None else found

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
