"""Values of JSON as Go's `fmt` writes them, for messages that show one."""

from typing import Any

from resourceapi.objects import quoted_text

_TYPES = {
    dict: "map[string]interface {}",
    list: "[]interface {}",
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
}


def go_text(value: Any) -> str:
    """As `%v` writes it."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{name}:{go_text(value[name])}' for name in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(go_text, value))}]"
    return str(value).lower() if isinstance(value, bool) else "<nil>" if value is None else str(value)


def go_type(value: Any) -> str:
    """The type of a value of JSON, as `%T` writes it."""
    if value is None:
        return "<nil>"
    return _TYPES[type(value)]


def go_syntax(value: Any) -> str:
    """A value of JSON as Go's `%#v` writes it."""
    if isinstance(value, dict):
        items = ", ".join(f"{quoted_text(name)}:{go_syntax(value[name])}" for name in sorted(value))
        return f"map[string]interface {{}}{{{items}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(go_syntax, value))}}}"
    if isinstance(value, str):
        return quoted_text(value)
    return str(value).lower() if isinstance(value, bool) else "interface {}(nil)" if value is None else repr(value)
