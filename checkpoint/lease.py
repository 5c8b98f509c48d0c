"""Leases: who has which device, and who must not get it.

Rules (a device is a stable id, see hostdevices/identity.py):
1. What one owner's lease has exclusively is nobody else's: not whole, not in parts.
2. What one owner's lease shares cannot be another owner's exclusively; several owners may share it.
3. Leases of one owner do not conflict. In the device plugin API the owner is the unit, or all shares of one size of a
   device (`unit_owner`, `shares_owner`); in DRA it is the claim.
4. The device plugin API does not report the end of a pod. The kubelet allocates a unit again once it is free, so a
   grant for a leased unit of the same resource ends the previous lease. A claim keeps its unit from other claims. A
   kubelet that has lost its checkpoint takes the units of running pods for free, which the guard refuses (guard.py).

Pure: a `Book` is changed in memory and can take every change back; ledger.py makes it durable.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import ne
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from checkpoint.errors import LeaseRefused, WithholdRefused
from checkpoint.indexes import KeysByDevice, KeysByName
from checkpoint.withheld import MAX_WITHHELD, Withheld

Api: TypeAlias = Literal["device-plugin", "dra"]
Phase: TypeAlias = Literal["intended", "done"]
LeaseKey: TypeAlias = tuple[str, Api, str]  # resource, API, unit
UNREPORTED_POD = "a pod that the kubelet has not reported yet"
"""The holder of a lease in words until the kubelet has reported the pod."""


class Lease(Struct, frozen=True, kw_only=True, gc=False):  # a node has thousands, and none can be part of a cycle
    """One allocated unit.

    `unit` is the id that the kubelet knows: a device's, or a share's (`misc-fuse.3`). `exclusive` are the devices that
    it takes as a whole: the device itself, a group's members. `shared` are those of which it takes a part: the GPU of a
    partition, the physical function of a virtual one. `holder` is `pod/<namespace>/<name>/<container>` or
    `claim/<namespace>/<name>/<uid>`, empty while unknown; `pods` are the uids of the pods that might use it, as far as
    they are known.

    `record` is what its API needs to repeat the answer. `phase`: `intended` before the host is changed for a claim,
    `done` afterwards. `boot_id` is the boot of the grant, `granted_at` its wall clock time, which is only shown to
    people.
    """

    resource: str
    unit: str
    api: Api
    owner: str
    exclusive: frozenset[str]
    shared: frozenset[str] = frozenset()
    holder: str = ""
    pods: frozenset[str] = frozenset()
    record: bytes = b""
    phase: Phase = "done"
    boot_id: str
    granted_at: float = 0.0

    @property
    def key(self) -> LeaseKey:
        """Return the lease's key: there is one lease per resource, API and unit."""
        return (self.resource, self.api, self.unit)

    @property
    def devices(self) -> frozenset[str]:
        """Return every device that it has, exclusively or shared."""
        return self.exclusive | self.shared

    def renews(self, old: "Lease") -> bool:
        """Return whether this repeats the grant `old` to the same owner: nothing changes for other owners."""
        return (
            self.key == old.key
            and self.owner == old.owner
            and self.exclusive == old.exclusive
            and self.shared == old.shared
        )

    def __str__(self) -> str:
        """Return what was given to whom: `example.com/gpu (dra) has allocated gpu-0 to claim/...`."""
        holder = self.holder or UNREPORTED_POD
        return f"{self.resource} ({self.api}) has allocated {self.unit} to {holder}"


class Change(Struct, frozen=True):
    """What one request changes: leases that end, begin, are renewed, or get their holders.

    Or the devices that are no longer withheld, and those that are from now on.
    """

    ended: tuple[Lease, ...] = ()
    begun: tuple[Lease, ...] = ()
    renewed: tuple[tuple[Lease, Lease], ...] = ()  # before, after: see `Lease.renews`
    updated: tuple[tuple[Lease, Lease], ...] = ()  # before, after
    readmitted: tuple[Withheld, ...] = ()
    withheld: tuple[Withheld, ...] = ()

    def __bool__(self) -> bool:
        """Return whether it changes anything."""
        return bool(self.ended or self.begun or self.renewed or self.updated or self.readmitted or self.withheld)

    @property
    def granted(self) -> tuple[Lease, ...]:
        """Return the granted leases, whether or not their units had one before."""
        return self.begun + tuple(new for _, new in self.renewed)

    @property
    def rerecorded(self) -> tuple[Lease, ...]:
        """Return the leases that are renewed with another record; a container's leases have one, which can be large."""
        # compares each pair of records once, because many leases share them
        is_other = cache(ne) if len(self.renewed) > 1 else ne
        return tuple([new for old, new in self.renewed if is_other(old.record, new.record)])

    @property
    def replaced(self) -> tuple[Lease, ...]:
        """Return the leases that are gone, whether or not their units have another one now."""
        return self.ended + tuple(old for old, _ in self.renewed)


def unit_owner(resource: str, unit: str) -> str:
    """Return the owner of the lease of a whole unit of the device plugin API: only that unit."""
    return f"{resource}={unit}"


def claim_owner(uid: str) -> str:
    """Return the owner of a claim's leases."""
    return f"claim/{uid}"


def shares_owner(resource: str, device: str, shares: int) -> str:
    """Return the owner of the leases of a device's shares: all of them, while their number stays the same."""
    return f"{resource}={device}/{shares}"


def shares_of_owner(owner: str) -> int:
    """Return how many shares the device has in an owner from `shares_owner`; 1 for another owner."""
    shares = owner.rpartition("/")[2]
    return int(shares) if shares.isdecimal() else 1


class Book:
    """All leases at one moment, in the order of their grants, and the withheld devices.

    A lease that renews another (`Lease.renews`) takes its place in the order, here and on disk. The cost of each
    operation depends on what it changes, not on the size of the book.
    """

    def __init__(self, leases: Iterable[Lease] = (), withheld: Iterable[Withheld] = ()) -> None:
        """Store leases without checking them: they were checked when they were granted."""
        self._withheld = {each.device: each for each in withheld}
        self._leases: dict[LeaseKey, Lease] = {}
        self._exclusive = KeysByDevice(self._leases)
        self._shared = KeysByDevice(self._leases)
        self._by_owner = KeysByName[str]()
        self._by_resource = KeysByName[tuple[str, Api]]()
        for lease in leases:
            self._add(lease)

    def __iter__(self) -> Iterator[Lease]:
        """Iterate over the leases in the order of their grants."""
        return iter(self._leases.values())

    def __len__(self) -> int:
        """Return the number of leases."""
        return len(self._leases)

    def get(self, key: LeaseKey) -> Lease | None:
        """Return the lease of a unit; None if it has none."""
        return self._leases.get(key)

    def of_owner(self, owner: str) -> tuple[Lease, ...]:
        """Return the leases of an owner."""
        return tuple(self._leases[key] for key in self._by_owner.of(owner))

    def of_resource(self, resource: str, api: Api) -> tuple[Lease, ...]:
        """Return the leases of a resource's units through one API."""
        return tuple(self._leases[key] for key in self._by_resource.of((resource, api)))

    def of_device(self, device: str) -> Iterator[Lease]:
        """Yield the leases that have a device, exclusively or shared."""
        yield from self._exclusive.of(device)
        yield from self._shared.of(device)

    def resources(self, api: Api) -> frozenset[str]:
        """Return the resources of which any unit is leased through an API."""
        return frozenset(resource for resource, each in self._by_resource.names() if each == api)

    def conflicts(
        self, owner: str, exclusive: Iterable[str], shared: Iterable[str] = ()
    ) -> Iterator[tuple[str, Lease]]:
        """Yield the leases that keep these devices from `owner`, one for each other owner, with the device."""
        for device in sorted(exclusive):
            for index in (self._exclusive, self._shared):
                yield from ((device, lease) for lease in index.of_others(device, owner))
        for device in sorted(shared):
            yield from ((device, lease) for lease in self._exclusive.of_others(device, owner))

    def grant(self, wanted: Sequence[Lease]) -> Change:
        """Add all of `wanted` or none. Raises `LeaseRefused` for the first conflict."""
        ended: dict[LeaseKey, Lease] = {}
        begun: dict[LeaseKey, Lease] = {}
        renewed: dict[LeaseKey, tuple[Lease, Lease]] = {}
        for lease in wanted:
            old = self._leases.get(lease.key)
            if old is not None and not lease.renews(old):
                ended[old.key] = old
                self._drop(old)
        try:
            for lease in wanted:
                key = lease.key
                if key in begun or key in renewed:
                    text = f"device {lease.unit}: requested twice in one request of {lease.resource}; name it once"
                    raise LeaseRefused(text, lease.unit)
                self._check(lease, ended.get(key))
                if (old := self._leases.get(key)) is not None:
                    self._leases[key] = lease
                    renewed[key] = (old, lease)
                else:
                    self._add(lease)
                    begun[key] = lease
        except LeaseRefused:
            self.undo(Change(tuple(ended.values()), tuple(begun.values()), tuple(renewed.values())))
            raise
        return Change(tuple(ended.values()), tuple(begun.values()), tuple(renewed.values()))

    def end(self, keys: Iterable[LeaseKey]) -> Change:
        """End the leases of these units; units without a lease are ignored."""
        ended = tuple(self._leases[key] for key in dict.fromkeys(keys) if key in self._leases)
        for lease in ended:
            self._drop(lease)
        return Change(ended)

    def update(self, leases: Iterable[Lease]) -> Change:
        """Store newly known facts of leases: their holders and pods.

        Leases that have ended meanwhile stay ended, and a newer lease of the same unit stays as it is.
        """
        known = ((self._leases.get(lease.key), lease) for lease in leases)
        updated = tuple((old, new) for old, new in known if old is not None and old != new and _is_same(old, new))
        self._leases.update((new.key, new) for _, new in updated)
        return Change(updated=updated)

    @property
    def withheld(self) -> Mapping[str, Withheld]:
        """Return what is withheld, by device; a new object after each change."""
        return self._withheld

    def withhold(self, devices: Iterable[Withheld]) -> Change:
        """Withhold devices; one that is withheld already gets the new reason and keeps its time.

        Raises `WithholdRefused` if that would be more than `MAX_WITHHELD`.
        """
        wanted = {each.device: each for each in devices}
        if len(self._withheld.keys() | wanted) > MAX_WITHHELD:
            raise WithholdRefused(
                f"{MAX_WITHHELD} devices can be withheld; readmit some, or stop nodeplug on this node"
            )
        before = [self._withheld[i] for i in wanted if i in self._withheld]
        wanted.update((old.device, structs.replace(wanted[old.device], since=old.since)) for old in before)
        self._withheld = self._withheld | wanted
        return Change(readmitted=tuple(before), withheld=tuple(wanted.values()))

    def readmit(self, devices: Iterable[str]) -> Change:
        """Stop withholding these devices; those that are not withheld are ignored."""
        wanted = dict.fromkeys(devices)
        ended = tuple(self._withheld[i] for i in wanted if i in self._withheld)
        self._withheld = {i: each for i, each in self._withheld.items() if i not in wanted}
        return Change(readmitted=ended)

    def undo(self, change: Change) -> None:
        """Undo a change; the latest change must be undone first. Leases that had ended return behind the others."""
        if change.withheld or change.readmitted:
            new = {each.device for each in change.withheld}
            kept = {i: each for i, each in self._withheld.items() if i not in new}
            self._withheld = kept | {each.device: each for each in change.readmitted}
        self._leases.update((old.key, old) for old, _ in (*change.updated, *change.renewed))
        for lease in change.begun:
            self._drop(lease)
        for lease in change.ended:
            self._add(lease)

    def _check(self, wanted: Lease, old: Lease | None) -> None:
        if old is not None and wanted.api == "dra" and old.owner != wanted.owner:
            raise _refusal(wanted, old, wanted.unit, "a unit has one claim at a time")
        for device, held in self.conflicts(wanted.owner, wanted.exclusive, wanted.shared):
            whole = device in held.exclusive
            rule = "a device has one holder at a time" if whole else "a device is allocated either whole or in parts"
            raise _refusal(wanted, held, device, rule)

    def _add(self, lease: Lease) -> None:
        key = lease.key
        self._leases[key] = lease
        self._by_owner.add(lease.owner, key)
        self._by_resource.add((lease.resource, lease.api), key)
        for index, devices in ((self._exclusive, lease.exclusive), (self._shared, lease.shared)):
            for device in devices:
                index.add(device, lease, key)

    def _drop(self, lease: Lease) -> None:
        key = lease.key
        del self._leases[key]
        self._by_owner.remove(lease.owner, key)
        self._by_resource.remove((lease.resource, lease.api), key)
        for index, devices in ((self._exclusive, lease.exclusive), (self._shared, lease.shared)):
            for device in devices:
                index.remove(device, lease, key)


def _is_same(old: Lease, new: Lease) -> bool:
    """Return whether both are the same grant, apart from its holder and pods."""
    return structs.replace(old, holder=new.holder, pods=new.pods) == new


def _refusal(wanted: Lease, held: Lease, device: str, rule: str) -> LeaseRefused:
    hint = (
        "wait until that claim is unprepared"
        if held.api == "dra"
        else "delete that pod, or let only one resource select the device"
    )
    return LeaseRefused(
        f"device {device}: {wanted.resource} cannot allocate {wanted.unit}, because {held}; {rule}; {hint}", device
    )
