"""What is said of a token that does not belong where it stands, in the words of the reference's generated parser.

It tries to go on without the token (`extraneous`), then as if one were there (`missing`), and else gives up
(`mismatched`). Source: ANTLR's default error strategy, and the grammar of CEL.
"""

from collections.abc import Collection

from resourceapi.cel.errors import SYNTAX_ERROR

OPERAND = frozenset(
    {"[", "{", "(", ".", "-", "!", "true", "false", "null", "FLOAT", "INT", "UINT", "STRING", "BYTES", "IDENT"}
)
"""Kinds of tokens with which an operand begins."""

_ORDER = ("[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":", "true", "false", "null")
_NAMES = {
    "FLOAT": "NUM_FLOAT",
    "INT": "NUM_INT",
    "UINT": "NUM_UINT",
    "STRING": "STRING",
    "BYTES": "BYTES",
    "IDENT": "IDENTIFIER",
    "ESCAPED": "ESC_IDENTIFIER",
    "EOF": "<EOF>",
}


class Stop(Exception):
    """Nothing behind this problem can be read."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(message)
        self.position = position


class Silence(Exception):
    """Nothing behind a problem that has been reported can be read."""


def syntax_error(position: int, message: str) -> Stop:
    """A problem of syntax that ends the parse."""
    return Stop(position, f"{SYNTAX_ERROR}{message}")


def extraneous(found: str, expected: Collection[str]) -> str:
    """A token without which all would be well."""
    return f"extraneous input '{found}' expecting {_listed(expected)}"


def missing(found: str, expected: str) -> str:
    """A token before which one is missing."""
    return f"missing '{expected}' at '{found}'"


def mismatched(found: str, expected: Collection[str]) -> str:
    """A token in whose place there should be another one."""
    return f"mismatched input '{found}' expecting {_listed(expected)}"


def no_alternative(found: str) -> str:
    """Text with which nothing begins that could stand there."""
    return f"no viable alternative at input '{found}'"


def _listed(kinds: Collection[str]) -> str:
    names = [f"'{kind}'" for kind in _ORDER if kind in kinds]
    names += [name for kind, name in _NAMES.items() if kind in kinds]
    return names[0] if len(names) == 1 else f"{{{', '.join(names)}}}"
