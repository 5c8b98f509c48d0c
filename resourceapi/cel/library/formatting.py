"""`"...".format([...])`: the clauses %s %d %f %e %b %x %X %o, with the messages of cel-go.

The same parser handles values at run time and, through `Interpolator`, types when a literal is checked. %f and %e print
numbers for the locale en_US: with grouped thousands and superscript exponents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Protocol, TypeAlias

from resourceapi.cel.errors import CelEvalError
from resourceapi.cel.gotext import format_double
from resourceapi.cel.library.times import format_duration, format_timestamp
from resourceapi.cel.values import (
    MAX_INT,
    Duration,
    Timestamp,
    TypeValue,
    Uint,
    is_map,
    items_of,
    read_digits,
    type_name,
)
from resourceapi.objects.errors import quoted_text

_DEFAULT_PRECISION = 6
_MAX_PRECISION = 10_000_009  # the largest that Go reads; it keeps 16 bits of it, and 8 bits for trailing zeros of %f
_UNREADABLE = "%!(NOVERB)"
_SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_SPECIAL = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_PRECISION = re.compile(r"\.([0-9]*)")

DECIMAL = "decimal clause can only be used on integers, was given {}"
FIXED = "fixed-point clause can only be used on doubles, was given {}"
SCIENTIFIC = "scientific clause can only be used on doubles, was given {}"
BINARY = "only integers and bools can be formatted as binary, was given {}"
HEX = "only integers, byte buffers, and strings can be formatted as hex, was given {}"
OCTAL = "octal clause can only be used on integers, was given {}"
STRING = (
    "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and"
    " timestamps, was given {}"
)


class FormatError(Exception):
    """A clause cannot be parsed, or does not fit its argument."""


Clause: TypeAlias = Callable[[Any], str]


class Interpolator(Protocol):
    """The handling of each clause and its argument."""

    def clause(self, letter: str, precision: int | None, /) -> Clause:
        """Return the function for a clause; it raises FormatError for an argument that does not fit."""


def interpolate(
    text: str, interpolator: Interpolator, args: Sequence[Any], is_checking: bool = False
) -> tuple[str, int]:
    """Replace all clauses; returns the text and the number of arguments used. Raises FormatError.

    With `is_checking`, an incomplete clause is reported before a missing argument.
    """
    parts: list[str] = []
    used, position = 0, 0
    while (percent := text.find("%", position)) >= 0:
        parts.append(text[position:percent])
        if text.startswith("%%", percent):
            parts.append("%")
            position = percent + 2
            continue
        missing, unfinished = used >= len(args), percent + 1 >= len(text)
        if unfinished and (is_checking or not missing):
            raise FormatError("unexpected end of string")
        if missing:
            raise FormatError(f"index {used} out of range")
        clause, position = _parse_clause(text, percent + 1, interpolator)
        try:
            parts.append(clause(args[used]))
        except FormatError as error:
            error.args = (f"error during formatting: {error}",)
            raise
        used += 1
    parts.append(text[position:])
    return "".join(parts), used


def _parse_clause(text: str, position: int, interpolator: Interpolator) -> tuple[Clause, int]:
    precision: int | None = None
    failed = "could not parse formatting clause: "
    if match := _PRECISION.match(text, position):
        position = match.end()
        if position >= len(text):
            raise FormatError(f"{failed}error while parsing precision: could not find end of precision specifier")
        digits = match[1]
        precision = read_digits(digits)
        if not digits or precision > MAX_INT:
            problem = "value out of range" if digits else "invalid syntax"
            raise FormatError(
                f"{failed}error while parsing precision: error while converting precision to integer:"
                f" strconv.Atoi: parsing {quoted_text(digits)}: {problem}"
            )
    letter = text[position]
    if letter not in "sdfebxXo":
        # Upstream reads bytes here, and prints the first byte of a multi-byte character as a character.
        shown = letter if ord(letter) < 0x80 else chr(letter.encode()[0])
        raise FormatError(f'{failed}unrecognized formatting clause "{shown}"')
    return interpolator.clause(letter, precision), position + 1


class _Values:
    def clause(self, letter: str, precision: int | None) -> Clause:
        places = _DEFAULT_PRECISION if precision is None else precision
        match letter:
            case "s":
                return _string
            case "d":
                return _decimal
            case "f":
                return lambda value: _fixed(_double(value, FIXED), places)
            case "e":
                return lambda value: _scientific(_double(value, SCIENTIFIC), places)
            case "b":
                return _binary
            case "o":
                return _octal
            case _:
                return lambda value: _hex(value, letter)


_VALUES = _Values()


def format_string(text: str, args: list[Any]) -> str:
    """Return `text.format(args)`. Raises CelEvalError."""
    try:
        return interpolate(text, _VALUES, args)[0]
    except FormatError as error:
        raise CelEvalError(str(error)) from None


def _double(value: Any, message: str) -> float:
    if type(value) is str and value in _SPECIAL:
        return _SPECIAL[value]
    if type(value) is float:
        return value
    raise FormatError(message.format(type_name(value)))


def _special(value: float) -> str | None:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "∞" if value > 0 else "-∞"
    return None


def _fixed(value: float, precision: int) -> str:
    if precision > _MAX_PRECISION:
        return _UNREADABLE
    special = _special(value)
    if special is not None:
        return special
    places = precision % 2**16
    # From 2**15 the precision is negative in Go, which means the shortest digits that identify the number.
    digits = Decimal(value or 0.0) if places < 2**15 else Decimal(repr(value or 0.0))
    whole, _, fraction = f"{digits:,.{places}f}".partition(".")
    fraction = fraction.rstrip("0").ljust(precision % 2**8, "0")
    return f"{whole}.{fraction}" if fraction else whole


def _scientific(value: float, width: int) -> str:
    if width > _MAX_PRECISION:
        return _UNREADABLE
    return (_special(value) or _power_of_ten(value)).rjust(width % 2**16)


def _power_of_ten(value: float) -> str:
    mantissa, _, exponent = f"{value or 0.0:.6e}".partition("e")
    sign = "⁻" if exponent.startswith("-") else ""
    return f"{mantissa}×10{sign}{exponent[1:].translate(_SUPERSCRIPT)}"


def _binary(value: Any) -> str:
    if type(value) is bool:
        return "1" if value else "0"
    if type(value) not in (int, Uint):
        raise FormatError(BINARY.format(type_name(value)))
    return f"{int(value):b}"


def _octal(value: Any) -> str:
    if type(value) not in (int, Uint):
        raise FormatError(OCTAL.format(type_name(value)))
    return f"{int(value):o}"


def _hex(value: Any, letter: str) -> str:
    if type(value) is str or type(value) is bytes:
        raw: bytes = value.encode() if isinstance(value, str) else value
        text = raw.hex()
        return text.upper() if letter == "X" else text
    if type(value) not in (int, Uint):
        raise FormatError(HEX.format(type_name(value)))
    return f"{int(value):{letter}}"


def _decimal(value: Any) -> str:
    if type(value) not in (int, Uint):
        raise FormatError(DECIMAL.format(type_name(value)))
    return str(int(value))


def _string(value: Any) -> str:
    kind = type(value)
    if kind is list:
        return _list(value)
    if is_map(value):
        return _map(value)
    if kind is str:
        return str(value)
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is Uint:
        return str(int(value))
    if kind is float:
        return format_double(value)
    if kind is Duration:
        return format_duration(value)
    if kind is Timestamp:
        return format_timestamp(value)
    if kind is TypeValue:
        return str(value.name)
    if kind is bytes:
        try:
            return str(value.decode())
        except UnicodeDecodeError:
            raise FormatError(
                'could not convert argument "invalid UTF-8 in bytes, cannot convert to string" to string'
            ) from None
    raise FormatError(STRING.format(type_name(value)))


def _nested(value: Any) -> str:
    """Return a value inside a list or map, where texts are quoted and times are shown with their type."""
    kind = type(value)
    if kind is str:
        return quoted_text(value)
    if kind is bytes:
        return "b" + quoted_text(_string(value))
    if kind is Timestamp:
        return f"timestamp({quoted_text(format_timestamp(value))})"
    if kind is Duration:
        return f"duration({quoted_text(format_duration(value))})"
    if kind is float:
        if value != value or value in (float("inf"), float("-inf")):
            return f'"{format_double(value)}"'
        return f"{Decimal(value):.6f}"
    if kind in (bool, int, Uint, TypeValue, list, type(None)) or is_map(value):
        return _string(value)
    raise FormatError(f"no formatting function for {type_name(value)}")


def _list(value: list[Any]) -> str:
    return f"[{', '.join(map(_nested, value))}]"


def _map(value: dict[Any, Any]) -> str:
    pairs: list[tuple[str, str]] = []
    for key, each in items_of(value):
        if type(key) not in (str, bool, int, Uint):
            raise FormatError(f"no formatting function for map key of type {type_name(key)}")
        pairs.append((_nested(key), _nested(each)))
    return "{" + ", ".join(f"{key}:{each}" for key, each in sorted(pairs, key=lambda pair: pair[0])) + "}"
