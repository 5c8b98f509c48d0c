"""What preparing a claim comes to: which devices, with what configuration, and what will be on record.

Checks everything that can be checked without changing anything. Every refusal names the request and the device.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from checkpoint import Lease
from dra_plugin.attributes import SHARES
from dra_plugin.device_config import read_configs
from dra_plugin.device_status import device_status, network_data
from dra_plugin.driver import ClaimRef, PreparedDevice
from dra_plugin.edits import Given, claim_edits
from dra_plugin.errors import DraPluginError
from dra_plugin.metadata import DeviceEntry
from dra_plugin.metadata_files import base_request, cdi_device_id, describe
from dra_plugin.offers import Offered
from dra_plugin.record import Record, Seen, allocated_at, encode, identity
from dra_plugin.sharing import Holding
from hostdevices import Device, Host
from hostdevices.verify import Fingerprints
from resourceapi.objects import Quantity, v1

Find: TypeAlias = Callable[[str], Offered | None]
Attributes: TypeAlias = Callable[[Offered], Mapping[str, v1.DeviceAttribute]]


class ClaimRefused(DraPluginError):
    """A claim's devices cannot be had as it asks for them; says which one, why, and what to do."""


class Plan(Struct, frozen=True):
    """What is to be done for a claim; `resets` are the devices to reset first."""

    given: tuple[Given, ...]
    record: Record
    resets: tuple[Device, ...]

    def leases(self, phase: Literal["intended", "done"], boot_id: str, now: float) -> list[Lease]:
        """Return the claim's leases, one for each unit; `now` in seconds of the Unix clock."""
        answer = encode(self.record)
        found: dict[str, Lease] = {}
        for each in self.given:
            unit = unit_of(each.result, self.record.claim.uid)
            found[each.offered.resource.name + unit] = Lease(
                resource=each.offered.resource.name,
                unit=unit,
                api="dra",
                occupies=frozenset() if each.is_admin else each.offered.occupies,
                touches=frozenset() if each.is_admin else each.offered.touches,
                holder=holder_of(self.record.claim.uid),
                answer=answer,
                phase=phase,
                boot_id=boot_id,
                since=now,
            )
        return list(found.values())


class Planner:
    """Plans claims against what is offered now."""

    def __init__(
        self,
        driver: str,
        pool: str,
        host: Host,
        find: Find,
        attributes: Attributes,
        *,
        has_metadata: bool,
        allowed_mounts: Sequence[str],
    ) -> None:
        """Prepare; the arguments are those of `Preparer`."""
        self._driver = driver
        self._pool = pool
        self._host = host
        self._find = find
        self._attributes = attributes
        self._has_metadata = has_metadata
        self._allowed_mounts = allowed_mounts
        self._fingerprints = Fingerprints(host)

    def update(self, devices: Sequence[Device]) -> None:
        """Take over which devices there are, right after a scan."""
        self._fingerprints.update(devices)

    def results(self, claim: v1.ResourceClaim) -> list[v1.DeviceRequestAllocationResult]:
        """Return what the claim got from our driver. Raises `ClaimRefused` for what is not this node's."""
        if claim.status.allocation is None:
            raise ClaimRefused(f"claim {claim.metadata.namespace}/{claim.metadata.name} is not allocated")
        found = [x for x in claim.status.allocation.devices.results if x.driver == self._driver]
        for result in found:
            if result.pool != self._pool:
                raise ClaimRefused(
                    f"request {result.request}: device {result.device} is in the pool {result.pool}, this node's is"
                    f" {self._pool}; the claim is for another node"
                )
        return found

    def plan(self, claim: v1.ResourceClaim, results: Sequence[v1.DeviceRequestAllocationResult], now: float) -> Plan:
        """Return what to do for the claim's `results`. Raises `DraPluginError` or `CdiError` for what cannot be."""
        assert claim.status.allocation is not None, "or it would have no results"
        configs = read_configs(claim.status.allocation.devices, self._driver, self._allowed_mounts)
        given = []
        for result in results:
            offered = self._offered(result)
            given.append(Given(result, offered, configs.settings(offered.resource, result)))
        return Plan(tuple(given), self._record(claim, given, now), tuple(_resets(given)))

    def _offered(self, result: v1.DeviceRequestAllocationResult) -> Offered:
        offered = self._find(result.device)
        where = f"request {result.request}: device {result.device}"
        if offered is None:
            raise ClaimRefused(f"{where} is not offered on this node any more; delete the pod to get another one")
        if not result.admin_access and not offered.device.health.healthy:
            raise ClaimRefused(f"{where} is unhealthy: {offered.device.health.reason}")
        if changed := self._fingerprints.why_changed(offered.device):
            raise ClaimRefused(f"{where} is no longer what was offered: {changed}; it is tried again")
        return offered

    def _record(self, claim: v1.ResourceClaim, given: Sequence[Given], now: float) -> Record:
        edits = claim_edits(self._driver, claim, given)
        metadata = describe(claim, [(x.result.request, self._entry(x)) for x in given]) if self._has_metadata else ()
        mounted = {x.request: cdi_device_id(self._driver, claim.metadata.uid, x.request) for x in metadata}
        devices = []
        for each, name in zip(given, edits.device_ids, strict=True):
            # the first device of a request brings its metadata: a file must not be mounted twice
            names = (name, mounted.pop(base_request(each.result.request), ""))
            result = each.result
            devices.append(
                PreparedDevice(
                    requests=(result.request,),
                    pool=result.pool,
                    device=result.device,
                    cdi_device_ids=tuple(filter(None, names)),
                    share_id=result.share_id,
                )
            )
        different = {x.offered.device.id: x.offered.device for x in given}
        return Record(
            claim=ClaimRef(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid),
            results=identity([x.result for x in given]),
            allocated_at=allocated_at(claim),
            devices=tuple(devices),
            seen=tuple(map(self._seen, different.values())),
            shared=_holdings(given),
            spec=edits.spec,
            metadata=metadata,
            status=device_status(self._driver, self._pool, given, now),
        )

    def _seen(self, device: Device) -> Seen:
        plain = Device(device.id, device.kind, device.name, device.syspath, devnodes=device.devnodes)
        return Seen(plain, self._fingerprints.taken(device))  # as it is now: it was checked

    def _entry(self, given: Given) -> DeviceEntry:
        return DeviceEntry(
            driver=self._driver,
            pool=self._pool,
            name=given.result.device,
            attributes=self._attributes(given.offered),
            network_data=network_data(given),
        )


def holder_of(uid: str) -> str:
    """Return how leases name a claim."""
    return f"claim/{uid}"


def unit_of(result: v1.DeviceRequestAllocationResult, uid: str) -> str:
    """Return how a lease names what a result gives: a device, a share of it, or an administrator's look at it."""
    if result.admin_access:
        return f"{result.device}@{uid}"
    return f"{result.device}/{result.share_id}" if result.share_id else result.device


def _holdings(given: Sequence[Given]) -> dict[str, Holding]:
    """Return what the claim takes of devices that others can have a part of, by the devices' ids."""
    found: dict[str, Holding] = {}
    for each in given:
        layout, resource = each.offered.layout, each.offered.resource
        if each.is_admin or (layout is None and resource.shares == 1):
            continue
        if layout is None:
            has = {SHARES: str(resource.shares), **{name: x.value for name, x in resource.dra.capacity.items()}}
            consumed = {name: str(x) for name, x in each.result.consumed_capacity.items() if name in has}
            takes: Mapping[str, str] = {SHARES: "1", **consumed}
        else:
            has, takes = dict(resource.dra.counters), layout.consumes
        device = each.offered.device.id
        before = found.get(device, Holding(has, {}))
        limit = min(filter(None, (before.maximum, each.settings.maximum)), default=0)
        found[device] = Holding(has, _sum(before.takes, takes), limit)
    return found


def _sum(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    """Add quantities by their names."""
    both = {name: str(Quantity.parse(one[name]) + Quantity.parse(other[name])) for name in one.keys() & other.keys()}
    return {**one, **other, **both}


def _resets(given: Sequence[Given]) -> list[Device]:
    """Return the devices to reset. Raises `ClaimRefused` where that would hit somebody else."""
    found: dict[str, Device] = {}
    for each in given:
        if each.is_admin or not each.settings.reset:
            continue
        if each.offered.resource.shares > 1 or each.offered.partition:
            raise ClaimRefused(
                f"request {each.result.request}: device {each.result.device} is shared, a reset would hit its other"
                " holders; remove `reset` from the configuration of the class or claim"
            )
        found[each.offered.device.id] = each.offered.device
    return list(found.values())
