"""`release`: end the lease of a unit by hand, or all leases of a claim (`checkpoint.Reconciler.release`)."""

from msgspec import Struct

from checkpoint import Api, LedgerUnavailable, ReleaseRefused
from nodeplug.control.leases import LeaseView, view
from nodeplug.control.protocol import Refusal
from nodeplug.control.running import RunningDaemon


class Question(Struct, frozen=True, tag_field="question", tag="release"):
    """End the lease of this unit; with `force` even if a witness reports that it is held."""

    resource: str
    api: Api
    unit: str
    force: bool = False


class Answer(Struct, frozen=True):
    """The leases that ended."""

    leases: tuple[LeaseView, ...]


async def answer(running: RunningDaemon, question: Question) -> Answer:
    """Answer `release`. Raises `Refusal`."""
    key = (question.resource, question.api, question.unit)
    lease = running.ledger.get(key)
    if lease is None:
        raise Refusal(f"{question.resource} ({question.api}) has no lease of {question.unit}")
    try:
        ended = await running.reconciler.release(lease, force=question.force)
    except (ReleaseRefused, LedgerUnavailable) as error:
        raise Refusal(str(error)) from None
    if not ended:
        now = running.ledger.get(key) or lease  # a pod may have been granted the unit meanwhile
        raise Refusal(f"{now}, and a request for it is in progress or was answered just now; try again if you mean it")
    return Answer(tuple(map(view, ended)))
