"""An option value in seconds: `float` would also accept `nan` and `inf`, which are no durations."""

import math
from typing import Any

import click


class Seconds(click.FloatRange):
    """A finite number, at least `min`."""

    def __init__(self, min: float = 0) -> None:  # noqa: A002 - as click calls it
        """Accept numbers that are not less than `min`."""
        super().__init__(min=min)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number. Raises `click.BadParameter` for an invalid or too small value."""
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a number of seconds, such as 30 or 0.5.", param, ctx)
        return found
