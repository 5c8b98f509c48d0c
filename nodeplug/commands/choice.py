"""An option value from a small set; the error for an unknown value suggests the nearest one."""

from collections.abc import Iterable
from typing import Any

import click


class Choice(click.Choice[str]):
    """`click.Choice` whose error names a similar choice."""

    def __init__(self, choices: Iterable[str]) -> None:
        """Accept one of `choices`."""
        super().__init__(tuple(choices))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the choice. Raises `click.BadParameter` for another value."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            from nodeplug.config.document import similar_name  # imported here: only mistakes need it

            near = similar_name(str(value), self.choices)
            words = f"{error.message} Did you mean {near!r}?" if near else error.message
            raise click.BadParameter(words, ctx=ctx, param=param) from None
