"""What is offered through DRA: the devices that ResourceSlices name, and where they come from.

Rules:
1. A device is offered under its id, or in parts under `<device>-<partition>`.
2. A leased device stays offered until its lease ends, because its claim still names it: as unhealthy if it is gone, as
   unavailable if it exists and the configuration no longer offers it, or not under that name.
3. A physical function and its virtual functions are never allocated at the same time (`Device.sriov_peers`).
4. A device keeps its slice (slice_layout.py) while it is offered, so that a change of one device changes one slice.
5. A device that cannot be offered is left out, and the reason is logged once.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial

from msgspec import Struct, structs

from checkpoint import Lease
from dra_plugin.publishing.attributes import describe
from dra_plugin.publishing.counters import Counters, exclusion
from dra_plugin.publishing.slice_layout import SliceLayout
from hostdevices import HEALTHY, Device, Health, device_id
from resourceapi.objects import Quantity, v1
from resources.resource import Partition, Resource

MAX_DEVICES = 64  # of one slice, because they can have taints and counters; without these the limit is 128
MAX_COUNTER_SETS = 8

_GONE = "it is gone"
_NOT_OFFERED = "it is not offered any more"

log = logging.getLogger(__name__)


class Offered(Struct, frozen=True):
    """One device under the name that ResourceSlices give it.

    `partition` is the name of the layout's partition if this is a part of the device; empty for a whole device.
    """

    name: str
    resource: Resource
    device: Device
    partition: str = ""

    @property
    def exclusive(self) -> frozenset[str]:
        """Return the ids that a lease of it takes as a whole; a share of a device takes none (see `shared`)."""
        if self.resource.is_shared:
            return frozenset()
        return frozenset((self.name,)) if self.partition else self.device.ids

    @property
    def shared(self) -> frozenset[str]:
        """Return the ids that a lease of it takes a part of, or that no other holder can have exclusively meanwhile."""
        parts = self.device.ids if self.partition or self.resource.is_shared else frozenset[str]()
        return parts | frozenset((*self.device.parents, *self.device.sriov_peers))

    @property
    def layout(self) -> Partition | None:
        """Return the configured partition; None for a whole device."""
        return next((x for x in self.resource.dra.partitions if x.name == self.partition), None)


class Offers:
    """What is offered now, by name. Belongs to the loop."""

    def __init__(
        self,
        resources: Iterable[Resource],
        blocking_lease: Callable[[Offered], Lease | None] = lambda _: None,
        from_leases: Callable[[Set[str], Iterable[Resource]], Mapping[str, Offered]] = lambda *_: {},
        is_present: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Offer nothing yet. Of `resources`, those that are offered through DRA count.

        `blocking_lease` returns the lease that keeps a device from claims although the scheduler sees it as free.
        `from_leases` returns what claims hold under names that were never offered by this process. `is_present` returns
        whether a device is present on the host, whether or not it is offered.
        """
        self.configure(resources)
        self._blocking_lease = blocking_lease
        self._from_leases = from_leases
        self._is_present = is_present
        self._offered: dict[str, Offered] = {}
        self._present: Set[str] = frozenset()
        self._in_use: dict[str, Lease] = {}
        self._names: Mapping[str, Sequence[str]] = {}  # names of what is offered, by each id that it needs
        self._gone: Set[str] = frozenset()
        self._uncounted: Set[str] = frozenset()
        self._left_out: dict[str, str] = {}
        self._described: dict[str, v1.Device] = {}
        self._counters = Counters()
        self._layout, self._counter_layout = SliceLayout(MAX_DEVICES), SliceLayout(MAX_COUNTER_SETS)
        self.slices: tuple[tuple[Offered, ...], ...] = ()
        self.counter_slices: tuple[tuple[v1.CounterSet, ...], ...] = ()

    def __iter__(self) -> Iterator[Offered]:
        """Iterate over what is offered now, in the order of the names. Thread-safe."""
        offered = self._offered  # replaced as a whole, never changed
        return (offered[name] for name in sorted(offered))

    def __len__(self) -> int:
        """Return how many devices are offered."""
        return len(self._offered)

    def configure(self, resources: Iterable[Resource]) -> None:
        """Offer these resources from the next `update` on."""
        self._resources = [resource for resource in resources if resource.api != "device-plugin"]
        self._last_input: tuple[object, ...] = ()

    def find(self, name: str) -> Offered | None:
        """Return what is offered under `name`; None if nothing is."""
        return self._offered.get(name)

    def in_use(self, name: str) -> Lease | None:
        """Return the lease that keeps the device from claims although the scheduler sees it as free."""
        return self._in_use.get(name)

    def is_gone(self, name: str) -> bool:
        """Return whether the device is offered only because a claim holds it: no other claim must get it."""
        return name in self._gone

    def is_counted(self, name: str) -> bool:
        """Return whether counters state what a device excludes; a device that a claim holds can exceed their limits."""
        return name not in self._uncounted

    def described(self, offered: Offered) -> v1.Device:
        """Return the device as slices describe it, without taints and counters, which depend on health and holders."""
        return self._described[offered.name]

    def attributes(self, offered: Offered) -> Mapping[str, v1.DeviceAttribute]:
        """Return the attributes that slices give the device, or gave it while it was offered."""
        described = self._described.get(offered.name) or self._description(offered)
        return described.attributes

    def counters_of(self, name: str) -> tuple[v1.DeviceCounterConsumption, ...]:
        """Return what the device takes from the pool's shared counters."""
        return self._counters.taken.get(name, ())

    def update(
        self,
        assigned: Mapping[str, Sequence[Device]],
        leased: Set[str] = frozenset(),
        changed_ids: Iterable[str] | None = None,
    ) -> bool:
        """Store which devices each resource has now; return whether anything changed.

        `assigned` has the devices of all resources, also of those that are not offered here. `leased` are names that
        claims hold: they stay offered when their devices are gone. `changed_ids` are the devices whose leases changed,
        if nothing but leases can have changed since the last call.
        """
        devices = {name: tuple(found) for name, found in assigned.items()}
        returned = frozenset(name for name in self._gone if self._is_on_host(self._offered[name].device))
        changed = False
        # every change of a lease leads here, and few of them change what is offered
        if (devices, leased - self._present, returned) != self._last_input:
            changed = self._recompute(devices, leased)
            self._last_input = (devices, leased - self._present, returned)
        return self.find_in_use(None if changed else changed_ids) or changed

    def find_in_use(self, ids: Iterable[str] | None) -> bool:
        """Find again the leases that keep devices from claims, of these ids or of all; return whether they changed."""
        affected = self._offered if ids is None else dict.fromkeys(x for i in ids for x in self._names.get(i, ()))
        before = self._in_use
        unaffected = {} if ids is None else {name: lease for name, lease in before.items() if name not in affected}
        found = {name: lease for name in affected if (lease := self._blocking_lease(self._offered[name]))}
        self._in_use = unaffected | found
        return self._in_use != before

    def _recompute(self, assigned: Mapping[str, Sequence[Device]], leased: Set[str]) -> bool:
        """Compute what is offered; return whether anything changed."""
        offered, left_out = self._candidates(assigned)
        present = frozenset(offered)
        gone = self._add_held(offered, leased)
        counters = exclusion(offered)
        self._present = present - counters.left_out.keys()
        self._uncounted = counters.left_out.keys() & leased
        too_many = {name: why for name, why in counters.left_out.items() if name not in leased}
        for name in too_many:
            del offered[name]
        self._report({**left_out, **too_many})
        if offered == self._offered and gone == self._gone:
            return False
        self._described = {x.name: self._description(x) for x in offered.values()}
        self._offered, self._gone = offered, gone
        self._counters = _with_layouts(counters, offered.values())
        self._names = _by_id(offered.values())
        self.slices = tuple(tuple(offered[name] for name in names) for names in self._layout.assign(offered))
        sets = self._counters.sets
        self.counter_slices = tuple(tuple(sets[x] for x in names) for names in self._counter_layout.assign(sets))
        return True

    def _candidates(self, assigned: Mapping[str, Sequence[Device]]) -> tuple[dict[str, Offered], dict[str, str]]:
        """Return what the present devices are offered as, and what is left out, with the reason."""
        offered: dict[str, Offered] = {}
        left_out: dict[str, str] = {}
        for resource in self._resources:
            for device in assigned.get(resource.name, ()):
                for name, partition in _names(resource, device):
                    if (other := offered.get(name)) is not None:
                        left_out[name] = (
                            f"{name} is the name of a part of {device.id} and of {other.device.id};"
                            f" give a partition of {resource.name} another name"
                        )
                        continue
                    offered[name] = Offered(name, resource, device, partition)
        return offered, left_out

    def _add_held(self, offered: dict[str, Offered], leased: Set[str]) -> Set[str]:
        """Add what claims hold and would not be offered otherwise; return its names."""
        missing = leased - offered.keys()
        known = {name: self._offered[name] for name in missing if name in self._offered}
        if unknown := missing - known.keys():
            known |= self._from_leases(unknown, self._resources)
        held = {name: self._as_held(before) for name, before in known.items()}
        offered.update(held)
        return held.keys()

    def _as_held(self, before: Offered) -> Offered:
        device = before.device
        if self._is_on_host(device):
            health, unavailable = HEALTHY, _NOT_OFFERED
        else:
            health, unavailable = Health(False, _GONE), ""
        return structs.replace(before, device=structs.replace(device, health=health, unavailable=unavailable))

    def _is_on_host(self, device: Device) -> bool:
        """Return whether a device is present; a group is if all its members are."""
        return self._is_present(device.id) or bool(device.children and all(map(self._is_present, device.children)))

    def _description(self, offered: Offered) -> v1.Device:
        """Return the device as slices describe it. Computing that is slow and it rarely changes, so it is cached."""
        before = self._offered.get(offered.name)
        if (
            before is not None
            and before.resource is offered.resource
            and structs.replace(before.device, health=offered.device.health) == offered.device
        ):
            return self._described[offered.name]
        return describe(offered.name, offered.resource, offered.device, offered.layout)

    def _report(self, left_out: Mapping[str, str]) -> None:
        for name, reason in left_out.items():
            if self._left_out.get(name) != reason:
                extra = {"device": name, "is_current": partial(self._is_left_out, name, reason)}
                log.error("not offered through DRA: %s", reason, extra=extra)
        self._left_out = dict(left_out)

    def _is_left_out(self, name: str, reason: str) -> bool:
        return self._left_out.get(name) == reason


def _by_id(offered: Iterable[Offered]) -> dict[str, list[str]]:
    """Return for each id the names of the offered devices that have it, exclusively or shared."""
    found: dict[str, list[str]] = {}
    for x in offered:
        for i in x.exclusive | x.shared:
            found.setdefault(i, []).append(x.name)
    return found


def _names(resource: Resource, device: Device) -> Iterator[tuple[str, str]]:
    """Yield the names under which a device is offered, each with its partition."""
    if not resource.dra.partitions:
        yield device.id, ""
    for partition in resource.dra.partitions:
        if partition.count == 1:
            yield device_id(device.id, partition.name), partition.name
        else:
            yield from ((device_id(device.id, partition.name, str(i)), partition.name) for i in range(partition.count))


def _with_layouts(counters: Counters, offered: Iterable[Offered]) -> Counters:
    """Add the counters of devices that are offered in parts: one set for each device, with the device's name.

    Devices that claims hold come last, and can be parts of an earlier layout. Such a part takes all counters of the
    device if today's counters cannot express it.
    """
    sets, taken = dict(counters.sets), dict(counters.taken)
    for x in offered:
        if (layout := x.layout) is not None and x.device.id not in sets:
            sets[x.device.id] = v1.CounterSet(name=x.device.id, counters=_counters(x.resource.dra.counters))
        if not x.partition or x.device.id not in sets:
            continue
        available = sets[x.device.id].counters
        consumed = _counters(layout.consumes) if layout is not None else available
        if not consumed.keys() <= available.keys():
            consumed = available
        own = v1.DeviceCounterConsumption(counter_set=x.device.id, counters=consumed)
        taken[x.name] = (own, *taken.get(x.name, ()))
    return Counters(sets, taken, counters.left_out)


def _counters(amounts: Mapping[str, str]) -> dict[str, v1.Counter]:
    return {name: v1.Counter(value=Quantity.parse(amount)) for name, amount in amounts.items()}
