"""A value that is one of a few: a typing error gets what was meant, as commands and options do."""

import difflib
from collections.abc import Iterable
from typing import Any

import click


class Choice(click.Choice[str]):
    """`click.Choice` whose refusal names what comes near."""

    def __init__(self, choices: Iterable[str], case_sensitive: bool = True) -> None:
        """Let one of `choices` be given."""
        super().__init__(tuple(choices), case_sensitive)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the choice. Raises `click.BadParameter` for another value."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            near = difflib.get_close_matches(str(value), list(self.choices), n=1)
            words = f"{error.message} Did you mean {near[0]!r}?" if near else error.message
            raise click.BadParameter(words, ctx=ctx, param=param) from None
