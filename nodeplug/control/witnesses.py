"""`witnesses`: one lease, and what each witness reports about it now."""

from msgspec import Struct

from checkpoint import Api
from checkpoint.statements import Statement
from nodeplug.control.leases import LeaseView, view
from nodeplug.control.protocol import Refusal
from nodeplug.control.running import RunningDaemon


class Question(Struct, frozen=True, tag_field="question", tag="witnesses"):
    """What does each witness report about the lease of this unit?"""

    resource: str
    api: Api
    unit: str


class Answer(Struct, frozen=True):
    """The lease, and the statements of its witnesses; none if it has ended during the check."""

    lease: LeaseView
    statements: tuple[Statement, ...]


async def answer(running: RunningDaemon, question: Question) -> Answer:
    """Answer `witnesses`. Raises `Refusal` if there is no such lease."""
    lease = running.ledger.get((question.resource, question.api, question.unit))
    if lease is None:
        raise Refusal(f"{question.resource} ({question.api}) has no lease of {question.unit}")
    statements = await running.reconciler.statements(lease)
    return Answer(view(running.ledger.get(lease.key) or lease), statements)
