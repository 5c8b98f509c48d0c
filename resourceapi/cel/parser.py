"""Parses tokens to a tree by recursive descent, and expands macros.

Nesting is limited as in the reference parser (250 levels per grammar rule and in total), so that neither the parser nor
the code that walks its trees can overflow the stack. An extra token or an operator without an operand is reported and
skipped, as in the reference; any other syntax error ends the parse. Other errors (bad literals, wrong macro arguments)
are collected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set, Sized
from typing import Any, TypeAlias

from resourceapi.cel.ast import (
    Call,
    Entry,
    FieldInit,
    Ident,
    ListExpr,
    Literal,
    MapExpr,
    Node,
    Select,
    Struct,
)
from resourceapi.cel.errors import NO_POSITION, SYNTAX_ERROR, Issues
from resourceapi.cel.lexer import Token, tokenize
from resourceapi.cel.literals import LiteralError, parse_bytes, parse_float, parse_int, parse_string, parse_uint
from resourceapi.cel.stack import headroom
from resourceapi.cel.syntax_errors import (
    OPERAND,
    Silence,
    Stop,
    extraneous,
    mismatched,
    missing,
    no_alternative,
    syntax_error,
)

MAX_DEPTH = 250
_FRAMES_PER_LEVEL = 18  # upper bound of Python frames per level of nested expressions
_RESERVED = frozenset(
    {
        *("as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop"),
        *("namespace", "package", "return", "var", "void", "while"),
    }
)
_RELATIONS = frozenset({"<", "<=", ">=", ">", "==", "!=", "in"})
_SUMS = frozenset({"+", "-"})
_PRODUCTS = frozenset({"*", "/", "%"})
_INFIX = _RELATIONS | _SUMS | _PRODUCTS | {"&&", "||", "?"}
_CLOSING = frozenset({")", "]", "}"})
_OPERATORS = {"in": "@in"} | {op: f"_{op}_" for op in ("<", "<=", ">=", ">", "==", "!=", "+", "-", "*", "/", "%")}


class MacroError(Exception):
    """The arguments of a macro are not well-formed; `position` is that of the wrong one."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(message)
        self.position = position


# A macro gets the position of its call, the target and the arguments. It returns None if the call is not a use of it.
Macro: TypeAlias = Callable[[int, Node | None, list[Node]], Node | None]
# Name, number of arguments, whether it is called on a target.
MacroKey: TypeAlias = tuple[str, int, bool]


class TooLargeError(MacroError):
    """Chained macros would make the tree too large."""


def parse(source: str, macros: Mapping[MacroKey, Macro], issues: Issues, optional_syntax: bool = True) -> Node:
    """Parse an expression. Problems are reported to `issues`; if there are any, the tree must not be used."""
    tokens = tokenize(source, issues)
    parser = _Parser(tokens, macros, issues, optional_syntax)
    depth = min(MAX_DEPTH, sum(token.kind in ("(", "[", "{", "?") for token in tokens)) + 2
    with headroom(depth * _FRAMES_PER_LEVEL):
        try:
            return parser.start()
        except Stop as stop:
            issues.report(stop.position, str(stop))
        except Silence:
            pass
    return Literal(0, None)


class _Parser:
    def __init__(
        self, tokens: list[Token], macros: Mapping[MacroKey, Macro], issues: Issues, optional_syntax: bool
    ) -> None:
        self._tokens = tokens
        self._next = 0
        self._token = tokens[0]
        self._macros = macros
        self._issues = issues
        self._optional_syntax = optional_syntax
        self._depth = {"expr": 0, "relation": 0, "calc": 0, "member": 0}

    # --- tokens

    def _advance(self) -> Token:
        token = self._token
        self._next += 1
        if self._next < len(self._tokens):
            self._token = self._tokens[self._next]
        return token

    def _accept(self, kind: str) -> Token | None:
        return self._advance() if self._token.kind == kind else None

    def _expect(self, kind: str, *others: str) -> Token:
        """Take the next token, which must be of this kind; error messages also name `others` as expected."""
        if self._token.kind != kind:
            self._pass_over({kind, *others})
        found = self._token
        if found.kind == kind:
            return self._advance()
        if not others and found.kind == "EOF" and kind in _CLOSING:
            raise syntax_error(found.position, missing(found.text, kind))
        if kind == ":" and found.kind in OPERAND:
            self._report(missing(found.text, kind))
            return found
        raise syntax_error(found.position, mismatched(found.text, {kind, *others}))

    def _begins(self, *others: str) -> None:
        """Check that the next token begins an operand or is one of `others`; report and skip one extra token."""
        wanted = OPERAND | {*others}
        if self._token.kind not in wanted:
            self._pass_over(wanted)
            if self._token.kind not in wanted:
                raise syntax_error(self._token.position, mismatched(self._token.text, wanted))

    def _pass_over(self, wanted: Set[str]) -> None:
        """Report and skip a token that is followed by one of the kinds `wanted`."""
        if self._following() in wanted:
            self._report(extraneous(self._token.text, wanted))
            self._advance()

    def _following(self) -> str:
        return self._tokens[self._next + 1].kind if self._next + 1 < len(self._tokens) else ""

    def _report(self, message: str) -> None:
        self._issues.report(self._token.position, f"{SYNTAX_ERROR}{message}")

    def _enter(self, rule: str) -> None:
        self._depth[rule] += 1
        if self._depth[rule] > MAX_DEPTH:
            raise Stop(NO_POSITION, f"expression recursion limit exceeded: {MAX_DEPTH}")

    def _leave(self, rule: str) -> None:
        self._depth[rule] -= 1

    # --- rules

    def start(self) -> Node:
        root = self._expr()
        if self._token.kind != "EOF":
            say = extraneous if self._following() == "EOF" else mismatched
            raise syntax_error(self._token.position, say(self._token.text, {"EOF"}))
        return root

    def _expr(self) -> Node:
        self._enter("expr")
        condition = self._logical("||", "_||_")
        if question := self._accept("?"):
            truthy = self._logical("||", "_||_")
            self._expect(":")
            falsy = self._expr()
            parts = [condition, truthy, falsy]
            condition = _measured(Call(question.position, "_?_:_", parts), 1, *parts)
        self._leave("expr")
        return condition

    def _logical(self, operator: str, function: str) -> Node:
        inner: Callable[[], Node] = self._relation if operator == "&&" else self._conjunction
        terms = [inner()]
        positions: list[int] = []
        while token := self._accept(operator):
            positions.append(token.position)
            terms.append(inner())
        return _balanced(function, terms, positions, 0, len(positions) - 1) if positions else terms[0]

    def _conjunction(self) -> Node:
        return self._logical("&&", "_&&_")

    def _relation(self) -> Node:
        self._enter("relation")
        node = self._left_associative("relation", self._sum, _RELATIONS)
        self._leave("relation")
        return node

    def _sum(self) -> Node:
        self._enter("calc")
        node = self._left_associative("calc", self._product, _SUMS)
        self._leave("calc")
        return node

    def _product(self) -> Node:
        return self._left_associative("calc", self._unary, _PRODUCTS)

    def _left_associative(self, rule: str, operand: Callable[[], Node], operators: frozenset[str]) -> Node:
        left = operand()
        while self._token.kind in operators:
            token = self._advance()
            self._enter(rule)
            right = operand()
            self._leave(rule)
            left = _measured(Call(token.position, _OPERATORS[token.kind], [left, right]), 1, left, right)
        return left

    def _unary(self) -> Node:
        first = self._token
        if first.kind == "!" or (first.kind == "-" and not self._is_signed_number()):
            count = 0
            while self._accept(first.kind):
                count += 1
            if self._token.kind not in OPERAND:
                return self._without_operand(first, count)
            if self._token.kind == "!":
                self._report(no_alternative(self._read_from(self._tokens[self._next - 1])))
                return self._unary()
            operand = self._member()
            if count % 2 == 0:
                return operand
            return _measured(Call(first.position, f"{first.kind}_", [operand]), 0, operand)
        return self._member()

    def _without_operand(self, sign: Token, count: int) -> Node:
        """Report signs without an operand; if an operator follows, its left operand becomes null."""
        token = self._token
        if sign.kind == "-" and count == 1:
            self._report(no_alternative("-" if token.kind == "EOF" else self._read_from(sign)))
            return self._nothing()
        self._report(extraneous(token.text, OPERAND))
        if token.kind not in _INFIX:
            raise Silence
        return Literal(token.position, None)

    def _read_from(self, sign: Token) -> str:
        """Return the source text from the sign to the end of the next token."""
        return f"{sign.text}{' ' * (self._token.position - sign.position - 1)}{self._token.text}"

    def _is_signed_number(self) -> bool:
        return self._token.kind == "-" and self._following() in ("INT", "FLOAT")

    def _member(self) -> Node:
        self._enter("member")
        node = self._primary()
        while self._token.kind in (".", "["):
            token = self._advance()
            node = self._index(token, node) if token.kind == "[" else self._select(token, node)
        self._leave("member")
        return node

    def _select(self, dot: Token, operand: Node) -> Node:
        optional = self._accept("?")
        name = self._token
        if name.kind not in ("IDENT", "ESCAPED"):
            text = "" if name.kind == "EOF" else name.text
            raise syntax_error(name.position, no_alternative(f".{text}"))
        self._advance()
        if self._token.kind == "(" and not optional and name.kind == "IDENT":
            opening = self._advance()
            args = self._expressions(")")
            return _measured(self._call_or_macro(opening.position, name.text, operand, args), 1, operand, *args)
        field = name.text[1:-1] if name.kind == "ESCAPED" else name.text
        if optional:
            if not self._optional_syntax:
                self._issues.report(dot.position, "unsupported syntax '.?'")
            return _measured(Call(dot.position, "_?._", [operand, Literal(name.position, field)]), 1, operand)
        return _measured(Select(dot.position, operand, field), 1, operand)

    def _index(self, bracket: Token, operand: Node) -> Node:
        self._begins("?")
        optional = self._accept("?")
        index = self._expr()
        self._expect("]")
        if optional and not self._optional_syntax:
            self._issues.report(bracket.position, "unsupported syntax '[?'")
        function = "_[?_]" if optional else "_[_]"
        return _measured(Call(bracket.position, function, [operand, index]), 1, operand, index)

    def _primary(self) -> Node:
        token = self._token
        match token.kind:
            case "(":
                self._advance()
                inner = self._expr()
                self._expect(")")
                return inner
            case "[":
                return self._list()
            case "{":
                return self._map()
            case "IDENT" | ".":
                return self._name()
            case "true" | "false":
                self._advance()
                return Literal(token.position, token.kind == "true")
            case "null":
                self._advance()
                return Literal(token.position, None)
            case "-":
                return self._signed_number()
            case "INT":
                return self._literal(self._advance(), parse_int)
            case "UINT":
                return self._literal(self._advance(), parse_uint)
            case "FLOAT":
                return self._literal(self._advance(), parse_float)
            case "STRING":
                return self._literal(self._advance(), parse_string)
            case "BYTES":
                return self._literal(self._advance(), parse_bytes)
            case _:
                return self._nothing()

    def _nothing(self) -> Node:
        """Report a missing operand, and continue with the operand after it, or with the operator that is there."""
        token = self._token
        self._pass_over(OPERAND)
        if self._token is not token:
            return self._unary()
        if token.kind not in _INFIX:
            raise syntax_error(token.position, mismatched(token.text, OPERAND))
        self._report(mismatched(token.text, OPERAND))
        return Literal(token.position, None)

    def _signed_number(self) -> Node:
        if not self._is_signed_number():
            self._advance()
            raise syntax_error(self._token.position, no_alternative(f"-{self._token.text}"))
        sign = self._advance()
        number = self._advance()
        signed = Token(number.kind, "-" + number.text, sign.position)
        return self._literal(signed, parse_int if number.kind == "INT" else parse_float)

    def _literal(self, token: Token, read: Callable[[str], Any]) -> Node:
        try:
            return Literal(token.position, read(token.text))
        except LiteralError as error:
            self._issues.report(token.position, str(error))
            return Literal(token.position, None)

    def _name(self) -> Node:
        dot = self._accept(".")
        if dot and self._token.kind != "IDENT":
            text = "" if self._token.kind == "EOF" else self._token.text
            raise syntax_error(self._token.position, no_alternative(f".{text}"))
        first = self._expect("IDENT")
        names, following = [first], self._next
        # A brace after the dotted name distinguishes a message from a select: look ahead over the name.
        while self._tokens[following].kind == "." and self._tokens[following + 1].kind == "IDENT":
            names.append(self._tokens[following + 1])
            following += 2
        if self._tokens[following].kind == "{":
            self._next = following
            self._token = self._tokens[following]
            return self._struct(("." if dot else "") + ".".join(name.text for name in names))
        start = dot or first
        if first.text in _RESERVED:
            self._issues.report(start.position, f"reserved identifier: {first.text}")
            if self._accept("("):
                self._unread_arguments()
            return Literal(start.position, None)
        name = ("." if dot else "") + first.text
        if opening := self._accept("("):
            args = self._expressions(")")
            return _measured(self._call_or_macro(opening.position, name, None, args), 0, *args)
        return Ident(first.position, name)

    def _unread_arguments(self) -> None:
        """Skip the arguments of a call: only their syntax errors are reported."""
        issues, self._issues = self._issues, Issues("")
        try:
            self._expressions(")")
        finally:
            issues.take_syntax_errors(self._issues)
            self._issues = issues

    def _expressions(self, closing: str) -> list[Node]:
        found: list[Node] = []
        self._begins(closing)
        if not self._accept(closing):
            found.append(self._expr())
            while self._accept(","):
                found.append(self._expr())
            self._expect(closing)
        return found

    def _question(self) -> bool:
        question = self._accept("?")
        if question and not self._optional_syntax:
            self._issues.report(question.position, "unsupported syntax '?'")
        return question is not None

    def _list(self) -> Node:
        opening = self._advance()
        elements: list[Node] = []
        optionals: set[int] = set()
        self._begins("]", ",", "?")
        while self._token.kind in OPERAND or self._token.kind == "?":
            if self._question():
                optionals.add(len(elements))
            elements.append(self._expr())
            if not self._accept(","):
                break
        else:
            if not elements:
                self._accept(",")
        self._close("]", elements)
        return _measured(ListExpr(opening.position, elements, frozenset(optionals)), 0, *elements)

    def _close(self, closing: str, parts: Sized) -> None:
        """Read the end of a list, map or message; after a part, the error message also names a comma as expected."""
        others = (",",) if parts and self._tokens[self._next - 1].kind != "," else ()
        self._expect(closing, *others)

    def _map(self) -> Node:
        opening = self._advance()
        entries: list[Entry] = []
        self._begins("}", ",", "?")
        while self._token.kind in OPERAND or self._token.kind == "?":
            optional = self._question()
            key = self._expr()
            self._expect(":")
            entries.append(Entry(key, self._expr(), optional))
            if not self._accept(","):
                break
        else:
            if not entries:
                self._accept(",")
        self._close("}", entries)
        node = MapExpr(opening.position, entries)
        return _measured(node, 0, *node.children())

    def _struct(self, name: str) -> Node:
        opening = self._advance()
        fields: list[FieldInit] = []
        if self._token.kind not in ("}", ",", "?", "IDENT", "ESCAPED"):
            wanted = {"}", ",", "?", "IDENT", "ESCAPED"}
            raise syntax_error(self._token.position, mismatched(self._token.text, wanted))
        while self._token.kind in ("?", "IDENT", "ESCAPED"):
            optional = self._question()
            field = self._token
            if field.kind not in ("IDENT", "ESCAPED"):
                raise syntax_error(field.position, mismatched(field.text, {"IDENT", "ESCAPED"}))
            self._advance()
            colon = self._expect(":")
            fields.append(FieldInit(colon.position, field.text, self._expr(), optional))
            if not self._accept(","):
                break
        else:
            if not fields:
                self._accept(",")
        self._close("}", fields)
        node = Struct(opening.position, name, fields)
        return _measured(node, 0, *node.children())

    def _call_or_macro(self, position: int, function: str, target: Node | None, args: list[Node]) -> Node:
        macro = self._macros.get((function, len(args), target is not None))
        if macro is not None:
            try:
                expanded = macro(position, target, args)
            except TooLargeError as error:
                raise Stop(error.position, str(error)) from None
            except MacroError as error:
                self._issues.report(error.position, str(error))
                return Literal(error.position, None)
            if expanded is not None:
                return expanded
        return Call(position, function, args, target)


def _balanced(function: str, terms: list[Node], positions: list[int], low: int, high: int) -> Node:
    """Return the operators of one chain as a balanced tree, so that long chains stay shallow."""
    middle = (low + high + 1) // 2
    left = terms[middle] if middle == low else _balanced(function, terms, positions, low, middle - 1)
    right = terms[middle + 1] if middle == high else _balanced(function, terms, positions, middle + 1, high)
    return _measured(Call(positions[middle], function, [left, right]), 0, left, right)


def _measured(node: Node, levels: int, *parts: Node) -> Node:
    """Set the node's height, which is that of its highest part plus `levels`; return the node. Raises Stop."""
    node.height = levels + max((part.height for part in parts), default=0)
    if node.height > MAX_DEPTH:
        raise Stop(NO_POSITION, "max recursion depth exceeded")
    return node
