"""How many hold a shared device at once: never more than it has shares, nor than a DeviceClass allows.

The scheduler sees to the shares, but it forgets a claim whose pod was deleted by force, and whose container may still
run. Of a class's limit it knows nothing: what is refused here is tried again by the kubelet until somebody else lets
go. A claim's limit holds for as long as the claim has the device, also for those that come later without one.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from checkpoint import Ledger
from dra_plugin.errors import DraPluginError

_NAMED = 5  # holders


class TooMany(DraPluginError):
    """A device has no share left, or as many holders as one of them allows; says who they are, or whose limit it is."""


class Holding(Struct, frozen=True):
    """What a claim has of a shared device: `taken` of its `shares`; `maximum` is the most holders, 0 for no limit."""

    shares: int
    taken: int = 1
    maximum: int = 0


class Sharing:
    """The claims that have shared devices. `Ledger` knows what the other API has given out."""

    def __init__(self, ledger: Ledger) -> None:
        """Start without claims."""
        self._ledger = ledger
        self._claims: dict[str, Mapping[str, Holding]] = {}

    def resume(self, uid: str, holdings: Mapping[str, Holding]) -> None:
        """Take note of a claim that has its devices already; `holdings` by the device's id, as for `enter`."""
        self._claims[uid] = holdings

    def enter(self, uid: str, holdings: Mapping[str, Holding]) -> None:
        """Let a claim have shares of devices, by the device's id. Raises `TooMany`. Repeating changes nothing."""
        for device, own in holdings.items():
            others = {each: said[device] for each, said in self._claims.items() if each != uid and device in said}
            pods = self._pods(device)
            if uid not in self._claims:  # or it has its share, though there may be fewer now
                _check_shares(device, own, others, pods)
            _check_limits(device, uid, own, others, pods)
        self._claims[uid] = holdings

    def leave(self, uid: str) -> None:
        """Take note that a claim has nothing any more."""
        self._claims.pop(uid, None)

    def _pods(self, device: str) -> int:
        return sum(x.api != "dra" and device in x.occupies | x.touches for x in self._ledger.leases())


def _check_shares(device: str, own: Holding, others: Mapping[str, Holding], pods: int) -> None:
    taken = sum(each.taken for each in others.values()) + pods
    if taken + own.taken > own.shares:
        raise TooMany(
            f"device {device}: {taken} of its {own.shares} shares are taken{_by(others)}, and this claim needs"
            f" {own.taken}; end one of them first"
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


def _by(claims: Iterable[str]) -> str:
    named = [f"claim/{each}" for each in claims]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return f" by {', '.join(named[:_NAMED])}{more}" if named else ""
