"""`withhold`: keep a device from new pods until `readmit`; its holder keeps it (checkpoint/withheld.py)."""

import time
from collections.abc import Iterable, Set

from msgspec import Struct

from checkpoint import LedgerUnavailable, Withheld, WithholdRefused
from checkpoint.withheld import MAX_REASON_LENGTH
from hostdevices import Device
from nodeplug.config.document import suggestion
from nodeplug.control.explain import Facts, facts_of, find
from nodeplug.control.leases import LeaseView, view
from nodeplug.control.protocol import Refusal
from nodeplug.control.running import RunningDaemon
from nodeplug.control.status import WithheldView, withheld
from resources.groups import is_group_id


class Question(Struct, frozen=True, tag_field="question", tag="withhold"):
    """Withhold this device (its id, a node, the kernel's name), and why."""

    device: str
    reason: str = ""


class Answer(Struct, frozen=True):
    """What is withheld now: the device, or the members of a group; and the leases that have any part of it."""

    withheld: tuple[WithheldView, ...]
    leases: tuple[LeaseView, ...]


async def answer(running: RunningDaemon, question: Question) -> Answer:
    """Answer `withhold`, once it is on disk and the device gets no new holders. Raises `Refusal`."""
    reason = question.reason.strip()
    if len(reason) > MAX_REASON_LENGTH or not (reason.isprintable() or not reason):
        raise Refusal(f"a reason is one line of at most {MAX_REASON_LENGTH} characters")
    facts = await facts_of(running)
    ids = _ids_to_withhold(facts, question.device)
    try:
        await running.ledger.withhold([_withheld(running, i, reason) for i in sorted(ids)])
    except (LedgerUnavailable, WithholdRefused) as error:
        raise Refusal(str(error)) from None
    concerned = {i for x in facts.all_devices().values() if ids & x.ids.union(x.parents) for i in x.ids}
    held = tuple(view(x) for x in running.ledger.leases() if x.devices & (concerned | ids))
    return Answer(tuple(x for x in withheld(running) if x.device in ids), held)


def _withheld(running: RunningDaemon, device: str, reason: str) -> Withheld:
    """Return the record to write; a repetition without a reason keeps the earlier one."""
    known = running.ledger.withheld.get(device)
    return known if known is not None and not reason else Withheld(device, reason, time.time())


def _ids_to_withhold(facts: Facts, name: str) -> Set[str]:
    """Return the ids to withhold: for a group its members, with their parts, because the group can lose them later.

    Raises `Refusal`.
    """
    if name in facts.assignment.devices:
        has = ", ".join(x.id for x in facts.assignment.devices[name][:8]) or "none now"
        raise Refusal(f"{name} is a resource; withhold one of its devices: {has}")
    device = find(facts, name)
    if device is None:
        raise Refusal(f"there is no device {name} here; {_hint(name, facts.all_devices())}")
    alike = [x.id for x in facts.inventory.devices.values() if name != device.id and _has_name(x, name)]
    if len(alike) > 1:
        raise Refusal(f"several devices are called {name}: {', '.join(sorted(alike)[:8])}; name one by its id")
    if is_group_id(device.id, facts.assignment.owners.get(device.id, "?")):
        members = [x for i in device.children if (x := facts.inventory.devices.get(i)) is not None]
        return {x.id for x in members if not device.ids.intersection(x.parents)} or {device.id}
    return {device.id}


def _has_name(device: Device, name: str) -> bool:
    return device.name == name or any(name in (node.path, node.target) for node in device.devnodes)


def _hint(name: str, known: Iterable[str]) -> str:
    return suggestion(name, known) or "`nodeplug discover` lists the devices"
