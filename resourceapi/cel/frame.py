"""The state of one evaluation, and the interface of the closures.

A compiled node is a function of the frame. It charges its cost to the frame, and returns a value or raises
CelEvalError. `Cancelled` is not a CelEvalError, so that nothing in an expression can absorb it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from resourceapi.cel.errors import CelEvalError, CelInterrupted, CostLimitExceeded

_ITERATIONS_PER_CHECK = 100

Interrupt: TypeAlias = Callable[[], str | None]
"""Returns why an evaluation should stop, or None to continue."""


class Cancelled(Exception):
    """The evaluation must stop; the caller gets `error`."""

    def __init__(self, error: CelEvalError) -> None:
        super().__init__(str(error))
        self.error = error


class Frame:
    """`inputs` is the DeviceView of a selector, otherwise the variables by name; `slots` holds local variables."""

    __slots__ = ("converted", "cost", "inputs", "interrupt", "limit", "slots")

    def __init__(self, inputs: Any, slots: int, limit: int, interrupt: Interrupt | None) -> None:
        self.cost = 0
        self.converted = 0  # elements and entries
        self.limit = limit
        self.inputs = inputs
        self.slots: list[Any] = [None] * slots
        self.interrupt = None if interrupt is None else _with_fewer_checks(interrupt)

    def charge(self, units: int) -> None:
        """Add to the cost. Raises Cancelled beyond the limit."""
        if self.cost > self.limit:
            # Earlier charges were added without a check; unit by unit, they would have stopped one above the limit.
            self.cost = self.limit + 1
            raise Cancelled(CostLimitExceeded())
        self.cost += units
        if self.cost > self.limit:
            raise Cancelled(CostLimitExceeded())

    def convert(self, values: int) -> None:
        """Count values that a message literal converts. Raises Cancelled if they are more than the cost limit.

        Upstream does not charge conversions. Without a limit, a loop over a long list could convert it 20,000 times.
        """
        self.converted += values
        if self.converted > self.limit:
            raise Cancelled(CostLimitExceeded())

    def check(self) -> None:
        """Raise Cancelled beyond the cost limit or if the caller wants to stop; called in each loop iteration."""
        if self.cost > self.limit:
            self.cost = self.limit + 1
            raise Cancelled(CostLimitExceeded())
        if self.interrupt is not None:
            cause = self.interrupt()
            if cause is not None:
                raise Cancelled(CelInterrupted(cause))


def _with_fewer_checks(interrupt: Interrupt) -> Interrupt:
    """Call `interrupt` only every `_ITERATIONS_PER_CHECK` iterations, because it can cost more than an iteration."""
    turns = 0

    def ask() -> str | None:
        nonlocal turns
        turns += 1
        return interrupt() if turns % _ITERATIONS_PER_CHECK == 0 else None

    return ask


Run: TypeAlias = Callable[[Frame], Any]


def charged(frame: Frame, run: Run, units: int) -> Any:
    """Run `run` and return its result. Charges afterwards, also on failure, but not if the evaluation is cancelled."""
    try:
        value = run(frame)
    except CelEvalError:
        frame.charge(units)
        raise
    if units > 1:
        frame.charge(units)
    else:
        frame.cost += units
    return value


class Failure:
    """An error kept as the value of a local variable."""

    __slots__ = ("error",)

    def __init__(self, error: CelEvalError) -> None:
        self.error = error


class Unset:
    """A local variable whose value is computed when it is first read."""

    __slots__ = ()


UNSET = Unset()
ERRED = Failure(CelEvalError(""))  # placeholder for a failed argument, for cost rules, which need only its size
