"""Comprehensions as closures.

An error in a step becomes the value of the accumulator and the loop continues, like upstream: so all() and exists()
can absorb the error. Each iteration checks the cost limit and whether the caller wants to stop.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from resourceapi.cel.calls import second_after_failure
from resourceapi.cel.errors import CelEvalError
from resourceapi.cel.frame import UNSET, Failure, Frame, Run, charged
from resourceapi.cel.values import (
    display,
    go_type_name,
    is_map,
    items_of,
    keys_of,
    no_such_overload,
    to_key,
    type_name,
)


def _elements(value: Any) -> Iterable[Any]:
    if type(value) is list:
        return value
    if is_map(value):
        return keys_of(value)
    raise CelEvalError(f"got '{go_type_name(value)}', expected iterable type")


def _pairs(value: Any) -> Iterable[tuple[Any, Any]]:
    if type(value) is list:
        return enumerate(value)
    if is_map(value):
        return items_of(value)
    raise CelEvalError(f"unsupported comprehension range type: {go_type_name(value)}")


def bind(slot: int, body: Run) -> Run:
    """Bind a local variable whose value is computed when the body first reads it."""

    def closure(frame: Frame) -> Any:
        frame.slots[slot] = UNSET
        return body(frame)

    return closure


def fold(
    range_: Run, slots: tuple[int, int | None, int], init: Run, condition: Run | None, step: Run, result: Run
) -> Run:
    """Return the general loop. `slots`: first variable, second variable, accumulator. No condition means true."""
    first, second, accu = slots

    def closure(frame: Frame) -> Any:
        values = range_(frame)
        locals_ = frame.slots
        locals_[accu] = init(frame)
        for each in _elements(values) if second is None else _pairs(values):
            frame.check()
            if second is None:
                locals_[first] = each
            else:
                locals_[first], locals_[second] = each
            if condition is not None and not _continues(frame, condition):
                break
            try:
                locals_[accu] = step(frame)
            except CelEvalError as error:
                locals_[accu] = Failure(error)
        frame.check()
        return result(frame)

    return closure


def _continues(frame: Frame, condition: Run) -> bool:
    try:
        return condition(frame) is not False
    except CelEvalError:
        return True


def quantifier(range_: Run, slots: tuple[int, int | None, int], predicate: Run, exists: bool) -> Run:
    """Return `all`, or `exists` if `exists` is true. It stops at the first deciding element, which absorbs errors."""
    first, second, _ = slots
    # The cost of upstream's expansion in each iteration: read and test the accumulator; below, read it again.
    testing = 3 if exists else 2

    def closure(frame: Frame) -> Any:
        values = range_(frame)
        locals_ = frame.slots
        failure: CelEvalError | None = None
        decided = False
        for each in _elements(values) if second is None else _pairs(values):
            frame.check()
            if second is None:
                locals_[first] = each
            else:
                locals_[first], locals_[second] = each
            frame.cost += testing
            if decided:
                break
            frame.cost += 1
            try:
                value = predicate(frame)
            except CelEvalError as error:
                failure = failure or error
                continue
            if value is exists:
                failure = None
                decided = True
            elif value is not (not exists):
                failure = failure or no_such_overload()
        frame.cost += 1
        frame.check()
        if failure is not None:
            raise failure
        return decided is exists

    return closure


def append(accu: int, element: Run, list_units: int) -> Run:
    """Return `accumulator + [element]`, done in place: the unfinished list is not visible elsewhere."""

    def of_one(frame: Frame) -> Any:
        return charged(frame, element, list_units)

    added = of_one if list_units else element

    def closure(frame: Frame) -> Any:
        frame.cost += 1
        values = frame.slots[accu]
        if type(values) is Failure:
            second_after_failure(frame, added)
            frame.cost += 1
            raise values.error
        values.append(charged(frame, added, 1))
        return values

    return closure


def insert(accu: int, key: Run, value: Run) -> Run:
    """Return `cel.@mapInsert(accumulator, key, value)`, done in place."""

    def closure(frame: Frame) -> Any:
        frame.cost += 1
        mapping = frame.slots[accu]
        if type(mapping) is Failure:
            raise mapping.error
        name = key(frame)
        _insert(mapping, name, charged(frame, value, 1))
        return mapping

    return closure


def insert_entries(accu: int, entries: Run) -> Run:
    """Return `cel.@mapInsert(accumulator, entries)`, done in place."""

    def closure(frame: Frame) -> Any:
        frame.cost += 1
        mapping = frame.slots[accu]
        if type(mapping) is Failure:
            second_after_failure(frame, entries)
            frame.cost += 1
            raise mapping.error
        added = charged(frame, entries, 1)
        if not is_map(added):
            raise CelEvalError(f"no such overload: cel.@mapInsert(map, {type_name(added)})")
        for name, value in items_of(added):
            _insert(mapping, name, value)
        return mapping

    return closure


def _insert(mapping: dict[Any, Any], key: Any, value: Any) -> None:
    stored = to_key(key)
    if stored in mapping:
        raise CelEvalError(f"insert failed: key {display(key)} already exists")
    mapping[stored] = value
