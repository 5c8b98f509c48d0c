"""The commands as a page: `python -m nodeplug.commands.reference docs/commands.md` writes everything after its mark."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from nodeplug.cli import main

MARK = "<!-- What follows is generated: python -m nodeplug.commands.reference docs/commands.md -->\n"


def with_reference(text: str) -> str:
    """Return a document with all commands after its mark: the purpose, the options and the examples of each."""
    before, mark, _ = text.partition(MARK)
    return f"{before}{mark}" + "".join(line + "\n" for line in _commands(main, "nodeplug"))


def _commands(group: click.Group, above: str) -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        words = f"{above} {name}"
        if isinstance(command, click.Group):
            yield from _commands(command, words)
        else:
            yield from _command(command, words)


def _command(command: click.Command, words: str) -> Iterator[str]:
    context = click.Context(command, info_name=words)
    yield f"\n## {words}\n"
    yield f"```\n{' '.join((words, *command.collect_usage_pieces(context)))}\n```\n"
    yield inspect.cleandoc(command.help or "").replace("\b\n", "").strip() + "\n"
    options = [each.get_help_record(context) for each in command.params if isinstance(each, click.Option)]
    if shown := [record for record in options if record]:
        yield "| option | meaning |\n|---|---|"
        yield from (f"| `{_cell(names)}` | {_cell(says)} |" for names, says in shown)
        yield ""
    examples = [line.strip() for line in (command.epilog or "").splitlines()[2:]]
    yield "\n".join(("```sh", *examples, "```"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(with_reference(document.read_text()))
