"""Type checking: resolves names and overloads, and records the type of every node.

Problems are collected, so that one run reports all of them. Source: the type checker of cel-go, whose messages and
positions this one reproduces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from resourceapi.cel.ast import Call, Comprehension, Ident, ListExpr, Literal, MapExpr, Node, Select, Struct, walk
from resourceapi.cel.declarations import Function, Overload
from resourceapi.cel.errors import Issues
from resourceapi.cel.messages import ENUM_VALUES, MESSAGES, Message
from resourceapi.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    ERROR,
    INT,
    NULL,
    STRING,
    UINT,
    Kind,
    Type,
    is_dyn,
    is_dyn_or_error,
    list_of,
    map_of,
    optional_of,
    param,
    type_of,
    unwrap_optional,
)
from resourceapi.cel.unify import Bindings, assign, assign_all, most_general, substitute
from resourceapi.cel.values import TypeValue, Uint

_LITERALS: dict[type, Type] = {
    bool: BOOL,
    bytes: BYTES,
    float: DOUBLE,
    int: INT,
    str: STRING,
    Uint: UINT,
    type(None): NULL,
}


class Names:
    """The declarations of an environment: functions, variables, types by name, and the fields of object types.

    `find_message` returns the message of a literal's name.
    """

    def __init__(
        self,
        functions: Mapping[str, Function],
        variables: Mapping[str, Type],
        types: Mapping[str, Type],
        fields: Mapping[str, Mapping[str, Type]],
        opaque_types: frozenset[str] = frozenset(),
        find_message: Callable[[str], Message | None] = MESSAGES.get,
    ) -> None:
        self.functions = functions
        self.variables = variables
        self.types = types
        self.fields = fields
        self.find_message = find_message
        self.opaque_types = opaque_types  # names that the checker resolves, but that are no type values


def check(root: Node, names: Names, issues: Issues) -> None:
    """Check a tree in place. Problems are reported to `issues`; if there are any, the tree must not be run."""
    checker = _Checker(names, issues)
    checker.check(root)
    for node in walk(root):
        node.type = substitute(checker.bindings, node.type, to_dyn=True)


class _Checker:
    def __init__(self, names: Names, issues: Issues) -> None:
        self._names = names
        self._issues = issues
        self._scopes: list[dict[str, Type]] = []
        self._variables = 0
        self.bindings: Bindings = {}

    def check(self, node: Node) -> None:
        match node:
            case Literal():
                node.type = _LITERALS[type(node.value)]
            case Ident():
                self._ident(node)
            case Select():
                self._select(node)
            case Call():
                self._call(node)
            case ListExpr():
                self._list(node)
            case MapExpr():
                self._map(node)
            case Struct():
                self._struct(node)
            case Comprehension():
                self._comprehension(node)

    def _undeclared(self, node: Node, name: str) -> None:
        self._issues.report(node.position, f"undeclared reference to '{name}' (in container '')")

    def _mismatch(self, node: Node, expected: Type, found: Type) -> None:
        self._issues.report(node.position, f"expected type '{expected}' but found '{found}'")

    def _type_variable(self) -> Type:
        self._variables += 1
        return param(f"_var{self._variables - 1}")

    def _assign(self, left: Type, right: Type) -> bool:
        bindings = assign(self.bindings, left, right)
        if bindings is None:
            return False
        self.bindings = bindings
        return True

    # --- names

    def _resolve(self, name: str) -> tuple[Type, TypeValue | int | None] | None:
        if not name.startswith("."):
            for scope in reversed(self._scopes):
                if name in scope:
                    return scope[name], None
        name = name.removeprefix(".")
        if name in self._names.variables:
            return self._names.variables[name], None
        if name in self._names.types:
            constant = None if name in self._names.opaque_types else TypeValue(name)
            return type_of(self._names.types[name]), constant
        if name in MESSAGES:
            return type_of(MESSAGES[name].type), None
        if name in ENUM_VALUES:
            return INT, ENUM_VALUES[name]
        return None

    def _ident(self, node: Ident) -> None:
        found = self._resolve(node.name)
        if found is None:
            node.type = ERROR
            self._undeclared(node, node.name)
            return
        node.type, node.constant = found
        bare = node.name.removeprefix(".")
        if not any(bare in scope for scope in self._scopes):
            node.name = bare  # the dot matters only if a local variable has the same name

    def _select(self, node: Select) -> None:
        if not node.test_only and (name := _qualified_name(node)) is not None:
            # The name of a type can have dots; such a select is not a field access.
            head = name.partition(".")[0]
            if not any(head in scope for scope in self._scopes) and (found := self._resolve(name)) is not None:
                node.operand = ident = Ident(node.position, name)
                node.type, ident.constant = found
                ident.type = node.type
                return
        result = self._field(node, node.operand, node.field, optional=False)
        node.type = BOOL if node.test_only else substitute(self.bindings, result)

    def _field(self, node: Node, operand: Node, field: str, optional: bool) -> Type:
        self.check(operand)
        operand_type = substitute(self.bindings, operand.type)
        inner = unwrap_optional(operand_type)
        target = operand_type if inner is None else inner
        result = ERROR
        match target.kind:
            case Kind.MAP:
                result = target.params[1]
            case Kind.STRUCT:
                declared = self._names.fields.get(target.name)
                if declared is None:
                    self._issues.report(node.position, f"unexpected failed resolution of '{target.name}'")
                elif field not in declared:
                    self._issues.report(node.position, f"undefined field '{field}'")
                else:
                    result = declared[field]
            case Kind.PARAM:
                self._assign(DYN, target)
                result = DYN
            case _:
                if not is_dyn_or_error(target):
                    self._issues.report(node.position, f"type '{target}' does not support field selection")
                result = DYN
        return optional_of(result) if optional or inner is not None else result

    # --- calls

    def _call(self, node: Call) -> None:
        if node.function == "_?._":
            self._optional_select(node)
            return
        for arg in node.args:
            self.check(arg)
        if node.target is None:
            self._resolve_overload(node)
            return
        prefix = _qualified_name(node.target)
        if prefix is not None and f"{prefix.removeprefix('.')}.{node.function}" in self._names.functions:
            node.function = f"{prefix.removeprefix('.')}.{node.function}"
            node.target = None
            self._resolve_overload(node)
            return
        self.check(node.target)
        self._resolve_overload(node)

    def _optional_select(self, node: Call) -> None:
        operand, field = node.args
        assert isinstance(field, Literal)
        field.type = STRING
        result = self._field(node, operand, field.value, optional=True)
        node.type = substitute(self.bindings, result)
        node.overloads = ["select_optional_field"]

    def _resolve_overload(self, node: Call) -> None:
        function = self._names.functions.get(node.function.removeprefix("."))
        if function is None:
            node.type = ERROR
            self._undeclared(node, node.function)
            return
        node.function = function.name
        args = tuple(arg.type for arg in node.args)
        if node.target is not None:
            args = (node.target.type, *args)
        if node.function in ("_&&_", "_||_"):
            self._logical(node, args)
            return
        result: Type | None = None
        matched: list[str] = []
        for overload in function.overloads:
            if overload.member != (node.target is not None):
                continue
            if len(overload.args) != len(args):
                self._variables += len(overload.params)  # messages show the numbers, which must be upstream's
                continue
            expected, returned = self._instantiate(overload)
            bindings = assign_all(self.bindings, args, expected)
            if bindings is None:
                continue
            self.bindings = bindings
            matched.append(overload.id)
            returned = substitute(bindings, returned)
            if result is None:
                result = returned
            elif not is_dyn(result) and returned != result:
                result = DYN
        if result is None:
            node.type = ERROR
            self._no_match(node, tuple(substitute(self.bindings, arg, to_dyn=True) for arg in args))
            return
        node.type = result
        node.overloads = matched

    def _logical(self, node: Call, args: tuple[Type, ...]) -> None:
        node.overloads = ["logical_and" if node.function == "_&&_" else "logical_or"]
        node.type = BOOL
        for arg, type_ in zip(node.args, args, strict=True):
            if not self._assign(type_, BOOL):
                self._mismatch(arg, BOOL, type_)
                node.type = ERROR

    def _instantiate(self, overload: Overload) -> tuple[tuple[Type, ...], Type]:
        if not overload.params:
            return overload.args, overload.result
        fresh = {name: self._type_variable() for name in overload.params}
        return tuple(substitute(fresh, arg) for arg in overload.args), substitute(fresh, overload.result)

    def _no_match(self, node: Call, args: tuple[Type, ...]) -> None:
        target = ""
        if node.target is not None:
            target, args = f"{args[0]}.", args[1:]
        signature = f"{target}({', '.join(map(str, args))})"
        self._issues.report(node.position, f"found no matching overload for '{node.function}' applied to '{signature}'")

    # --- literals of containers

    def _join(self, previous: Type | None, current: Type) -> Type:
        if previous is None:
            return current
        # The checker accepts mixed types; a validator refuses them if the environment requires it.
        return most_general(previous, current) if self._assign(previous, current) else DYN

    def _unwrap(self, node: Node, optional: bool) -> Type:
        if not optional:
            return node.type
        inner = unwrap_optional(node.type)
        if inner is not None:
            return inner
        if not is_dyn(node.type):
            self._mismatch(node, optional_of(node.type), node.type)
        return node.type

    def _list(self, node: ListExpr) -> None:
        joined: Type | None = None
        for index, element in enumerate(node.elements):
            self.check(element)
            joined = self._join(joined, self._unwrap(element, index in node.optionals))
        node.type = list_of(self._type_variable() if joined is None else joined)

    def _map(self, node: MapExpr) -> None:
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            self.check(entry.key)
            key = self._join(key, entry.key.type)
            self.check(entry.value)
            value = self._join(value, self._unwrap(entry.value, entry.optional))
        node.type = map_of(
            self._type_variable() if key is None else key, self._type_variable() if value is None else value
        )

    def _struct(self, node: Struct) -> None:
        node.type = ERROR
        name = node.name.removeprefix(".")
        message, found = self._names.find_message(name), self._names.types.get(name)
        if message is not None:
            self._message(node, name, message)
            return
        if found is None:
            self._undeclared(node, node.name)
            return
        self._issues.report(node.position, f"'{found.name}' is not a message type")
        for field in node.fields:
            self.check(field.value)
            # types that an environment adds are known to another part of upstream, which has its own words
            failed = f"unexpected failed resolution of '{node.name}'"
            why = f"undefined field '{field.name}'" if self._names.fields else failed
            self._issues.report(field.position, why)

    def _message(self, node: Struct, name: str, message: Message) -> None:
        node.name, node.type = name, message.type
        for field in node.fields:
            self.check(field.value)
            value = self._unwrap(field.value, field.optional)
            known = message.fields.get(field.name)
            if known is None:
                self._issues.report(field.position, f"undefined field '{field.name}'")
            elif not self._assign(known.type, value):
                shown = substitute(self.bindings, value)
                wanted = f"expected type of field '{field.name}' is '{known.type}'"
                self._issues.report(field.position, f"{wanted} but provided type is '{shown}'")

    # --- comprehensions

    def _comprehension(self, node: Comprehension) -> None:
        self.check(node.range)
        self.check(node.init)
        range_type = substitute(self.bindings, node.range.type)
        accu_type = node.init.type
        match range_type.kind:
            case Kind.LIST:
                first, second = (INT, range_type.params[0]) if node.var2 else (range_type.params[0], ERROR)
            case Kind.MAP:
                first, second = range_type.params
            case Kind.DYN | Kind.ERROR | Kind.PARAM:
                self._assign(DYN, range_type)
                first, second = DYN, DYN
            case _:
                self._issues.report(
                    node.range.position,
                    f"expression of type '{range_type}' cannot be range of a comprehension"
                    " (must be list, map, or dynamic)",
                )
                first, second = ERROR, ERROR
        self._scopes.append({node.accu: accu_type})
        self._scopes.append({node.var: first, node.var2: second} if node.var2 else {node.var: first})
        self.check(node.condition)
        self._require(node.condition, BOOL)
        self.check(node.step)
        self._require(node.step, accu_type)
        self._scopes.pop()
        self.check(node.result)
        self._scopes.pop()
        node.type = substitute(self.bindings, node.result.type)

    def _require(self, node: Node, expected: Type) -> None:
        if not self._assign(expected, node.type):
            self._mismatch(node, expected, node.type)


def _qualified_name(node: Node) -> str | None:
    names: list[str] = []
    while isinstance(node, Select) and not node.test_only:
        names.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    names.append(node.name)
    return ".".join(reversed(names))
