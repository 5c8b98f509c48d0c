"""Events of leases and of withheld devices, from each transaction of the ledger.

A unit is allocated before the kubelet reports its pod: then `allocated` has no holder, and `holder-known` follows.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from checkpoint import Lease, Ledger
from checkpoint.lease import UNREPORTED_POD, Change
from telemetry import EventKind, EventLog

MAX_NAMED = 5  # the most units, or devices, that one event names


def observe_ledger(events: EventLog, ledger: Ledger) -> None:
    """Record from now on what a ledger's transactions change, and files of it that are set aside."""
    recorded: set[Path] = set()

    def changed(leases: Sequence[Lease] | None) -> None:
        for each in ledger.set_aside if leases is None else ():
            if each.path not in recorded:
                recorded.add(each.path)
                message = f"the lease database could not be used ({each.reason}); it is kept as {each.path.name}"
                events.record("set-aside", message)

    ledger.observe(changed)
    ledger.observe_commits(partial(record_commits, events))


def record_commits(events: EventLog, changes: Sequence[Change]) -> None:
    """Record the changes of transactions that have reached the disk."""
    for change in changes:
        released, allocated = _moved(change)
        _record(events, "released", "no longer with", released)
        _record(events, "allocated", "allocated to", allocated)
        if change.updated:
            learned = [new for old, new in change.updated if new.holder and new.holder != old.holder]
            _record(events, "holder-known", "is with", learned)
        for each in change.withheld:
            events.record("withheld", each.reason or "no new pod gets it", device=each.device)
        for each in change.readmitted:
            if not any(x.device == each.device for x in change.withheld):  # else it is withheld for another reason
                events.record("readmitted", "new pods can get it again", device=each.device)


def _moved(change: Change) -> tuple[list[Lease], list[Lease]]:
    """Return the leases that their holders no longer have, and those that they have received.

    A claim's lease is granted twice, before the host is changed and after: it counts after.
    """
    ended = {x.key: x for x in change.ended}
    granted = [*change.renewed, *((ended.pop(x.key, None), x) for x in change.begun)]
    released, allocated = [x for x in ended.values() if x.phase == "done"], []
    for old, new in granted:
        if old is not None and old.phase == "done":
            if new.api == "dra" and new.owner == old.owner:
                continue  # the claim still has it
            released.append(old)
        if new.phase == "done":
            allocated.append(new)
    return released, allocated


def _record(events: EventLog, kind: EventKind, words: str, leases: Sequence[Lease]) -> None:
    if len(leases) < 2:  # nearly always, and with each Allocate
        for lease in leases:
            message = f"{words} {holder_in_words(lease.holder)}"
            events.record(kind, message, resource=lease.resource, device=lease.unit, holder=lease.holder)
        return
    groups: dict[tuple[str, str], list[str]] = {}
    for lease in leases:
        groups.setdefault((lease.resource, lease.holder), []).append(lease.unit)
    for (resource, holder), units in groups.items():
        more = f": {len(units)} units" if len(units) > MAX_NAMED else ""
        message = f"{words} {holder_in_words(holder)}{more}"
        events.record(kind, message, resource=resource, device=device_names(units), holder=holder)


def device_names(devices: Sequence[str]) -> str:
    """Return the first of some devices, separated by commas."""
    return devices[0] if len(devices) == 1 else ",".join(devices[:MAX_NAMED])


def holder_in_words(holder: str) -> str:
    """Return a lease's holder in words."""
    match holder.split("/") if holder else ():
        case ["pod", namespace, pod, container]:
            return f"pod {namespace}/{pod}, container {container}"
        case ["claim", namespace, claim, _]:
            return f"claim {namespace}/{claim}"
        case ["claim", uid]:
            return f"claim {uid}"
    return UNREPORTED_POD
