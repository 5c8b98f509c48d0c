"""Groups of commands: lists show whole first sentences, and a mistyped command gets a suggestion."""

from collections.abc import Iterable

import click

_LONG = 1000  # characters: a list of commands wraps, and cuts nothing


class CommandGroup(click.Group):
    """A command that has commands."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command with its whole first sentence."""
        names = self.list_commands(ctx)
        commands = {name: command for name in names if (command := self.get_command(ctx, name)) is not None}
        with formatter.section("Commands"):
            formatter.write_dl([(name, x.get_short_help_str(_LONG)) for name, x in commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; if there is none, suggest the one that was probably meant."""
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            ctx.fail(no_such(args[0], known))
        return super().resolve_command(ctx, args)


def no_such(name: str, known: Iterable[str]) -> str:
    """Return the message for an unknown command, with a similar one or with all of them."""
    from nodeplug.config.document import similar_name  # imported here: only mistakes need it

    names = sorted(known)
    near = similar_name(name, names)
    return f"No such command {name!r}. " + (f"Did you mean {near!r}?" if near else f"There are {', '.join(names)}.")
