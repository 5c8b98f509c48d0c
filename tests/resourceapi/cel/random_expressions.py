"""Random CEL expressions, in the environment of Kubernetes.

Nearly all are well-typed: for a required type, a form with this result type is chosen, and its holes are filled in the
same way. A quarter violates rules on purpose, and a fifth hides types behind dyn(). Equal seeds produce equal
expressions.
"""

import random
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TypeAlias

from tests.resourceapi.cel.forms import CHOICES, FORMS
from tests.resourceapi.cel.random_texts import Texts

Kind: TypeAlias = tuple[str, tuple["Kind", ...]]
"""A type: its name and its type parameters. A name of one letter stands for any type."""

_SIMPLE = ("int", "int", "string", "string", "bool", "uint", "double", "bytes", "duration", "timestamp")
_OTHERS = ("quantity", "semver", "ip", "cidr", "url", "type", "null", "format")
_HOLE = re.compile(r"<(?:([a-z]):)?([A-Za-z][A-Za-z(), -]*)>")
_OPERATOR = re.compile(r"^[!(-]|> (?:[-+*/%<>=!&|?]|in )")
_NAMED_FORMATS = (
    *("dns1123Label", "dns1123Subdomain", "dns1035Label", "qualifiedName", "dns1123LabelPrefix", "labelValue"),
    *("dns1123SubdomainPrefix", "dns1035LabelPrefix", "uri", "uuid", "byte", "date", "datetime"),
)
_UNKNOWN_FUNCTIONS = (
    *("nope", "math.abs", "optional.some", "base64.encode", "jsonpatch.escapeKey", "lists.sum", "toString"),
    *("string.find", "reverse", "sets.nope", "strings.replace", "ip.nope"),
)
_UNKNOWN_NAMES = (
    *("x", "y", "nope", "a.b", ".x", "_", "device", "int", "list", "net.IP", "kubernetes.Quantity", "optional_type"),
    *("foo{a: 1}", "google.protobuf.Timestamp", "null_type", "type"),
)
_UNKNOWN_MEMBERS = ("nope", "a", "b.c", "?a", "sort", "size", "nope()", "sort()", "size(1)", "a()", "map(x)")
_BAD_VARIABLES = ("1", "'a'", "x.y", "for", "package", "null", "__result__", "in", "size", "optional", "int")
_GENERAL = frozenset(("(<bool>) ? (<T>) : (<T>)", "<list(T)>[<int>]", "<map(K, T)>[<K>]", "<optional(T)>.value()"))


def random_expression(seed: int) -> str:
    """One expression."""
    rng = random.Random(seed)
    generator = ExpressionGenerator(rng)
    text = generator.make(generator.any_kind(2), rng.choice((1, 2, 2, 3, 3, 4)))
    return mutated_expression(rng, text) if rng.random() < 0.06 else text


_TOKEN = re.compile(r"""[bBrR]{0,2}(?:'[^']*'|"[^"]*")|[A-Za-z_]\w*|\d[\w.]*|&&|\|\||[=!<>]=|\S|\s+""")
_CLASSES = (
    r"""'a' b'c' r'\d' "" 'abc' "b" 1 -1 0 2u 1.5 true null 0xFF 9223372036854775808 -9223372036854775808
    {'a':1} dyn(1) [1,2] 18446744073709551615u 18446744073709551616u 1e309 dyn('a')
    optional.of(1) duration('1s') timestamp(1) [] {}""",
    "x y i k v e size int string list map has all exists filter sort type dyn matches cel bind optional value in",
    "&& || + - * / % == != < <= > >= in ? :",
    r"""[ ] { } ( ) , . ? : ! $ ` ' \ é // ; " 0x 1e 1. .5 1_0 .? [? if void ''' `a` @in _ __x""",
)


def _class_of(token: str) -> str:
    if token[-1] in "'\"" or token[0].isdigit():
        return _CLASSES[0]
    if token[0].isalpha():
        return _CLASSES[1]
    return _CLASSES[2] if token in _CLASSES[2].split() else _CLASSES[3]


def mutated_expression(rng: random.Random, text: str) -> str:
    """The text with a few tokens replaced, removed, repeated or swapped. Most replacements keep the token class."""
    tokens = [token for token in _TOKEN.findall(text) if token.strip()]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if not tokens:
            break
        at = rng.randrange(len(tokens))
        alike = [token for token in tokens if _class_of(token) == _class_of(tokens[at])]
        match rng.randrange(12):
            case 0:
                del tokens[at]
            case 1:
                tokens.insert(at, rng.choice(_CLASSES[3].split()))
            case 2:
                tokens.insert(at, rng.choice(tokens))
            case 3 | 4 | 5 | 6:
                tokens[at] = rng.choice(alike)
            case _:
                tokens[at] = rng.choice(_class_of(tokens[at]).split())
    return " ".join(tokens)


class ExpressionGenerator:
    """Creates expressions from one random source. Their peculiarities are chosen at the start."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.texts = Texts(rng, odd=rng.random() < 0.3)
        self._scope: list[tuple[str, Kind]] = []
        self._breaks_rules = rng.random() < 0.25
        self._hides_types = rng.random() < 0.2

    def any_kind(self, depth: int) -> Kind:
        """Some type."""
        rng = self.rng
        roll = rng.random()
        if depth <= 0 or roll < 0.62:
            return rng.choice(_SIMPLE), ()
        if roll < 0.74:
            return rng.choice(_OTHERS), ()
        if roll < 0.78:
            return "dyn", ()
        if roll < 0.9:
            return "list", (self.any_kind(depth - 1),)
        if roll < 0.96:
            return "map", ((rng.choice(CHOICES["K"]), ()), self.any_kind(depth - 1))
        return "optional", (self.any_kind(depth - 1),)

    def make(self, kind: Kind, depth: int) -> str:
        """An expression of the type. Operator expressions are nearly always in parentheses."""
        rng = self.rng
        if self._breaks_rules and rng.random() < 0.04:
            return self._broken(kind, depth)
        if self._hides_types and rng.random() < 0.12:
            return f"dyn({self.make(kind if rng.random() < 0.6 else self.any_kind(1), depth - 1)})"
        name = kind[0]
        if name == "named-format":
            return rng.choice(_NAMED_FORMATS)
        if name.startswith("text-"):
            is_computed = depth > 0 and rng.random() < 0.08
            return self.make(("string", ()), depth - 1) if is_computed else self._text(name.removeprefix("text-"))
        fitting = [variable for variable, its_kind in dict(self._scope).items() if its_kind == kind]
        if fitting and rng.random() < 0.35:
            return rng.choice(fitting)
        if depth <= 0 or rng.random() < 0.15:
            return self.leaf(kind, depth)
        if name == "string" and rng.random() < 0.12:
            return self._formatted(depth)
        return self._called(kind, depth)

    def _called(self, kind: Kind, depth: int) -> str:
        """An expression of the type from one of the forms."""
        forms: list[tuple[str, dict[str, Kind]]] = []
        for result, form in _forms():
            bound: dict[str, Kind] = {}
            if _bind(result, kind, bound):
                forms.append((form, bound))
        own = [each for each in forms if each[0] not in _GENERAL]
        if not forms:
            return self.leaf(kind, depth)
        return self._filled(*self.rng.choice(own if own and self.rng.random() < 0.75 else forms), depth)

    def _filled(self, form: str, bound: dict[str, Kind], depth: int) -> str:
        """A form with its holes filled."""
        outer = len(self._scope)
        variables: list[str] = []

        def fill(hole: re.Match[str]) -> str:
            kind = self._concrete(_read(hole[2]), bound)
            if hole[1] is None:
                return self.make(kind, depth - 1)
            variables.append(self._variable(hole[1], variables))
            self._scope.append((variables[-1], kind))
            return variables[-1]

        text = _HOLE.sub(fill, form)
        del self._scope[outer:]
        return f"({text})" if _OPERATOR.search(form) and self.rng.random() < 0.95 else text

    def _variable(self, usual: str, taken: list[str]) -> str:
        if self._breaks_rules and self.rng.random() < 0.05:
            return self.rng.choice(_BAD_VARIABLES)
        return self.rng.choice([x for x in (usual, usual, usual, "v", "e", "y") if x not in taken])

    def _concrete(self, kind: Kind, bound: dict[str, Kind]) -> Kind:
        name, params = kind
        if len(name) > 1:
            return name, tuple(self._concrete(x, bound) for x in params)
        if name not in bound:
            choices = CHOICES.get(name)
            bound[name] = (self.rng.choice(choices), ()) if choices else self.any_kind(1)
        return bound[name]

    def _broken(self, kind: Kind, depth: int) -> str:
        """An expression of another type or of no type."""
        rng = self.rng
        match rng.randrange(6):
            case 0:
                return self.make(self.any_kind(1), depth)
            case 1:
                return "null"
            case 2:
                return f"{rng.choice(_UNKNOWN_FUNCTIONS)}({self.make(kind, depth - 1)})"
            case 3:
                return f"{self.make(kind, depth - 1)}.{rng.choice(_UNKNOWN_MEMBERS)}"
            case 4:
                return rng.choice(_UNKNOWN_NAMES)
            case _:
                return self._filled(rng.choice(_forms())[1], {}, depth)

    def _text(self, what: str) -> str:
        make = {
            "cidr": self.texts.cidr,
            "duration": self.texts.duration,
            "format": lambda: self.rng.choice((*_NAMED_FORMATS, "nope", "")),
            "ip": self.texts.ip,
            "number": self.texts.number,
            "pattern": self.texts.pattern,
            "quantity": self.texts.quantity,
            "timestamp": self.texts.timestamp,
            "url": self.texts.url,
            "version": self.texts.version,
            "zone": self.texts.zone,
        }[what]
        return self.texts.literal(make())

    def leaf(self, kind: Kind, depth: int) -> str:
        """A literal of the type, or a conversion of a text to it."""
        rng = self.rng
        name, params = kind
        match name:
            case "int":
                return rng.choice((*_INTS, *_INTS, str(rng.randint(0, 20)), f"({rng.randint(-(2**63), 2**63 - 1)})"))
            case "uint":
                return rng.choice((*_UINTS, f"{rng.randrange(2**64)}u"))
            case "string":
                return self.texts.literal(self.texts.plain())
            case "list":
                size = rng.choice((0, 1, 2, 2, 3, 3, 5))
                return f"[{', '.join(self.make(params[0], depth - 1) for _ in range(size))}]"
            case "map":
                size = rng.choice((0, 1, 1, 2, 3))
                if params[0][0] == "string" and rng.random() < 0.7:
                    keys = rng.sample(("'a'", "'b'", "'c d'", '"é"', "''"), size)
                else:
                    keys = [self.make(params[0], 0) for _ in range(size)]
                return f"{{{', '.join(f'{key}: {self.make(params[1], depth - 1)}' for key in keys)}}}"
            case "optional":
                return "optional.none()" if rng.random() < 0.3 else f"optional.of({self.make(params[0], depth - 1)})"
            case "quantity" | "ip" | "cidr" | "url" | "duration" | "timestamp":
                return f"{name}({self._text(name)})"
            case "semver":
                return f"semver({self._text('version')}{rng.choice(('', '', ', true', ', false'))})"
            case "format":
                return f"format.{rng.choice(_NAMED_FORMATS)}()"
            case "dyn":
                return f"dyn({self.make(self.any_kind(1), depth - 1)})"
            case _:
                return rng.choice(_LITERALS[name])

    def _formatted(self, depth: int) -> str:
        """A call of format()."""
        rng = self.rng
        text, clauses = self.texts.format()
        kinds = {"d": "int", "f": "double", "e": "double", "X": "int", "o": "int", "b": "int"}
        args = []
        for clause in clauses:
            is_usual = clause in kinds and rng.random() < 0.85
            args.append(self.make((kinds[clause], ()) if is_usual else self.any_kind(1), depth - 2))
        if rng.random() < 0.04:
            args.append("1")
        if len(args) > 1 or rng.random() < 0.3:
            args = [f"dyn({each})" for each in args]
        return f"{self.texts.literal(text)}.format([{', '.join(args)}])"


_INTS = (
    *("0", "1", "1", "2", "3", "5", "7", "10", "42", "0x1F", "1000000007", "(-1)", "(-2)", "(-0x2)", "-1"),
    *("9223372036854775807", "(-9223372036854775808)"),
)
_UINTS = ("0u", "1u", "2u", "3u", "7u", "0x1Fu", "18446744073709551615u", "42U")
_LITERALS: Mapping[str, tuple[str, ...]] = {
    "bool": ("true", "false"),
    "bytes": ("b''", "b'a'", "b'abc'", "B'ab'", "b'é'", r"b'\xff'", r"b'\303\251'", r"b'\x00a'", 'b"世"', "b'aB'"),
    "double": (
        *("0.0", "1.0", "2.5", "1e3", "1.0e-3", ".5", "3.14159", "1e300", "1e21", "1e-7", "123456789.125", "1e-320"),
        *("(-1.5)", "(-0.0)", "(0.0 / 0.0)", "(1.0 / 0.0)", "9007199254740993.0", "9223372036854775807.0"),
        *("1.7976931348623157e308", "-1.0"),
    ),
    "null": ("null",),
    "type": (
        *("int", "string", "list", "map", "type", "bool", "uint", "double", "bytes", "null_type", "optional_type"),
        *("google.protobuf.Duration", "google.protobuf.Timestamp", "type(1)", "net.IP", "net.CIDR"),
    ),
}


@lru_cache(maxsize=1)
def _forms() -> list[tuple[Kind, str]]:
    return [(_read(kind), form) for kind, form in (line.split(": ", 1) for line in FORMS.strip().splitlines())]


def _read(text: str) -> Kind:
    name, _, inner = text.strip().partition("(")
    return name, tuple(map(_read, _parts(inner[:-1]))) if inner else ()


def _parts(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def _bind(pattern: Kind, wanted: Kind, bound: dict[str, Kind]) -> bool:
    """Return whether a form's type matches the wanted one, and record its type variables in `bound`."""
    name, params = pattern
    if len(name) > 1:
        return name == wanted[0] and all(_bind(x, y, bound) for x, y in zip(params, wanted[1], strict=True))
    if wanted[0] not in CHOICES.get(name, (wanted[0],)):
        return False
    return bound.setdefault(name, wanted) == wanted
