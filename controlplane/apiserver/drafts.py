"""Writes that take long: worked out in a thread while others are answered, stored if nothing came between.

Those are writes of large objects and of expressions, which are compiled, and those that a policy judges.

It is what a real server does with every write: it reads, works, and stores only what still follows what it has read.
"""

import asyncio
from collections.abc import Callable, Sequence

from controlplane.apiserver.admission import POLICIES
from controlplane.apiserver.bodies import LONG
from controlplane.apiserver.definitions.custom_kinds import KIND_ID as DEFINITIONS
from controlplane.apiserver.kinds import Key, Kind, Plain
from controlplane.apiserver.preconditions import check_namespace
from controlplane.apiserver.quotas import Charge
from controlplane.apiserver.rest import Outcome, Rest
from controlplane.apiserver.service_addresses import SERVICES, has_own_addresses
from controlplane.apiserver.stored_size import has_many_values
from controlplane.apiserver.target import Target

_MANY = 2000
"""Values of an object whose rules, and owners of fields, take some tens of milliseconds."""
_COMPILED = (
    DEFINITIONS,
    POLICIES,
    "deviceclasses.resource.k8s.io",
    "resourceclaims.resource.k8s.io",
    "resourceclaimtemplates.resource.k8s.io",
)
"""Kinds with expressions: 60 KiB of them take half a second."""
_TRIES = 5
"""After which a write that always finds something else has the loop for itself, and with it the last word."""

Write = Callable[[Rest], Outcome]


async def write_apart(rest: Rest, target: Target, size: int, write: Write) -> Outcome:
    """What a write with a body of `size` bytes does, as `write(rest)` does it; raises ApiError as that does."""
    old = rest.find(target.kind, target.key) if target.name else None
    is_compiled = target.kind.id in _COMPILED and not target.subresource
    is_large = size >= LONG or (old is not None and has_many_values(old, _MANY))
    if not (is_large or is_compiled or rest.is_judged(target.kind)):
        return write(rest)
    for _ in range(_TRIES):
        draft = _Draft(rest)
        outcome = await asyncio.to_thread(write, draft)
        if draft.is_current():
            return draft.finish(target, outcome)
    return write(rest)


class _Draft(Rest):
    """Verbs that store nothing yet: what they have looked for is kept, and what they would store or remove."""

    def __init__(self, rest: Rest) -> None:
        vars(self).update(vars(rest))
        self._rest = rest
        self._found: dict[tuple[str, Key], Plain | None] = {}
        self._writes: list[tuple[Kind, Key, Plain | None]] = []  # None for what goes
        self._charge: Charge | None = None
        self._gone: Plain | None = None  # what has been removed last

    def find(self, kind: Kind, key: Key) -> Plain | None:
        for written, where, obj in reversed(self._writes):
            if (written.table, where) == (kind.table, key):
                return obj
        return self._found.setdefault((kind.table, key), super().find(kind, key))

    def charged(self, charge: Charge) -> list[Plain]:
        self._charge = charge  # when it is stored: many could fit, each by itself
        return []

    def put(self, kind: Kind, key: Key, obj: Plain, charged: Sequence[Plain] = ()) -> Plain:
        del charged
        self._writes.append((kind, key, obj))
        return obj

    def remove(self, kind: Kind, key: Key) -> Plain:
        self._gone = self.find(kind, key) or {}
        self._writes.append((kind, key, None))
        return self._gone

    def is_current(self) -> bool:
        """Whether everything is still as it was found, and no other service has what one was given."""
        services = [obj for kind, _, obj in self._writes if kind.id == SERVICES and obj is not None]
        return all(self.store.get(table, key) is obj for (table, key), obj in self._found.items()) and all(
            has_own_addresses(self.store, service) for service in services
        )

    def finish(self, target: Target, outcome: Outcome) -> Outcome:
        """Store what has been worked out."""
        if outcome.is_new:
            check_namespace(self.store, target, outcome.object["metadata"]["name"])  # which may be ending by now
        is_told_of_gone = outcome.object is self._gone
        charged = self._rest.charged(self._charge) if self._charge is not None else []
        for kind, key, obj in self._writes:
            if obj is not None:
                outcome = outcome._replace(object=self._rest.put(kind, key, obj, charged))
                charged = []
                continue
            gone = self._rest.remove(kind, key)
            if is_told_of_gone:
                outcome = outcome._replace(object=gone)
        return outcome
