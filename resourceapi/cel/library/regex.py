"""matches(), find() and findAll() with the syntax of RE2."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from resourceapi.cel.declarations import Function, Implementation, Overload, group, singleton
from resourceapi.cel.errors import CelEvalError
from resourceapi.cel.values import no_such_overload

REGEX_FUNCTIONS = frozenset({"matches", "find", "findAll"})


def compile_pattern(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise CelEvalError(f"error parsing regexp: {error}") from None


def _matches(text: Any, pattern: Any) -> bool:
    if type(text) is not str or type(pattern) is not str:
        raise no_such_overload()
    return compile_pattern(pattern).search(text) is not None


def _find(text: str, pattern: str) -> str:
    found = compile_pattern(pattern).search(text)
    return found.group() if found else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    return [match.group() for match in compile_pattern(pattern).finditer(text)][: None if limit < 0 else limit]


_RUN: dict[str, Callable[..., Any]] = {"matches": _matches, "find": _find, "findAll": _find_all}


def prepare(function: str, pattern: str) -> Implementation:
    """The implementation of a function for a constant pattern. Raises CelEvalError for a bad one."""
    compile_pattern(pattern)
    return _RUN[function]


def standard() -> list[Function]:
    """matches()."""
    return [
        singleton(
            _matches,
            [("matches", "matches(string, string) -> bool"), ("matches_string", "string.matches(string) -> bool")],
        )
    ]


def kubernetes() -> list[Function]:
    """find() and findAll()."""
    return group(
        [
            Overload("string_find_string", "string.find(string) -> string", _find),
            Overload("string_find_all_string", "string.findAll(string) -> list(string)", _find_all),
            Overload("string_find_all_string_int", "string.findAll(string, int) -> list(string)", _find_all),
        ]
    )
