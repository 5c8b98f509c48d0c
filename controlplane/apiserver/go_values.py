"""JSON values in the formats of Go's `fmt`, for messages that show one."""

from typing import Any

from resourceapi.objects import quoted_text
from resourceapi.objects.strict import Members

_TYPES = {
    dict: "map[string]interface {}",
    list: "[]interface {}",
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
}
_MAX_PLAIN = 1e21
"""From this value on, a whole number is written with an exponent."""


def go_text(value: Any) -> str:
    """Return a value in Go's format `%v`."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{name}:{go_text(value[name])}' for name in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(go_text, value))}]"
    if isinstance(value, float) and value.is_integer() and abs(value) < _MAX_PLAIN:
        return str(int(value))
    return str(value).lower() if isinstance(value, bool) else "<nil>" if value is None else str(value)


def go_type(value: Any) -> str:
    """Return a value's type in Go's format `%T`."""
    if value is None:
        return "<nil>"
    return _TYPES[dict if isinstance(value, dict) else type(value)]  # objects of a body have a Python type of their own


def go_syntax(value: Any) -> str:
    """Return a value in Go's format `%#v`."""
    if isinstance(value, dict):
        items = ", ".join(f"{quoted_text(name)}:{go_syntax(value[name])}" for name in sorted(value))
        return f"map[string]interface {{}}{{{items}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(go_syntax, value))}}}"
    if isinstance(value, str):
        return quoted_text(value)
    return str(value).lower() if isinstance(value, bool) else "interface {}(nil)" if value is None else repr(value)


def in_order(value: Any) -> Any:
    """Return a value whose members are ordered by name, as Go writes its maps."""
    if isinstance(value, Members):
        return Members(sorted(((name, in_order(item)) for name, item in value.pairs), key=lambda pair: pair[0]))
    if isinstance(value, dict):
        return {name: in_order(value[name]) for name in sorted(value)}
    return [in_order(item) for item in value] if isinstance(value, list) else value


def numbers_as_read(value: Any) -> Any:
    """Return a value with numbers as Go writes them after reading: whole numbers without a point or exponent."""
    if isinstance(value, dict):
        return {name: numbers_as_read(item) for name, item in value.items()}
    if isinstance(value, list):
        return [numbers_as_read(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        value = float(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < _MAX_PLAIN:
        return int(value)
    return value
