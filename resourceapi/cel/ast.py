"""The tree of an expression.

Nodes are mutable on purpose: the checker resolves names in place and records the type and the matching overloads of
each node in it, instead of in upstream's reference map. `position` is the offset in code points that errors show.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from resourceapi.cel.types import ERROR, Type


class Node:
    """Any node of the tree."""

    __slots__ = ("height", "position", "type")

    def __init__(self, position: int) -> None:
        self.position = position
        self.height = 0  # the nesting depth of operators, selects and member calls in the source
        self.type: Type = ERROR  # until the checker sets it

    def children(self) -> Iterator[Node]:
        """Yield the nodes directly below, in source order."""
        yield from ()


class Literal(Node):
    """A constant: a value of the language (see values.py)."""

    __slots__ = ("value",)

    def __init__(self, position: int, value: Any) -> None:
        super().__init__(position)
        self.value = value


class Ident(Node):
    """A name; the checker sets `constant` if it names a type."""

    __slots__ = ("constant", "name")

    def __init__(self, position: int, name: str) -> None:
        super().__init__(position)
        self.name = name
        self.constant: Any = None


class Select(Node):
    """`operand.field`, or with `test_only` the presence test `has(operand.field)`."""

    __slots__ = ("field", "operand", "test_only")

    def __init__(self, position: int, operand: Node, field: str, test_only: bool = False) -> None:
        super().__init__(position)
        self.operand = operand
        self.field = field
        self.test_only = test_only

    def children(self) -> Iterator[Node]:
        """Yield the nodes below this one."""
        yield self.operand


class Call(Node):
    """A function or operator; `overloads` are the ids of the overloads that fit by type, in order of declaration."""

    __slots__ = ("args", "function", "overloads", "target")

    def __init__(self, position: int, function: str, args: list[Node], target: Node | None = None) -> None:
        super().__init__(position)
        self.function = function
        self.target = target
        self.args = args
        self.overloads: list[str] = []

    def children(self) -> Iterator[Node]:
        """Yield the nodes below this one."""
        if self.target is not None:
            yield self.target
        yield from self.args


class ListExpr(Node):
    """`[a, ?b]`; `optionals` are the indices of the elements with a question mark."""

    __slots__ = ("elements", "optionals")

    def __init__(self, position: int, elements: list[Node], optionals: frozenset[int] = frozenset()) -> None:
        super().__init__(position)
        self.elements = elements
        self.optionals = optionals

    def children(self) -> Iterator[Node]:
        """Yield the nodes below this one."""
        yield from self.elements


class Entry:
    """One `key: value` of a map."""

    __slots__ = ("key", "optional", "value")

    def __init__(self, key: Node, value: Node, optional: bool) -> None:
        self.key = key
        self.value = value
        self.optional = optional


class MapExpr(Node):
    """`{key: value, ?key: value}`."""

    __slots__ = ("entries",)

    def __init__(self, position: int, entries: list[Entry]) -> None:
        super().__init__(position)
        self.entries = entries

    def children(self) -> Iterator[Node]:
        """Yield the nodes below this one."""
        for entry in self.entries:
            yield entry.key
            yield entry.value


class FieldInit:
    """One `field: value` of a message."""

    __slots__ = ("name", "optional", "position", "value")

    def __init__(self, position: int, name: str, value: Node, optional: bool) -> None:
        self.position = position
        self.name = name
        self.value = value
        self.optional = optional


class Struct(Node):
    """`pkg.Message{field: value}`. The supported messages have a table (messages.py)."""

    __slots__ = ("fields", "name")

    def __init__(self, position: int, name: str, fields: list[FieldInit]) -> None:
        super().__init__(position)
        self.name = name
        self.fields = fields

    def children(self) -> Iterator[Node]:
        """Yield the nodes below this one."""
        for field in self.fields:
            yield field.value


class Comprehension(Node):
    """The expansion of a macro: a fold over `range` with the accumulator `accu`."""

    __slots__ = ("accu", "condition", "init", "range", "result", "step", "var", "var2")

    def __init__(
        self,
        position: int,
        range_: Node,
        var: str,
        var2: str,
        accu: str,
        init: Node,
        condition: Node,
        step: Node,
        result: Node,
    ) -> None:
        super().__init__(position)
        self.range = range_
        self.var = var
        self.var2 = var2
        self.accu = accu
        self.init = init
        self.condition = condition
        self.step = step
        self.result = result

    @property
    def is_bind(self) -> bool:
        """Whether this is a `cel.bind`: a fold over an empty list, whose accumulator is the variable."""
        return (
            isinstance(self.range, ListExpr)
            and not self.range.elements
            and isinstance(self.condition, Literal)
            and self.condition.value is False
        )

    def children(self) -> Iterator[Node]:
        """Yield the nodes below this one."""
        yield from (self.range, self.init, self.condition, self.step, self.result)


def walk(root: Node) -> Iterator[Node]:
    """Yield `root` and every node below, parents first, in source order, without recursion."""
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(list(node.children())))
