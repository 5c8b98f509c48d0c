"""Cuts in the search that cannot change what is found first.

A subtree may be cut if it holds no solution and no error. Four cuts:

- too few devices are left for a request;
- after a device failed, those that nothing can tell apart from it fail too;
- a state that failed once fails again, where states are told apart up to such devices;
- the requests still to come cannot all be served even if constraints and counters are ignored (bipartite matching).

The last three need every selector on every device, so they start after some failures only: a search that finds its
way at once never pays for them. An error is an end of the search just as a solution is: the look ahead stops at a
request that could raise one, and a device that does is unlike any other.
"""

from collections.abc import Iterable

from controlplane.structured.problem import Task
from controlplane.structured.requests import MAX_RESULTS
from controlplane.structured.search import Frame, Search

_MAX_STATES = 200_000
DEFAULT_PATIENCE = 16
"""Failures after which the search looks ahead."""


class Pruner:
    """The cuts for one search."""

    def __init__(self, search: Search, patience: int = DEFAULT_PATIENCE) -> None:
        self._search = search
        self._patience = patience
        self._failures = 0
        self._engaged = False
        self._class_of: dict[int, int] = {}
        self._members: list[int] = []
        self._failed_states: set[object] = set()
        self._has_admin = False
        self._may_look_ahead = False

    def is_hopeless(self, frame: Frame, start: int, undecided: int) -> bool:
        """Whether a decision that is about to be opened can be cut."""
        task = frame.task
        assert task is not None
        if not undecided and frame.remaining.bit_count() < task.count - frame.index:
            return True
        if not self._engaged:
            return False
        if frame.index == 0 and self._may_look_ahead and not self._can_be_served(frame):
            return True
        frame.key = self._state(frame, start)
        return frame.key in self._failed_states

    def failed(self, frame: Frame) -> None:
        """A decision came to nothing."""
        self._failures += 1
        if not self._engaged:
            if self._failures > self._patience:
                self._engage()
        elif frame.key is not None and len(self._failed_states) < _MAX_STATES:
            self._failed_states.add(frame.key)

    def alike(self, position: int) -> int:
        """The devices that fail wherever this one just failed."""
        number = self._class_of.get(position)
        if number is None:
            return 0
        search, members, bit = self._search, self._members[number], 1 << position
        if search.multi & bit:
            if position in search.sharing:
                return 0
            for other in search.sharing:
                members &= ~(1 << other)
            return members
        return members & (search.taken if search.taken & bit else ~search.taken)

    # Looking ahead

    def _engage(self) -> None:
        search = self._search
        self._engaged = True
        tasks = [task for claim in search.claims for request in claim.requests for task in request.tasks]
        for task in tasks:
            task.suitability.evaluate_all()
        self._has_admin = any(task.admin_access for task in tasks)
        has_errors = any(_may_raise(task) for task in tasks)
        may_be_full = any(
            sum(max(task.count for task in request.tasks) for request in claim.requests) > MAX_RESULTS
            for claim in search.claims
        )
        # Where a claim can outgrow its limit, upstream gives up early and may pass by errors that we would find.
        self._may_look_ahead = not (has_errors and may_be_full)
        classes = [search.everything]
        for mask in _distinctions(search, tasks):
            classes = [part for one in classes for part in (one & mask, one & ~mask) if part & (part - 1)]
        for number, members in enumerate(classes):
            self._members.append(members)
            while members:
                low = members & -members
                members ^= low
                self._class_of[low.bit_length() - 1] = number

    def _state(self, frame: Frame, start: int) -> object:
        """All that decides what can follow, with devices that are alike called the same."""
        search = self._search
        class_of = self._class_of.get
        taken = []
        for pick in search.picks:
            if not pick.is_shared:
                position = pick.position
                mine = self._has_admin and pick.claim == frame.claim
                taken.append((class_of(position, ~position), position >= start, mine))
        taken.sort()
        shares: tuple[object, ...] = ()
        if search.sharing:
            shares = tuple(
                sorted(
                    (
                        class_of(position, ~position),
                        position >= start,
                        tuple(sorted(tuple(sorted((k, str(v)) for k, v in amounts.items())) for amounts in held)),
                    )
                    for position, held in search.sharing.items()
                )
            )
        return (
            frame.claim,
            frame.request,
            id(frame.task),
            frame.index,
            start,
            search.results_in(frame.claim),
            tuple(taken),
            shares,
            tuple([constraint.state for constraint in search.constraints[frame.claim]]),
            tuple([(number, tuple(counters.taken)) for number, counters in sorted(search.counters.items())]),
        )

    def _can_be_served(self, frame: Frame) -> bool:
        """Whether this request and those to come could be served if only the devices mattered."""
        search = self._search
        demands: list[tuple[int, int]] = []
        free = search.everything & ~(search.taken | search.holdings.exclusive)
        for claim in range(frame.claim, len(search.claims)):
            requests = search.claims[claim].requests
            first = frame.request if claim == frame.claim else 0
            for number in range(first, len(requests)):
                tasks = requests[number].tasks
                if number == frame.request and claim == frame.claim:
                    assert frame.task is not None
                    tasks = [frame.task]
                if any(_may_raise(task) for task in tasks):
                    return _can_match(demands, free)
                options = [option for task in tasks if (option := self._demand(task, free)) is not None]
                if not options:
                    return False
                if any(task.admin_access for task in tasks):
                    continue
                union = 0
                for mask, _ in options:
                    union |= mask
                if not union & search.multi:
                    demands.append((union, min(count for _, count in options)))
        return _can_match(demands, free)

    def _demand(self, task: Task, free: int) -> tuple[int, int] | None:
        """The devices that a task can still choose from and how many it needs; None if there are too few."""
        if task.positions is not None and not task.positions:
            return None
        mask = task.suitability.yes & task.allowed & (self._search.everything if task.admin_access else free)
        return (mask, task.count) if mask.bit_count() >= task.count else None


def _may_raise(task: Task) -> bool:
    return bool(task.suitability.failed) or (task.positions is not None and bool(task.constraints))


def _distinctions(search: Search, tasks: Iterable[Task]) -> Iterable[int]:
    """Sets that tell devices apart: those in one and those outside of it can be treated differently."""
    layout = search.layout
    seen = set()
    for task in tasks:
        mask = task.suitability.yes & task.allowed
        if mask not in seen:
            seen.add(mask)
            yield mask
        special = task.suitability.failed
        if task.positions is not None and task.constraints:
            special |= task.suitability.yes
        yield from _one_by_one(special)
    yield from (search.multi, search.holdings.exclusive, search.holdings.shared)
    for claim in search.claims:
        for constraint in claim.constraints:
            attribute = layout.attribute(constraint.attribute, is_list=search.is_list)
            yield attribute.present
            yield from attribute.with_value.values()
    groups: dict[object, int] = {}
    if search.drawing:
        for position, draw in layout.draws.items():
            key = (layout.pool_numbers[position], *sorted(draw.items()))
            groups[key] = groups.get(key, 0) | 1 << position
    special = search.multi
    for position in search.holdings.capacity:
        special |= 1 << position
    while special:
        low = special & -special
        special ^= low
        position = low.bit_length() - 1
        capacity = layout.device(position).capacity
        held = search.holdings.capacity.get(position, {})
        key = (
            "capacity",
            tuple(sorted((name, repr(value)) for name, value in capacity.items())),
            tuple(sorted((name, repr(value)) for name, value in held.items())),
        )
        groups[key] = groups.get(key, 0) | low
    yield from groups.values()


def _one_by_one(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        mask ^= low
        yield low


def _can_match(demands: list[tuple[int, int]], free: int) -> bool:
    """Whether every demand (devices to choose from, how many) can have devices of its own."""
    owned = [0] * len(demands)
    for number, (mask, count) in enumerate(demands):
        for _ in range(count):
            low = mask & free
            if low:
                low &= -low
                free ^= low
                owned[number] |= low
            else:
                free, found = _augment(demands, owned, free, number)
                if not found:
                    return False
    return True


def _augment(demands: list[tuple[int, int]], owned: list[int], free: int, start: int) -> tuple[int, bool]:
    """Get one more device for a demand by moving others to free devices, if that is possible."""
    gives: dict[int, tuple[int, int]] = {}  # who would give which device to whom
    queue = [start]
    for number in queue:
        mask = demands[number][0]
        device = mask & free
        if device:
            device &= -device
            owned[number] |= device
            while number != start:
                receiver, given = gives[number]
                owned[number] ^= given
                owned[receiver] |= given
                number = receiver
            return free ^ device, True
        for other in range(len(demands)):
            shared = mask & owned[other]
            if shared and other != start and other not in gives:
                gives[other] = (number, shared & -shared)
                queue.append(other)
    return free, False
