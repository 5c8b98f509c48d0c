"""The holders of a shared device: never more than its capacity, nor more than a class allows.

The scheduler enforces the amounts (shares, other capacities, the counters of a layout), but it forgets a claim whose
pod was deleted by force and whose container might still run. It does not know a class's limit: the kubelet repeats a
refused call until another holder ends. A claim's limit applies while the claim has the device, also to later claims
without a limit. The leases are the only record of the holders.
"""

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import add

from checkpoint import LeaseRefused
from checkpoint.lease import Book, claim_owner
from dra_plugin.preparing.claim_record import Holding, record_of
from resourceapi.objects import Quantity

_MAX_HOLDERS = 5  # holders that a text names


def check_shares(book: Book, uid: str, holdings: Mapping[str, Holding]) -> None:
    """Raise `LeaseRefused` if a claim cannot have parts of devices, by device id; what it has already it keeps."""
    owner = claim_owner(uid)
    for device, own in holdings.items():
        others: dict[str, Holding] = {}
        pods = 0
        for lease in book.of_device(device):
            if lease.api != "dra":
                pods += 1
            elif lease.owner != owner and (record := record_of(lease)) is not None and device in record.shared:
                others[lease.owner] = record.shared[device]
        if not book.of_owner(owner):  # a claim keeps what it has, even if the capacity is smaller now
            _check_amounts(device, own, others)
        _check_limits(device, owner, own, others, pods)


def _check_amounts(device: str, own: Holding, others: Mapping[str, Holding]) -> None:
    for name, needed in own.takes.items():
        holders = {each: held.takes[name] for each, held in others.items() if name in held.takes}
        taken = reduce(add, map(Quantity.parse, holders.values()), Quantity.of(0))
        if holders and taken + Quantity.parse(needed) > Quantity.parse(own.has[name]):
            raise LeaseRefused(
                f"device {device}: of {own.has[name]} {name} {taken} are taken by {_abbreviated(holders)}, and this"
                f" claim needs {needed}; end one of them first",
                device,
            )


def _check_limits(device: str, owner: str, own: Holding, others: Mapping[str, Holding], pods: int) -> None:
    limits = {each: held.maximum for each, held in {**others, owner: own}.items() if held.maximum}
    if not limits:
        return
    strictest = min(limits, key=lambda each: (limits[each], each != owner))
    holders = len(others) + pods
    if holders + 1 > limits[strictest]:
        source = "this claim" if strictest == owner else strictest
        raise LeaseRefused(
            f"device {device}: {holders} use it already and the configuration of {source} allows {limits[strictest]} at"
            " once (sharing.maximum); end one of them first",
            device,
        )


def _abbreviated(claims: Iterable[str]) -> str:
    names = list(claims)
    rest = f" and {len(names) - _MAX_HOLDERS} more" if len(names) > _MAX_HOLDERS else ""
    return f"{', '.join(names[:_MAX_HOLDERS])}{rest}"
