"""The standard library: operators, size, `in`, type() and the predicates of strings.

Operators have one implementation for all overloads, which decides by the values, because operands can be dynamic.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from resourceapi.cel.declarations import Function, Overload, group, singleton
from resourceapi.cel.errors import CelEvalError
from resourceapi.cel.values import (
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    Duration,
    Timestamp,
    TypeValue,
    Uint,
    compare,
    contains,
    equal,
    is_comparable,
    is_map,
    no_such_overload,
    not_equal,
    type_name,
)

_INT_OVERFLOW = "integer overflow"
_UINT_OVERFLOW = "unsigned integer overflow"
_NANOS = 10**9
MIN_TIME, MAX_TIME = -62135596800, 253402300799  # seconds: the years 1 to 9999
MAX_ELEMENTS = 1_000_000  # most elements of a list, as many as the cost limit; a string can have ten times as many


def checked_int(value: int) -> int:
    """Return the value if it fits a signed integer of 64 bits. Raises CelEvalError."""
    if MIN_INT <= value <= MAX_INT:
        return value
    raise CelEvalError(_INT_OVERFLOW)


def checked_uint(value: int) -> Uint:
    """Return the value if it fits an unsigned integer of 64 bits. Raises CelEvalError."""
    if 0 <= value <= MAX_UINT:
        return Uint(value)
    raise CelEvalError(_UINT_OVERFLOW)


def checked_duration(nanos: int) -> Duration:
    """Return a duration in nanoseconds. Raises CelEvalError if it does not fit 64 bits."""
    return Duration(checked_int(nanos))


def checked_timestamp(nanos: int, offset: int = 0) -> Timestamp:
    """Return an instant. Raises CelEvalError outside of the years 1 to 9999."""
    if MIN_TIME <= nanos // _NANOS <= MAX_TIME:
        return Timestamp(nanos, offset)
    raise CelEvalError("timestamp overflow")


def unsupported(function: str, left: Any) -> CelEvalError:
    """Return the error for an operator that its left or only operand does not support."""
    # Upstream's types with methods for operators do not name the operator; the others do.
    if type(left) in (str, Duration, Timestamp):
        return no_such_overload()
    return CelEvalError(f"no such overload: {function}")


def add(left: Any, right: Any) -> Any:
    """Return `left + right`."""
    kind, other = type(left), type(right)
    if kind is int:
        if other is int:
            return checked_int(left + right)
    elif kind is str or kind is bytes or kind is list:
        if kind is other:
            if len(left) + len(right) > MAX_ELEMENTS * (1 if kind is list else 10):
                raise CelEvalError("value is too large")
            return left + right
    elif kind is float:
        if other is float:
            return left + right
    elif kind is Uint:
        if other is Uint:
            return checked_uint(int(left) + int(right))
    elif kind is Duration:
        if other is Duration:
            return checked_duration(left.nanos + right.nanos)
        if other is Timestamp:
            return checked_timestamp(left.nanos + right.nanos, right.offset)
    elif kind is Timestamp:
        if other is Duration:
            return checked_timestamp(left.nanos + right.nanos, left.offset)
    else:
        raise unsupported("_+_", left)
    raise no_such_overload()


def subtract(left: Any, right: Any) -> Any:
    """Return `left - right`."""
    kind, other = type(left), type(right)
    if kind is int:
        if other is int:
            return checked_int(left - right)
    elif kind is float:
        if other is float:
            return left - right
    elif kind is Uint:
        if other is Uint:
            return checked_uint(int(left) - int(right))
    elif kind is Duration:
        if other is Duration:
            return checked_duration(left.nanos - right.nanos)
    elif kind is Timestamp:
        if other is Duration:
            return checked_timestamp(left.nanos - checked_int(right.nanos), left.offset)
        if other is Timestamp:
            checked_int((left.nanos // _NANOS - right.nanos // _NANOS) * _NANOS)
            return checked_duration(left.nanos - right.nanos)
    else:
        raise unsupported("_-_", left)
    raise no_such_overload()


def multiply(left: Any, right: Any) -> Any:
    """Return `left * right`."""
    kind = type(left)
    if kind not in (int, float, Uint):
        raise unsupported("_*_", left)
    if kind is not type(right):
        raise no_such_overload()
    if kind is float:
        return left * right
    product = int(left) * int(right)
    return checked_int(product) if kind is int else checked_uint(product)


def divide(left: Any, right: Any) -> Any:
    """Return `left / right`; integers are truncated towards zero."""
    kind = type(left)
    if kind not in (int, float, Uint):
        raise unsupported("_/_", left)
    if kind is not type(right):
        raise no_such_overload()
    if kind is float:
        return _divide_doubles(left, right)
    if right == 0:
        raise CelEvalError("division by zero")
    quotient = abs(int(left)) // abs(int(right))
    if kind is Uint:
        return Uint(quotient)
    return checked_int(quotient if (left < 0) == (right < 0) else -quotient)


def _divide_doubles(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left != left or left == 0:
        return float("nan")
    negative = (left < 0) != (str(right)[0] == "-")
    return float("-inf") if negative else float("inf")


def modulo(left: Any, right: Any) -> Any:
    """Return `left % right`, with the sign of the left operand."""
    kind = type(left)
    if kind not in (int, Uint):
        raise unsupported("_%_", left)
    if kind is not type(right):
        raise no_such_overload()
    if right == 0:
        raise CelEvalError("modulus by zero")
    if left == MIN_INT and right == -1:
        raise CelEvalError(_INT_OVERFLOW)
    remainder = abs(int(left)) % abs(int(right))
    return Uint(remainder) if kind is Uint else (-remainder if left < 0 else remainder)


def negate(value: Any) -> Any:
    """Return `-value`."""
    kind = type(value)
    if kind is int:
        return checked_int(-value)
    if kind is float:
        return -value
    if kind is Duration:
        return checked_duration(-value.nanos)
    if kind is bool:
        raise no_such_overload()
    raise unsupported("-_", value)


def logical_not(value: Any) -> bool:
    """Return `!value`."""
    if value is True:
        return False
    if value is False:
        return True
    raise no_such_overload()


def _ordering(function: str, decide: Callable[[int, int], bool]) -> Callable[[Any, Any], bool]:
    def run(left: Any, right: Any) -> bool:
        if not is_comparable(left):
            raise unsupported(function, left)
        return decide(compare(left, right), 0)

    return run


less = _ordering("_<_", operator.lt)
less_equals = _ordering("_<=_", operator.le)
greater = _ordering("_>_", operator.gt)
greater_equals = _ordering("_>=_", operator.ge)


def _in(value: Any, container: Any) -> bool:
    return contains(container, value)


def declared_only(*_: Any) -> Any:
    """Placeholder for calls that the compiler handles itself: branches, access paths, growing lists and maps."""
    raise no_such_overload()


def length(value: Any) -> int:
    """Return `size(value)`."""
    if type(value) in (str, bytes, list) or is_map(value):
        return len(value)
    raise unsupported("size", value)


def _type(value: Any) -> TypeValue:
    return TypeValue(type_name(value))


def _identity(value: Any) -> Any:
    return value


def _not_strictly_false(value: Any) -> bool:
    return value is not False


def _starts_with(value: Any, prefix: Any) -> bool:
    if type(value) is str and type(prefix) is str:
        return value.startswith(prefix)
    raise no_such_overload()


def _ends_with(value: Any, suffix: Any) -> bool:
    if type(value) is str and type(suffix) is str:
        return value.endswith(suffix)
    raise no_such_overload()


def _contains(value: Any, part: Any) -> bool:
    if type(value) is str and type(part) is str:
        return part in value
    raise no_such_overload()


_ORDERED = (
    ("bool", "bool", "bool"),
    ("int64", "int", "int"),
    ("int64_double", "int", "double"),
    ("int64_uint64", "int", "uint"),
    ("uint64", "uint", "uint"),
    ("uint64_double", "uint", "double"),
    ("uint64_int64", "uint", "int"),
    ("double", "double", "double"),
    ("double_int64", "double", "int"),
    ("double_uint64", "double", "uint"),
    ("string", "string", "string"),
    ("bytes", "bytes", "bytes"),
    ("timestamp", "timestamp", "timestamp"),
    ("duration", "duration", "duration"),
)


def _relation(name: str, function: str, run: Callable[[Any, Any], bool], mixed: bool) -> Function:
    return singleton(
        run,
        [
            (f"{name}_{suffix}", f"{function}({left}, {right}) -> bool")
            for suffix, left, right in _ORDERED
            if mixed or left == right
        ],
    )


def functions(mixed_numbers: bool) -> list[Function]:
    """The operators and functions; with `mixed_numbers`, numbers of different types can be ordered."""
    return [
        singleton(declared_only, [("conditional", "_?_:_(bool, A, A) -> A")]),
        singleton(declared_only, [("logical_and", "_&&_(bool, bool) -> bool")]),
        singleton(declared_only, [("logical_or", "_||_(bool, bool) -> bool")]),
        singleton(logical_not, [("logical_not", "!_(bool) -> bool")]),
        singleton(_not_strictly_false, [("not_strictly_false", "@not_strictly_false(bool) -> bool")]),
        singleton(equal, [("equals", "_==_(A, A) -> bool")]),
        singleton(not_equal, [("not_equals", "_!=_(A, A) -> bool")]),
        singleton(
            add,
            [
                ("add_bytes", "_+_(bytes, bytes) -> bytes"),
                ("add_double", "_+_(double, double) -> double"),
                ("add_duration_duration", "_+_(duration, duration) -> duration"),
                ("add_duration_timestamp", "_+_(duration, timestamp) -> timestamp"),
                ("add_timestamp_duration", "_+_(timestamp, duration) -> timestamp"),
                ("add_int64", "_+_(int, int) -> int"),
                ("add_list", "_+_(list(A), list(A)) -> list(A)"),
                ("add_string", "_+_(string, string) -> string"),
                ("add_uint64", "_+_(uint, uint) -> uint"),
            ],
        ),
        singleton(
            subtract,
            [
                ("subtract_double", "_-_(double, double) -> double"),
                ("subtract_duration_duration", "_-_(duration, duration) -> duration"),
                ("subtract_int64", "_-_(int, int) -> int"),
                ("subtract_timestamp_duration", "_-_(timestamp, duration) -> timestamp"),
                ("subtract_timestamp_timestamp", "_-_(timestamp, timestamp) -> duration"),
                ("subtract_uint64", "_-_(uint, uint) -> uint"),
            ],
        ),
        singleton(multiply, [(f"multiply_{n}", f"_*_({t}, {t}) -> {t}") for n, t in _ARITHMETIC]),
        singleton(divide, [(f"divide_{n}", f"_/_({t}, {t}) -> {t}") for n, t in _ARITHMETIC]),
        singleton(modulo, [(f"modulo_{n}", f"_%_({t}, {t}) -> {t}") for n, t in _ARITHMETIC[1:]]),
        singleton(negate, [("negate_double", "-_(double) -> double"), ("negate_int64", "-_(int) -> int")]),
        _relation("less", "_<_", less, mixed_numbers),
        _relation("less_equals", "_<=_", less_equals, mixed_numbers),
        _relation("greater", "_>_", greater, mixed_numbers),
        _relation("greater_equals", "_>=_", greater_equals, mixed_numbers),
        singleton(declared_only, [("index_list", "_[_](list(A), int) -> A"), ("index_map", "_[_](map(A, B), A) -> B")]),
        singleton(_in, [("in_list", "@in(A, list(A)) -> bool"), ("in_map", "@in(A, map(A, B)) -> bool")]),
        singleton(
            length,
            [
                (f"{'' if prefix else 'size_'}{name}{'_size' if prefix else ''}", signature)
                for name, container in (
                    ("bytes", "bytes"),
                    ("list", "list(A)"),
                    ("map", "map(A, B)"),
                    ("string", "string"),
                )
                for prefix, signature in (("", f"size({container}) -> int"), ("x", f"{container}.size() -> int"))
            ],
        ),
        singleton(_type, [("type", "type(A) -> type(A)")]),
        singleton(_identity, [("to_dyn", "dyn(A) -> dyn")]),
        *group(
            [
                Overload("contains_string", "string.contains(string) -> bool", _contains),
                Overload("ends_with_string", "string.endsWith(string) -> bool", _ends_with),
                Overload("starts_with_string", "string.startsWith(string) -> bool", _starts_with),
            ],
            guarded=False,
        ),
    ]


_ARITHMETIC = (("double", "double"), ("int64", "int"), ("uint64", "uint"))
