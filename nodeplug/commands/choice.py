"""A value that is one of a few: a typing error gets what was meant, as commands and options do."""

from collections.abc import Iterable
from typing import Any

import click


class Choice(click.Choice[str]):
    """`click.Choice` whose refusal names what comes near."""

    def __init__(self, choices: Iterable[str]) -> None:
        """Let one of `choices` be given."""
        super().__init__(tuple(choices))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the choice. Raises `click.BadParameter` for another value."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            from nodeplug.config.document import meant  # for whoever makes mistakes

            near = meant(str(value), self.choices)
            words = f"{error.message} Did you mean {near!r}?" if near else error.message
            raise click.BadParameter(words, ctx=ctx, param=param) from None
