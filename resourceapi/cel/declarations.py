"""Declarations of functions: overloads with their types and implementations.

A library is a list of overloads whose signatures are text: `string.charAt(int) -> string` is a member function,
`sets.contains(list(T), list(T)) -> bool` is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from resourceapi.cel.types import Kind, Type, parse_type

Implementation: TypeAlias = Callable[..., Any]
# Computes the run-time cost of a call from the arguments and the result; a failed one is `frame.ERRED`.
Cost: TypeAlias = Callable[[tuple[Any, ...], Any], int]


class Overload:
    """One signature of a function.

    `run` takes the arguments and returns the result or raises CelEvalError. `late`: upstream calls the function with an
    argument list (three arguments or more, or declared so), so arguments after a failing one are not evaluated.
    """

    __slots__ = ("args", "function", "id", "late", "member", "params", "result", "run")

    def __init__(self, id_: str, signature: str, run: Implementation, late: bool = False) -> None:
        self.id = id_
        self.member, self.function, self.args, self.result = _read_signature(signature)
        self.run = run
        self.late = late or len(self.args) > 2
        self.params = tuple(dict.fromkeys(name for type_ in (self.result, *self.args) for name in _params(type_)))


class Function:
    """All overloads of a name, in order of declaration.

    `singleton` is the implementation of a function that has one for all overloads; it decides by the values that it
    gets. Other functions choose the overload by the run-time types of the arguments.
    """

    __slots__ = ("guarded", "name", "overloads", "singleton")

    def __init__(
        self, name: str, overloads: Iterable[Overload], singleton: Implementation | None = None, guarded: bool = True
    ) -> None:
        self.name = name
        self.overloads = list(overloads)
        self.singleton = singleton
        self.guarded = guarded  # whether argument types must be checked before an implementation runs

    def extended(self, other: Function) -> Function:
        """Return this function with the overloads of another function of the same name added."""
        known = {overload.id for overload in self.overloads}
        added = [overload for overload in other.overloads if overload.id not in known]
        return Function(self.name, [*self.overloads, *added], self.singleton, self.guarded)


def singleton(run: Implementation, overloads: Iterable[tuple[str, str]]) -> Function:
    """Return a function with one implementation for all of its overloads."""
    made = [Overload(id_, signature, run) for id_, signature in overloads]
    return Function(made[0].function, made, run)


def group(overloads: Iterable[Overload], guarded: bool = True) -> list[Function]:
    """Group overloads by name and return the functions."""
    by_name: dict[str, list[Overload]] = {}
    for overload in overloads:
        by_name.setdefault(overload.function, []).append(overload)
    return [Function(name, found, guarded=guarded) for name, found in by_name.items()]


_PREFIXES = ("sets.", "lists.", "strings.", "optional.", "format.", "ip.", "cel.", "jsonpatch.")
"""The beginnings of functions' names that look like members."""
_OPERATOR = re.compile(r"^(?P<name>@?[_\[\]!?:%*/+<>=&|.-]+|@in|@not_strictly_false)\(")


def _read_signature(signature: str) -> tuple[bool, str, tuple[Type, ...], Type]:
    head, _, result = signature.rpartition(" -> ")
    if operator := _OPERATOR.match(head):
        return False, operator["name"], _arguments(head[operator.end() : -1]), parse_type(result)
    opening = _matching_parenthesis(head)
    name, args = head[:opening], _arguments(head[opening + 1 : -1])
    if not name.startswith(_PREFIXES) and "." in name:
        target, _, name = name.rpartition(".")
        return True, name, (parse_type(target), *args), parse_type(result)
    return False, name, args, parse_type(result)


def _matching_parenthesis(head: str) -> int:
    depth = 0
    for index in range(len(head) - 1, -1, -1):
        depth += (head[index] == ")") - (head[index] == "(")
        if depth == 0:
            return index
    raise AssertionError(f"{head!r}: unbalanced")


def _arguments(text: str) -> tuple[Type, ...]:
    parts: list[str] = []
    depth, start = 0, 0
    for index, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    if text.strip():
        parts.append(text[start:])
    return tuple(map(parse_type, parts))


def _params(type_: Type) -> Iterable[str]:
    if type_.kind is Kind.PARAM:
        yield type_.name
    for each in type_.params:
        yield from _params(each)
