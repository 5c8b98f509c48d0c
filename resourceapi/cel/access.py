"""Access paths: a variable or value followed by fields, keys and indices.

A path is evaluated and charged as a whole, like upstream: one unit for the variable and one for each tried step. The
most frequent paths of device selectors are compiled to specialised closures.
"""

from __future__ import annotations

from typing import Any

from resourceapi.cel.errors import CelEvalError, CostLimitExceeded
from resourceapi.cel.frame import UNSET, Cancelled, Failure, Frame, Run, charged
from resourceapi.cel.values import (
    EMPTY_MAP,
    MAX_UINT,
    NONE,
    Optional,
    Uint,
    display,
    find,
    go_type_name,
    is_map,
    type_name,
)

_ABSENT = object()
_KEYS = frozenset({bool, float, int, str, Uint})


class Step:
    """One step of a path, which costs one unit: a constant key, or `key` as a closure."""

    __slots__ = ("constant", "key", "optional", "test")

    def __init__(
        self, constant: Any = None, key: Run | None = None, optional: bool = False, test: bool = False
    ) -> None:
        self.constant = constant
        self.key = key
        self.optional = optional
        self.test = test


def check_key(key: Any) -> None:
    """Raise CelEvalError for a value that can be neither a key nor an index."""
    if type(key) not in _KEYS:
        raise CelEvalError(f"invalid qualifier type: {go_type_name(key)}")


def lookup(container: Any, key: Any) -> Any:
    """Return `container[key]`. Raises CelEvalError."""
    if is_map(container):
        value, found = find(container, key)
        if found:
            return value
    elif type(container) is list:
        index = _list_index(key)
        if 0 <= index < len(container):
            return container[index]
        raise CelEvalError(f"index out of bounds: {display(key)}")
    raise CelEvalError(f"no such key: {display(key)}")


def lookup_optional(container: Any, key: Any) -> Any:
    """Return `container[?key]`: the value or _ABSENT. Raises CelEvalError for a key that cannot be an index."""
    if is_map(container):
        value, found = find(container, key)
        return value if found else _ABSENT
    if type(container) is list:
        index = _list_index(key)
        return container[index] if 0 <= index < len(container) else _ABSENT
    return _ABSENT


def _list_index(key: Any) -> int:
    kind = type(key)
    if kind is int:
        return int(key)
    if kind is Uint or kind is float:
        if key == key and key not in (float("inf"), float("-inf")) and int(key) == key and abs(key) < 2**63:
            return int(key)
        raise CelEvalError(f"unsupported index value {display(key)} in list")
    raise CelEvalError(f"unsupported index type '{type_name(key)}' in list")


def variable(name: str) -> Run:
    """Return a closure that reads an input variable of the evaluation."""

    def run(frame: Frame) -> Any:
        try:
            return frame.inputs[name]
        except KeyError:
            raise CelEvalError(f"no such attribute(s): {name}") from None

    return run


def device(frame: Frame) -> Any:
    """Read the device that a selector is evaluated on."""
    return frame.inputs.root


def local(slot: int) -> Run:
    """Return a closure that reads a local variable."""

    def run(frame: Frame) -> Any:
        value = frame.slots[slot]
        if type(value) is Failure:
            raise value.error
        return value

    return run


def lazy_local(slot: int, init: Run) -> Run:
    """Return a closure that reads a local variable, which is computed at most once, on the first read."""

    def run(frame: Frame) -> Any:
        value = frame.slots[slot]
        if value is UNSET:
            try:
                value = init(frame)
            except CelEvalError as error:
                value = Failure(error)
            frame.slots[slot] = value
        if type(value) is Failure:
            raise value.error
        return value

    return run


def path(base: Run, units: int, steps: list[Step], unwraps: bool) -> Run:
    """Return the closure of a path. `units`: charge for the base; `unwraps`: the base can be an optional value."""
    if not steps:
        return _bare(base, units)
    if unwraps or any(step.optional or step.test or step.key is not None for step in steps):
        return _general(base, units, steps)
    keys = [step.constant for step in steps]
    return _one_key(base, units, keys[0]) if len(keys) == 1 else _constant_keys(base, units, keys)


def _bare(base: Run, units: int) -> Run:
    if units == 0:
        return base

    def run(frame: Frame) -> Any:
        return charged(frame, base, units)

    return run


def _one_key(base: Run, units: int, key: Any) -> Run:
    total = units + 1

    def run(frame: Frame) -> Any:
        try:
            container = base(frame)
        except CelEvalError:
            frame.cost += units
            raise
        frame.cost += total
        return lookup(container, key)

    return run


def _constant_keys(base: Run, units: int, keys: list[Any]) -> Run:
    def run(frame: Frame) -> Any:
        value = charged(frame, base, units)
        for key in keys:
            frame.cost += 1
            value = lookup(value, key)
        return value

    return run


def _general(base: Run, units: int, steps: list[Step]) -> Run:
    def run(frame: Frame) -> Any:
        value = charged(frame, base, units)
        optional = type(value) is Optional
        if optional:
            if not value.present:
                return False if steps[-1].test else value
            value = value.value
        for paid, step in enumerate(steps, units):
            optional = optional or step.optional
            if step.test:
                return _test_step(frame, value, step, optional)
            value = (_try_step if optional else _take_step)(frame, value, step, paid)
            if value is _ABSENT:
                return False if steps[-1].test else NONE
        return Optional(value) if optional else value

    return run


def _test_step(frame: Frame, value: Any, step: Step, optional: bool) -> bool:
    try:
        found = lookup_optional(value, step.constant) is not _ABSENT
    except CelEvalError:
        frame.cost += not optional
        raise
    frame.cost += found or not optional
    return found


def _take_step(frame: Frame, value: Any, step: Step, paid: int) -> Any:
    try:
        key = _key(frame, step, paid)
    except CelEvalError:
        frame.cost += 1
        raise
    frame.cost += 1
    check_key(key)
    return lookup(value, key)


def _try_step(frame: Frame, value: Any, step: Step, paid: int) -> Any:
    key = _key(frame, step, paid)
    check_key(key)
    found = lookup_optional(value, key)
    if found is not _ABSENT:
        frame.cost += 1
    return found


def _key(frame: Frame, step: Step, paid: int) -> Any:
    """Return the key of a step. If computing it cancels the evaluation, the path's `paid` units are not charged."""
    if step.key is None:
        return step.constant
    frame.cost -= paid
    return charged(frame, step.key, paid)


def refunded(run: Run) -> Run:
    """Return a closure that charges one unit less. Upstream's cost is unsigned, so below zero it exceeds any limit."""

    def closure(frame: Frame) -> Any:
        try:
            return run(frame)
        finally:
            frame.cost -= 1
            if frame.cost < 0:
                frame.cost = MAX_UINT
                raise Cancelled(CostLimitExceeded())

    return closure


def device_path(keys: list[Any]) -> Run | None:
    """Return the specialised closure of a path from `device` with constant keys, if there is one."""
    if len(keys) == 1 and keys[0] == "driver":
        return _device_driver
    if len(keys) == 2 and keys[0] == "attributes" and type(keys[1]) is str:
        return _device_attributes(keys[1])
    if len(keys) == 3 and all(type(key) is str for key in keys):
        if keys[0] == "attributes":
            return _device_attribute(keys[1], keys[2])
        if keys[0] == "capacity":
            return _device_capacity(keys[1], keys[2])
    return None


def _device_driver(frame: Frame) -> Any:
    frame.cost += 2
    return frame.inputs.driver


def _device_attributes(domain: str) -> Run:
    def run(frame: Frame) -> Any:
        frame.cost += 3
        return frame.inputs.attributes.get(domain, EMPTY_MAP)

    return run


def _device_attribute(domain: str, name: str) -> Run:
    message = f"no such key: {name}"

    def run(frame: Frame) -> Any:
        frame.cost += 4
        try:
            return frame.inputs.attributes[domain][name]
        except KeyError:
            # An unknown domain reads as an empty map, so an unknown domain and an unknown name give the same error.
            raise CelEvalError(message) from None

    return run


def _device_capacity(domain: str, name: str) -> Run:
    message = f"no such key: {name}"

    def run(frame: Frame) -> Any:
        frame.cost += 4
        try:
            return frame.inputs.capacity[domain][name]
        except KeyError:
            raise CelEvalError(message) from None

    return run
