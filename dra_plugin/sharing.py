"""Who has how much of a device that several can have: never more than it has, nor more holders than a class allows.

The scheduler sees to the amounts (shares, other capacities, the counters of a layout), but it forgets a claim whose pod
was deleted by force, and whose container may still run. Of a class's limit it knows nothing: what is refused here is
tried again by the kubelet until somebody else lets go. A claim's limit holds for as long as the claim has the device,
also for those that come later without one.
"""

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import add

from msgspec import Struct

from checkpoint import Ledger
from dra_plugin.errors import DraPluginError
from resourceapi.objects import Quantity

_NAMED = 5  # holders


class TooMany(DraPluginError):
    """A device has too little left, or as many holders as one of them allows; says who they are, or whose limit."""


class Holding(Struct, frozen=True):
    """What a claim has of a device: it `takes` quantities of what the device `has`; `maximum` holders, 0 for any."""

    has: Mapping[str, str]
    takes: Mapping[str, str]
    maximum: int = 0


class Sharing:
    """The claims that have parts of devices. `Ledger` knows what the other API has given out."""

    def __init__(self, ledger: Ledger) -> None:
        """Start without claims."""
        self._ledger = ledger
        self._claims: dict[str, Mapping[str, Holding]] = {}

    def resume(self, uid: str, holdings: Mapping[str, Holding]) -> None:
        """Take note of a claim that has its devices already; `holdings` by the device's id, as for `enter`."""
        self._claims[uid] = holdings

    def enter(self, uid: str, holdings: Mapping[str, Holding]) -> None:
        """Let a claim have parts of devices, by the device's id. Raises `TooMany`. Repeating changes nothing."""
        for device, own in holdings.items():
            others = {each: said[device] for each, said in self._claims.items() if each != uid and device in said}
            if uid not in self._claims:  # or it has what it has, though there may be less now
                _check_amounts(device, own, others)
            _check_limits(device, uid, own, others, self._pods(device))
        self._claims[uid] = holdings

    def leave(self, uid: str) -> None:
        """Take note that a claim has nothing any more."""
        self._claims.pop(uid, None)

    def _pods(self, device: str) -> int:
        return sum(x.api != "dra" and device in x.occupies | x.touches for x in self._ledger.leases())


def _check_amounts(device: str, own: Holding, others: Mapping[str, Holding]) -> None:
    for name, wanted in own.takes.items():
        holders = {each: said.takes[name] for each, said in others.items() if name in said.takes}
        taken = reduce(add, map(Quantity.parse, holders.values()), Quantity.of(0))
        if holders and taken + Quantity.parse(wanted) > Quantity.parse(own.has[name]):
            raise TooMany(
                f"device {device}: of {own.has[name]} {name} {taken} are taken by {_some(holders)}, and this claim"
                f" needs {wanted}; end one of them first"
            )


def _check_limits(device: str, uid: str, own: Holding, others: Mapping[str, Holding], pods: int) -> None:
    limits = {each: said.maximum for each, said in {**others, uid: own}.items() if said.maximum}
    if not limits:
        return
    whose = min(limits, key=lambda each: (limits[each], each != uid))
    holders = len(others) + pods
    if holders + 1 > limits[whose]:
        by = "this claim" if whose == uid else f"claim/{whose}"
        raise TooMany(
            f"device {device}: {holders} use it already and the configuration of {by} allows {limits[whose]} at once"
            " (sharing.maximum); end one of them first"
        )


def _some(claims: Iterable[str]) -> str:
    named = [f"claim/{each}" for each in claims]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return f"{', '.join(named[:_NAMED])}{more}"
