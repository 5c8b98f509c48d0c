"""Tree -> text: prints a parsed expression so that parsing the text again gives the same tree.

Expanded macros are printed as their original calls. Operators get parentheses where they are needed to keep precedence
or the shape of a chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from resourceapi.cel.ast import Call, Comprehension, Ident, ListExpr, Literal, MapExpr, Node, Select, Struct
from resourceapi.cel.errors import Issues
from resourceapi.cel.parser import Macro, MacroKey, parse
from resourceapi.cel.stack import depth_of, headroom
from resourceapi.cel.values import Uint

_BINARY = {
    **{f"_{op}_": (op, 3) for op in ("<", "<=", ">=", ">", "==", "!=")},
    "@in": ("in", 3),
    "_+_": ("+", 4),
    "_-_": ("-", 4),
    "_*_": ("*", 5),
    "_/_": ("/", 5),
    "_%_": ("%", 5),
}
_LOGICAL = {"_||_": ("||", 1), "_&&_": ("&&", 2)}
_CONDITIONAL, _UNARY, _MEMBER = 0, 6, 7
_FRAMES_PER_LEVEL = 6


class MacroCall(NamedTuple):
    """The original call of a macro."""

    function: str
    target: Node | None
    args: list[Node]


class SyntaxTree(NamedTuple):
    """A parsed expression: its root, and the original call of each expanded macro, by the id of its expansion."""

    root: Node
    macro_calls: dict[int, MacroCall]


def parse_as_written(source: str, macros: Mapping[MacroKey, Macro], issues: Issues) -> SyntaxTree:
    """Parse an expression as `parse` does, and record the macro calls."""
    calls: dict[int, MacroCall] = {}

    def recording(function: str, macro: Macro) -> Macro:
        def expand(position: int, target: Node | None, args: list[Node]) -> Node | None:
            expanded = macro(position, target, args)
            if expanded is not None:
                calls[id(expanded)] = MacroCall(function, target, args)
            return expanded

        return expand

    noted = {key: recording(key[0], macro) for key, macro in macros.items()}
    return SyntaxTree(parse(source, noted, issues), calls)


def unparse(tree: SyntaxTree) -> str:
    """The text of an expression."""
    with headroom(depth_of(tree.root) * _FRAMES_PER_LEVEL):
        return _Printer(tree.macro_calls).print(tree.root, _CONDITIONAL)


class _Printer:
    def __init__(self, macro_calls: dict[int, MacroCall]) -> None:
        self._macro_calls = macro_calls

    def print(self, node: Node, level: int) -> str:
        """The text of a node, in parentheses if it binds less tightly than `level`."""
        own, text = self._node(node)
        return f"({text})" if own < level else text

    def _node(self, node: Node) -> tuple[int, str]:
        written = self._macro_calls.get(id(node))
        if written is not None:
            return _MEMBER, self._function(written.function, written.target, written.args)
        match node:
            case Literal():
                return self._literal(node)
            case Ident():
                return _MEMBER, node.name
            case Select():
                operand = self.print(node.operand, _MEMBER)
                text = f"{operand}.{_field(node.field)}"
                return _MEMBER, f"has({text})" if node.test_only else text
            case ListExpr():
                parts = [("?" if i in node.optionals else "") + self.print(e, 0) for i, e in enumerate(node.elements)]
                return _MEMBER, f"[{', '.join(parts)}]"
            case MapExpr():
                parts = [
                    f"{'?' if e.optional else ''}{self.print(e.key, 0)}: {self.print(e.value, 0)}" for e in node.entries
                ]
                return _MEMBER, f"{{{', '.join(parts)}}}"
            case Struct():
                parts = [f"{'?' if f.optional else ''}{f.name}: {self.print(f.value, 0)}" for f in node.fields]
                return _MEMBER, f"{node.name}{{{', '.join(parts)}}}"
            case Call():
                return self._call(node)
            case Comprehension():
                raise AssertionError("a comprehension comes from a macro only")
        raise AssertionError(type(node).__name__)

    def _literal(self, node: Literal) -> tuple[int, str]:
        value = node.value
        if value is None:
            return _MEMBER, "null"
        if isinstance(value, bool):
            return _MEMBER, "true" if value else "false"
        if isinstance(value, Uint):
            return _MEMBER, f"{int(value)}u"
        if isinstance(value, int):
            return _UNARY if value < 0 else _MEMBER, str(value)
        if isinstance(value, float):
            text = repr(value)
            return _UNARY if text.startswith("-") else _MEMBER, text
        if isinstance(value, bytes):
            return _MEMBER, 'b"' + "".join(f"\\x{byte:02x}" for byte in value) + '"'
        return _MEMBER, _quote(value)

    def _function(self, function: str, target: Node | None, args: list[Node]) -> str:
        listed = ", ".join(self.print(arg, 0) for arg in args)
        prefix = "" if target is None else f"{self.print(target, _MEMBER)}."
        return f"{prefix}{function}({listed})"

    def _call(self, node: Call) -> tuple[int, str]:
        name, args = node.function, node.args
        if node.target is not None:
            return _MEMBER, self._function(name, node.target, args)
        match name:
            case "_?_:_":
                condition, truthy, falsy = args
                return 0, f"{self.print(condition, 1)} ? {self.print(truthy, 1)} : {self.print(falsy, 0)}"
            case "!_" | "-_":
                operand = self.print(args[0], _MEMBER)
                # before a number, the minus would become its sign
                if name == "-_" and (isinstance(args[0], Literal) or operand[0].isdigit()):
                    operand = f"({operand})"
                return _UNARY, name[0] + operand
            case "_[_]" | "_[?_]":
                question = "?" if name == "_[?_]" else ""
                return _MEMBER, f"{self.print(args[0], _MEMBER)}[{question}{self.print(args[1], 0)}]"
            case "_?._":
                assert isinstance(args[1], Literal)
                return _MEMBER, f"{self.print(args[0], _MEMBER)}.?{_field(args[1].value)}"
        if name in _BINARY:
            symbol, level = _BINARY[name]
            return level, f"{self.print(args[0], level)} {symbol} {self.print(args[1], level + 1)}"
        if name in _LOGICAL:
            symbol, level = _LOGICAL[name]
            terms = _chain(node) if _is_balanced(node, name) else args
            return level, f" {symbol} ".join(self.print(term, level + 1) for term in terms)
        return _MEMBER, self._function(name, None, args)


def _chain(node: Call) -> list[Node]:
    """The terms of a chain of one logical operator, which the parser turns into a balanced tree."""
    found: list[Node] = []
    pending: list[Node] = [node]
    while pending:
        each = pending.pop()
        if isinstance(each, Call) and each.function == node.function and each.target is None:
            pending.extend(reversed(each.args))
        else:
            found.append(each)
    return found


def _operators(node: Node, function: str) -> int:
    """The number of connected operators of this kind."""
    if isinstance(node, Call) and node.function == function and node.target is None:
        return 1 + sum(_operators(arg, function) for arg in node.args)
    return 0


def _is_balanced(node: Node, function: str) -> bool:
    """Return whether the parser would build exactly this tree from the chain. Otherwise there were parentheses."""
    count = _operators(node, function)
    if count == 0:
        return True
    assert isinstance(node, Call)
    left, right = node.args
    return _operators(left, function) == count // 2 and _is_balanced(left, function) and _is_balanced(right, function)


def _field(name: str) -> str:
    plain = name.isascii() and name.isidentifier() and name not in ("in", "true", "false", "null")
    return name if plain else f"`{name}`"


def _quote(text: str) -> str:
    parts: list[str] = []
    for char in text:
        if char in '\\"':
            parts.append("\\" + char)
        elif " " <= char <= "~":
            parts.append(char)
        else:
            code = ord(char)
            parts.append(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return f'"{"".join(parts)}"'
