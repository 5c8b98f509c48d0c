"""Cuts in the search that cannot change which solution is found first.

A subtree can be cut if it has neither a solution nor an error. There are five cuts:

- too few devices remain for a request;
- after a device failed, all devices that are equivalent to it fail too;
- a state that failed once fails again; states that differ only in equivalent devices count as the same;
- the remaining requests cannot be served (see `bounds`);
- a single request or claim has no solution even without the others (see `parts`), so that the problem has none.

The last four need the result of every selector on every device, so they start only after some failures: a search that
succeeds at once never pays for them. An error ends the search just as a solution does, so a device that raises one is
equivalent to no other.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from marshal import dumps

from controlplane.structured.bounds import Bounds, can_raise
from controlplane.structured.capacity import billionths
from controlplane.structured.parts import Parts
from controlplane.structured.problem import Task
from controlplane.structured.requests import MAX_RESULTS
from controlplane.structured.search import Frame, Search

_MAX_STATES = 200_000
DEFAULT_FAILURES_BEFORE_PRUNING = 16
"""The number of failures after which pruning starts."""


class Pruner:
    """The cuts for one search."""

    def __init__(self, search: Search, failures_before_pruning: int = DEFAULT_FAILURES_BEFORE_PRUNING) -> None:
        self._search = search
        self._failures_before_pruning = failures_before_pruning
        self._failures = 0
        self._is_engaged = False
        self._class_of: dict[int, int] = {}
        self._members: list[int] = []
        self._failed_states: set[bytes] = set()
        self._has_admin = False
        self._bounds: Bounds | None = None
        self._parts: Parts | None = None
        self._next_parts = 0  # the number of steps at which the parts are searched next
        self._is_unsolvable = False

    def is_infeasible(self, frame: Frame, start: int, undecided: int) -> bool:
        """Return whether a decision that is about to be opened can be cut."""
        task = frame.task
        assert task is not None
        if not undecided and frame.remaining.bit_count() < task.count - frame.index:
            return True
        if not self._is_engaged:
            return False
        if self._parts is not None and self._search.steps >= self._next_parts:
            self._is_unsolvable = self._parts.has_unsolvable_part(self._search.steps)
            self._next_parts = 4 * self._search.steps
        if self._is_unsolvable:
            return True
        if self._bounds is not None and not undecided and not self._bounds.allow(frame):
            return True
        frame.key = self._state(frame, start)
        return frame.key in self._failed_states

    def failed(self, frame: Frame) -> None:
        """Record that a decision failed."""
        self._failures += 1
        if not self._is_engaged:
            if self._failures > self._failures_before_pruning:
                self._activate()
        elif frame.key is not None and len(self._failed_states) < _MAX_STATES:
            self._failed_states.add(frame.key)

    def equivalent_devices(self, position: int) -> int:
        """Return the devices that are equivalent to this one, which fail where it just failed."""
        number = self._class_of.get(position)
        if number is None:
            return 0
        search, members, bit = self._search, self._members[number], 1 << position
        if search.shareable & bit:
            if position in search.sharing:
                return 0
            for other in search.sharing:
                members &= ~(1 << other)
            return members
        return members & (search.taken if search.taken & bit else ~search.taken)

    def _activate(self) -> None:
        search = self._search
        self._is_engaged = True
        tasks = [task for claim in search.claims for request in claim.requests for task in request.tasks]
        for task in tasks:
            task.suitability.evaluate_all(search.check)
        self._has_admin = any(task.admin_access for task in tasks)
        has_errors = any(can_raise(task) for task in tasks)
        may_be_full = any(
            sum(max(task.count for task in request.tasks) for request in claim.requests) > MAX_RESULTS
            for claim in search.claims
        )
        # If a claim can exceed its limit, upstream gives up early and can miss errors that this search would raise.
        if not (has_errors and may_be_full):
            self._bounds = Bounds(search, tasks)
        if not has_errors:
            self._parts = Parts(search, lambda part: Pruner(part, self._failures_before_pruning))
        classes = [search.everything]
        for mask in _distinctions(search, tasks):
            classes = [part for one in classes for part in (one & mask, one & ~mask) if part & (part - 1)]
        for number, members in enumerate(classes):
            self._members.append(members)
            for bit in _bits(members):
                self._class_of[bit.bit_length() - 1] = number

    def _state(self, frame: Frame, start: int) -> bytes:
        """A digest of everything that decides what can follow; equivalent devices are treated as the same."""
        search = self._search
        class_of = self._class_of.get
        taken = []
        for pick in search.picks:
            if not pick.is_shared:
                position = pick.position
                mine = self._has_admin and pick.claim == frame.claim
                taken.append((class_of(position, ~position), position >= start, mine))
        taken.sort()
        shares = []
        for position, held in search.sharing.items():
            totals: dict[str, int] = {}
            for amounts in held:
                for name, amount in amounts.items():
                    totals[name] = totals.get(name, 0) + billionths(amount)
            shares.append((class_of(position, ~position), position >= start, tuple(sorted(totals.items()))))
        shares.sort()
        constraints = [
            None if constraint.state is None else tuple(sorted(constraint.state))
            for constraint in search.constraints[frame.claim]
        ]
        state = (
            frame.claim,
            frame.request,
            id(frame.task),
            frame.index,
            start,
            search.results_in(frame.claim),
            tuple(taken),
            tuple(shares),
            tuple(constraints),
            tuple([(number, tuple(counters.taken)) for number, counters in sorted(search.counters.items())]),
        )
        # A state has kilobytes, and there can be many of them. Version 2 of the format depends on values only.
        return blake2b(dumps(state, 2), digest_size=16).digest()


def _distinctions(search: Search, tasks: Iterable[Task]) -> Iterator[int]:
    """Sets that distinguish devices: a device in the set can be treated differently from one outside it."""
    layout = search.layout
    for task in tasks:
        yield task.suitability.true & task.allowed
        special = task.suitability.failed
        if task.positions is not None and task.constraints:
            special |= task.suitability.true  # the device that is refused first decides which error is raised
        yield from _bits(special)
    yield from (search.shareable, search.holdings.exclusive, search.holdings.shared)
    for constraints in search.constraints:
        for constraint in constraints:
            yield constraint.attribute.present
            yield from constraint.attribute.with_value.values()
    groups: dict[object, int] = {}
    if search.with_counters:
        for position, draw in layout.draws.items():
            drawn = (layout.pool_numbers[position], *sorted(draw.items()))
            groups[drawn] = groups.get(drawn, 0) | 1 << position
    limited = search.shareable
    for position in search.holdings.capacity:
        limited |= 1 << position
    for bit in _bits(limited):
        position = bit.bit_length() - 1
        amounts = (
            tuple(sorted((name, repr(value)) for name, value in layout.device(position).capacity.items())),
            tuple(sorted((name, str(held)) for name, held in search.holdings.capacity.get(position, {}).items())),
        )
        groups[amounts] = groups.get(amounts, 0) | bit
    yield from groups.values()


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        mask ^= low
        yield low
