"""The search problem on one node: the planned claims, with the node's devices.

Mode All becomes a list of devices here, tolerations become sets of devices, and the limit on results is checked.
Faults are found in upstream's order.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from controlplane.structured.capacity import CapacityError
from controlplane.structured.errors import AllocationError
from controlplane.structured.features import Features
from controlplane.structured.layout import Fault, Layout, Suitability
from controlplane.structured.requests import MAX_RESULTS, Choice, PlannedClaim, PlannedConstraint
from controlplane.structured.selectors import SelectorError
from resourceapi.objects.claims import tolerates
from resourceapi.objects.v1 import NO_EXECUTE, NO_SCHEDULE, DeviceTaint, DeviceToleration


class Task:
    """A choice on this node: the devices that suit it, and how many it needs."""

    __slots__ = ("admin_access", "allowed", "choice", "constraints", "count", "positions", "suitability")

    def __init__(
        self,
        choice: Choice,
        suitability: Suitability,
        allowed: int,
        constraints: tuple[int, ...],
        positions: list[int] | None,
    ) -> None:
        self.choice = choice
        self.suitability = suitability
        self.allowed = allowed  # by feature and taint; applied only to suitable devices
        self.constraints = constraints  # indexes in the claim's list
        self.positions = positions  # mode All: exactly these devices
        self.count = choice.count if positions is None else len(positions)
        self.admin_access = choice.admin_access


class TaskRequest(NamedTuple):
    """A request's tasks, in order of preference."""

    tasks: list[Task]
    has_alternatives: bool


class TaskClaim(NamedTuple):
    """A claim's requests and constraints."""

    planned: PlannedClaim
    requests: list[TaskRequest]
    constraints: Sequence[PlannedConstraint]


def build_problem(
    planned: Iterable[PlannedClaim], layout: Layout, features: Features, check: Callable[[], None] | None = None
) -> list[TaskClaim]:
    """Return the claims' problem on this node. Raises AllocationError for the first fault, and what `check` raises."""
    claims = []
    for claim in planned:
        counted = 0
        requests = []
        for request in claim.requests:
            tasks = [_task(choice, claim, layout, features, check) for choice in request.choices]
            if request.fault is not None:
                raise request.fault.with_traceback(None)
            least = min([task.count for task in tasks])
            if counted + least > MAX_RESULTS:
                raise AllocationError(
                    f"claim {claim.name}, request {request.name}: adding {least} devices exceeds the claim limit of "
                    f"{MAX_RESULTS}, with {counted} already accounted for"
                )
            counted += least
            requests.append(TaskRequest(tasks, request.has_alternatives))
        if claim.fault is not None:
            raise claim.fault.with_traceback(None)
        claims.append(TaskClaim(claim, requests, claim.constraints))
    return claims


def blocking_taint(taints: Iterable[DeviceTaint], tolerations: Sequence[DeviceToleration]) -> DeviceTaint | None:
    """The first taint that excludes the device from the request; None if all are tolerated."""
    for taint in taints:
        if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not any(tolerates(x, taint) for x in tolerations):
            return taint
    return None


def fault_error(fault: Fault, choice: Choice, layout: Layout, position: int) -> AllocationError:
    """The error for a device that cannot be decided, with the text of the request."""
    cause = fault.cause
    if isinstance(cause, SelectorError):
        number = fault.selector or 0
        owner = f"class {choice.device_class.metadata.name}"
        if number >= choice.class_selectors:
            number -= choice.class_selectors
            owner = f"claim {choice.claim_name}"
        if cause.is_compile_error:
            return AllocationError(f"{owner}: selector #{number}: CEL compile error: {cause}")
        device = layout.device_id(position)
        return AllocationError(f"{owner}: selector #{number} on device {device}: CEL runtime error: {cause}")
    if isinstance(cause, CapacityError):
        device_name = layout.device(position).name if choice.wants_all else layout.device_id(position)
        return AllocationError(
            f"claim {choice.claim_name}, request {choice.name}: checking capacity for device {device_name}: {cause}"
        )
    return AllocationError(str(cause))


def _task(
    choice: Choice, claim: PlannedClaim, layout: Layout, features: Features, check: Callable[[], None] | None
) -> Task:
    suitability = layout.suitability(
        choice.selectors,
        choice.capacity_key,
        choice.capacity_requests,
        with_conditions=features.device_binding_and_status,
    )
    constraints: tuple[int, ...] = ()
    if claim.constraints:
        constraints = tuple([i for i, constraint in enumerate(claim.constraints) if constraint.applies_to(choice)])
    positions = _all_devices(choice, suitability, layout, check) if choice.wants_all else None
    return Task(choice, suitability, _allowed(choice, layout, features), constraints, positions)


def _allowed(choice: Choice, layout: Layout, features: Features) -> int:
    """The devices that neither a disabled feature nor a taint excludes from the choice."""
    allowed = ~layout.with_skipped_operations
    if not features.partitionable_devices:
        allowed &= ~layout.with_counters
    if features.device_taints:
        for taints, devices in layout.tainted:
            if blocking_taint(taints, choice.tolerations) is not None:
                allowed &= ~devices
    return allowed


def _all_devices(
    choice: Choice, suitability: Suitability, layout: Layout, check: Callable[[], None] | None
) -> list[int]:
    positions = []
    where = f"claim {choice.claim_name}, request {choice.name}: asks for all devices, but resource pool"
    for pool, start, end in layout.spans:
        if pool.is_incomplete:
            raise AllocationError(f"{where} {pool.id} is currently being updated")
        if pool.is_invalid:
            raise AllocationError(f"{where} {pool.id} is currently invalid")
        for position in range(start, end):
            if check is not None:
                check()
            try:
                if suitability.evaluate(position):
                    positions.append(position)
            except Fault as fault:
                raise fault_error(fault, choice, layout, position) from fault.cause
    return positions
