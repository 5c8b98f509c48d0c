"""The messages about an unexpected token, in the words of the reference's generated parser.

That parser first tries to skip the token (`extraneous`), then to insert an expected one (`missing`); otherwise it gives
up (`mismatched`). Source: ANTLR's default error strategy, and the grammar of CEL.
"""

from collections.abc import Collection

from resourceapi.cel.errors import SYNTAX_ERROR

OPERAND = frozenset(
    {"[", "{", "(", ".", "-", "!", "true", "false", "null", "FLOAT", "INT", "UINT", "STRING", "BYTES", "IDENT"}
)
"""The kinds of tokens that begin an operand."""

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
    """Ends the parse with a problem that has not been reported yet."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(message)
        self.position = position


class Silence(Exception):
    """Ends the parse after a problem that has been reported already."""


def syntax_error(position: int, message: str) -> Stop:
    """Return the exception for a syntax error that ends the parse."""
    return Stop(position, f"{SYNTAX_ERROR}{message}")


def extraneous(found: str, expected: Collection[str]) -> str:
    """Return the message for an extra token."""
    return f"extraneous input '{found}' expecting {_listed(expected)}"


def missing(found: str, expected: str) -> str:
    """Return the message for a missing token before `found`."""
    return f"missing '{expected}' at '{found}'"


def mismatched(found: str, expected: Collection[str]) -> str:
    """Return the message for a token in the place of an expected one."""
    return f"mismatched input '{found}' expecting {_listed(expected)}"


def no_alternative(found: str) -> str:
    """Return the message for text that begins none of the possible alternatives."""
    return f"no viable alternative at input '{found}'"


def _listed(kinds: Collection[str]) -> str:
    names = [f"'{kind}'" for kind in _ORDER if kind in kinds]
    names += [name for kind, name in _NAMES.items() if kind in kinds]
    return names[0] if len(names) == 1 else f"{{{', '.join(names)}}}"
