"""Cases and their outcomes."""

import enum
import json
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.cases.documents import Document

MAX_DIFFERENCES = 20


class Outcome(enum.StrEnum):
    """The outcome of a case."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Mismatch(AssertionError):
    """The answer differs from the recorded one; the text contains the position."""


class Skipped(Exception):
    """The case is out of scope; the text is the reason."""


class Case(NamedTuple):
    """One recorded answer. `run` returns, or raises Mismatch or Skipped."""

    name: str
    run: Callable[[], None]


class CaseResult(NamedTuple):
    """The outcome of a case, with the difference if it failed, or the reason if it was skipped."""

    name: str
    outcome: Outcome
    detail: str = ""


class Format(NamedTuple):
    """A kind of document: a predicate for its content, and its cases."""

    name: str
    matches: Callable[[Document], bool]
    cases: Callable[[Document], Iterator[Case]]


def expect_equal(expected: Any, actual: Any) -> None:
    """Raise Mismatch with one line per difference between two JSON values.

    Numbers are compared by value, whether written as integers or not; lists are compared in order.
    """
    lines = list(_differences(expected, actual, "$"))
    if lines:
        more = len(lines) - MAX_DIFFERENCES
        tail = [f"... and {more} more differences"] if more > 0 else []
        raise Mismatch("\n".join(lines[:MAX_DIFFERENCES] + tail))


def _differences(expected: Any, actual: Any, path: str) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in [*expected, *(key for key in actual if key not in expected)]:
            here = f"{path}.{key}"
            if key not in actual:
                yield f"{here}: expected {_shown(expected[key])}, got nothing"
            elif key not in expected:
                yield f"{here}: expected nothing, got {_shown(actual[key])}"
            else:
                yield from _differences(expected[key], actual[key], here)
    elif isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            yield f"{path}: expected {len(expected)} items, got {len(actual)}: {_shown(expected)} and {_shown(actual)}"
            return
        for index, (left, right) in enumerate(zip(expected, actual, strict=True)):
            yield from _differences(left, right, f"{path}[{index}]")
    elif not _same(expected, actual):
        yield f"{path}: expected {_shown(expected)}, got {_shown(actual)}"


def _same(expected: Any, actual: Any) -> bool:
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, float) or isinstance(actual, float):
        try:
            left, right = float(expected), float(actual)
        except (TypeError, ValueError, OverflowError):
            return False
        return left == right or (math.isnan(left) and math.isnan(right))
    return type(expected) is type(actual) and bool(expected == actual)


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 600 else f"{text[:600]}..."
