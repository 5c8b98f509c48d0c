"""matches(), find() and findAll(), with the syntax and the guarantees of RE2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from resourceapi.cel.declarations import Function, Implementation, Overload, group, singleton
from resourceapi.cel.errors import CelEvalError
from resourceapi.cel.library.standard import unsupported
from resourceapi.cel.re2 import Matcher, RegexError, RegexTooExpensive, compile_regex, find_all
from resourceapi.cel.values import no_such_overload

REGEX_FUNCTIONS = frozenset({"matches", "find", "findAll"})


def compile_pattern(pattern: str, prefix: str = "") -> Matcher:
    """Compile a pattern. Raises CelEvalError."""
    try:
        return compile_regex(pattern)
    except RegexError as error:
        raise CelEvalError(f"{prefix}{error}") from None


def _bounded(run: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        try:
            return run(*args)
        except RegexTooExpensive:
            raise CelEvalError("regular expression takes too long") from None

    return call


def _is_match(matcher: Matcher, text: Any) -> bool:
    if type(text) is not str:
        raise no_such_overload()
    return matcher.is_match(text)


def _first(matcher: Matcher, text: Any) -> str:
    if type(text) is not str:
        raise no_such_overload()
    found = matcher.find(text)
    return text[found[0] : found[1]] if found is not None else ""


def _all(matcher: Matcher, text: Any, limit: Any = -1) -> list[str]:
    if type(text) is not str or type(limit) is not int:
        raise no_such_overload()
    matches: list[str] = []
    for start, end in find_all(matcher, text):
        if 0 <= limit <= len(matches):
            break
        matches.append(text[start:end])
    return matches


_RUN: dict[str, Callable[..., Any]] = {
    "matches": _bounded(_is_match),
    "find": _bounded(_first),
    "findAll": _bounded(_all),
}


def _matches(text: Any, pattern: Any) -> bool:
    if type(text) is not str:
        raise unsupported("matches", text)
    if type(pattern) is not str:
        raise no_such_overload()
    return bool(_RUN["matches"](compile_pattern(pattern), text))


def _find(text: str, pattern: str) -> Any:
    return _RUN["find"](compile_pattern(pattern, "Illegal regex: "), text)


def _find_all(text: str, pattern: str, limit: int = -1) -> Any:
    return _RUN["findAll"](compile_pattern(pattern, "Illegal regex: "), text, limit)


def prepare(function: str, pattern: str) -> Implementation:
    """Return the implementation of a function for a constant pattern. Raises CelEvalError for an invalid pattern."""
    matcher = compile_pattern(pattern)
    run = _RUN[function]
    return lambda text, _, *limit: run(matcher, text, *limit)


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
