"""Text as Go prints it, where messages of the reference show values: %q and %g."""

import math

_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def go_quote(text: str) -> str:
    """A string in double quotes with Go's escapes."""
    parts: list[str] = []
    for char in text:
        if char in _ESCAPES:
            parts.append(_ESCAPES[char])
        elif char == " " or (char.isprintable() and not char.isspace()):
            parts.append(char)
        elif ord(char) < 0x80:
            parts.append(f"\\x{ord(char):02x}")
        else:
            parts.append(f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}")
    return f'"{"".join(parts)}"'


def format_double(value: float) -> str:
    """A double as Go's %g and %v print it: as short as possible, with an exponent from the seventh digit on."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    text = repr(value)
    mantissa, _, exponent = text.partition("e")
    digits = mantissa.removeprefix("-").replace(".", "")
    sign = "-" if text.startswith("-") else ""
    point = len(mantissa.removeprefix("-").partition(".")[0]) + int(exponent or 0)
    stripped = digits.lstrip("0")
    point -= len(digits) - len(stripped)
    stripped = stripped.rstrip("0")
    if not stripped:
        return sign + "0"
    power = point - 1
    if power < -4 or power >= 6:
        tail = f".{stripped[1:]}" if len(stripped) > 1 else ""
        return f"{sign}{stripped[0]}{tail}e{'-' if power < 0 else '+'}{abs(power):02d}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{stripped}"
    if point >= len(stripped):
        return sign + stripped + "0" * (point - len(stripped))
    return f"{sign}{stripped[:point]}.{stripped[point:]}"
