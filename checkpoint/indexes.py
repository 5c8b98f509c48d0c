"""Indexes of leases that are small if each name has one lease, as nearly all of ten thousand units have.

A dict for one key takes 250 bytes, and there were three of them for each lease: more than the lease itself. So a name
with one key stores only that key, and a dict from the second key on. The cost of each operation depends only on what it
changes.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from checkpoint.lease import Lease, LeaseKey

_N = TypeVar("_N")


class KeysByName(Generic[_N]):
    """The leases of each name, in the order of their addition."""

    def __init__(self) -> None:
        """Start empty."""
        self._single: dict[_N, LeaseKey] = {}
        self._several: dict[_N, dict[LeaseKey, None]] = {}

    def add(self, name: _N, key: "LeaseKey") -> None:
        """Add a lease that the name does not have yet."""
        if name in self._several:
            self._several[name][key] = None
        elif (first := self._single.pop(name, None)) is not None:
            self._several[name] = {first: None, key: None}
        else:
            self._single[name] = key

    def remove(self, name: _N, key: "LeaseKey") -> None:
        """Remove a name's lease. Raises KeyError if the name does not have it."""
        if name not in self._several:
            del self._single[name]
            return
        keys = self._several[name]
        del keys[key]
        if not keys:
            del self._several[name]

    def of(self, name: _N) -> "Collection[LeaseKey]":
        """Return the leases of a name."""
        return (self._single[name],) if name in self._single else self._several.get(name, {}).keys()

    def names(self) -> Iterator[_N]:
        """Yield the names that have leases."""
        yield from self._single
        yield from self._several


class KeysByDevice:
    """The leases that have each device, by owner, in the order of their addition."""

    def __init__(self, leases: "Mapping[LeaseKey, Lease]") -> None:
        """Start empty; `leases` contains every lease that is in this index."""
        self._leases = leases
        self._single: dict[str, LeaseKey] = {}
        self._several: dict[str, dict[str, dict[LeaseKey, None]]] = {}

    def add(self, device: str, lease: "Lease", key: "LeaseKey") -> None:
        """Add a device of a lease."""
        if device not in self._several:
            first = self._single.pop(device, None)
            if first is None:
                self._single[device] = key
                return
            self._several[device] = {self._leases[first].owner: {first: None}}
        self._several[device].setdefault(lease.owner, {})[key] = None

    def remove(self, device: str, lease: "Lease", key: "LeaseKey") -> None:
        """Remove a device of a lease. Raises KeyError if the lease does not have it."""
        owners = self._several.get(device)
        if owners is None:
            del self._single[device]
            return
        del owners[lease.owner][key]
        if not owners[lease.owner]:
            del owners[lease.owner]
        if not owners:
            del self._several[device]

    def of(self, device: str) -> "Iterator[Lease]":
        """Yield the leases that have a device."""
        if device in self._single:
            yield self._leases[self._single[device]]
        for keys in self._several.get(device, {}).values():
            yield from (self._leases[key] for key in keys)

    def of_others(self, device: str, owner: str) -> "Iterator[Lease]":
        """Yield one lease of each other owner that has a device."""
        if device in self._single:
            lease = self._leases[self._single[device]]
            if lease.owner != owner:
                yield lease
        for other, keys in self._several.get(device, {}).items():
            if other != owner:
                yield self._leases[next(iter(keys))]
