"""Converts the text of a literal to its value."""

import re

from resourceapi.cel.values import MAX_INT, MAX_UINT, MIN_INT, Uint, read_digits

_SIMPLE = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "`": "`",
    "?": "?",
}
_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-3][0-7]{2})|[xX](?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})"
    r"|(?P<simple>.))",
    re.DOTALL,
)


class LiteralError(Exception):
    """The token has the form of a literal but no value."""


def parse_int(text: str) -> int:
    """Parse a signed decimal or hexadecimal number of 64 bits. Raises LiteralError."""
    value = _integer(text)
    if not MIN_INT <= value <= MAX_INT:
        raise LiteralError("invalid int literal")
    return value


def parse_uint(text: str) -> Uint:
    """Parse an unsigned number of 64 bits with the suffix u. Raises LiteralError."""
    value = _integer(text[:-1])
    if value > MAX_UINT:
        raise LiteralError("invalid uint literal")
    return Uint(value)


def _integer(text: str) -> int:
    digits = text.removeprefix("-")
    value = int(digits[2:], 16) if digits.startswith("0x") else read_digits(digits)
    return -value if text.startswith("-") else value


def parse_float(text: str) -> float:
    """Parse a finite number of double precision. Raises LiteralError."""
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise LiteralError("invalid double literal")
    return value


def _body(text: str) -> tuple[str, bool]:
    """Return the text between the quotes, and whether the literal is raw, so that escapes are not read."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    raw = text[0] in "rR"
    if raw:
        text = text[1:]
    width = 3 if len(text) >= 6 and text[:3] in ("'''", '"""') else 1
    return text[width:-width], raw


def parse_string(text: str) -> str:
    """Parse a quoted string, raw or with escapes. Raises LiteralError."""
    body, raw = _body(text)
    if raw or "\\" not in body:
        return body

    def replace(match: re.Match[str]) -> str:
        if simple := match["simple"]:
            return _SIMPLE[simple]
        code = int(match["octal"], 8) if match["octal"] else int(match["x"] or match["u"] or match["U"], 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise LiteralError("invalid unicode code point")
        return chr(code)

    return _ESCAPE.sub(replace, body)


def parse_bytes(text: str) -> bytes:
    """Parse quoted bytes; characters mean their UTF-8 bytes, escapes one byte each. Raises LiteralError."""
    body, raw = _body(text[1:])
    if raw or "\\" not in body:
        return body.encode()
    parts: list[bytes] = []
    position = 0
    for match in _ESCAPE.finditer(body):
        parts.append(body[position : match.start()].encode())
        position = match.end()
        if simple := match["simple"]:
            parts.append(_SIMPLE[simple].encode())
        elif match["u"] or match["U"]:
            raise LiteralError("unable to unescape string")
        else:
            parts.append(bytes([int(match["octal"], 8) if match["octal"] else int(match["x"], 16)]))
    parts.append(body[position:].encode())
    return b"".join(parts)
