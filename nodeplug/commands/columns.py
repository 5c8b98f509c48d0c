"""Aligned columns, as kubectl prints them: equal on a terminal and in a pipe, and never cut."""

from collections.abc import Iterable, Iterator, Sequence

from hostdevices.printable import escaped


def aligned(header: Sequence[str], rows: Iterable[Sequence[str]], indent: str = "") -> Iterator[str]:
    """Yield a line for the header and one for each row; an empty cell is a dash. Two spaces separate the columns."""
    table = [header, *([escaped(cell) or "-" for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        yield indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
