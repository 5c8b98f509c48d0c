"""How many hold a shared device at once, where a DeviceClass says that it must not be as many as there are shares.

The scheduler does not know of it: what is refused here is tried again by the kubelet until somebody else lets go. A
claim's limit holds for as long as the claim has the device, also for those that come later without one.
"""

from collections.abc import Mapping

from checkpoint import Ledger
from dra_plugin.errors import DraPluginError


class TooMany(DraPluginError):
    """A device has as many holders as one of them allows; says whose limit it is."""


class Sharing:
    """The claims that have shared devices, and their limits. `Ledger` knows what the other API has given out."""

    def __init__(self, ledger: Ledger) -> None:
        """Start without claims."""
        self._ledger = ledger
        self._claims: dict[str, Mapping[str, int]] = {}

    def resume(self, uid: str, limits: Mapping[str, int]) -> None:
        """Take note of a claim that has its devices already; limits as for `enter`."""
        self._claims[uid] = limits

    def enter(self, uid: str, limits: Mapping[str, int]) -> None:
        """Let a claim have shared devices: the most holders at once by the device's id, 0 for no limit.

        Raises `TooMany`. Repeating changes nothing.
        """
        for device, own in limits.items():
            others = {each: said[device] for each, said in self._claims.items() if each != uid and device in said}
            asked = {each: limit for each, limit in {**others, uid: own}.items() if limit}
            if not asked:
                continue
            whose = min(asked, key=lambda each: (asked[each], each != uid))
            holders = len(others) + self._pods(device)
            if holders + 1 > asked[whose]:
                by = "this claim" if whose == uid else f"claim/{whose}"
                raise TooMany(
                    f"device {device}: {holders} use it already and the configuration of {by} allows {asked[whose]} at"
                    " once (sharing.maximum); end one of them first"
                )
        self._claims[uid] = limits

    def leave(self, uid: str) -> None:
        """Take note that a claim has nothing any more."""
        self._claims.pop(uid, None)

    def _pods(self, device: str) -> int:
        return sum(x.api != "dra" and device in x.occupies | x.touches for x in self._ledger.leases())
