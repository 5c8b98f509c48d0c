"""Formats doubles like Go."""

import math


def format_double(value: float) -> str:
    """Return a double as Go's %g and %v print it: as short as possible, with an exponent from the seventh digit on."""
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
