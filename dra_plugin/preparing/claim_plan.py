"""Plans the preparation of a claim: which devices, with which configuration, and what is recorded.

Checks everything that can be checked without changing anything. Every refusal names the request and the device.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, structs

from checkpoint import Lease
from checkpoint.holdings import claim_holder
from checkpoint.lease import Phase, claim_owner
from dra_plugin.driver import ClaimRef, PreparedDevice
from dra_plugin.errors import DraPluginError
from dra_plugin.preparing.binding_record import Binding
from dra_plugin.preparing.claim_record import AllocatedDevice, Holding, Record, allocated_at, encode, identity
from dra_plugin.preparing.device_config import Settings, read_configs
from dra_plugin.preparing.device_status import device_status, network_data
from dra_plugin.preparing.edits import ClaimDevice, device_names
from dra_plugin.preparing.interface_config import check_allowed
from dra_plugin.preparing.interface_record import Interface
from dra_plugin.preparing.metadata import DeviceEntry
from dra_plugin.preparing.metadata_files import base_request, cdi_device_id, describe, pod_claim_name
from dra_plugin.publishing.attributes import SHARES, capacities
from dra_plugin.publishing.offers import Offered
from hostdevices import Device
from hostdevices.presence import Presence
from resourceapi.objects import Quantity, v1
from resources.container_view import duplicate_path
from resources.foreign_cdi import cdi_name_problem, foreign_names
from resources.resource import VHOST_NET
from resources.template import facts, missing

if TYPE_CHECKING:
    from dra_plugin.preparing.interface_plan import Links

Find: TypeAlias = Callable[[str], Offered | None]
HeldInterfaces: TypeAlias = Mapping[tuple[str, str], tuple[Interface, bool]]
"""By request and device: an interface that the claim has already, and whether it is away from home."""
Bindings: TypeAlias = Mapping[str, Binding]
"""How devices get their drivers, by device name."""
Attributes: TypeAlias = Callable[[Offered], Mapping[str, v1.DeviceAttribute]]


class ClaimRefused(DraPluginError):
    """A claim cannot have its devices as requested; the text names the device, the reason and what to do."""


class DeviceChanged(ClaimRefused):
    """A device differs from the last scan; the next scan shows how."""


class _Choice(Struct, frozen=True):
    """An allocation result, the offered device that it names, and the settings for it."""

    result: v1.DeviceRequestAllocationResult
    offered: Offered
    settings: Settings
    interface: Interface | None = None
    binding: Binding | None = None

    @property
    def is_admin(self) -> bool:
        return bool(self.result.admin_access)


class Plan(Struct, frozen=True):
    """What to do for a claim; `resets` are the devices to reset first, `pods` the uids of the pods that use it."""

    record: Record
    devices: Mapping[str, tuple[str, frozenset[str], frozenset[str]]]  # by unit: resource, exclusive, shared
    resets: tuple[Device, ...]
    pods: frozenset[str]

    def leases(self, phase: Phase, boot_id: str, now: float) -> list[Lease]:
        """Return the claim's leases, one for each unit; `now` is in seconds of the Unix clock."""
        claim, record = self.record.claim, encode(self.record)
        return [
            Lease(
                resource=resource,
                unit=unit,
                api="dra",
                owner=claim_owner(claim.uid),
                exclusive=exclusive,
                shared=shared,
                holder=claim_holder(claim.namespace, claim.name, claim.uid),
                pods=self.pods,
                record=record,
                phase=phase,
                boot_id=boot_id,
                granted_at=now,
            )
            for unit, (resource, exclusive, shared) in self.devices.items()
        ]


class Planner:
    """Plans claims on the basis of what is offered now."""

    def __init__(
        self,
        driver: str,
        pool: str,
        presence: Presence,
        find: Find,
        attributes: Attributes,
        *,
        has_metadata: bool,
        allowed_mounts: Sequence[str],
    ) -> None:
        """Prepare; the arguments are those of `Preparer`."""
        self._driver = driver
        self._pool = pool
        self._presence = presence
        self._find = find
        self._attributes = attributes
        self._has_metadata = has_metadata
        self._allowed_mounts = allowed_mounts

    def results(self, claim: v1.ResourceClaim) -> list[v1.DeviceRequestAllocationResult]:
        """Return the claim's results for this driver. Raises `ClaimRefused` for those of another node."""
        if claim.status.allocation is None:
            raise ClaimRefused(f"claim {claim.metadata.namespace}/{claim.metadata.name} is not allocated")
        found = [x for x in claim.status.allocation.devices.results if x.driver == self._driver]
        for result in found:
            if result.pool != self._pool:
                raise ClaimRefused(
                    f"request {result.request}: device {result.device} is in the pool {result.pool}, and this"
                    f" node's pool is {self._pool}; the claim is for another node"
                )
        return found

    def plan(
        self,
        claim: v1.ResourceClaim,
        results: Sequence[v1.DeviceRequestAllocationResult],
        now: float,
        *,
        in_use: bool = False,
        links: "Links | None" = None,
        held_interfaces: HeldInterfaces | None = None,
        bindings: Bindings | None = None,
    ) -> Plan:
        """Return what to do for the claim's `results`; a device that is already `in_use` need not be healthy.

        `links` are all interfaces, for devices whose interface moves. Those in `held_interfaces` are the claim's
        already, and can be in its pod. `bindings` are how devices get their drivers.

        Raises `DraPluginError` or `CdiError` if the claim cannot be prepared.
        """
        assert claim.status.allocation is not None, "or it would have no results"
        configs = read_configs(claim.status.allocation.devices, self._driver, self._allowed_mounts)
        choices = []
        for result in results:
            held = (held_interfaces or {}).get((result.request, result.device))
            offered = self._offered(result, in_use, is_away=held is not None and held[1])
            choice = _Choice(result, offered, configs.settings(offered.resource, result))
            interface = held[0] if held is not None else self._interface(choice, claim.metadata.uid, links)
            binding = None if choice.is_admin else (bindings or {}).get(result.device)
            choices.append(structs.replace(choice, interface=interface, binding=binding))
        if not in_use:
            _check_edits(choices)
        units = {unit_of(x.result, claim.metadata.uid): _lease_parts(x, claim.metadata.uid) for x in choices}
        pods = frozenset(user.uid for user in claim.status.reserved_for if user.resource == "pods")
        if len(pods) > 1 and any(x.interface is not None for x in choices):
            raise ClaimRefused(
                "several pods use the claim, and its interface can be in only one; use a ResourceClaimTemplate"
            )
        return Plan(self._record(claim, choices, now), units, tuple(_resets(choices)), pods)

    def _offered(self, result: v1.DeviceRequestAllocationResult, in_use: bool, *, is_away: bool) -> Offered:
        offered = self._find(result.device)
        where = f"request {result.request}: device {result.device}"
        if offered is None:
            raise ClaimRefused(f"{where} is not offered on this node any more; delete the pod to get another one")
        if not (result.admin_access or in_use) and not offered.device.health.healthy:
            raise ClaimRefused(f"{where} is unhealthy: {offered.device.health.reason}")
        if not (result.admin_access or in_use) and offered.device.unavailable:
            raise ClaimRefused(f"{where} is unavailable: {offered.device.unavailable}")
        if not (result.admin_access or in_use) and offered.device.withheld:
            raise ClaimRefused(f"{where} is {offered.device.withheld}; `nodeplug readmit` ends that")
        if offered.resource.vhost_net and (path := self._presence.missing_node(VHOST_NET)):
            raise ClaimRefused(f"{where}: `vhostNet` needs {path}, which does not exist; load its kernel module")
        if in_use and not self._presence.has_device(offered.device.id):
            # it is offered only because a claim holds it; a scan does not change that
            raise ClaimRefused(f"{where} is gone")
        if (changed := self._presence.change_since_scan(offered.device)) and not is_away:
            raise DeviceChanged(f"{where} changed since it was published: {changed}; the kubelet tries again")
        return offered

    def _interface(self, choice: _Choice, uid: str, links: "Links | None") -> Interface | None:
        """Return how the interface of a device moves; None if it does not."""
        moves, config = choice.offered.resource.dra.interface, choice.settings.interface
        where = f"request {choice.result.request}: device {choice.result.device}"
        if moves is None or choice.is_admin or links is None:
            check_allowed(config, None, where)
            return None
        from dra_plugin.preparing.interface_plan import plan_interface  # on first use: most claims have no interface

        nics = nics_of(choice.offered.device, self._presence)
        if len(nics) != 1:
            raise ClaimRefused(
                f"{where} has {len(nics)} network interfaces on this node; only a device with exactly one can be moved"
            )
        return plan_interface(nics[0], config, moves, links, uid, where)

    def _record(self, claim: v1.ResourceClaim, choices: Sequence[_Choice], now: float) -> Record:
        ref = ref_of(claim)
        chosen = [ClaimDevice(self._allocated(x), x.offered.device) for x in choices]
        entries = [(x.result.request, self._entry(x)) for x in choices]
        metadata = describe(claim, entries) if self._has_metadata else ()
        mounted = {x.request: cdi_device_id(self._driver, ref.uid, x.request) for x in metadata}
        devices = []
        for choice, name in zip(choices, device_names(self._driver, ref, chosen), strict=True):
            # only for the first device of a request: a file must not be mounted twice
            names = (name, mounted.pop(base_request(choice.result.request), ""), *_foreign_names(choice))
            devices.append(
                PreparedDevice(
                    requests=(choice.result.request,),
                    pool=choice.result.pool,
                    device=choice.result.device,
                    cdi_device_ids=tuple(filter(None, names)),
                    share_id=choice.result.share_id,
                )
            )
        return Record(
            claim=ref,
            pod_claim=pod_claim_name(claim),
            results=identity([x.result for x in choices]),
            allocated_at=allocated_at(claim),
            devices=tuple(devices),
            allocated=tuple(each.allocated for each in chosen),
            shared=_holdings(choices),
            metadata=metadata,
            status=device_status(self._driver, self._pool, chosen, now),
        )

    def _allocated(self, choice: _Choice) -> AllocatedDevice:
        return AllocatedDevice(
            request=choice.result.request,
            name=choice.offered.name,
            resource=choice.offered.resource.name,
            seen=self._presence.seen(choice.offered.device),  # its current identity, which was checked above
            permissions=choice.offered.resource.permissions,
            settings=choice.settings,
            partition=choice.offered.partition,
            share_id=choice.result.share_id,
            is_admin=choice.is_admin,
            consumed={name: str(amount) for name, amount in choice.result.consumed_capacity.items()},
            facts=facts(choice.settings.env.values(), choice.offered.device),
            interface=choice.interface,
            vhost_net=choice.offered.resource.vhost_net,
            binding=choice.binding,
        )

    def _entry(self, choice: _Choice) -> DeviceEntry:
        return DeviceEntry(
            driver=self._driver,
            pool=self._pool,
            name=choice.result.device,
            attributes=self._attributes(choice.offered),
            network_data=network_data(choice.offered.device, choice.interface),
        )


def nics_of(device: Device, presence: Presence) -> list[Device]:
    """Return the network interfaces that a device is or has."""
    found = (presence.get(i) for i in sorted(device.ids))
    return [x for x in found if x is not None and x.kind == "nic"]


def ref_of(claim: v1.ResourceClaim) -> ClaimRef:
    """Return a claim as the kubelet names it."""
    return ClaimRef(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid)


def unit_of(result: v1.DeviceRequestAllocationResult, uid: str) -> str:
    """Return a lease's name for a result: a device, a share of it, or an administrator's access to it."""
    if result.admin_access:
        return f"{result.device}@{uid}"
    return f"{result.device}/{result.share_id}" if result.share_id else result.device


def name_of(unit: str) -> str:
    """Return the name under which the device of a unit is or was offered (see `unit_of`)."""
    return unit.partition("@")[0].partition("/")[0]


def devices_of(unit: str, offered: Offered | None) -> tuple[frozenset[str], frozenset[str]]:
    """Return the devices that the holder of a unit has exclusively, and those of which it has a part.

    A share stays a share if its device is offered whole today, and the other way round. A device that is no longer
    offered is known only by its name.
    """
    name, _, share = unit.partition("/")
    ids, shared_ids = (offered.device.ids, offered.shared) if offered is not None else (frozenset((name,)), frozenset())
    if share:
        return frozenset(), shared_ids | ids
    if offered is None or offered.resource.is_shared:
        return ids, shared_ids - ids
    return offered.exclusive, shared_ids


def _lease_parts(choice: _Choice, uid: str) -> tuple[str, frozenset[str], frozenset[str]]:
    resource = choice.offered.resource.name
    if choice.is_admin:
        return resource, frozenset(), frozenset()
    return resource, *devices_of(unit_of(choice.result, uid), choice.offered)


def _holdings(choices: Sequence[_Choice]) -> dict[str, Holding]:
    """Return what the claim takes of devices that others can have a part of, by device id."""
    found: dict[str, Holding] = {}
    for each in choices:
        layout, resource = each.offered.layout, each.offered.resource
        if each.is_admin or (layout is None and not resource.is_shared and not each.result.share_id):
            continue
        if layout is None:
            amounts = capacities(resource, each.offered.device)
            has = {SHARES: "1", **{name: x.value for name, x in amounts.items()}}
            consumed = {name: str(x) for name, x in each.result.consumed_capacity.items() if name in has}
            takes: Mapping[str, str] = {SHARES: "1", **consumed}
        else:
            has, takes = dict(resource.dra.counters), layout.consumes
        device = each.offered.device.id
        before = found.get(device, Holding(has, {}))
        limit = min(filter(None, (before.maximum, each.settings.maximum)), default=0)
        found[device] = Holding(has, _add_quantities(before.takes, takes), limit)
    return found


def _add_quantities(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    """Add quantities by name."""
    both = {name: str(Quantity.parse(one[name]) + Quantity.parse(other[name])) for name in one.keys() & other.keys()}
    return {**one, **other, **both}


def _check_edits(choices: Sequence[_Choice]) -> None:
    """Refuse devices that a container could not distinguish, or could not describe. Raises `ClaimRefused`."""
    requests: dict[str, list[Device]] = {}
    for choice in choices:
        request, device = choice.result.request, choice.offered.device
        requests.setdefault(base_request(request), []).append(device)
        for name, text in choice.settings.env.items():
            if field := missing(text, device):
                raise ClaimRefused(
                    f"request {request}: device {choice.result.device} has no {field}, which the variable {name} uses"
                )
    for request, devices in requests.items():
        if path := duplicate_path(devices):
            raise ClaimRefused(
                f"request {request}: two of its devices would have the path {path} in one container; request one"
            )


def _foreign_names(choice: _Choice) -> tuple[str, ...]:
    """Return the CDI devices of other vendors for a device. Raises `ClaimRefused` if there are none for it."""
    names, device = choice.offered.resource.cdi_devices, choice.offered.device
    if why := cdi_name_problem(names, device):
        raise ClaimRefused(f"request {choice.result.request}: device {choice.result.device} is unavailable: {why}")
    return foreign_names(names, device)


def _resets(choices: Sequence[_Choice]) -> list[Device]:
    """Return the devices to reset. Raises `ClaimRefused` if a reset would affect another holder."""
    found: dict[str, Device] = {}
    for each in choices:
        if each.is_admin or not each.settings.reset:
            continue
        if each.offered.resource.is_shared or each.offered.partition or each.result.share_id:
            raise ClaimRefused(
                f"request {each.result.request}: device {each.result.device} is shared, a reset would hit its other"
                " holders; remove `reset` from the configuration of the class or claim"
            )
        found[each.offered.device.id] = each.offered.device
    return list(found.values())
