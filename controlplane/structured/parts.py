"""Parts of a problem that are searched alone. If a part has no solution, the whole has none either.

A search tries every choice for its first requests before it finds that a later request has no solution. So each
request, and then each claim, is searched by itself, which usually takes a few steps. The conclusion holds only if more
picks never help: no device raises an error, which would also end the search, and none gives counters back.
"""

from collections.abc import Callable, Sequence
from itertools import count

from controlplane.structured.problem import TaskClaim
from controlplane.structured.search import Pruning, Search

_MIN_STEPS = 64


class _StepsExhausted(Exception):
    """A part's search has used up its steps."""


class Parts:
    """The parts of a search's problem that might still have no solution."""

    def __init__(self, search: Search, pruning: Callable[[Search], Pruning]) -> None:
        self._search = search
        self._pruning = pruning
        gives_back = search.with_counters and any(
            amount < 0 for draw in search.layout.draws.values() for amount in draw.values()
        )
        self._unknown = [] if gives_back else _parts_of(search.claims)

    def has_unsolvable_part(self, steps: int) -> bool:
        """Return whether a part is found to have no solution. The parts share the limit of `steps`."""
        unknown = []
        for part in self._unknown:
            try:
                if not self._has_solution(part, max(steps // len(self._unknown), _MIN_STEPS)):
                    return True
            except _StepsExhausted:
                unknown.append(part)
        self._unknown = unknown
        return False

    def _has_solution(self, part: TaskClaim, steps: int) -> bool:
        search = self._search
        made = count()

        def check() -> None:
            if search.check is not None:
                search.check()
            if next(made) > steps:
                raise _StepsExhausted

        return Search(search.layout, [part], search.holdings, search.features, check, self._pruning).run()


def _parts_of(claims: Sequence[TaskClaim]) -> list[TaskClaim]:
    requests = [claim._replace(requests=[request]) for claim in claims for request in claim.requests]
    whole = [claim for claim in claims if len(claim.requests) > 1] if len(claims) > 1 else []
    return [*requests, *whole] if len(requests) > 1 else []
