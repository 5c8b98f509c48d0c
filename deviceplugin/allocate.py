"""Allocate: check, lease, commit, answer.

Rules:
1. The answer leaves after its lease is on disk, never before.
2. Every call can be repeated: the same request gets the same answer and the same lease.
3. Within one resource the kubelet decides who gets a unit; what it gives anew has ended before (it frees finished pods'
   devices at once and tells nobody). What another resource or the other API holds is refused, after a fresh look at
   who really holds it.
"""

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from checkpoint import Lease, LeaseRefused, Ledger, LedgerUnavailable
from deviceplugin.errors import DeviceNotReady, InvalidRequest, StateUnavailable
from deviceplugin.release import Releaser
from deviceplugin.response import container_response
from deviceplugin.units import API, Unit
from hostdevices import Device, Host
from hostdevices.resource import Resource
from hostdevices.verify import Fingerprints
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api

log = logging.getLogger("nodeplug.deviceplugin")


class Allocator:
    """Hands out the units of one resource."""

    def __init__(self, resource: Resource, host: Host, ledger: Ledger, releaser: Releaser) -> None:
        """Start without units. `releaser` is told of what it has to watch."""
        self.resource = resource
        self.units: Mapping[str, Unit] = {}
        self.devices: dict[str, Device] = {}  # that the units are shares of
        self.unavailable = ""  # why nothing can be handed out now
        self._ledger = ledger
        self._releaser = releaser
        self._fingerprints = Fingerprints(host)

    def update(self, units: Mapping[str, Unit]) -> None:
        """Take over the units that there are now."""
        self.devices = {unit.device.id: unit.device for unit in units.values()}
        self._fingerprints.update(self.devices.values())
        self.units = units

    def check(self, unit_ids: Sequence[str]) -> list[Unit]:
        """Return the units of a request. Raises `AllocationRefused`."""
        name = self.resource.name
        if self.unavailable:
            raise StateUnavailable(f"{name}: {self.unavailable}")
        if not unit_ids:
            raise InvalidRequest(f"{name}: the request names no device; ask for at least one")
        if len(set(unit_ids)) != len(unit_ids):
            twice = sorted(u for u, times in Counter(unit_ids).items() if times > 1)
            raise InvalidRequest(f"{name}: {_some(twice)} requested more than once; name each device once")
        unknown = [u for u in unit_ids if u not in self.units]
        if unknown:
            raise InvalidRequest(f"{name}: {_some(unknown)} not offered here; `nodeplug discover` lists what is")
        units = [self.units[u] for u in unit_ids]
        devices = {unit.device.id: unit.device for unit in units}
        if self.resource.preferred == "distinct" and len(devices) < len(units):
            raise DeviceNotReady(
                f"{name}: several shares of one device requested, its policy is distinct; ask for fewer"
            )
        withheld = {w.device: w.reason for w in self._ledger.withheld()}
        for device in devices.values():
            if device.id in withheld:
                raise DeviceNotReady(f"device {device.id} is withheld: {withheld[device.id]}; readmit it first")
            if not device.health.healthy:
                raise DeviceNotReady(f"device {device.id} is unhealthy: {device.health.reason}")
            if changed := self._fingerprints.why_changed(device):
                raise DeviceNotReady(f"device {device.id} is no longer what was offered: {changed}; try again")
        return units

    async def allocate(self, unit_ids: Sequence[str]) -> api.ContainerAllocateResponse:
        """Lease units to a container and return its answer. Raises `AllocationRefused`."""
        units = self.check(unit_ids)
        response = container_response(self.resource, units)
        encoded = response.SerializeToString(deterministic=True)
        now = time.time()
        wanted = [self._lease(unit, now, answer=encoded) for unit in units]
        try:
            granted = await self._ledger.grant(wanted)
        except LeaseRefused as refusal:
            raise DeviceNotReady(str(refusal)) from refusal
        except LedgerUnavailable as error:
            raise StateUnavailable(f"{self.resource.name}: {error}") from error
        self._releaser.leased()
        for lease in granted.replaced:
            log.info(
                "lease ended, the kubelet gave the device to another container",
                extra={"resource": lease.resource, "device": lease.unit, "holder": lease.holder},
            )
        log.info("allocated", extra={"resource": self.resource.name, "device": ",".join(unit_ids)})
        return response

    def lease_of(self, unit_id: str, holder: str) -> Lease | None:
        """Return the lease that `holder` of a unit should have; None for a unit that is not offered."""
        unit = self.units.get(unit_id)
        return None if unit is None else self._lease(unit, time.time(), holder=holder)

    def _lease(self, unit: Unit, now: float, answer: bytes = b"", holder: str = "") -> Lease:
        device = unit.device
        return Lease(
            resource=self.resource.name,
            unit=unit.id,
            api=API,
            occupies=device.ids,
            touches=frozenset(device.within),
            holder=holder,
            answer=answer,
            boot_id=self._ledger.boot_id,
            since=now,
        )


def _some(ids: Sequence[str], most: int = 5) -> str:
    """Begin a sentence about some ids; a request may carry thousands."""
    named = ", ".join(ids[:most])
    more = f" and {len(ids) - most} more" if len(ids) > most else ""
    return f"device {named} is" if len(ids) == 1 else f"devices {named}{more} are"
