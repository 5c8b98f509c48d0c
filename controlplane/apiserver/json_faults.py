"""Go's error texts for invalid JSON, and how it shows the text, as in encoding/json and apimachinery.

Used only after a parser has refused the text. Source: encoding/json's scanner, apimachinery's `summarizeData`.
"""

from collections.abc import Callable

_MAX_SHOWN = 30  # the most bytes of a body that a refusal shows
_SPACE = b" \t\r\n"
_ESCAPED = b'bfnrt\\/"'
_LITERALS = {ord("t"): "true", ord("f"): "false", ord("n"): "null"}
_NAMED = {
    "'": r"\'",
    "\\": r"\\",
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
}
_END = "unexpected end of JSON input"


def json_fault(data: bytes) -> str:
    """Return Go's message for the first fault of a text; empty if it has none."""
    scanner = _Scanner()
    for byte in data:
        scanner.read(byte)
        if scanner.fault:
            return scanner.fault
    if not scanner.is_complete:
        scanner.read(_SPACE[0])  # Go also ends a number with a space
    return scanner.fault or ("" if scanner.is_complete else _END)


def shown_body(data: bytes, *, is_binary: bool = False) -> str:
    """Return the beginning of a body as a refusal shows it: that of an object as text, any other in hexadecimal."""
    if not data:
        return "<empty>"
    head, more = data[:_MAX_SHOWN], " ..." if len(data) > _MAX_SHOWN else ""
    return (head.decode("utf-8", "replace") if data.startswith(b"{") and not is_binary else head.hex()) + more


class _Scanner:
    """A state machine: `_next` handles the next byte, `_open` has the lists and objects around it."""

    def __init__(self) -> None:
        self.fault = ""
        self._open: list[str] = []  # what each open object or list expects: key, value or item
        self._next: Callable[[int], None] = self._value
        self._literal = self._rest = ""
        self._digits = 0

    @property
    def is_complete(self) -> bool:
        """Whether a whole value was read."""
        return self._next == self._top

    def read(self, byte: int) -> None:
        """Process one more byte."""
        self._next(byte)

    def _refuse(self, byte: int, where: str) -> None:
        self.fault = f"invalid character {_quoted(byte)} {where}"

    def _value(self, byte: int) -> None:
        if byte in _SPACE:
            return
        match chr(byte):
            case "{":
                self._open.append("key")
                self._next = self._key_or_end
            case "[":
                self._open.append("item")
                self._next = self._value_or_end
            case '"':
                self._next = self._text
            case "-":
                self._next = self._negative
            case "0":
                self._next = self._zero
            case "t" | "f" | "n":
                self._literal = _LITERALS[byte]
                self._rest = self._literal[1:]
                self._next = self._in_literal
            case character if character in "123456789":
                self._next = self._integer
            case _:
                self._refuse(byte, "looking for beginning of value")

    def _value_or_end(self, byte: int) -> None:
        if byte == ord("]"):
            self._after(byte)
        elif byte not in _SPACE:
            self._value(byte)

    def _key_or_end(self, byte: int) -> None:
        if byte in _SPACE:
            return
        if byte == ord("}"):
            self._open[-1] = "value"
            self._after(byte)
        else:
            self._key(byte)

    def _key(self, byte: int) -> None:
        if byte in _SPACE:
            return
        if byte == ord('"'):
            self._next = self._text
        else:
            self._refuse(byte, "looking for beginning of object key string")

    def _after(self, byte: int) -> None:
        """The state after a value."""
        if not self._open:
            self._next = self._top
            self._top(byte)
            return
        self._next = self._after
        if byte in _SPACE:
            return
        match self._open[-1], chr(byte):
            case "key", ":":
                self._open[-1], self._next = "value", self._value
            case "value", ",":
                self._open[-1], self._next = "key", self._key
            case "item", ",":
                self._next = self._value
            case ("value", "}") | ("item", "]"):
                self._open.pop()
                self._next = self._after if self._open else self._top
            case "key", _:
                self._refuse(byte, "after object key")
            case "value", _:
                self._refuse(byte, "after object key:value pair")
            case _:
                self._refuse(byte, "after array element")

    def _top(self, byte: int) -> None:
        if byte not in _SPACE:
            self._refuse(byte, "after top-level value")

    def _text(self, byte: int) -> None:
        if byte == ord('"'):
            self._next = self._after if self._open else self._top
        elif byte == ord("\\"):
            self._next = self._escape
        elif byte < 0x20:
            self._refuse(byte, "in string literal")

    def _escape(self, byte: int) -> None:
        if byte == ord("u"):
            self._digits, self._next = 4, self._hexadecimal
        elif byte in _ESCAPED:
            self._next = self._text
        else:
            self._refuse(byte, "in string escape code")

    def _hexadecimal(self, byte: int) -> None:
        if chr(byte) not in "0123456789abcdefABCDEF":
            self._refuse(byte, r"in \u hexadecimal character escape")
        self._digits -= 1
        if not self._digits:
            self._next = self._text

    def _negative(self, byte: int) -> None:
        if byte == ord("0"):
            self._next = self._zero
        elif _is_digit(byte):
            self._next = self._integer
        else:
            self._refuse(byte, "in numeric literal")

    def _integer(self, byte: int) -> None:
        if not _is_digit(byte):
            self._zero(byte)

    def _zero(self, byte: int) -> None:
        if byte == ord("."):
            self._next = self._point
        else:
            self._fraction_end(byte)

    def _point(self, byte: int) -> None:
        if _is_digit(byte):
            self._next = self._fraction
        else:
            self._refuse(byte, "after decimal point in numeric literal")

    def _fraction(self, byte: int) -> None:
        if not _is_digit(byte):
            self._fraction_end(byte)

    def _fraction_end(self, byte: int) -> None:
        if byte in b"eE":
            self._next = self._exponent
        else:
            self._after(byte)

    def _exponent(self, byte: int) -> None:
        self._next = self._exponent_digit
        if byte not in b"+-":
            self._exponent_digit(byte)

    def _exponent_digit(self, byte: int) -> None:
        if _is_digit(byte):
            self._next = self._exponent_end
        else:
            self._refuse(byte, "in exponent of numeric literal")

    def _exponent_end(self, byte: int) -> None:
        if not _is_digit(byte):
            self._after(byte)

    def _in_literal(self, byte: int) -> None:
        wanted, self._rest = self._rest[0], self._rest[1:]
        if chr(byte) != wanted:
            self._refuse(byte, f"in literal {self._literal} (expecting '{wanted}')")
        elif not self._rest:
            self._next = self._after if self._open else self._top


def _is_digit(byte: int) -> bool:
    return ord("0") <= byte <= ord("9")


def _quoted(byte: int) -> str:
    """A byte as a character, quoted as Go does it."""
    character = chr(byte)
    if character in _NAMED:
        return f"'{_NAMED[character]}'"
    if character.isprintable():
        return f"'{character}'"
    return f"'\\x{byte:02x}'" if byte < 0x80 else f"'\\u{byte:04x}'"
