"""The state of one evaluation, and the closures' common form.

A compiled node is a function of the frame. It charges what it costs to the frame, returns a value, or raises
CelEvalError; `Cancelled` passes through everything, because nothing in an expression may absorb it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from resourceapi.cel.errors import CelEvalError, CelInterrupted, CostLimitExceeded

_TURNS_PER_QUESTION = 100

Interrupt: TypeAlias = Callable[[], str | None]
"""Says why an evaluation should stop, or None to go on."""


class Cancelled(Exception):
    """The evaluation must stop; `error` is what the caller is told."""

    def __init__(self, error: CelEvalError) -> None:
        super().__init__(str(error))
        self.error = error


class Frame:
    """`inputs` is the device view of a selector, else the variables by name; `slots` holds local variables."""

    __slots__ = ("cost", "inputs", "interrupt", "limit", "slots")

    def __init__(self, inputs: Any, slots: int, limit: int, interrupt: Interrupt | None) -> None:
        self.cost = 0
        self.limit = limit
        self.inputs = inputs
        self.slots: list[Any] = [None] * slots
        self.interrupt = None if interrupt is None else _seldom(interrupt)

    def charge(self, units: int) -> None:
        """Add to the cost. Raises Cancelled beyond the limit."""
        if self.cost > self.limit:
            # What was charged in one sum before went over the limit one unit at a time.
            self.cost = self.limit + 1
            raise Cancelled(CostLimitExceeded())
        self.cost += units
        if self.cost > self.limit:
            raise Cancelled(CostLimitExceeded())

    def check(self) -> None:
        """Stop beyond the cost limit or where the caller wants it; called once in each turn of a loop."""
        if self.cost > self.limit:
            self.cost = self.limit + 1
            raise Cancelled(CostLimitExceeded())
        if self.interrupt is not None:
            cause = self.interrupt()
            if cause is not None:
                raise Cancelled(CelInterrupted(cause))


def _seldom(interrupt: Interrupt) -> Interrupt:
    """Asks only now and then, as the question may be more expensive than a turn of a loop."""
    turns = 0

    def ask() -> str | None:
        nonlocal turns
        turns += 1
        return interrupt() if turns % _TURNS_PER_QUESTION == 0 else None

    return ask


Run: TypeAlias = Callable[[Frame], Any]


def charged(frame: Frame, run: Run, units: int) -> Any:
    """What `run` gives. It is charged afterwards, also where it fails, but not where it ends the evaluation."""
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
ERRED = Failure(CelEvalError(""))  # stands for a failed argument where only its size matters
