"""Ranges of sizes and costs: unsigned 64-bit numbers with saturating arithmetic."""

from __future__ import annotations

import math
from typing import NamedTuple

UNLIMITED = 2**64 - 1


class Range(NamedTuple):
    """A range with both ends included."""

    minimum: int
    maximum: int

    def union(self, other: Range) -> Range:
        """Return the smallest range that covers both."""
        return Range(min(self.minimum, other.minimum), max(self.maximum, other.maximum))


ZERO = Range(0, 0)
UNKNOWN = Range(0, UNLIMITED)


def fixed(value: int) -> Range:
    """Return the range of exactly one value."""
    return Range(value, value)


def add(left: Range, right: Range) -> Range:
    """Return the sums of both ends."""
    return Range(min(left.minimum + right.minimum, UNLIMITED), min(left.maximum + right.maximum, UNLIMITED))


def times(left: Range, right: Range) -> Range:
    """Return the products of both ends."""
    return Range(min(left.minimum * right.minimum, UNLIMITED), min(left.maximum * right.maximum, UNLIMITED))


def scale(value: int, factor: float) -> int:
    """Return a value times a factor, rounded up."""
    if value and factor and float(value) > float(UNLIMITED) / factor:
        return UNLIMITED
    return min(math.ceil(float(value) * factor), UNLIMITED)


def scale_range(value: Range, factor: float) -> Range:
    """Return both ends times a factor, rounded up."""
    return Range(scale(value.minimum, factor), scale(value.maximum, factor))
