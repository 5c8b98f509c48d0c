"""Quantities: exact amounts with a unit suffix, as `1500m`, `10Gi` or `12e6`.

A quantity is an integer times a power of ten. It keeps the family of suffixes that it was written with, and prints in
canonical form: no fraction, the largest suffix that is exact. Amounts below one nano are rounded away from zero, and
binary amounts are capped at 2^63-1. Equality, order and hash compare the amount: `200M == 0.2G`.

The reference implementation (`k8s.io/apimachinery/pkg/api/resource`) uses 64-bit integers where it can and big
decimals otherwise. This affects three results, which are reproduced here: `as_int64` is None for any amount that it
holds as a decimal (even `1.0`), a text that its heuristic takes for canonical is printed unchanged (`+1`, `3.G`), and
`value`/`milli_value` wrap at 64 bits.
"""

import math
import re
from typing import Literal, NamedTuple, Self

Format = Literal["DecimalSI", "BinarySI", "DecimalExponent"]

_GRAMMAR = re.compile(
    r"(?P<number>[+-]?+0*+(?P<whole>[0-9]*+)(?:\.(?P<fraction>[0-9]*+))?+)"
    r"(?P<suffix>[eEinumkKMGTP]*+[-+]?+[0-9]*+)"
)
_WRONG_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_WRONG_NUMBER = "unable to parse numeric part of quantity"
_WRONG_SUFFIX = "unable to parse quantity's suffix"

_DECIMAL_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_NAMES = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_BINARY_NAMES = ["", *_BINARY_SUFFIXES]

_NANO = -9
_MIN_INT64, _MAX_INT64 = -(2**63), 2**63 - 1
# Larger amounts are kept but not multiplied out: a text of ten bytes could otherwise need gigabytes of memory.
_MAX_DIGITS = 1000
_MAX_EXPONENT = 1000
_MAX_BITS = 13_000


class QuantityError(ValueError):
    """The text is not a quantity, or the amount is too large to compute with."""


class _Parts(NamedTuple):
    """The parts of a quantity; the amount is unscaled * 10**exponent."""

    unscaled: int
    exponent: int
    wide: bool
    format: Format
    text: str | None


class Quantity:
    """An immutable amount. Create it with `Quantity.parse`, `Quantity.of`, `+`, `-`."""

    __slots__ = ("_canonical", "_exponent", "_format", "_nanos", "_text", "_unscaled", "_wide")

    _format: Format
    _unscaled: int
    _exponent: int
    _wide: bool  # the reference holds it as a decimal
    _text: str | None  # the parsed text, if the reference takes it for canonical
    _canonical: str | None  # the cached result of `str`
    _nanos: int | None

    def __init__(self, parts: _Parts) -> None:
        self._unscaled = parts.unscaled
        self._exponent = parts.exponent
        self._wide = parts.wide
        self._format = parts.format
        self._text = self._canonical = parts.text
        # Nearly all comparisons are between moderate amounts, and compare one integer each.
        if parts.exponent < _NANO:  # only zeros and their sums are finer than nano, and those sums end in zeros
            self._nanos = parts.unscaled // 10 ** (_NANO - parts.exponent)
        elif parts.exponent <= _MAX_EXPONENT:
            self._nanos = parts.unscaled * 10 ** (parts.exponent - _NANO)
        else:
            self._nanos = None

    @classmethod
    def parse(cls, text: str) -> "Quantity":
        """Parse `text`; raises QuantityError with the reference's messages."""
        return _parse(text)

    @classmethod
    def of(cls, value: int, fmt: Format = "DecimalSI", *, exponent: int = 0) -> Self:
        """Return the quantity `value * 10**exponent`; raises QuantityError for an exponent below -9."""
        if exponent < _NANO:
            raise QuantityError(f"exponent {exponent} is finer than nano")
        return cls(_Parts(value, exponent, not _fits(value), fmt, None))

    def __str__(self) -> str:
        if self._canonical is None:
            self._canonical = self._print()
        return self._canonical

    def __repr__(self) -> str:
        return f"Quantity.parse({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        if self._nanos is not None and other._nanos is not None:
            return self._nanos == other._nanos
        return self.compare(other) == 0

    def __lt__(self, other: "Quantity") -> bool:
        if self._nanos is not None and other._nanos is not None:
            return self._nanos < other._nanos
        return self.compare(other) < 0

    def __le__(self, other: "Quantity") -> bool:
        return self.compare(other) <= 0

    def __gt__(self, other: "Quantity") -> bool:
        return self.compare(other) > 0

    def __ge__(self, other: "Quantity") -> bool:
        return self.compare(other) >= 0

    def __hash__(self) -> int:
        return hash(_without_zeros(self._unscaled, self._exponent))

    def __bool__(self) -> bool:
        return self._unscaled != 0

    def __add__(self, other: "Quantity") -> "Quantity":
        return self._sum(other, other._unscaled)

    def __sub__(self, other: "Quantity") -> "Quantity":
        if other._unscaled == _MIN_INT64 and not self._wide and not other._wide:
            wrapped = self._sum(other, _MIN_INT64)  # in 64 bits, -MinInt64 is MinInt64
            if not wrapped._wide:
                return wrapped
        return self._sum(other, -other._unscaled)

    @property
    def format(self) -> Format:
        """The family of suffixes that the quantity was written with."""
        return self._format

    @property
    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self._unscaled > 0) - (self._unscaled < 0)

    @property
    def nanos(self) -> int | None:
        """The exact amount in billionths; None if it is too large to multiply out."""
        return self._nanos

    def compare(self, other: "Quantity") -> int:
        """Return -1, 0 or 1 if this amount is smaller than, equal to or larger than the other."""
        if self._nanos is not None and other._nanos is not None:
            return (self._nanos > other._nanos) - (self._nanos < other._nanos)
        if self.sign != other.sign or not self._unscaled:
            return (self.sign > other.sign) - (self.sign < other.sign)
        mine, theirs = self._magnitude(), other._magnitude()
        if mine != theirs:
            return self.sign if mine > theirs else -self.sign
        # Both have the same magnitude, so the exponents differ by at most the number of written digits.
        low = min(self._exponent, other._exponent)
        left: int = self._unscaled * 10 ** (self._exponent - low)
        right: int = other._unscaled * 10 ** (other._exponent - low)
        return (left > right) - (left < right)

    def is_identical(self, other: "Quantity") -> bool:
        """Return whether Go's `==` on two Quantity structs holds: amount, scale, format and text are the same.

        `1Ki` and `1024` are equal but not identical; a big decimal is not even identical to its own copy.
        """
        if self._wide or other._wide:
            return False
        return (self._unscaled, self._exponent, self._format, self._text) == (
            (other._unscaled, other._exponent, other._format, other._text)
        )

    def as_int64(self) -> int | None:
        """Return the amount as a 64-bit integer; None if the reference has no fast conversion (see the module)."""
        if self._wide or self._exponent < 0:
            return None
        if not self._unscaled:
            return 0
        if self._exponent > 18:
            return None
        value: int = self._unscaled * 10**self._exponent
        return value if _fits(value) else None

    def value(self) -> int:
        """Return the amount in whole units, rounded away from zero; wraps at 64 bits as the reference does."""
        return self._scaled(0)

    def milli_value(self) -> int:
        """Return the amount in thousandths, rounded away from zero; wraps at 64 bits as the reference does."""
        return self._scaled(-3)

    def rounded_up(self) -> "Quantity":
        """Return the amount rounded away from zero to whole thousandths."""
        if self._nanos is None or self._nanos % 10**6 == 0:
            return self
        thousandths = -(-abs(self._nanos) // 10**6)
        return Quantity.of(self.sign * thousandths, self._format, exponent=-3)

    def as_float(self) -> float:
        """Return the amount as a float by the reference's arithmetic; infinite beyond the range of floats."""
        try:
            base = float(self._unscaled)
        except OverflowError:
            base = math.copysign(math.inf, self.sign)
        if self._exponent == 0:
            return base
        return base * _power_of_ten(self._exponent)

    def _magnitude(self) -> int:
        return len(str(abs(self._unscaled))) + self._exponent

    def _sum(self, other: "Quantity", addend: int) -> "Quantity":
        fmt = self._format if self._unscaled else other._format
        wide = self._wide or other._wide
        if not wide and not addend:
            return Quantity(_Parts(self._unscaled, self._exponent, False, fmt, None))
        if not wide and not self._unscaled:
            return Quantity(_Parts(addend, other._exponent, not _fits(addend), fmt, None))
        if abs(self._exponent - other._exponent) > _MAX_EXPONENT:
            raise QuantityError(f"quantities {self} and {other} are too far apart to compute with")
        low = min(self._exponent, other._exponent)
        left = self._unscaled * 10 ** (self._exponent - low)
        right = addend * 10 ** (other._exponent - low)
        if (left + right).bit_length() > _MAX_BITS:
            raise QuantityError("the result is too large to compute with")
        wide = wide or not (_fits(left) and _fits(right) and _fits(left + right))
        return Quantity(_Parts(left + right, low, wide, fmt, None))

    def _print(self) -> str:
        if not self._unscaled:
            return "0"
        fmt = self._format
        if fmt == "BinarySI":
            text = self._print_binary()
            if text is not None:
                return text
            fmt = "DecimalSI"
        amount, exponent = _without_zeros(self._unscaled, self._exponent)
        while exponent % 3:
            amount, exponent = amount * 10, exponent - 1
        if fmt == "DecimalSI" and exponent in _DECIMAL_NAMES:
            return f"{amount}{_DECIMAL_NAMES[exponent]}"
        # No suffix is large enough, so print exponent notation. Releases up to 1.37 lose the power of ten here.
        return f"{amount}e{exponent}" if exponent else str(amount)

    def _print_binary(self) -> str | None:
        """Return an integer with a binary suffix; None if that is inexact or the amount is below 1024."""
        if self._nanos is None:
            return None
        amount, fraction = divmod(self._nanos, 10**9)
        if fraction or -1024 < amount < 1024:
            return None
        times = 0
        while amount % 1024 == 0 and times < len(_BINARY_SUFFIXES):
            amount, times = amount // 1024, times + 1
        return f"{amount}{_BINARY_NAMES[times]}"

    def _scaled(self, scale: int) -> int:
        up = self._exponent - scale
        if self._wide:
            return _wide_scaled(self._unscaled, up)
        if up >= 0:
            if up > 18:
                return 0
            value = self._unscaled * 10**up
            # The reference multiplies by these powers in one step, which wraps. It multiplies by others step by step
            # and returns 0 on overflow.
            return _wrap(value) if _fits(value) or up in (1, 2, 3, 6, 9) else 0
        whole, rest = divmod(abs(self._unscaled), int(10**-up))
        return self.sign * (whole + bool(rest))


def _parse(text: str) -> Quantity:
    match = _GRAMMAR.fullmatch(text)
    if not text or match is None:
        raise QuantityError(_WRONG_FORMAT)
    number, whole, fraction, suffix = match["number"], match["whole"] or "0", match["fraction"] or "", match["suffix"]
    base, exponent, fmt = _interpret(suffix)
    if len(whole) + len(fraction) > _MAX_DIGITS:
        raise QuantityError(_WRONG_NUMBER)
    digits = whole + fraction
    sign = -1 if number.startswith("-") else 1
    if base == 2:
        narrow = not fraction and 14 - len(whole) - exponent * 3 // 10 >= 0
        scale, factor = 0, 2**exponent
    else:
        narrow = len(digits) <= 18
        scale, factor = exponent - len(fraction), 1
    if narrow and scale >= _NANO and _fits(int(digits) * factor):
        if base == 2:
            canonical = int(digits) & 7 != 0
        else:
            canonical = scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
        return Quantity(_Parts(sign * int(digits) * factor, scale, False, fmt, text if canonical else None))
    if not re.search("[0-9]", number):
        raise QuantityError(_WRONG_NUMBER)
    return _parse_wide(sign * int(digits) * factor, scale - len(fraction) if base == 2 else scale, fmt)


def _parse_wide(unscaled: int, exponent: int, fmt: Format) -> Quantity:
    """Parse as the reference's slow path does: a decimal with nine places, rounded away from zero."""
    if exponent > _MAX_EXPONENT:
        raise QuantityError(_WRONG_NUMBER)
    if not unscaled:  # a zero is not rounded, and keeps its decimal places for sums
        return Quantity(_Parts(0, max(exponent, -_MAX_EXPONENT), True, fmt, None))
    sign, amount = -1 if unscaled < 0 else 1, abs(unscaled)
    if exponent >= _NANO:
        amount *= 10 ** (exponent - _NANO)
    elif _NANO - exponent > len(str(amount)):
        amount = 1
    else:
        amount = -(-amount // 10 ** (_NANO - exponent))
    if fmt == "BinarySI":
        if amount > _MAX_INT64 * 10**9:
            return Quantity(_Parts(sign * _MAX_INT64, 0, True, fmt, None))
        if amount < 10**9:
            fmt = "DecimalSI"
    return Quantity(_Parts(sign * amount, _NANO, True, fmt, None))


def _interpret(suffix: str) -> tuple[int, int, Format]:
    """Return base, exponent and format of a suffix."""
    decimal = _DECIMAL_SUFFIXES.get(suffix)
    if decimal is not None:
        return 10, decimal, "DecimalSI"
    binary = _BINARY_SUFFIXES.get(suffix)
    if binary is not None:
        return 2, binary, "BinarySI"
    if suffix[0] in "eE" and re.fullmatch(r"[-+]?[0-9]{1,30}", suffix[1:], re.ASCII):
        exponent = int(suffix[1:])
        if _fits(exponent):
            return 10, (exponent + 2**31) % 2**32 - 2**31, "DecimalExponent"  # the reference keeps 32 bits
    raise QuantityError(_WRONG_SUFFIX)


def _wide_scaled(unscaled: int, up: int) -> int:
    if up >= 0:
        return 0 if up > 64 else _wrap(unscaled * 10**up)
    if unscaled < _MAX_INT64 and up > -19:
        wrapped = _wrap(unscaled)
        whole, rest = divmod(abs(wrapped), int(10**-up))
        return (-whole if wrapped < 0 else whole) + bool(rest)
    whole, rest = divmod(unscaled, int(10**-up))
    return _wrap(_wrap(whole) + bool(rest))


def _without_zeros(unscaled: int, exponent: int) -> tuple[int, int]:
    """Return the same amount with factors of ten moved to the exponent; zero is (0, 0)."""
    if not unscaled:
        return 0, 0
    while unscaled % 10 == 0:
        unscaled, exponent = unscaled // 10, exponent + 1
    return unscaled, exponent


def _power_of_ten(exponent: int) -> float:
    """Return 10**exponent rounded like the reference: a product of two table entries; 0 or infinite beyond them."""
    coarse, fine = divmod(abs(exponent), 32)
    if exponent < 0:
        return float(f"1e-{coarse * 32}") / float(f"1e{fine}")
    return float(f"1e{coarse * 32}") * float(f"1e{fine}")


def _fits(value: int) -> bool:
    return -_MAX_INT64 - 1 <= value <= _MAX_INT64


def _wrap(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63
