"""The values of the language as Python values, with their type names, equality, order and size.

| CEL | Python |
|---|---|
| null, bool, int, double, string, bytes | None, bool, int, float, str, bytes |
| uint | Uint |
| list | list, never changed once it is visible to the expression |
| map | dict; bools, lists and maps as keys are wrapped (Key) |
| duration, timestamp | Duration, Timestamp |
| optional_type(T) | Optional |
| type | TypeValue |
| Kubernetes' types | Quantity, Semver, Address, Prefix, Url, NamedFormat |

Numbers of different types are equal if their values are (1 == 1u == 1.0), in Python as in CEL. In Python, bool is a
number too; Key avoids that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from resourceapi.cel.errors import CelEvalError
from resourceapi.cel.frame import Cancelled
from resourceapi.cel.gotext import format_double

MIN_INT = -(2**63)
MAX_INT = 2**63 - 1
MAX_UINT = 2**64 - 1


def read_digits(digits: str) -> int:
    """Convert decimal digits to an int, without leading zeros; `MAX_UINT + 1` for more than 20 digits.

    More digits do not fit 64 bits, and Python refuses to convert thousands of digits, even zeros.
    """
    significant = digits.lstrip("0")
    return int(significant or 0) if len(significant) <= 20 else MAX_UINT + 1


class Uint(int):
    """An unsigned integer."""

    __slots__ = ()


class Duration:
    """A span of time in nanoseconds."""

    __slots__ = ("nanos",)

    def __init__(self, nanos: int) -> None:
        self.nanos = nanos

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(("duration", self.nanos))

    def __repr__(self) -> str:
        return f"Duration({self.nanos})"


class Timestamp:
    """An instant in nanoseconds since 1970; `offset` (seconds east of UTC) only matters for printing."""

    __slots__ = ("nanos", "offset")

    def __init__(self, nanos: int, offset: int = 0) -> None:
        self.nanos = nanos
        self.offset = offset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(("timestamp", self.nanos))

    def __repr__(self) -> str:
        return f"Timestamp({self.nanos})"


class Optional:
    """A value that may be absent."""

    __slots__ = ("present", "value")

    def __init__(self, value: Any, present: bool = True) -> None:
        self.value = value
        self.present = present

    def __repr__(self) -> str:
        return f"Optional({self.value!r})" if self.present else "NONE"


NONE = Optional(None, present=False)


class TypeValue:
    """A type as a value."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeValue) and self.name == other.name

    def __hash__(self) -> int:
        return hash(("type", self.name))

    def __repr__(self) -> str:
        return f"TypeValue({self.name})"


class Key:
    """Wraps a map key that cannot be a Python key itself: bools would equal numbers, and containers are unhashable.

    A Key equals only itself, like upstream's containers and values that upstream holds by reference.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Key({self.value})"


TRUE_KEY, FALSE_KEY = Key(True), Key(False)


def to_key(value: Any) -> Any:
    """Return the stored form of a map key. Raises Cancelled for a value that Go cannot hash, where upstream panics."""
    if value is True:
        return TRUE_KEY
    if value is False:
        return FALSE_KEY
    if is_hashable(value):
        return value
    if (name := go_type_name(value)) in _UNHASHABLE:
        raise Cancelled(CelEvalError(f"internal error: runtime error: hash of unhashable type {name}"))
    return Key(value) if isinstance(value, list | dict) or name in _BY_REFERENCE else value


def keys_of(mapping: dict[Any, Any]) -> Iterator[Any]:
    """Yield the keys of a map as values of the language."""
    for key in mapping:
        yield key.value if type(key) is Key else key


def from_key(stored: Any) -> Any:
    """Return the value of a stored map key."""
    return stored.value if type(stored) is Key else stored


def items_of(mapping: dict[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the keys and values of a map as values of the language."""
    for key, value in mapping.items():
        yield (key.value if type(key) is Key else key), value


def is_map(value: Any) -> bool:
    """Return whether the value is a map."""
    return isinstance(value, dict)


class DefaultMap(dict[Any, Any]):
    """A map in which a lookup of a missing key returns an empty map; `in` and iteration see only existing keys."""

    __slots__ = ()


EMPTY_MAP: dict[Any, Any] = {}


_TYPE_NAMES: dict[type, str] = {
    type(None): "null_type",
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    dict: "map",
    DefaultMap: "map",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    Optional: "optional_type",
    TypeValue: "type",
}
_GO_NAMES: dict[type, str] = {
    type(None): "types.Null",
    bool: "types.Bool",
    int: "types.Int",
    Uint: "types.Uint",
    float: "types.Double",
    str: "types.String",
    bytes: "types.Bytes",
    Duration: "types.Duration",
    Timestamp: "types.Timestamp",
    Optional: "*types.Optional",
    TypeValue: "*types.Type",
    list: "*types.baseList",
    dict: "*types.baseMap",
    DefaultMap: "cel.mapper",
}
_UNHASHABLE = frozenset({"cel.Semver", "cel.Format", "types.Bytes"})
_BY_REFERENCE = frozenset({"cel.Quantity", "*cel.Quantity", "cel.URL", "*types.Optional"})
"""Types that upstream holds by reference: as a map key, a value equals only itself."""
_opaque_equality: dict[type, tuple[type, Callable[[Any, Any], bool]]] = {}


def register_type(
    python: type,
    type_name: str,
    go_name: str,
    equality: Callable[[Any, Any], bool],
    comparable: type | None = None,
) -> None:
    """Register a Python type as a type of the language.

    `equality` compares its values with values of the same type, or of the type `comparable`, on the right-hand side.
    """
    _TYPE_NAMES[python] = type_name
    _GO_NAMES[python] = go_name
    _opaque_equality[python] = (comparable or python, equality)


def is_extension(value: Any) -> bool:
    """Return whether the value is of one of Kubernetes' types."""
    return type(value) in _opaque_equality


def type_name(value: Any) -> str:
    """Return the name of a value's run-time type."""
    return _TYPE_NAMES[type(value)]


def go_type_name(value: Any) -> str:
    """Return the Go type name of a value, which upstream's messages show."""
    return _GO_NAMES.get(type(value), "types.Unknown")


def no_such_overload() -> CelEvalError:
    """Return the error for an operation that is not defined for its operands."""
    return CelEvalError("no such overload")


_SCALARS = frozenset({str, int, bool, Uint, bytes, float, Duration, Timestamp, TypeValue, type(None)})
_NUMBERS = frozenset({int, Uint, float})


def equal(left: Any, right: Any) -> bool:
    """Return `left == right`. Raises CelEvalError if one of Kubernetes' types is compared with another type."""
    kind = type(left)
    if kind is type(right) and kind in _SCALARS:
        return bool(left == right)
    if left is None or right is None:
        return left is right
    if kind in _NUMBERS:
        return type(right) in _NUMBERS and _equal_numbers(left, right)
    if kind is list:
        return type(right) is list and len(left) == len(right) and not any(map(_differ, left, right))
    if isinstance(left, dict):
        return isinstance(right, dict) and _equal_maps(left, right)
    if kind is Optional:
        if type(right) is not Optional or left.present != right.present:
            return False
        return not left.present or equal(left.value, right.value)
    opaque = _opaque_equality.get(kind)
    if opaque is None:
        return False
    comparable, equality = opaque
    if type(right) is not comparable:
        raise no_such_overload()
    return equality(left, right)


def not_equal(left: Any, right: Any) -> bool:
    """Return `left != right`; values that cannot be compared differ."""
    return not is_equal(left, right)


def is_equal(left: Any, right: Any) -> bool:
    """Return whether two values are equal; values that cannot be compared are not."""
    try:
        return equal(left, right)
    except CelEvalError:
        return False


def _differ(left: Any, right: Any) -> bool:
    # Inside a container, upstream treats values that cannot be compared as not different.
    try:
        return not equal(left, right)
    except CelEvalError:
        return False


def _equal_numbers(left: Any, right: Any) -> bool:
    if type(left) is float or type(right) is float:
        return not (left != left or right != right) and compare_numbers(left, right) == 0
    return int(left) == int(right)


def _equal_maps(left: dict[Any, Any], right: dict[Any, Any]) -> bool:
    if len(left) != len(right):
        return False
    return all(key in right and not _differ(value, right[key]) for key, value in left.items())


def compare_numbers(left: Any, right: Any) -> int:
    """Return -1, 0 or 1 for two numbers of any types except NaN; an integer is converted to compare with a double."""
    if type(left) is float and type(right) is not float:
        limits = (0.0, 2.0**64) if type(right) is Uint else (-(2.0**63), 2.0**63)
        if left < limits[0]:
            return -1
        if left > limits[1]:
            return 1
        right = float(right)
    elif type(right) is float and type(left) is not float:
        return -compare_numbers(right, left)
    return int(left > right) - int(left < right)


def compare(left: Any, right: Any) -> int:
    """Return -1, 0 or 1. Raises CelEvalError if the values have no order."""
    kind, other = type(left), type(right)
    if left != left or (kind in _NUMBERS and right != right):
        raise CelEvalError("NaN values cannot be ordered")
    if kind in _NUMBERS and other in _NUMBERS:
        return compare_numbers(left, right)
    if kind is not other:
        raise no_such_overload()
    if kind is str or kind is bytes or kind is bool:
        return int(left > right) - int(left < right)
    if kind is Duration or kind is Timestamp:
        return int(left.nanos > right.nanos) - int(left.nanos < right.nanos)
    raise no_such_overload()


def is_comparable(value: Any) -> bool:
    """Return whether values of this type have an order."""
    return type(value) in (int, Uint, float, str, bytes, bool, Duration, Timestamp)


def contains(container: Any, value: Any) -> bool:
    """Return `value in container`, for lists and maps. Raises CelEvalError for others."""
    if type(container) is list:
        return any(is_equal(value, element) for element in container)
    if isinstance(container, dict):
        return go_type_name(value) not in _UNHASHABLE and to_key(value) in container
    raise no_such_overload()


def is_hashable(value: Any) -> bool:
    """Return whether the value can be a Python map key itself; bools need `to_key`."""
    return type(value) in (str, int, bool, Uint, float)


def find(mapping: dict[Any, Any], key: Any) -> tuple[Any, bool]:
    """Return the value of a key, and whether the map has the key."""
    kind = type(key)
    if kind is str or kind is int or kind is Uint or kind is float:
        try:
            return mapping[key], True
        except KeyError:
            pass
    elif kind is bool:
        stored = TRUE_KEY if key else FALSE_KEY
        if stored in mapping:
            return mapping[stored], True
    if type(mapping) is DefaultMap:
        return EMPTY_MAP, True
    return None, False


def size(value: Any) -> int:
    """Return the size that costs are computed from: characters, bytes, elements or entries; 1 for other values."""
    kind = type(value)
    if kind is str or kind is bytes or kind is list or kind is dict or kind is DefaultMap:
        return len(value)
    if kind is Optional and value.present:
        return size(value.value)
    return getattr(value, "byte_size", 1)


def display(value: Any) -> str:
    """Return a value as upstream's messages print it (Go's %v)."""
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is float:
        return format_double(value)
    if value is None:
        return "NULL_VALUE"
    if kind is bytes:
        return "[" + " ".join(str(byte) for byte in value) + "]"
    if kind is list:
        return "[" + ", ".join(display(each) for each in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{display(from_key(key))}: {display(each)}" for key, each in value.items()) + "}"
    if kind is Optional:
        return f"optional({display(value.value)})" if value.present else "optional.none()"
    if kind is TypeValue:
        return str(value.name)
    return str(value)
