"""Finds the nodes whose static type might not be the type of their run-time value.

The checker accepts dyn for any type, and binds a type variable to the first type that is required of it:
`dyn([1]).reverse()[0].getHours()` passes, as if the list had timestamps. So a node's type is proven only if a function
declares it as a concrete result type. Elements, branches and results of a variable type are proven if their source is.
"""

from __future__ import annotations

from collections.abc import Mapping

from resourceapi.cel.ast import Call, Comprehension, Ident, Node
from resourceapi.cel.declarations import Function
from resourceapi.cel.types import Kind, Type

_OPEN = frozenset({Kind.DYN, Kind.ANY, Kind.PARAM, Kind.ERROR})


def unproven(root: Node, functions: Mapping[str, Function]) -> set[int]:
    """Return the `id()` of every node of a checked tree whose value can be of any type."""
    proof = _Proof(functions)
    proof.visit(root)
    return proof.unproven


class _Proof:
    def __init__(self, functions: Mapping[str, Function]) -> None:
        self._functions = functions
        self._scopes: list[dict[str, bool]] = []
        self.unproven: set[int] = set()

    def visit(self, node: Node) -> bool:
        """Return whether the node's type is proven; visit all nodes below it."""
        is_proven = self._comes_from_proven(node) and _is_closed(node.type)
        if not is_proven:
            self.unproven.add(id(node))
        return is_proven

    def _comes_from_proven(self, node: Node) -> bool:
        match node:
            case Ident():
                return next((scope[node.name] for scope in reversed(self._scopes) if node.name in scope), True)
            case Comprehension():
                return self._comprehension(node)
            case Call():
                return self._all(node) or self._promises(node)
        return self._all(node)

    def _all(self, node: Node) -> bool:
        found = [self.visit(child) for child in node.children()]
        return all(found)

    def _promises(self, node: Call) -> bool:
        function = self._functions.get(node.function)  # none for `a.?b`
        if function is None:
            return False
        return all(_is_closed(each.result) for each in function.overloads if each.id in node.overloads)

    def _comprehension(self, node: Comprehension) -> bool:
        of_range = self.visit(node.range)
        of_start = self.visit(node.init)
        self._scopes.append({node.accu: of_start})
        self._scopes.append({node.var: of_range, node.var2: of_range})
        self.visit(node.condition)
        of_step = self.visit(node.step)
        self._scopes.pop()
        self._scopes[-1] = {node.accu: of_start and of_step}
        of_result = self.visit(node.result)
        self._scopes.pop()
        return of_result


def _is_closed(type_: Type) -> bool:
    if any(param.kind is Kind.NULL for param in type_.params):
        return False  # the checker accepts a list of null as a list of durations
    return type_.kind not in _OPEN and all(map(_is_closed, type_.params))
