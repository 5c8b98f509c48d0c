"""Calls as closures: evaluate the arguments, charge the call, run the implementation.

After a failed argument, evaluation and charging follow upstream: calls of one or two arguments evaluate all of them,
calls with an argument list (`late`) stop at the first failure, and a call is charged if all of its arguments were
evaluated.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from resourceapi.cel.cost import depends_on_result, equality_cost, traversal
from resourceapi.cel.declarations import Cost, Function, Implementation, Overload
from resourceapi.cel.errors import CelEvalError
from resourceapi.cel.frame import ERRED, Frame, Run
from resourceapi.cel.types import Kind, Type, is_dyn
from resourceapi.cel.values import (
    contains,
    equal,
    is_map,
    items_of,
    no_such_overload,
    not_equal,
    size,
    to_key,
    type_name,
)

_NULLABLE = frozenset({Kind.STRUCT, Kind.OPAQUE, Kind.DURATION, Kind.TIMESTAMP})


def fits(type_: Type, value: Any) -> bool:
    """Return whether a value can be an argument of this type; for containers, the first element is checked."""
    if type_.kind in (Kind.DYN, Kind.ANY, Kind.PARAM):
        return True
    if type_.name != type_name(value):
        return False
    if type_.kind is Kind.LIST and value:
        return fits(type_.params[0], value[0])
    if type_.kind is Kind.MAP and is_map(value) and value:
        key, each = next(items_of(value))
        return fits(type_.params[0], key) and fits(type_.params[1], each)
    return True


def _guarded(function: Function, overload: Overload) -> Implementation:
    if function.singleton is not None:
        return function.singleton
    run = overload.run
    if len(overload.args) == 2 and not any(type_.params for type_ in overload.args):
        return _guarded_two(function, overload)

    def call(*args: Any) -> Any:
        if not all(map(fits, overload.args, args)):
            raise _no_such(function, args)
        return run(*args)

    return call


def _guarded_two(function: Function, overload: Overload) -> Implementation:
    """Return the check for the frequent case: two arguments whose types can be compared by name."""
    run = overload.run
    first, second = (None if is_dyn(type_) or type_.kind is Kind.PARAM else type_.name for type_ in overload.args)

    def call(left: Any, right: Any) -> Any:
        if first not in (None, type_name(left)) or second not in (None, type_name(right)):
            raise _no_such(function, (left, right))
        return run(left, right)

    return call


def _no_such(function: Function, args: tuple[Any, ...]) -> CelEvalError:
    return CelEvalError(f"no such overload: {function.name}({', '.join(map(type_name, args))})")


def _without_null(function: Function, overload: Overload) -> Implementation:
    """Return the implementation with a check for null, which the checker accepts as a value of `_NULLABLE` types."""
    run = overload.run
    if len(overload.args) == 1:

        def call_one(arg: Any) -> Any:
            if arg is None:
                raise _no_such(function, (arg,))
            return run(arg)

        return call_one

    def call_two(first: Any, second: Any) -> Any:
        if first is None or second is None:
            raise _no_such(function, (first, second))
        return run(first, second)

    def call(*args: Any) -> Any:
        if any(arg is None for arg in args):
            raise _no_such(function, args)
        return run(*args)

    return call_two if len(overload.args) == 2 else call


def _unguarded(overload: Overload) -> Implementation:
    def call(*args: Any) -> Any:
        try:
            return overload.run(*args)
        except (TypeError, AttributeError):
            # A dynamic value of a wrong type reached a function whose argument types upstream does not check either.
            raise no_such_overload() from None

    return call


def _dispatching(function: Function) -> Implementation:
    if function.singleton is not None:
        return function.singleton

    def call(*args: Any) -> Any:
        for overload in function.overloads:
            if len(overload.args) == len(args) and all(map(fits, overload.args, args)):
                return overload.run(*args)
        raise _no_such(function, args)

    return call


def implementation(function: Function, overloads: list[str], proven: bool) -> tuple[Implementation, bool]:
    """Return the implementation of a call, and whether it is `late` (see the module).

    With one overload and arguments whose types are proven, the overload runs without further checks.
    """
    if len(overloads) != 1:
        late = function.singleton is None and len(function.overloads) > 1
        return _dispatching(function), late
    overload = next(each for each in function.overloads if each.id == overloads[0])
    if function.singleton is None and proven:
        if any(type_.kind in _NULLABLE for type_ in overload.args):
            return _without_null(function, overload), overload.late
        return overload.run, overload.late
    if not function.guarded:
        return _unguarded(overload), overload.late
    return _guarded(function, overload), overload.late


def call(args: list[Run], run: Implementation, cost: Cost | int, late: bool) -> Run:
    """Return the closure of a call."""
    if not args:
        return _call_without(run, cost)
    if len(args) == 1:
        return _call_one(args[0], run, cost)
    if len(args) == 2 and not late:
        return _call_two(args[0], args[1], run, cost)
    return _call_many(args, run, cost)


def _charge(frame: Frame, cost: Cost | int, args: tuple[Any, ...], result: Any) -> None:
    if type(cost) is int:
        frame.cost += cost
    else:
        assert not isinstance(cost, int)
        frame.charge(cost(args, result))


def _call_without(run: Implementation, cost: Cost | int) -> Run:
    def closure(frame: Frame) -> Any:
        _charge(frame, cost, (), None)
        return run()

    return closure


def _charged(frame: Frame, cost: Cost | int, run: Implementation, args: tuple[Any, ...]) -> Any:
    """Run a call and charge it; before it runs, if the cost is known, so that work beyond the limit is not started."""
    if not depends_on_result(cost):
        _charge(frame, cost, args, ERRED)
        return run(*args)
    try:
        result = run(*args)
    except CelEvalError:
        _charge(frame, cost, args, ERRED)
        raise
    _charge(frame, cost, args, result)
    return result


def _call_one(arg: Run, run: Implementation, cost: Cost | int) -> Run:
    if type(cost) is int:
        units = cost

        def constant(frame: Frame) -> Any:
            try:
                value = arg(frame)
            except CelEvalError:
                frame.cost += units
                raise
            frame.cost += units
            return run(value)

        return constant

    def closure(frame: Frame) -> Any:
        try:
            value = arg(frame)
        except CelEvalError:
            _charge(frame, cost, (ERRED,), ERRED)
            raise
        return _charged(frame, cost, run, (value,))

    return closure


def second_after_failure(frame: Frame, second: Run) -> Any:
    """Evaluate the second operand after the first failed: for its cost, or because it can decide the result."""
    try:
        return second(frame)
    except CelEvalError:
        return ERRED


def _call_two(first: Run, second: Run, run: Implementation, cost: Cost | int) -> Run:
    def closure(frame: Frame) -> Any:
        try:
            left = first(frame)
        except CelEvalError:
            _charge(frame, cost, (ERRED, second_after_failure(frame, second)), ERRED)
            raise
        try:
            right = second(frame)
        except CelEvalError:
            _charge(frame, cost, (left, ERRED), ERRED)
            raise
        if type(cost) is int:
            frame.cost += cost
            return run(left, right)
        return _charged(frame, cost, run, (left, right))

    return closure


def call_with_constant(first: Run, constant: Any, run: Implementation, units: int) -> Run:
    """Return the closure of a call with a constant second argument and a constant cost."""

    def closure(frame: Frame) -> Any:
        try:
            value = first(frame)
        except CelEvalError:
            frame.cost += units
            raise
        frame.cost += units
        return run(value, constant)

    return closure


_INT_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
}


def relation_with_int(function: str, first: Run, constant: int, run: Implementation) -> Run:
    """Return `<`, `<=`, `>` or `>=` of a computed value and a constant integer; it costs one unit."""
    decide = _INT_RELATIONS[function]

    def closure(frame: Frame) -> Any:
        try:
            value = first(frame)
        except CelEvalError:
            frame.cost += 1
            raise
        frame.cost += 1
        return decide(value, constant) if type(value) is int else run(value, constant)

    return closure


def _call_many(args: list[Run], run: Implementation, cost: Cost | int) -> Run:
    last = len(args) - 1

    def closure(frame: Frame) -> Any:
        values: list[Any] = []
        for index, arg in enumerate(args):
            try:
                values.append(arg(frame))
            except CelEvalError:
                if index == last:
                    _charge(frame, cost, (*values, ERRED), ERRED)
                raise
        return _charged(frame, cost, run, tuple(values))

    return closure


def equality(first: Run, second: Run, unequal: bool) -> Run:
    """Return `==` or `!=` of two computed values."""

    def closure(frame: Frame) -> Any:
        try:
            left = first(frame)
        except CelEvalError:
            frame.charge(equality_cost(ERRED, second_after_failure(frame, second), unequal))
            raise
        try:
            right = second(frame)
        except CelEvalError:
            frame.charge(equality_cost(left, ERRED, unequal))
            raise
        frame.charge(equality_cost(left, right, unequal))
        if unequal:
            return not_equal(left, right)
        return equal(left, right)

    return closure


def equality_with_constant(first: Run, constant: Any, unequal: bool) -> Run:
    """Return `==` or `!=` of a computed value and a constant, the most frequent operation of device selectors."""
    length = size(constant)
    kind = type(constant)
    one = traversal(min(1, length))
    if kind is not str and kind is not int and kind is not bool:
        return equality(first, lambda _: constant, unequal)

    def closure(frame: Frame) -> Any:
        try:
            left = first(frame)
        except CelEvalError:
            frame.cost += one
            raise
        if type(left) is kind:
            if kind is str:
                shorter = len(left)
                frame.cost += traversal(shorter if shorter < length else length)
            else:
                frame.cost += 1
            return (left != constant) if unequal else (left == constant)
        frame.charge(equality_cost(left, constant, unequal))
        return not_equal(left, constant) if unequal else equal(left, constant)

    return closure


def connective(terms: list[Run], decisive: bool) -> Run:
    """Return `a && b && ...` or `a || b || ...`. A `decisive` term decides in any position, and absorbs errors."""
    if len(terms) == 2:
        return _either_decides(terms[0], terms[1], decisive)

    def closure(frame: Frame) -> Any:
        failure: CelEvalError | None = None
        for term in terms:
            try:
                value = term(frame)
            except CelEvalError as error:
                failure = failure or error
                continue
            if value is decisive:
                return decisive
            if value is not neutral:
                failure = failure or no_such_overload()
        if failure is not None:
            raise failure
        return neutral

    neutral = not decisive
    return closure


def _either_decides(first: Run, second: Run, decisive: bool) -> Run:
    def closure(frame: Frame) -> Any:
        try:
            left = first(frame)
        except CelEvalError as error:
            failure = error
        else:
            if left is decisive:
                return decisive
            if left is neutral:
                right = second(frame)
                if right is True or right is False:
                    return right
                raise no_such_overload()
            failure = no_such_overload()
        if second_after_failure(frame, second) is decisive:
            return decisive
        raise failure

    neutral = not decisive
    return closure


def conditional(condition: Run, truthy: Run, falsy: Run) -> Run:
    """Return `condition ? truthy : falsy`; the operator itself costs nothing."""

    def closure(frame: Frame) -> Any:
        chosen = condition(frame)
        if chosen is True:
            return truthy(frame)
        if chosen is False:
            return falsy(frame)
        raise no_such_overload()

    return closure


def or_optional(first: Run, second: Run, unwrap: bool) -> Run:
    """Return `a.or(b)`, or `a.orValue(b)` with `unwrap`; `b` is evaluated only if `a` is absent."""

    def closure(frame: Frame) -> Any:
        optional = first(frame)
        present = getattr(optional, "present", None)
        if present is None:
            raise no_such_overload()
        if present:
            return optional.value if unwrap else optional
        return second(frame)

    return closure


def key_in_map(key: str, container: Run) -> Run:
    """Return `"constant" in map`; it costs one unit."""

    def closure(frame: Frame) -> Any:
        try:
            value = container(frame)
        except CelEvalError:
            frame.cost += 1
            raise
        frame.cost += 1
        return key in value if is_map(value) else contains(value, key)

    return closure


def is_in_table(key: Any, table: dict[Any, Any]) -> bool:
    """Return `key in {...}` for a map literal. A key that Go cannot hash cancels the evaluation (`to_key`)."""
    return to_key(key) in table


def membership(value: Run, elements: list[Any]) -> Run:
    """Return `value in [constants]`, a lookup that costs nothing.

    Upstream's table of the constants panics for a value that Go cannot hash, for example a Semver. The panic cancels
    the whole evaluation.
    """
    known = frozenset(map(to_key, elements))

    def closure(frame: Frame) -> Any:
        found = value(frame)
        try:
            return to_key(found) in known
        except TypeError:
            return False

    return closure
