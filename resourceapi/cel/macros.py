"""Macros: calls that the parser replaces with comprehensions and tests.

Every node of an expansion has the position of the macro's call. Source: CEL language definition (macros), the
two-variable comprehensions, bindings and optional extensions of cel-go.
"""

from __future__ import annotations

import copy
from typing import Any

from resourceapi.cel.ast import Call, Comprehension, Entry, Ident, ListExpr, Literal, MapExpr, Node, Select, walk
from resourceapi.cel.parser import Macro, MacroError, MacroKey, TooLargeError

ACCU = "@result"
UNUSED = "#unused"
_MAX_DUPLICATE = 10_000  # nodes; far more than an expression of 10 KiB has
_SORT_INPUT = "@__sortBy_input__"
_ACCU_NAMES = (ACCU, "__result__")


def _has(position: int, _target: Node | None, args: list[Node]) -> Node:
    if isinstance(args[0], Select):
        return Select(position, args[0].operand, args[0].field, test_only=True)
    raise MacroError(args[0].position, "invalid argument to has() macro")


def _variable(node: Node, message: str) -> str:
    if not isinstance(node, Ident):
        raise MacroError(node.position, message)
    if node.name in _ACCU_NAMES:
        raise MacroError(node.position, "iteration variable overwrites accumulator variable")
    return node.name


def _two_variables(first: Node, second: Node) -> tuple[str, str]:
    names: list[str] = []
    for node in (first, second):
        if not isinstance(node, Ident):
            raise MacroError(node.position, "argument must be a simple name")
        names.append(node.name)
    if names[0] == names[1]:
        raise MacroError(second.position, f"duplicate variable name: {names[0]}")
    for node, name in zip((first, second), names, strict=True):
        if name in _ACCU_NAMES:
            raise MacroError(node.position, "iteration variable overwrites accumulator variable")
    return names[0], names[1]


class _Factory:
    """Builds nodes at one position; each call creates new nodes."""

    def __init__(self, position: int) -> None:
        self._position = position

    def accu(self) -> Node:
        return Ident(self._position, ACCU)

    def literal(self, value: Any) -> Node:
        return Literal(self._position, value)

    def ident(self, name: str) -> Node:
        return Ident(self._position, name)

    def call(self, function: str, *args: Node) -> Node:
        return Call(self._position, function, list(args))

    def member(self, function: str, target: Node, *args: Node) -> Node:
        return Call(self._position, function, list(args), target)

    def list(self, *elements: Node) -> Node:
        return ListExpr(self._position, list(elements))

    def fold(self, range_: Node, names: tuple[str, str], init: Node, condition: Node, step: Node, result: Node) -> Node:
        return Comprehension(self._position, range_, *names, ACCU, init, condition, step, result)

    def bind(self, name: str, value: Node, body: Node) -> Node:
        return Comprehension(
            self._position, self.list(), UNUSED, "", name, value, self.literal(False), self.ident(name), body
        )


def _all(make: _Factory, range_: Node, names: tuple[str, str], predicate: Node) -> Node:
    return make.fold(
        range_,
        names,
        make.literal(True),
        make.call("@not_strictly_false", make.accu()),
        make.call("_&&_", make.accu(), predicate),
        make.accu(),
    )


def _exists(make: _Factory, range_: Node, names: tuple[str, str], predicate: Node) -> Node:
    return make.fold(
        range_,
        names,
        make.literal(False),
        make.call("@not_strictly_false", make.call("!_", make.accu())),
        make.call("_||_", make.accu(), predicate),
        make.accu(),
    )


def _exists_one(make: _Factory, range_: Node, names: tuple[str, str], predicate: Node) -> Node:
    increment = make.call("_+_", make.accu(), make.literal(1))
    return make.fold(
        range_,
        names,
        make.literal(0),
        make.literal(True),
        make.call("_?_:_", predicate, increment, make.accu()),
        make.call("_==_", make.accu(), make.literal(1)),
    )


_QUANTIFIERS = {"all": _all, "exists": _exists, "exists_one": _exists_one}


def _quantifier(name: str) -> Macro:
    def expand(position: int, target: Node | None, args: list[Node]) -> Node:
        assert target is not None
        variable = _variable(args[0], "argument must be a simple name")
        return _QUANTIFIERS[name](_Factory(position), target, (variable, ""), args[1])

    return expand


def _quantifier2(name: str) -> Macro:
    def expand(position: int, target: Node | None, args: list[Node]) -> Node:
        assert target is not None
        return _QUANTIFIERS[name](_Factory(position), target, _two_variables(args[0], args[1]), args[2])

    return expand


def _collect(
    make: _Factory, range_: Node, names: tuple[str, str], init: Node, predicate: Node | None, step: Node
) -> Node:
    if predicate is not None:
        step = make.call("_?_:_", predicate, step, make.accu())
    return make.fold(range_, names, init, make.literal(True), step, make.accu())


def _map(position: int, target: Node | None, args: list[Node]) -> Node:
    assert target is not None
    make = _Factory(position)
    name = _variable(args[0], "argument is not an identifier")
    step = make.call("_+_", make.accu(), make.list(args[-1]))
    return _collect(make, target, (name, ""), make.list(), args[1] if len(args) == 3 else None, step)


def _filter(position: int, target: Node | None, args: list[Node]) -> Node:
    assert target is not None
    make = _Factory(position)
    name = _variable(args[0], "argument is not an identifier")
    step = make.call("_+_", make.accu(), make.list(args[0]))
    return _collect(make, target, (name, ""), make.list(), args[1], step)


def _transform_list(position: int, target: Node | None, args: list[Node]) -> Node:
    assert target is not None
    make = _Factory(position)
    names = _two_variables(args[0], args[1])
    step = make.call("_+_", make.accu(), make.list(args[-1]))
    return _collect(make, target, names, make.list(), args[2] if len(args) == 4 else None, step)


def _transform_map(position: int, target: Node | None, args: list[Node]) -> Node:
    assert target is not None
    make = _Factory(position)
    names = _two_variables(args[0], args[1])
    step = make.call("cel.@mapInsert", make.accu(), make.ident(names[0]), args[-1])
    return _collect(make, target, names, MapExpr(position, []), args[2] if len(args) == 4 else None, step)


def _transform_map_entry(position: int, target: Node | None, args: list[Node]) -> Node:
    assert target is not None
    make = _Factory(position)
    names = _two_variables(args[0], args[1])
    step = make.call("cel.@mapInsert", make.accu(), args[-1])
    return _collect(make, target, names, MapExpr(position, []), args[2] if len(args) == 4 else None, step)


def _bind(position: int, target: Node | None, args: list[Node]) -> Node | None:
    if not (isinstance(target, Ident) and target.name == "cel"):
        return None
    if not isinstance(args[0], Ident):
        raise MacroError(args[0].position, "cel.bind() variable names must be simple identifiers")
    return _Factory(position).bind(args[0].name, args[1], args[2])


def _opt(function: str, flat: bool) -> Macro:
    def expand(position: int, target: Node | None, args: list[Node]) -> Node:
        assert target is not None
        if not isinstance(args[0], Ident):
            raise MacroError(args[0].position, f"{function}() variable name must be a simple identifier")
        make = _Factory(position)
        body = make.bind(args[0].name, make.member("value", duplicate(target)), args[1])
        return make.call(
            "_?_:_",
            make.member("hasValue", target),
            body if flat else make.call("optional.of", body),
            make.call("optional.none"),
        )

    return expand


def _sort_by(position: int, target: Node | None, args: list[Node]) -> Node:
    if not isinstance(target, ListExpr | Select | Ident | Comprehension | Call):
        assert target is not None
        raise MacroError(
            target.position,
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression",
        )
    make = _Factory(position)
    keys = _map(position, make.ident(_SORT_INPUT), args)
    call = make.member("@sortByAssociatedKeys", make.ident(_SORT_INPUT), keys)
    return make.bind(_SORT_INPUT, target, call)


def duplicate(node: Node) -> Node:
    """Return a deep copy of a tree.

    Raises TooLargeError for a large tree, because chained macros would double it each time.
    """
    if any(index > _MAX_DUPLICATE for index, _ in enumerate(walk(node))):
        raise TooLargeError(node.position, "expression is too large after macro expansion")
    return _duplicate(node)


def _duplicate(node: Node) -> Node:
    twin = copy.copy(node)
    match twin:
        case Select():
            twin.operand = _duplicate(twin.operand)
        case Call():
            twin.target = _duplicate(twin.target) if twin.target is not None else None
            twin.args = [_duplicate(arg) for arg in twin.args]
        case ListExpr():
            twin.elements = [_duplicate(element) for element in twin.elements]
        case MapExpr():
            twin.entries = [Entry(_duplicate(e.key), _duplicate(e.value), e.optional) for e in twin.entries]
        case Comprehension():
            twin.range, twin.init = _duplicate(twin.range), _duplicate(twin.init)
            twin.condition, twin.step = _duplicate(twin.condition), _duplicate(twin.step)
            twin.result = _duplicate(twin.result)
    return twin


STANDARD: dict[MacroKey, Macro] = {
    ("has", 1, False): _has,
    ("map", 2, True): _map,
    ("map", 3, True): _map,
    ("filter", 2, True): _filter,
} | {(name, 2, True): _quantifier(name) for name in _QUANTIFIERS}

TWO_VARIABLES: dict[MacroKey, Macro] = {
    ("transformList", 3, True): _transform_list,
    ("transformList", 4, True): _transform_list,
    ("transformMap", 3, True): _transform_map,
    ("transformMap", 4, True): _transform_map,
    ("transformMapEntry", 3, True): _transform_map_entry,
    ("transformMapEntry", 4, True): _transform_map_entry,
    ("existsOne", 3, True): _quantifier2("exists_one"),
} | {(name, 3, True): _quantifier2(name) for name in _QUANTIFIERS}

OPTIONALS: dict[MacroKey, Macro] = {
    ("optMap", 2, True): _opt("optMap", flat=False),
    ("optFlatMap", 2, True): _opt("optFlatMap", flat=True),
}

BINDINGS: dict[MacroKey, Macro] = {("bind", 3, True): _bind}

SORT_BY: dict[MacroKey, Macro] = {("sortBy", 2, True): _sort_by}
