"""Tables of measurements, which are printed, stored as JSON, and rendered as a page."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

Cell: TypeAlias = str | int | float | None


class Table(Struct, frozen=True):
    """Rows below a header; an empty cell was not measured. `notes` are sentences below the table."""

    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


class Goal(Struct, frozen=True):
    """The goal of a figure: at most `bound`, or at least; times the figure of column `of` if that is set."""

    bound: float
    of: str = ""
    at_least: bool = False

    def judge(self, value: float | None, others: Mapping[str, float | None]) -> str:
        """Return the goal as text, and whether `value` reaches it; `others` are the row's figures by column."""
        sign = "at least" if self.at_least else "at most"
        words = f"{sign} {cell(self.bound)}{f' of {self.of}' if self.of else ''}"
        base = others.get(self.of) if self.of else 1.0
        if value is None or base is None:
            return words
        limit = self.bound * base
        is_reached = value >= limit if self.at_least else value <= limit
        return f"{words}: {'reached' if is_reached else 'not reached'}"


class LeftOut(Exception):
    """Something cannot be measured here; the message names what is missing."""


def show(table: Table) -> None:
    """Print a table; numbers are right-aligned."""
    text = [[cell(value) for value in row] for row in (table.header, *table.rows)]
    widths = [max(map(len, column)) for column in zip(*text, strict=True)]
    for n, row in enumerate(text):
        cells = zip(row, widths, table.header if n == 0 else table.rows[n - 1], strict=True)
        print("  ".join(c.rjust(w) if isinstance(v, int | float) else c.ljust(w) for c, w, v in cells).rstrip())
    for note in table.notes:
        print(note)


def markdown(table: Table) -> Iterator[str]:
    """Yield a table's lines in Markdown; numbers are right-aligned."""
    yield _line(table.header)
    yield _line(["---:" if _is_numeric(column) else "---" for column in zip(*table.rows, strict=True)])
    yield from map(_line, table.rows)
    for note in table.notes:
        yield ""
        yield note


def _is_numeric(column: Sequence[Cell]) -> bool:
    return not any(isinstance(value, str) for value in column) and any(value is not None for value in column)


def cell(value: Cell) -> str:
    """Format a value: three significant digits below 100, whole numbers above."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"


def _line(values: Sequence[Cell]) -> str:
    return f"| {' | '.join(map(cell, values))} |"
