"""The strings extension, version 2: characters, search, case, replace, split, join, quote, format.

Positions count code points. Source: cel-go ext/strings.
"""

from __future__ import annotations

from typing import Any

from resourceapi.cel.declarations import Function, Overload, group
from resourceapi.cel.errors import CelEvalError
from resourceapi.cel.library.formatting import format_string
from resourceapi.cel.library.standard import MAX_ELEMENTS
from resourceapi.cel.values import display

# The characters of Go's unicode.IsSpace, which are fewer than those of Python's str.isspace.
_SPACE = (
    "\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029"
    "\u202f\u205f\u3000"
)
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_QUOTED = {
    ord(char): escape
    for char, escape in zip(
        '\a\b\f\n\r\t\v\\"', ("\\a", "\\b", "\\f", "\\n", "\\r", "\\t", "\\v", "\\\\", '\\"'), strict=True
    )
}
_MAX_CHARACTERS = 10 * MAX_ELEMENTS


def _out_of_range(index: int) -> CelEvalError:
    return CelEvalError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def _index_of(text: str, part: str, offset: int = 0) -> int:
    if offset < 0:
        raise _out_of_range(offset)
    if not part:
        return min(offset, len(text))
    return text.find(part, offset)


def _last_index_of(text: str, part: str, offset: int | None = None) -> int:
    if offset is None:
        return text.rfind(part)
    if offset < 0:
        raise _out_of_range(offset)
    if not part:
        return min(offset, len(text))
    if offset >= len(text):
        return -1
    return text.rfind(part, 0, offset + len(part))


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    found = text.count(old) if count < 0 else min(text.count(old), count)
    if len(text) + found * (len(new) - len(old)) > _MAX_CHARACTERS:
        raise CelEvalError("value is too large")
    return text.replace(old, new, max(count, -1))


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if not separator:
        if count < 0 or count >= len(text):
            return list(text)
        return [*text[: count - 1], text[count - 1 :]]
    return text.split(separator, count - 1 if count > 0 else -1)


def _substring(text: str, start: int) -> str:
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    return text[start:]


def _substring_range(text: str, start: int, end: int) -> str:
    if start > end:
        raise CelEvalError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if not 0 <= index <= len(text):
            raise _out_of_range(index)
    return text[start:end]


def _join(parts: list[Any], separator: str = "") -> str:
    for part in parts:
        if type(part) is not str:
            raise CelEvalError(f"join: invalid input: {display(part)}")
    if sum(map(len, parts)) + len(separator) * len(parts) > _MAX_CHARACTERS:
        raise CelEvalError("value is too large")
    return separator.join(parts)


def _quote(text: str) -> str:
    return f'"{text.translate(_QUOTED)}"'


def functions(version: int) -> list[Function]:
    """The functions of the library's version 0 or 2."""
    found = [
        Overload("string_char_at_int", "string.charAt(int) -> string", _char_at),
        Overload("string_index_of_string", "string.indexOf(string) -> int", _index_of),
        Overload("string_index_of_string_int", "string.indexOf(string, int) -> int", _index_of),
        Overload("string_last_index_of_string", "string.lastIndexOf(string) -> int", _last_index_of),
        Overload("string_last_index_of_string_int", "string.lastIndexOf(string, int) -> int", _last_index_of),
        Overload("string_lower_ascii", "string.lowerAscii() -> string", lambda text: text.translate(_LOWER)),
        Overload("string_replace_string_string", "string.replace(string, string) -> string", _replace),
        Overload("string_replace_string_string_int", "string.replace(string, string, int) -> string", _replace),
        Overload("string_split_string", "string.split(string) -> list(string)", _split),
        Overload("string_split_string_int", "string.split(string, int) -> list(string)", _split),
        Overload("string_substring_int", "string.substring(int) -> string", _substring),
        Overload("string_substring_int_int", "string.substring(int, int) -> string", _substring_range),
        Overload("string_trim", "string.trim() -> string", lambda text: text.strip(_SPACE)),
        Overload("string_upper_ascii", "string.upperAscii() -> string", lambda text: text.translate(_UPPER)),
    ]
    if version >= 1:
        found.append(Overload("string_format", "string.format(list(dyn)) -> string", format_string, late=True))
        found.append(Overload("strings_quote", "strings.quote(string) -> string", _quote))
    found.append(Overload("list_join", "list(string).join() -> string", _join))
    found.append(Overload("list_join_string", "list(string).join(string) -> string", _join))
    return group(found)
