"""A plain table on standard output."""

from collections.abc import Sequence


def show(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows below a header; numbers to the right."""
    text = [[_cell(value) for value in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*text, strict=True)]
    for n, row in enumerate(text):
        cells = zip(row, widths, (header if n == 0 else rows[n - 1]), strict=True)
        print("  ".join(c.rjust(w) if isinstance(v, int | float) else c.ljust(w) for c, w, v in cells).rstrip())


def _cell(value: object) -> str:
    return (
        f"{value:.3g}"
        if isinstance(value, float) and abs(value) < 100
        else f"{value:.0f}"
        if isinstance(value, float)
        else str(value)
    )
