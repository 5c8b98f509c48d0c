"""`nodeplug completion`: the script that a shell needs to complete commands, options and their values.

It is derived from the commands themselves: the shell asks `nodeplug` at each Tab, so that it knows the commands of the
installed version.
"""

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from nodeplug.commands.choice import Choice
from nodeplug.commands.examples import examples


class _Fish(FishComplete):
    """Fish, with the whole description: the template cuts descriptions at their first comma."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')


_SHELLS = {"bash": BashComplete, "fish": _Fish, "zsh": ZshComplete}
_PROGRAM = "nodeplug"


@click.command(
    epilog=examples(
        "nodeplug completion bash | sudo tee /usr/share/bash-completion/completions/nodeplug",
        "nodeplug completion zsh | sudo tee /usr/local/share/zsh/site-functions/_nodeplug",
        "nodeplug completion fish > ~/.config/fish/completions/nodeplug.fish",
        'eval "$(nodeplug completion bash)"',
    )
)
@click.argument("shell", type=Choice(sorted(_SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL. Save it where the shell reads such scripts."""
    complete = _SHELLS[shell](ctx.find_root().command, {}, _PROGRAM, f"_{_PROGRAM.upper()}_COMPLETE")
    text = complete.source_template % complete.source_vars()  # `source` would start a shell to ask its version
    click.echo(text)
