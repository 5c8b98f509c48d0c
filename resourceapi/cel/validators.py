"""Checks the literals of a well-typed expression.

Constant durations, timestamps and regular expressions must be valid, format clauses must fit their arguments, and
lists and maps must have one element type. Source: cel-go's AST validators, whose order and messages these keep.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from resourceapi.cel.ast import Call, ListExpr, Literal, MapExpr, Node, walk
from resourceapi.cel.environment import Environment
from resourceapi.cel.errors import CelEvalError, Issues
from resourceapi.cel.library import formatting
from resourceapi.cel.library.formatting import Clause, FormatError, interpolate
from resourceapi.cel.library.regex import compile_pattern
from resourceapi.cel.types import Kind, Type, equivalent, unwrap_optional

_FORMATTED = frozenset(
    {
        *(Kind.LIST, Kind.MAP, Kind.INT, Kind.UINT, Kind.DOUBLE, Kind.BOOL, Kind.STRING),
        *(Kind.TIMESTAMP, Kind.BYTES, Kind.DURATION, Kind.TYPE, Kind.NULL),
    }
)
_INTEGERS = frozenset({Kind.INT, Kind.UINT})
# Clauses that accept only some types: the types, and the message for others.
_CLAUSES = {
    "d": (_INTEGERS, formatting.DECIMAL),
    "f": (frozenset({Kind.DOUBLE, Kind.STRING}), formatting.FIXED),
    "e": (frozenset({Kind.DOUBLE, Kind.STRING}), formatting.SCIENTIFIC),
    "b": (_INTEGERS | {Kind.BOOL}, formatting.BINARY),
    "x": (_INTEGERS | {Kind.STRING, Kind.BYTES}, formatting.HEX),
    "X": (_INTEGERS | {Kind.STRING, Kind.BYTES}, formatting.HEX),
    "o": (_INTEGERS, formatting.OCTAL),
}


def validate(root: Node, environment: Environment, issues: Issues) -> None:
    """Check the literals of a checked tree; problems are reported to `issues`."""
    nodes = list(walk(root))
    if environment.literal_validators:
        for function in ("duration", "timestamp"):
            _conversions(nodes, environment, function, issues)
        _patterns(nodes, issues)
    exempt = _below_format(root) if environment.format_validator else frozenset()
    _homogeneous(nodes, exempt, issues)
    if environment.format_validator:
        _formats(nodes, issues)


def _literal_arguments(nodes: list[Node], function: str) -> Iterator[tuple[Call, Literal]]:
    for node in nodes:
        if isinstance(node, Call) and node.function == function and node.args:
            argument = node.args[0]
            if isinstance(argument, Literal):
                yield node, argument


def _conversions(nodes: list[Node], environment: Environment, function: str, issues: Issues) -> None:
    for call, argument in _literal_arguments(nodes, function):
        overloads = environment.names.functions[function].overloads
        run = next(each.run for each in overloads if each.id in call.overloads)
        try:
            if argument.value is not None:
                run(argument.value)
                continue
        except CelEvalError:
            pass
        issues.report(argument.position, f"invalid {function} argument")


def _patterns(nodes: list[Node], issues: Issues) -> None:
    # Upstream checks the first argument even if it is the text and not the pattern.
    for _, argument in _literal_arguments(nodes, "matches"):
        try:
            compile_pattern(argument.value)
        except CelEvalError:
            issues.report(argument.position, "invalid matches argument")


# --- format


class _BadArgument(FormatError):
    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


class _Types:
    """Applies format clauses to the argument nodes instead of values."""

    def clause(self, letter: str, _precision: int | None) -> Clause:
        if letter == "s":
            return self._string
        allowed, message = _CLAUSES[letter]

        def check(node: Any) -> str:
            if node.type.kind is not Kind.DYN and node.type.kind not in allowed:
                raise _BadArgument(message.format(node.type.name), node.position)
            return ""

        return check

    def _string(self, node: Any) -> str:
        bad = _unprintable(node)
        if bad is not None:
            raise _BadArgument(formatting.STRING.format(bad.type.name), bad.position)
        return ""


_TYPES = _Types()


def _unprintable(node: Node) -> Node | None:
    if node.type.kind is not Kind.DYN and node.type.kind not in _FORMATTED:
        return node
    if isinstance(node, ListExpr | MapExpr):
        return next((bad for child in node.children() if (bad := _unprintable(child)) is not None), None)
    return None


def _formats(nodes: list[Node], issues: Issues) -> None:
    for node in reversed(nodes):  # inner calls first: this is the order of problems at the same position
        if not (isinstance(node, Call) and node.function == "format" and "string_format" in node.overloads):
            continue
        if not (isinstance(node.target, Literal) and isinstance(node.args[0], ListExpr)):
            continue
        args = node.args[0].elements
        try:
            _, used = interpolate(node.target.value, _TYPES, args, is_checking=True)
        except _BadArgument as error:
            issues.report(error.position, str(error))
        except FormatError as error:
            issues.report(node.position, str(error))
        else:
            if len(args) > used:
                issues.report(
                    node.position, f"too many arguments supplied to string.format (expected {used}, got {len(args)})"
                )


def _below_format(root: Node) -> frozenset[int]:
    """Return the nodes inside calls of format, where lists of mixed types are allowed."""
    found: set[int] = set()
    for node in walk(root):
        if isinstance(node, Call) and node.function == "format" and id(node) not in found:
            found.update(id(below) for below in walk(node) if below is not node)
    return frozenset(found)


# --- containers


def _homogeneous(nodes: list[Node], exempt: frozenset[int], issues: Issues) -> None:
    for node in nodes:
        if isinstance(node, ListExpr) and id(node) not in exempt:
            _homogeneous_list(node, issues)
    for node in nodes:
        if isinstance(node, MapExpr) and id(node) not in exempt:
            _homogeneous_map(node, issues)


def _element_type(node: Node, optional: bool) -> Type:
    inner = unwrap_optional(node.type) if optional else None
    return node.type if inner is None else inner


def _mismatch(issues: Issues, node: Node, expected: Type, found: Type) -> None:
    issues.report(node.position, f"expected type '{expected}' but found '{found}'")


def _homogeneous_list(node: ListExpr, issues: Issues) -> None:
    expected: Type | None = None
    for index, element in enumerate(node.elements):
        found = _element_type(element, index in node.optionals)
        if expected is None:
            expected = found
        elif not equivalent(expected, found):
            _mismatch(issues, element, expected, found)
            return


def _homogeneous_map(node: MapExpr, issues: Issues) -> None:
    expected: tuple[Type, Type] | None = None
    for entry in node.entries:
        found = (entry.key.type, _element_type(entry.value, entry.optional))
        if expected is None:
            expected = found
            continue
        for part, wanted, actual in zip((entry.key, entry.value), expected, found, strict=True):
            if not equivalent(wanted, actual):
                _mismatch(issues, part, wanted, actual)
