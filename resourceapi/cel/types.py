"""The types of the language for the checker.

A type is a kind, a name and parameters. Error messages show `str()` ("duration", "list(int)"); a compiled expression
reports `declared` as its output type ("google.protobuf.Duration").
"""

from __future__ import annotations

from enum import Enum, auto


class Kind(Enum):
    """The kind of a type."""

    ANY = auto()
    BOOL = auto()
    BYTES = auto()
    DOUBLE = auto()
    DURATION = auto()
    DYN = auto()
    ERROR = auto()
    INT = auto()
    LIST = auto()
    MAP = auto()
    NULL = auto()
    OPAQUE = auto()
    PARAM = auto()
    STRING = auto()
    STRUCT = auto()
    TIMESTAMP = auto()
    TYPE = auto()
    UINT = auto()


_MESSAGE_NAMES = {
    Kind.ANY: "any",
    Kind.DURATION: "duration",
    Kind.ERROR: "!error!",
    Kind.NULL: "null",
    Kind.TIMESTAMP: "timestamp",
}


class Type:
    """One type; types with equal text are the same type."""

    __slots__ = ("_text", "is_wrapper", "kind", "name", "params")

    def __init__(self, kind: Kind, name: str, params: tuple[Type, ...] = (), *, is_wrapper: bool = False) -> None:
        self.kind = kind
        self.name = name
        self.params = params
        self.is_wrapper = is_wrapper
        """Whether the value can also be null: the type of one of protobuf's wrapper messages."""
        base = _MESSAGE_NAMES.get(kind, name)
        self._text = f"{base}({', '.join(map(str, params))})" if params else base
        if is_wrapper:
            self._text = f"wrapper({self._text})"

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Type({self._text})"

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Type) and self.kind is other.kind and self._text == other._text)

    def __hash__(self) -> int:
        return hash(self._text)

    @property
    def declared(self) -> str:
        """The fully qualified text, as reported for the output type of an expression."""
        if self.kind is Kind.PARAM:
            return f"<{self.name}>"
        if not self.params:
            return f"wrapper({self.name})" if self.is_wrapper else self.name
        return f"{self.name}({', '.join(param.declared for param in self.params)})"


ANY = Type(Kind.ANY, "google.protobuf.Any")
BOOL = Type(Kind.BOOL, "bool")
BYTES = Type(Kind.BYTES, "bytes")
DOUBLE = Type(Kind.DOUBLE, "double")
DURATION = Type(Kind.DURATION, "google.protobuf.Duration")
DYN = Type(Kind.DYN, "dyn")
ERROR = Type(Kind.ERROR, "*error*")
INT = Type(Kind.INT, "int")
NULL = Type(Kind.NULL, "null_type")
STRING = Type(Kind.STRING, "string")
TIMESTAMP = Type(Kind.TIMESTAMP, "google.protobuf.Timestamp")
TYPE = Type(Kind.TYPE, "type")
UINT = Type(Kind.UINT, "uint")

CIDR = Type(Kind.OPAQUE, "net.CIDR")
DEVICE = Type(Kind.STRUCT, "kubernetes.DRADevice")
FORMAT = Type(Kind.STRUCT, "kubernetes.NamedFormat")
IP = Type(Kind.OPAQUE, "net.IP")
QUANTITY = Type(Kind.STRUCT, "kubernetes.Quantity")
SEMVER = Type(Kind.STRUCT, "kubernetes.Semver")
URL = Type(Kind.STRUCT, "kubernetes.URL")


def list_of(element: Type) -> Type:
    """Return list(element)."""
    return Type(Kind.LIST, "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """Return map(key, value)."""
    return Type(Kind.MAP, "map", (key, value))


def optional_of(value: Type) -> Type:
    """Return optional_type(value)."""
    return Type(Kind.OPAQUE, "optional_type", (value,))


def wrapper_of(value: Type) -> Type:
    """Return wrapper(value), for a type without parameters."""
    return Type(value.kind, value.name, is_wrapper=True)


def type_of(value: Type) -> Type:
    """Return type(value), the type of a type."""
    return Type(Kind.TYPE, "type", (value,))


def param(name: str) -> Type:
    """Return a type parameter, or a type variable of the checker."""
    return Type(Kind.PARAM, name)


def is_dyn(value: Type) -> bool:
    """Return whether the type is dynamic, so that nothing is known statically."""
    return value.kind is Kind.DYN or value.kind is Kind.ANY


def is_dyn_or_error(value: Type) -> bool:
    """Return whether the type cannot be checked: it is dynamic, or an earlier check failed."""
    return value.kind is Kind.DYN or value.kind is Kind.ANY or value.kind is Kind.ERROR


def unwrap_optional(value: Type) -> Type | None:
    """Return T of optional_type(T), or None for any other type."""
    if value.kind is Kind.OPAQUE and value.name == "optional_type":
        return value.params[0]
    return None


def equivalent(left: Type, right: Type) -> bool:
    """Return whether two types are equal except for the names of type parameters and nullability."""
    if left.kind is not right.kind or len(left.params) != len(right.params):
        return False
    if left.kind is not Kind.PARAM and left.name != right.name:
        return False
    return all(map(equivalent, left.params, right.params))


_AUTHORIZATION = ("Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision")
_NAMES = {
    each.name: each
    for each in (ANY, BOOL, BYTES, DOUBLE, DYN, INT, STRING, UINT, CIDR, FORMAT, IP, QUANTITY, SEMVER, URL)
} | {
    "any": ANY,
    "duration": DURATION,
    "timestamp": TIMESTAMP,
    "null": NULL,
    "type": TYPE,
    "Quantity": QUANTITY,
    "Semver": SEMVER,
    "Format": FORMAT,
    "URL": URL,
    "IP": IP,
    "CIDR": CIDR,
    **{name: Type(Kind.STRUCT, f"kubernetes.authorization.{name}") for name in _AUTHORIZATION},
}


def parse_type(text: str) -> Type:
    """Parse a type in the notation of the declaration tables: `list(T)`, `map(K, optional(V))`, `Quantity`."""
    parsed, rest = _parse(text.strip())
    assert not rest, f"{text!r}: {rest!r} is left over"
    return parsed


def _parse(text: str) -> tuple[Type, str]:
    end = next((i for i, char in enumerate(text) if char in "(),"), len(text))
    name, rest = text[:end].strip(), text[end:]
    params: list[Type] = []
    if rest.startswith("("):
        rest = "," + rest[1:]
        while rest.startswith(","):
            inner, rest = _parse(rest[1:].strip())
            params.append(inner)
        assert rest.startswith(")"), f"{text!r}: unbalanced"
        rest = rest[1:].strip()
    match name:
        case "list":
            return list_of(*params), rest
        case "map":
            return map_of(*params), rest
        case "optional":
            return optional_of(*params), rest
        case "type" if params:
            return type_of(*params), rest
        case _ if len(name) == 1:
            return param(name), rest
        case _:
            return _NAMES[name], rest
