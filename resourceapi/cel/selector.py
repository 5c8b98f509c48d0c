"""Compiles expressions once and evaluates them often.

`compile_expression` is for any environment, `compile_selector` for device selectors, whose result must be a bool.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resourceapi.cel.ast import Ident, Node, walk
from resourceapi.cel.checker import check
from resourceapi.cel.compile import Program, ProgramError, compile_tree
from resourceapi.cel.device import DeviceView, attribute_type, device_bounds
from resourceapi.cel.environment import Environment
from resourceapi.cel.errors import SYNTAX_ERROR, CelCompileError, CelEvalError, Issues
from resourceapi.cel.estimate import UNLIMITED, Bounds, estimate
from resourceapi.cel.frame import Cancelled, Frame, Interrupt
from resourceapi.cel.parser import parse
from resourceapi.cel.stack import depth_of, headroom
from resourceapi.cel.types import BOOL, equivalent
from resourceapi.cel.validators import validate
from resourceapi.cel.values import Optional, type_name

MAX_COST = 1_000_000
"""The limit on the cost of one evaluation of a device selector, and on its estimate, in cost units."""

MAX_LENGTH = 10 * 1024
"""The longest device selector, in bytes."""

_FRAMES_PER_LEVEL = 8  # the most Python frames per tree level of the code that walks, checks and runs a tree
_SHALLOW = 80  # levels that always fit into Python's default recursion limit


class Expression:
    """A compiled expression; `source` is its text, `type` its result's type, and `output_type` that type's name."""

    def __init__(self, source: str, tree: Node, program: Program, depth: int) -> None:
        self.source = source
        self.type = tree.type
        self.output_type = tree.type.declared
        self._tree = tree
        self._run = program.run
        self._slots = program.slots
        self._frames = depth * _FRAMES_PER_LEVEL
        self._is_deep = depth > _SHALLOW

    @property
    def names(self) -> frozenset[str]:
        """The names that the expression reads: input variables, and variables of its macros."""
        return frozenset(node.name for node in walk(self._tree) if isinstance(node, Ident))

    def evaluate(
        self, inputs: Mapping[str, Any] | None = None, limit: int = MAX_COST, interrupt: Interrupt | None = None
    ) -> tuple[Any, int]:
        """Return the value for these inputs and the cost of computing it. Raises CelEvalError."""
        frame = Frame(inputs or {}, self._slots, limit, interrupt)
        try:
            return self._value(frame), frame.cost
        except _STOPPED as stopped:
            raise _failure(stopped, frame) from None

    def estimate(self, bounds: Bounds) -> int:
        """Return the worst-case cost for inputs within these bounds."""
        with headroom(self._frames):
            return estimate(self._tree, bounds).maximum

    def _value(self, frame: Frame) -> Any:
        if self._is_deep:
            with headroom(self._frames):
                value = self._run(frame)
        else:
            value = self._run(frame)
        if frame.cost > frame.limit:
            frame.check()
        return value


_STOPPED = (CelEvalError, Cancelled, RecursionError)


def _failure(stopped: BaseException, frame: Frame) -> CelEvalError:
    """Return the error for an evaluation that did not end with a value."""
    error: CelEvalError
    if isinstance(stopped, Cancelled):
        error = stopped.error
    elif isinstance(stopped, CelEvalError):
        error = stopped
    else:
        error = CelEvalError("expression is nested too deeply")
    error.cost = frame.cost
    return error


class Selector(Expression):
    """A compiled device selector; `max_cost` is the estimated worst case of its cost."""

    max_cost: int = UNLIMITED

    def matches(self, device: DeviceView, limit: int = MAX_COST, interrupt: Interrupt | None = None) -> bool:
        """Return whether the device is selected. Raises CelEvalError."""
        frame = Frame(device, self._slots, limit, interrupt)
        try:
            value = self._value(frame)
        except _STOPPED as stopped:
            raise _failure(stopped, frame) from None
        return value if value is True or value is False else _as_bool(value, frame)

    def evaluate_device(
        self, device: DeviceView, limit: int = MAX_COST, interrupt: Interrupt | None = None
    ) -> tuple[bool, int]:
        """Return whether the device is selected and the cost, like upstream's `DeviceMatches`. Raises CelEvalError."""
        frame = Frame(device, self._slots, limit, interrupt)
        try:
            value = self._value(frame)
        except _STOPPED as stopped:
            raise _failure(stopped, frame) from None
        return _as_bool(value, frame), frame.cost


def _as_bool(result: Any, frame: Frame) -> bool:
    value = result
    while type(value) is Optional and value.present:
        value = value.value
    if value is True or value is False:
        return bool(value)
    error = CelEvalError(f"CEL result of type {type_name(result)} could not be converted to bool: {_not_bool(value)}")
    error.cost = frame.cost
    raise error


_NOT_BOOL = {
    "string": "unsupported native conversion from string to 'bool'",
    "int": "unsupported type conversion from 'int' to bool",
    "uint": "unsupported type conversion from 'uint' to bool",
    "double": "type conversion error from Double to 'bool'",
    "bytes": "type conversion error from Bytes to 'bool'",
    "list": "type conversion error from list to 'bool'",
    "map": "type conversion error from map to 'bool'",
    "type": "type conversion not supported for 'type'",
    "optional_type": "optional.none() dereference",
}


def _not_bool(value: Any) -> str:
    """Return why a result is not a bool, in the words of Go's implementation of the value."""
    name = type_name(value)
    if name in _NOT_BOOL:
        return _NOT_BOOL[name]
    return f"type conversion error from '{_SHORT_NAMES.get(name, name.rpartition('.')[2])}' to 'bool'"


_SHORT_NAMES = {"kubernetes.NamedFormat": "Format"}


def compile_expression(source: str, environment: Environment) -> Expression:
    """Compile an expression of any type. Raises CelCompileError."""
    tree, depth = _check(source, environment)
    try:
        return Expression(source, tree, _build(tree, depth, environment), depth)
    except ProgramError as error:
        raise CelCompileError(f"program: {error}", "internal", tree.type.declared) from None


def compile_selector(source: str, environment: Environment, estimate_cost: bool = True) -> Selector:
    """Compile a device selector. Raises CelCompileError, whose text API validation shows.

    Without `estimate_cost`, `max_cost` is unlimited.
    """
    tree, depth = _check(source, environment)
    if not equivalent(tree.type, BOOL) and tree.type != attribute_type(environment):
        raise CelCompileError(f"must evaluate to bool or the unknown type, not {tree.type.declared}")
    try:
        selector = Selector(source, tree, _build(tree, depth, environment), depth)
    except ProgramError as error:
        raise CelCompileError(f"program instantiation failed: {error}", "internal", tree.type.declared) from None
    if estimate_cost:
        selector.max_cost = selector.estimate(device_bounds(environment))
    return selector


def _check(source: str, environment: Environment) -> tuple[Node, int]:
    """Return the checked tree and its depth. Raises CelCompileError."""
    issues = Issues(source)
    try:
        source.encode()
    except UnicodeEncodeError as error:
        issues.report(error.start, f"{SYNTAX_ERROR}the expression is not valid Unicode")
        raise _refused(issues) from None
    tree = parse(source, environment.macros, issues, environment.optional_syntax)
    if issues:
        raise _refused(issues)
    depth = depth_of(tree)
    with headroom(depth * _FRAMES_PER_LEVEL):
        check(tree, environment.names, issues)
        if not issues:
            validate(tree, environment, issues)
    if issues:
        raise _refused(issues)
    return tree, depth


def _refused(issues: Issues) -> CelCompileError:
    return CelCompileError(f"compilation failed: {issues.text()}")


def _build(tree: Node, depth: int, environment: Environment) -> Program:
    with headroom(depth * _FRAMES_PER_LEVEL):
        return compile_tree(tree, environment.names)
