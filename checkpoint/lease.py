"""Leases: who was given which device, and who must not be given it.

Rules (a device is a stable id, see hostdevices/identity.py; a party is a device plugin resource, or a claim):
1. A device that one party's lease occupies is nobody else's: not whole, not in parts.
2. A device of which one party's lease takes a part (touches) cannot be another party's whole.
3. Inside one resource of the device plugin API the kubelet decides: it frees the devices of a finished pod without
   telling us, so a grant for a leased unit ends the old lease. A share is a unit of its own.
4. In DRA the kubelet tells us when a claim ends, so each claim is a party: what another claim holds is refused. A share
   touches its device, so shares of several claims go together. Administrators' access neither occupies nor touches.

Pure; ledger.py makes it durable.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from checkpoint.errors import LeaseRefused

Api: TypeAlias = Literal["device-plugin", "dra"]
Phase: TypeAlias = Literal["intended", "done"]
LeaseKey: TypeAlias = tuple[str, str, str]  # resource, API, unit
_Party: TypeAlias = tuple[str, str]  # resource or claim, API
_UNKNOWN_HOLDER = "a holder that is not known yet"
_Parties: TypeAlias = dict[str, dict[_Party, int]]  # device -> how many leases of each party


class Lease(Struct, frozen=True, kw_only=True):
    """One unit that was handed out.

    `unit` is the id that the kubelet knows: a device's, or a share's (`misc-fuse.3`). `occupies` are the devices that
    it takes whole: the device itself, a group's members. `touches` are the wholes that it is a part of: the GPU of a
    partition, the physical function of a virtual one. `holder` is `pod/<namespace>/<name>/<container>` or
    `claim/<uid>`, empty while unknown. `answer` is what the kubelet was told, as bytes of the wire. `phase`: `intended`
    before the host is changed for a claim, `done` after. `since` in seconds of the Unix clock.
    """

    resource: str
    unit: str
    api: Api
    occupies: frozenset[str]
    touches: frozenset[str] = frozenset()
    holder: str = ""
    answer: bytes = b""
    phase: Phase = "done"
    boot_id: str
    since: float

    @property
    def key(self) -> LeaseKey:
        """What the lease is found by: there is one lease per resource, API and unit."""
        return (self.resource, self.api, self.unit)

    @property
    def party(self) -> tuple[str, Api]:
        """Who it is that holds: leases of one party do not get in each other's way."""
        return (self.holder if self.api == "dra" else self.resource, self.api)


class Obstacles(Struct, frozen=True):
    """What leases take, by device, as a party sees it that holds none of them."""

    occupied: Mapping[str, Lease] = {}
    touched: Mapping[str, Lease] = {}

    def __bool__(self) -> bool:
        """Tell whether anything is taken."""
        return bool(self.occupied or self.touched)

    def why_not(self, occupies: Iterable[str], touches: Iterable[str] = ()) -> str:
        """Return who has a device that a new lease would need, in words; empty when nobody does."""
        whole = sorted(occupies)
        for device in (*whole, *sorted(touches)):
            held = self.occupied.get(device) or (self.touched.get(device) if device in whole else None)
            if held is not None:
                return f"{held.resource} ({held.api}) has given {held.unit} to {held.holder or _UNKNOWN_HOLDER}"
        return ""


class Change(Struct, frozen=True):
    """A step from one book to the next: leases that end, then leases that begin."""

    book: "Book"
    ended: tuple[Lease, ...] = ()
    begun: tuple[Lease, ...] = ()


class Book:
    """All leases at one moment. Never changes: each operation returns the step to the next book."""

    def __init__(self, leases: Iterable[Lease] = ()) -> None:
        """Take leases as they are: they were checked when they were granted."""
        self._leases: dict[LeaseKey, Lease] = {}
        self._occupied: _Parties = {}
        self._touched: _Parties = {}
        for lease in leases:
            self._add(lease)

    def __iter__(self) -> Iterator[Lease]:
        """Iterate over the leases in the order of their grants."""
        return iter(self._leases.values())

    def __len__(self) -> int:
        """Count the leases."""
        return len(self._leases)

    def __eq__(self, other: object) -> bool:
        """Tell whether both hold the same leases."""
        return isinstance(other, Book) and self._leases == other._leases

    def grant(self, wanted: Sequence[Lease]) -> Change:
        """Add all of `wanted` or none. Raises `LeaseRefused` with the first obstacle."""
        book = self._copy()
        seen: set[LeaseKey] = set()
        ended: list[Lease] = []
        for lease in wanted:
            if lease.key in seen:
                raise LeaseRefused(
                    f"device {lease.unit}: asked for twice in one request of {lease.resource}; name it once", lease.unit
                )
            seen.add(lease.key)
            old = book._leases.get(lease.key)
            if old is not None:
                if lease.api == "dra" and old.holder != lease.holder:
                    raise _refusal(lease, old, lease.unit, "a unit has one claim at a time")
                book._drop(old)
                ended.append(old)
        for lease in wanted:
            book._check(lease)
            book._add(lease)
        return Change(book, tuple(ended), tuple(wanted))

    def obstacles(self, api: Api) -> Obstacles:
        """Return what the other API than `api` has handed out."""
        others = [lease for lease in self if lease.api != api]
        return Obstacles(
            {device: lease for lease in others for device in lease.occupies},
            {device: lease for lease in others for device in lease.touches},
        )

    def end(self, which: Callable[[Lease], bool]) -> Change:
        """End the leases for which `which` is true."""
        ended = tuple(lease for lease in self if which(lease))
        return self._step(ended, ())

    def reconcile(
        self, api: Api, held: Mapping[tuple[str, str], str], judged_before: float, ended_before: float, boot_id: str
    ) -> Change:
        """Follow what the kubelet says: `held` maps (resource, unit) to its holder.

        Leases of `api` that it does not name end if they were granted before `ended_before`. Those that it names and
        that were granted before `judged_before` take the holder and this boot's id. Times as in `Lease.since`.
        """
        ended: list[Lease] = []
        begun: list[Lease] = []
        for lease in self:
            holder = held.get((lease.resource, lease.unit))
            if lease.api != api:
                continue
            if holder is None:
                if lease.since < ended_before:
                    ended.append(lease)
            elif lease.since < judged_before and (lease.holder, lease.boot_id) != (holder, boot_id):
                ended.append(lease)
                begun.append(replace(lease, holder=holder, boot_id=boot_id))
        return self._step(tuple(ended), tuple(begun))

    def _step(self, ended: tuple[Lease, ...], begun: tuple[Lease, ...]) -> Change:
        if not ended and not begun:
            return Change(self)
        book = self._copy()
        for lease in ended:
            book._drop(lease)
        for lease in begun:
            book._add(lease)
        return Change(book, ended, begun)

    def _check(self, lease: Lease) -> None:
        mine = lease.party
        for device in sorted(lease.occupies | lease.touches):
            others = self._occupied.get(device, {}).keys() - {mine}
            if others:
                raise _refusal(lease, self._find(device, others), device, "a device has one holder at a time")
            others = self._touched.get(device, {}).keys() - {mine}
            if others and device in lease.occupies:
                rule = "a device is handed out whole or in parts"
                raise _refusal(lease, self._find(device, others), device, rule)

    def _find(self, device: str, parties: Iterable[_Party]) -> Lease:
        wanted = frozenset(parties)
        return next(x for x in self if x.party in wanted and (device in x.occupies or device in x.touches))

    def _copy(self) -> "Book":
        book = Book()
        book._leases = dict(self._leases)
        book._occupied = dict(self._occupied)
        book._touched = dict(self._touched)
        return book

    def _add(self, lease: Lease) -> None:
        self._leases[lease.key] = lease
        self._count(lease, 1)

    def _drop(self, lease: Lease) -> None:
        del self._leases[lease.key]
        self._count(lease, -1)

    def _count(self, lease: Lease, by: int) -> None:
        party = lease.party
        for index, devices in ((self._occupied, lease.occupies), (self._touched, lease.touches)):
            for device in devices:
                parties = dict(index.get(device, {}))  # a copy: other books share the inner mappings
                parties[party] = parties.get(party, 0) + by
                if not parties[party]:
                    del parties[party]
                if parties:
                    index[device] = parties
                else:
                    del index[device]


def _refusal(wanted: Lease, held: Lease, device: str, rule: str) -> LeaseRefused:
    owner = held.holder or _UNKNOWN_HOLDER
    way_out = "unprepare that claim first" if held.api == "dra" else "end that pod, or leave the device to one resource"
    return LeaseRefused(
        f"device {device}: {wanted.resource} cannot hand out {wanted.unit}, because {held.resource} ({held.api}) has"
        f" given {held.unit} to {owner}; {rule}; {way_out}",
        device,
    )
