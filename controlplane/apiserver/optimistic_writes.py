"""Writes that take long: worked out in a thread while other requests are answered, stored if nothing changed meanwhile.

These are writes of large objects, of kinds whose expressions are compiled, and of objects to which a policy might
apply. A real server does this with every write: it reads, works, and stores only if what it has read is still current.
"""

import asyncio
from collections.abc import Callable, Sequence

from controlplane.apiserver.admission import GROUP, POLICIES
from controlplane.apiserver.bodies import LARGE_BODY
from controlplane.apiserver.definitions.custom_kinds import KIND_ID as DEFINITIONS
from controlplane.apiserver.kinds import Key, Kind, Plain
from controlplane.apiserver.preconditions import check_namespace
from controlplane.apiserver.quotas import Charge
from controlplane.apiserver.rest import Outcome, Rest
from controlplane.apiserver.service_addresses import SERVICES, has_own_addresses
from controlplane.apiserver.stored_size import has_many_values
from controlplane.apiserver.target import Target

_MANY_VALUES = 2000
"""The number of values from which an object's rules and field owners take some tens of milliseconds."""
_KINDS_WITH_EXPRESSIONS = (
    DEFINITIONS,
    POLICIES,
    f"mutatingadmissionpolicies.{GROUP}",
    f"mutatingwebhookconfigurations.{GROUP}",
    f"validatingwebhookconfigurations.{GROUP}",
    "deviceclasses.resource.k8s.io",
    "resourceclaims.resource.k8s.io",
    "resourceclaimtemplates.resource.k8s.io",
)
"""Kinds with expressions: compiling 60 KiB of them takes half a second."""
_MAX_TRIES = 5
"""After so many attempts that were overtaken, the write runs on the event loop, where no other can overtake it."""

Write = Callable[[Rest], Outcome]


async def write_off_loop(rest: Rest, target: Target, size: int, write: Write) -> Outcome:
    """Execute `write` with a body of `size` bytes, in a thread if it takes long. Raises what `write` raises."""
    old = rest.find(target.kind, target.key) if target.name else None
    is_compiled = target.kind.id in _KINDS_WITH_EXPRESSIONS and not target.subresource
    is_large = size >= LARGE_BODY or (old is not None and has_many_values(old, _MANY_VALUES))
    if not (is_large or is_compiled or rest.may_match_policy(target.kind)):
        return write(rest)
    for _ in range(_MAX_TRIES):
        attempt = _Attempt(rest)
        outcome = await asyncio.to_thread(write, attempt)
        if attempt.is_current():
            return attempt.finish(target, outcome)
    return write(rest)


class _Attempt(Rest):
    """Verbs that store nothing yet. It keeps what they have read, and what they would store or remove."""

    def __init__(self, rest: Rest) -> None:
        vars(self).update(vars(rest))
        self._rest = rest
        self._found: dict[tuple[str, Key], Plain | None] = {}
        self._writes: list[tuple[Kind, Key, Plain | None]] = []  # None for a removal
        self._charge: Charge | None = None
        self._removed: Plain | None = None  # the object that was removed last

    def find(self, kind: Kind, key: Key) -> Plain | None:
        for written, where, obj in reversed(self._writes):
            if (written.table, where) == (kind.table, key):
                return obj
        return self._found.setdefault((kind.table, key), super().find(kind, key))

    def updated_quotas(self, charge: Charge) -> list[Plain]:
        self._charge = charge  # charged when the write is stored: several attempts could each fit alone
        return []

    def put(self, kind: Kind, key: Key, obj: Plain, charged: Sequence[Plain] = ()) -> Plain:
        del charged
        self._writes.append((kind, key, obj))
        return obj

    def remove(self, kind: Kind, key: Key) -> Plain:
        self._removed = self.find(kind, key) or {}
        self._writes.append((kind, key, None))
        return self._removed

    def is_current(self) -> bool:
        """Return whether every object that was read is unchanged, and services' addresses are still unique."""
        services = [obj for kind, _, obj in self._writes if kind.id == SERVICES and obj is not None]
        return all(self.store.get(table, key) is obj for (table, key), obj in self._found.items()) and all(
            has_own_addresses(self.store, service) for service in services
        )

    def finish(self, target: Target, outcome: Outcome) -> Outcome:
        """Store the result of the attempt."""
        if outcome.is_new:
            check_namespace(self.store, target, outcome.object["metadata"]["name"])  # which can be terminating by now
        returns_removed = outcome.object is self._removed
        charged = self._rest.updated_quotas(self._charge) if self._charge is not None else []
        for kind, key, obj in self._writes:
            if obj is not None:
                outcome = outcome._replace(object=self._rest.put(kind, key, obj, charged))
                charged = []
                continue
            gone = self._rest.remove(kind, key)
            if returns_removed:
                outcome = outcome._replace(object=gone)
        return outcome
