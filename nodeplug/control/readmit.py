"""`readmit`: allow new pods to get a withheld device again, also one that is unplugged."""

from collections.abc import Set

from msgspec import Struct

from checkpoint import LedgerUnavailable
from nodeplug.config.document import suggestion
from nodeplug.control.explain import facts_of, find
from nodeplug.control.protocol import Refusal
from nodeplug.control.running import RunningDaemon
from nodeplug.control.status import WithheldView, withheld


class Question(Struct, frozen=True, tag_field="question", tag="readmit"):
    """Readmit this device (its id, a node, the kernel's name)."""

    device: str


class Answer(Struct, frozen=True):
    """The devices that were withheld, and are no longer."""

    readmitted: tuple[WithheldView, ...]


async def answer(running: RunningDaemon, question: Question) -> Answer:
    """Answer `readmit`. Raises `Refusal`."""
    ids = await _ids_to_readmit(running, question.device)
    before = tuple(x for x in withheld(running) if x.device in ids)
    try:
        await running.ledger.readmit(ids)
    except LedgerUnavailable as error:
        raise Refusal(str(error)) from None
    return Answer(before)


async def _ids_to_readmit(running: RunningDaemon, name: str) -> Set[str]:
    """Return the withheld ids that a name means: one, or those of a group's members. Raises `Refusal`."""
    known = running.ledger.withheld
    if name in known:
        return {name}
    device = find(await facts_of(running), name)
    if device is None:
        hint = suggestion(name, known) if known else "nothing is withheld"
        raise Refusal(f"{name} is neither withheld nor a device here; {hint or '`nodeplug status` lists what is'}")
    if ids := device.ids & known.keys():
        return ids
    if whole := next((i for i in device.parents if i in known), ""):
        raise Refusal(f"{device.id} is withheld with {whole}, which it is a part of; readmit {whole}")
    raise Refusal(f"{device.id} is not withheld")
