"""Allocate: check, lease, commit, answer. PreStartContainer: verify that the stored answer is still valid.

Rules:
1. The answer leaves after its lease is on disk, never before.
2. Every call can be repeated: the same request gets the same answer and the same lease.
3. A device that another owner holds is refused, after checking again who really holds it (`checkpoint.Ledger.grant`).
4. A container that starts again, also after a restart of the kubelet or the node, gets the stored answer without a call
   to Allocate. That answer must still mean its device: plain nodes at the same paths, CDI names as they are described
   now. Otherwise the container does not start, and the error states why.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final

from msgspec.structs import replace

import cdi
from checkpoint import Lease, LeaseRefused, Ledger, LedgerUnavailable
from checkpoint.lease import Book
from checkpoint.withheld import withheld_reason
from deviceplugin import container_record, stored_response
from deviceplugin.container_record import ContainerRecord
from deviceplugin.descriptions import SpecSettings
from deviceplugin.device_info import variable
from deviceplugin.errors import DeviceNotReady, InvalidRequest, StateUnavailable
from deviceplugin.peers import check_peers
from deviceplugin.response import container_response, has_own_names
from deviceplugin.specs import Specs
from deviceplugin.stored_response import StoredResponse
from deviceplugin.units import API, Units, device_name_of, devices_of, owner_of
from hostdevices import Device, HostDevicesError
from hostdevices.presence import Presence, Seen
from hostdevices.printable import printable
from hostdevices.readers.pci import ADDRESS, pci_id
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from resources.container_view import duplicate_path
from resources.groups import is_group_id
from resources.resource import VHOST_NET, Resource
from resources.unit_names import unit_names
from telemetry.trace import child_span

NOT_DESCRIBED: Final = "its CDI spec is not written yet"
_SPECS_TIMEOUT = 5.0  # seconds for CDI specs to be written before a container starts
_RUNTIME_WATCH_DELAY = 0.1  # seconds for a runtime that watches its folder to read new specs
_NO_IDS: Final = frozenset[str]()  # shared by thousands of leases: each new object takes 216 bytes
log = logging.getLogger("nodeplug.deviceplugin")


class Allocator:
    """Allocates the units of one resource."""

    def __init__(self, resource: Resource, presence: Presence, ledger: Ledger, specs: Specs) -> None:
        """Start without units."""
        self.resource = resource
        self.units: Units = {}
        self.devices: Mapping[str, Device] = {}  # whose shares the units are
        self._presence = presence
        self._ledger = ledger
        self._specs = specs

    def update(self, units: Units) -> None:
        """Store the current units."""
        are_devices = self.resource.ids == "identity" and not self.resource.is_shared
        self.devices = units if are_devices else devices_of(units)  # avoids a second mapping of thousands of devices
        self.units = units

    def is_described(self, device: Device) -> bool:
        """Return whether a runtime finds the device by its CDI name, as it is now."""
        resource = self.resource
        if resource.cdi is False or not device.devnodes:
            return False
        return self._specs.has(cdi.kind_of(resource.name), SpecSettings.of(resource), device)

    def check(self, unit_ids: Sequence[str]) -> Units:
        """Return the units of a request. Raises `AllocationRefused`."""
        name = self.resource.name
        if not unit_ids:
            raise InvalidRequest(f"{name}: the request names no device; request at least one")
        if len(set(unit_ids)) != len(unit_ids):
            repeated = sorted(u for u, count in Counter(unit_ids).items() if count > 1)
            raise InvalidRequest(f"{name}: {_abbreviated(repeated)} requested more than once; name each device once")
        unknown = [u for u in unit_ids if u not in self.units]
        if unknown:
            raise InvalidRequest(f"{name}: {_abbreviated(unknown)} not offered here; `nodeplug check` lists what is")
        units = {u: self.units[u] for u in unit_ids}
        devices = devices_of(units)
        if self.resource.preferred == "distinct" and len(devices) < len(units):
            raise DeviceNotReady(
                f"{name}: several shares of one device requested, and its policy is distinct; request fewer"
            )
        for device in devices.values():
            if not device.health.healthy:
                raise DeviceNotReady(f"device {device.id} is unhealthy: {device.health.reason}")
            if device.withheld:
                raise DeviceNotReady(f"device {device.id} is {device.withheld}; `nodeplug readmit` ends that")
            if device.unavailable:
                raise DeviceNotReady(f"device {device.id} is unavailable: {device.unavailable}")
            if changed := self._presence.change_since_scan(device):
                raise DeviceNotReady(f"device {device.id} changed since it was advertised: {changed}; try again")
            if self.resource.needs_cdi and device.devnodes and not self.is_described(device):
                problem = self._specs.problem or NOT_DESCRIBED
                raise StateUnavailable(f"{name}: device {device.id}: {problem}; try again")
        if self.resource.vhost_net and (path := self._presence.missing_node(VHOST_NET)):
            raise DeviceNotReady(f"{name}: `vhostNet` needs {path}, which does not exist; load its kernel module")
        if path := duplicate_path([*devices.values()]):
            raise InvalidRequest(
                f"{name}: two of {', '.join(sorted(devices))} would have the path {path} in one container; request one,"
                " or use an attribute in its containerPath that differs between them"
            )
        return units

    async def held_by_running_pods(self, unit_ids: Iterable[str]) -> frozenset[str]:
        """Return which of these units belong to pods that still run, although the kubelet takes them for free."""
        return await self._ledger.of_running_pods(self.resource.name, unit_ids)

    async def allocate(self, requests: Sequence[Sequence[str]]) -> list[api.ContainerAllocateResponse]:
        """Lease units to containers, to all of them or to none; return their answers. Raises `AllocationRefused`."""
        await self._wait_for_ledger()
        responses: list[api.ContainerAllocateResponse] = []
        leases: list[Lease] = []
        allocated: list[Device] = []
        now = time.time()
        for unit_ids in requests:
            units = self.check(unit_ids)
            devices = list(devices_of(units).values())
            responses.append(self._response(units, devices))
            record = self._record(responses[-1], devices)
            allocated += devices
            leases += [self._lease(unit, device, record, now) for unit, device in units.items()]
        try:
            outcome = await self._ledger.grant(leases, check=lambda book: _check(allocated, book))
        except LeaseRefused as refusal:
            raise DeviceNotReady(str(refusal)) from refusal
        except LedgerUnavailable as error:
            raise StateUnavailable(f"{self.resource.name}: {error}") from error
        if log.isEnabledFor(logging.INFO):
            for lease in outcome.replaced:
                log.info(
                    "lease ended: the kubelet allocated the device to another container",
                    extra={"resource": lease.resource, "device": lease.unit, "holder": lease.holder},
                )
            for unit_ids in requests:
                log.info("allocated", extra={"resource": self.resource.name, "device": ",".join(unit_ids)})
        return responses

    async def _wait_for_ledger(self) -> None:
        """Wait until leases can be granted. Raises `StateUnavailable`.

        Called before any check: an older instance can own the ledger for a minute, and devices change meanwhile.
        """
        try:
            await self._ledger.known()
        except LedgerUnavailable as error:
            raise StateUnavailable(f"{self.resource.name}: {error}") from error

    def dry_run(self, unit_ids: Sequence[str]) -> api.ContainerAllocateResponse:
        """Return what `allocate` would answer for one container now, without leasing. Raises `AllocationRefused`."""
        units = self.check(unit_ids)
        devices = list(devices_of(units).values())
        response = self._response(units, devices)
        try:
            for unit, device in units.items():
                lease = self._lease(unit, device, b"", 0.0)
                for _, held in self._ledger.conflicts(lease.owner, lease.exclusive, lease.shared):
                    raise DeviceNotReady(f"device {device.id}: {held}")
            check_peers(devices, self._ledger.of_device)
        except LeaseRefused as refusal:
            raise DeviceNotReady(str(refusal)) from refusal
        return response

    def _response(self, units: Units, devices: Sequence[Device]) -> api.ContainerAllocateResponse:
        """Return the answer for one container's units. Raises `DeviceNotReady`."""
        with_cdi_names = self.resource.cdi is not False and all(self.is_described(x) for x in devices if x.devnodes)
        try:
            response = container_response(self.resource, units, with_cdi_names=with_cdi_names)
            if name := self.resource.device_info:
                response.envs[name] = variable(
                    devices,
                    self._presence.get,
                    of=name,
                    vhost_net=self.resource.vhost_net,
                    additional=self.resource.additional_info,
                )
        except HostDevicesError as error:
            raise DeviceNotReady(f"{self.resource.name}: {error}") from error
        return response

    def restore_leases(self, unit_ids: Sequence[str], response: bytes | None) -> list[Lease]:
        """Return leases for units that one container has according to the kubelet and whose leases were lost.

        They have one record, like those of an Allocate.
        """
        answer, offered = StoredResponse(response, self.resource.name), _NameIndex(self.devices.values())
        found = {unit: self._stored_device(unit, answer, offered) for unit in unit_ids}
        devices = {x.id: x for x in found.values() if x is not None}.values()
        record = self._record(
            answer.response,
            [answer.with_container_paths(x) for x in devices if not self._presence.change_since_scan(x)],
        )
        now, scanned = time.time(), _NameIndex(self._presence.devices())
        return [
            self._restored_lease(self._lease(unit, device, record, now), device, answer, scanned)
            for unit, device in found.items()
        ]

    def _stored_device(self, unit_id: str, answer: StoredResponse, offered: "_NameIndex") -> Device | None:
        """Return the device of a unit at the time of the answer; None if no scan finds it."""
        stored = answer.device_of(unit_id)
        return (
            (self.devices.get(stored.id) or self._presence.get(stored.id))
            if stored
            else self._device_by_name(unit_id, offered)
        )

    def _restored_lease(
        self, lease: Lease, device: Device | None, answer: StoredResponse, scanned: "_NameIndex"
    ) -> Lease:
        """Return a lease with the devices that its unit had at the time of the answer."""
        stored = answer.device_of(lease.unit)
        exclusive = device.ids if device else frozenset((stored.id,)) if stored else _possible_ids(lease.unit, scanned)
        if stored and (stored.members or stored.part_of):  # as of then, which can differ from today
            return replace(lease, exclusive=exclusive.union(stored.members), shared=lease.shared.union(stored.part_of))
        if is_group_id(stored.id if stored else device_name_of(lease.unit), self.resource.name):
            exclusive |= self._presence.devices_at([node.host_path for node in answer.response.devices])
        return replace(lease, exclusive=exclusive)

    async def prepare_start(self, unit_ids: Sequence[str]) -> list[Device]:
        """Verify that a container's stored answer means its devices; return them. Raises `AllocationRefused`."""
        if not unit_ids:
            raise InvalidRequest(f"{self.resource.name}: the request names no device")
        leases: list[Lease] = []
        for unit_id in unit_ids:
            if (lease := self._ledger.get((self.resource.name, API, unit_id))) is None:
                raise DeviceNotReady(
                    f"device {printable(unit_id)} has no lease; nodeplug restores it when the kubelet reports its pod;"
                    " if this lasts, delete the pod"
                )
            leases.append(lease)
        # one container can have thousands of units, which have the same record
        records = {record: container_record.decode(record) for record in {lease.record for lease in leases}}
        seen = {i: {x.device.id: x for x in record.devices} if record else {} for i, record in records.items()}
        found: dict[str, Device] = {}
        offered = _NameIndex(self.devices.values())
        for lease in leases:
            if (device_id := self._leased_device_id(lease, seen[lease.record], offered)) not in found:
                found[device_id] = self._current_device(device_id, seen[lease.record].get(device_id))
        devices = list(found.values())
        for record in filter(None, records.values()):
            self._check_nodes(record, devices)
            if record.is_named:
                await self._describe(devices)
        return devices

    def _device_by_name(self, unit_id: str, offered: "_NameIndex") -> Device | None:
        """Return the device of a unit, even if named under another setting `ids`; None for none, or two."""
        if (device := self.units.get(unit_id)) is not None:
            return device
        found = offered.of(device_name_of(unit_id))
        return found[0] if len(found) == 1 else None

    def _leased_device_id(self, lease: Lease, seen: Mapping[str, Seen], offered: "_NameIndex") -> str:
        """Return the id of the device that a container has, whichever device has its unit's name now.

        `seen` are the devices in the lease's record, by id.
        """
        if known := next((i for i in lease.exclusive if i in seen), ""):
            return known
        device = self._device_by_name(lease.unit, offered)
        if device is not None and device.id in lease.exclusive:
            return device.id
        return next(iter(lease.exclusive)) if len(lease.exclusive) == 1 else device_name_of(lease.unit)

    def _current_device(self, device_id: str, seen: Seen | None) -> Device:
        """Return a leased device as it is now; `seen` is its recorded state, None without a record.

        Raises `DeviceNotReady` if it is missing, or has just changed.
        """
        device = self.devices.get(device_id) or self._presence.get(device_id)
        if device is not None and (changed := self._presence.change_since_scan(device)):
            raise DeviceNotReady(f"device {device_id} changed since it was scanned: {changed}; try again")
        if seen is not None:
            is_listed = device is not None
            device = self._presence.find(seen)  # with the nodes that the container has, not those offered today
            if device is None and is_listed:
                paths = ", ".join(x.path for x in seen.device.devnodes)
                raise DeviceNotReady(
                    f"device {device_id}: the container was allocated {paths} of it, which does not exist now; the"
                    " container starts when it exists again, or delete the pod"
                )
        if device is None:
            raise DeviceNotReady(f"device {device_id} is gone; the container starts when the device is back")
        return device

    def _check_nodes(self, record: ContainerRecord, devices: Sequence[Device]) -> None:
        """Refuse plain nodes at paths where another device is now: the runtime would give that one to the container."""
        answer = api.ContainerAllocateResponse.FromString(record.response)
        owners = {node.path: device.id for device in devices for node in device.devnodes}
        former_owners = {node.path: seen.device.id for seen in record.devices for node in seen.device.devnodes}
        # the record of a restored lease is newer than the answer
        former_owners.update(stored_response.owners(answer, self.resource.name))
        for node in answer.devices:
            if node.host_path in VHOST_NET:
                continue  # these are the same for every device
            if (now := owners.get(node.host_path)) is None or former_owners.get(node.host_path, now) != now:
                occupant = self._presence.owner_of(node.host_path)
                own = [x for x, owner in owners.items() if owner == former_owners.get(node.host_path, owner)]
                raise DeviceNotReady(
                    f"{self.resource.name}: the container was allocated {node.host_path}, which is {occupant} now; its"
                    f" device is at {', '.join(sorted(own)) or 'nowhere'}; delete the pod, or set"
                    " `cdi: true`, with which a restarted container gets the device at its new path"
                )

    async def _describe(self, devices: Sequence[Device]) -> None:
        """Wait until the runtime finds devices as they are. Raises `StateUnavailable`."""
        missing = [x for x in devices if x.id in self.devices and x.devnodes and not self.is_described(x)]
        self._specs.recheck()
        with child_span("write CDI"):
            await self._specs.wait_written(_SPECS_TIMEOUT)
        if self._specs.problem:
            raise StateUnavailable(f"{self.resource.name}: {self._specs.problem}; try again")
        if missing:
            await asyncio.sleep(_RUNTIME_WATCH_DELAY)

    def _record(self, response: api.ContainerAllocateResponse, devices: Sequence[Device]) -> bytes:
        resource = self.resource
        return container_record.encode(
            ContainerRecord(
                response.SerializeToString(deterministic=True),
                tuple(map(self._presence.seen, devices)),
                resource.permissions,
                resource.access,
                has_own_names(resource.name, response),
                resource.userspace is not None,
            )
        )

    def _lease(self, unit_id: str, device: Device | None, record: bytes, now: float) -> Lease:
        return Lease(
            resource=self.resource.name,
            unit=unit_id,
            api=API,
            owner=owner_of(self.resource, unit_id, device),
            exclusive=device.ids if device else _NO_IDS,
            shared=frozenset(device.parents) if device and device.parents else _NO_IDS,
            record=record,
            boot_id=self._ledger.boot_id,
            granted_at=now,
        )


class _NameIndex:
    """Devices by every name that they can have; an index, because there can be thousands of units."""

    def __init__(self, devices: Iterable[Device]) -> None:
        """Prepare; the index is built on first use."""
        self._devices = devices

    @cached_property
    def _by_name(self) -> Mapping[str, list[Device]]:
        found: dict[str, list[Device]] = {}
        for device in self._devices:
            for name in dict.fromkeys(unit_names(device)):
                found.setdefault(name, []).append(device)
        return found

    def of(self, name: str) -> Sequence[Device]:
        """Return the devices that have a name."""
        return self._by_name.get(name, ())


def _possible_ids(unit_id: str, scanned: _NameIndex) -> frozenset[str]:
    """Return the ids of all devices to which a unit that is no longer offered might belong."""
    name = device_name_of(unit_id)
    function = {pci_id(name)} if ADDRESS.fullmatch(name) else ()
    return frozenset({name, *function, *(x.id for x in scanned.of(name))})


def _check(devices: Sequence[Device], book: Book) -> None:
    """Raise `LeaseRefused` if a device cannot be leased now; the state may have changed since the first check."""
    check_peers(devices, book.of_device)
    for device in devices:
        if reason := withheld_reason(device.id, device.ids.union(device.parents), book.withheld):
            raise LeaseRefused(f"device {device.id} is {reason}; `nodeplug readmit` ends that", device.id)


def _abbreviated(ids: Sequence[str], limit: int = 5) -> str:
    """Begin a sentence about some ids; a request can have thousands, of any length."""
    names = ", ".join(map(printable, ids[:limit]))
    rest = f" and {len(ids) - limit} more" if len(ids) > limit else ""
    return f"device {names} is" if len(ids) == 1 else f"devices {names}{rest} are"
