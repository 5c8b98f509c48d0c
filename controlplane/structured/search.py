"""The search: depth first; the first complete assignment is the result.

The variables in order: claims, their requests, a request's alternatives, its devices one by one. The values are in
order of position; within one request only increasing positions are tried. This order decides which assignment is found
first. `prune` cuts only what has neither a solution nor an error. Without it, `steps` equals upstream's count.

The stack is explicit, so that the interpreter's recursion limit does not limit the number of devices.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple, Protocol

from controlplane.structured.capacity import Amounts, consumption, fits
from controlplane.structured.constraints import Constraint, Distinct, Match
from controlplane.structured.counters import Counters
from controlplane.structured.errors import AllocationError
from controlplane.structured.features import Features
from controlplane.structured.holdings import Holdings
from controlplane.structured.layout import Fault, Layout
from controlplane.structured.problem import Task, TaskClaim, fault_error
from controlplane.structured.requests import MAX_RESULTS


class Verdict(Enum):
    """The result of a step."""

    SOLVED = auto()
    OPEN = auto()  # the frame on top of the stack has something to try
    FAILED = auto()
    TOO_MANY = auto()  # failed because the claim would exceed its limit of results, with any devices


class Pick(NamedTuple):
    """A device that was chosen for a task."""

    claim: int
    task: Task
    position: int
    is_shared: bool
    amounts: Amounts  # what this share consumes


class Frame:
    """A decision on the stack: devices still to try, or alternatives still to try."""

    __slots__ = (
        "alternative",
        "claim",
        "filter",
        "index",
        "key",
        "position",
        "remaining",
        "request",
        "task",
        "too_many",
    )

    def __init__(self, claim: int, request: int, task: Task | None, index: int) -> None:
        self.claim = claim
        self.request = request
        self.task = task  # None: this frame chooses between alternatives
        self.index = index
        self.remaining = 0
        self.filter = 0
        self.position = -1
        self.alternative = -1
        self.too_many = 0
        self.key: bytes | None = None  # the pruner's digest of the state in which the frame was opened


class Pruning(Protocol):
    """The cuts of a search; see `prune`."""

    def is_infeasible(self, frame: Frame, start: int, undecided: int) -> bool:
        """Return whether a decision that is about to be opened at position `start` can be cut."""

    def failed(self, frame: Frame) -> None:
        """Record that a decision failed."""

    def equivalent_devices(self, position: int) -> int:
        """Return the devices that are equivalent to this one, which fail where it just failed."""


class Search:
    """One search on one node."""

    def __init__(
        self,
        layout: Layout,
        claims: list[TaskClaim],
        holdings: Holdings,
        features: Features,
        check: Callable[[], None] | None,
        pruning: "Callable[[Search], Pruning] | None",
    ) -> None:
        self.layout = layout
        self.claims = claims
        self.holdings = holdings
        self.features = features
        self.steps = 0
        self.picks: list[Pick] = []
        self.frames: list[Frame] = []
        self.everything = (1 << layout.size) - 1
        self.taken = 0
        self.taken_by = [0] * len(claims)
        self.sharing: dict[int, list[Amounts]] = {}  # shares that this search allocated
        self.shareable = layout.shareable if features.consumable_capacity else 0
        self.with_counters = layout.with_counters if features.partitionable_devices else 0
        self.counters: dict[int, Counters] = {}
        self.constraints: list[list[Constraint]] = [
            [
                (Match if constraint.is_match else Distinct)(
                    layout.attribute(constraint.attribute, is_list=features.list_type_attributes)
                )
                for constraint in claim.constraints
            ]
            for claim in claims
        ]
        self._first_pick = [0] * (len(claims) + 1)
        self._full_claim = -1  # the claim whose limit caused the last TOO_MANY
        self.check = check
        self._pruner = None if pruning is None else pruning(self)

    def run(self) -> bool:
        """Search. True: the solution is in `picks` and the alternatives are in `frames`. Raises AllocationError."""
        verdict = self._enter(0, 0, None, 0, 0)
        while verdict is not Verdict.SOLVED:
            if verdict is Verdict.OPEN:
                verdict = self._next()
            elif self.frames:
                verdict = self._back(verdict)
            else:
                return False
        return True

    def results_in(self, claim: int) -> int:
        """Return how many devices the claim that is being decided has so far."""
        return len(self.picks) - self._first_pick[claim]

    def _enter(self, claim: int, request: int, task: Task | None, index: int, start: int) -> Verdict:
        """Make one step, and those that follow from it without a decision."""
        while True:
            self.steps += 1
            if self.check is not None:
                self.check()
            if claim == len(self.claims):
                return Verdict.SOLVED
            requests = self.claims[claim].requests
            if request == len(requests):
                claim, request, task, index, start = claim + 1, 0, None, 0, 0
                self._first_pick[claim] = len(self.picks)
                continue
            if task is None:
                if requests[request].has_alternatives:
                    self.frames.append(Frame(claim, request, None, 0))
                    return Verdict.OPEN
                task = requests[request].tasks[0]
            if task.positions is not None and not task.positions:
                return Verdict.FAILED
            if index == task.count:
                request, task, index, start = request + 1, None, 0, 0
                continue
            if self.results_in(claim) + task.count - index > MAX_RESULTS:
                self._full_claim = claim
                return Verdict.TOO_MANY
            if task.positions is not None:
                if not self._take_listed(claim, task, task.positions[index]):
                    return Verdict.FAILED
                self.frames.append(Frame(claim, request, task, index))
                index, start = index + 1, 0
                continue
            return self._open(claim, request, task, index, start)

    def _open(self, claim: int, request: int, task: Task, index: int, start: int) -> Verdict:
        """Collect the devices to try for the next place of a request."""
        suitability = task.suitability
        accepted = task.allowed
        if task.constraints:
            constraints = self.constraints[claim]
            for number in task.constraints:
                accepted &= constraints[number].accepts
        if task.admin_access:
            free = self.everything & ~self.taken_by[claim]
        else:
            free = self.everything & ~(self.taken | self.holdings.exclusive)
        undecided = free & (~suitability.decided | suitability.failed)
        remaining = free & suitability.true & accepted | undecided
        if start:
            remaining = remaining >> start << start
        frame = Frame(claim, request, task, index)
        frame.remaining = remaining
        frame.filter = accepted
        if self._pruner is not None and self._pruner.is_infeasible(frame, start, undecided):
            return Verdict.FAILED
        if not remaining:
            return Verdict.FAILED
        self.frames.append(frame)
        return Verdict.OPEN

    def _next(self) -> Verdict:
        """Try the next device or alternative of the top frame."""
        frame = self.frames[-1]
        task = frame.task
        if task is None:
            return self._next_alternative(frame)
        remaining, suitability = frame.remaining, task.suitability
        while remaining:
            bit = remaining & -remaining
            remaining ^= bit
            position = bit.bit_length() - 1
            if not suitability.true & bit:
                if self.check is not None:
                    self.check()
                try:
                    if not suitability.evaluate(position):
                        continue
                except Fault as fault:
                    raise fault_error(fault, task.choice, self.layout, position) from fault.cause
            if not frame.filter & bit:
                continue
            if self._take(frame.claim, task, position, bit):
                frame.remaining = remaining
                frame.position = position
                return self._enter(frame.claim, frame.request, task, frame.index + 1, position + 1)
            if self._pruner is not None:
                remaining &= ~self._pruner.equivalent_devices(position)
        self.frames.pop()
        if self._pruner is not None:
            self._pruner.failed(frame)
        return Verdict.FAILED

    def _next_alternative(self, frame: Frame) -> Verdict:
        frame.alternative += 1
        tasks = self.claims[frame.claim].requests[frame.request].tasks
        if frame.alternative < len(tasks):
            return self._enter(frame.claim, frame.request, tasks[frame.alternative], 0, 0)
        self.frames.pop()
        return Verdict.TOO_MANY if frame.too_many == len(tasks) else Verdict.FAILED

    def _back(self, verdict: Verdict) -> Verdict:
        """Undo the decision of the top frame after its continuation failed."""
        frame = self.frames[-1]
        task = frame.task
        if frame.claim != self._full_claim:
            verdict = Verdict.FAILED  # for the claims before it, one claim's limit is an ordinary failure
        if task is None:
            frame.too_many += verdict is Verdict.TOO_MANY
            return Verdict.OPEN
        self._undo()
        if task.positions is not None or verdict is Verdict.TOO_MANY:
            self.frames.pop()
            return verdict
        if self._pruner is not None:
            frame.remaining &= ~self._pruner.equivalent_devices(frame.position)
        return Verdict.OPEN

    def _take(self, claim: int, task: Task, position: int, bit: int) -> bool:
        """Allocate a suitable device if counters and capacity allow it. A refusal changes nothing."""
        if self.with_counters & bit and not self._consume_counters(position, bit):
            return False
        amounts: Amounts = {}
        is_shared = bool(self.shareable & bit)
        held = self.holdings.capacity.get(position)
        if is_shared or held is not None:
            device = self.layout.device(position)
            amounts = consumption(device.capacity, task.choice.capacity_requests) or {}
            if not fits(device.capacity, amounts, *self.sharing.get(position, ()), held or {}):
                if self.with_counters & bit:
                    self._return_counters(position, bit)
                return False
        for number in task.constraints:
            self.constraints[claim][number].add(position)
        if is_shared:
            self.sharing.setdefault(position, []).append(amounts)
        else:
            self.taken |= bit
            self.taken_by[claim] |= bit
        self.picks.append(Pick(claim, task, position, is_shared, amounts))
        return True

    def _take_listed(self, claim: int, task: Task, position: int) -> bool:
        """Allocate the next device of mode All. Raises AllocationError if a constraint refuses it."""
        bit = 1 << position
        in_use = self.taken_by[claim] if task.admin_access else self.taken | self.holdings.exclusive
        if in_use & bit or not task.allowed & bit:
            return False
        if task.constraints and any(not self.constraints[claim][x].accepts & bit for x in task.constraints):
            if self.with_counters & bit and not self._consume_counters(position, bit):
                return False
            raise AllocationError(
                f"claim {task.choice.claim_name}, request {task.choice.name}: cannot add device "
                f"{self.layout.device_id(position)} because a claim constraint would not be satisfied"
            )
        return self._take(claim, task, position, bit)

    def _undo(self) -> None:
        """Take back the device that was picked last."""
        pick = self.picks.pop()
        bit = 1 << pick.position
        if pick.is_shared:
            shares = self.sharing[pick.position]
            shares.pop()
            if not shares:
                del self.sharing[pick.position]
        else:
            self.taken_by[pick.claim] ^= bit
            # With admin access, several claims can have the same device.
            if not pick.task.admin_access or not any(taken & bit for taken in self.taken_by):
                self.taken ^= bit
        for number in pick.task.constraints:
            self.constraints[pick.claim][number].undo()
        if self.with_counters & bit:
            self._return_counters(pick.position, bit)

    def _consume_counters(self, position: int, bit: int) -> bool:
        """Take what the device draws on its pool's counters. For a shared device, only the first user draws."""
        if self.shareable & bit and (position in self.sharing or self.holdings.shared & bit):
            return True
        return self.counters_of(self.layout.pool_numbers[position]).take(self.layout.draws[position])

    def _return_counters(self, position: int, bit: int) -> None:
        """Undo `_consume_counters`."""
        if self.shareable & bit and (position in self.sharing or self.holdings.shared & bit):
            return
        self.counters_of(self.layout.pool_numbers[position]).give_back(self.layout.draws[position])

    def counters_of(self, number: int) -> Counters:
        """The counters of a pool, by its index in the layout."""
        counters = self.counters.get(number)
        if counters is None:
            pool = self.layout.spans[number][0]
            counters = Counters(pool.counters, self.holdings.draws(pool))
            self.counters[number] = counters
        return counters
