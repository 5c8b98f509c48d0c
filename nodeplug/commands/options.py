"""Options that several commands have: the host, the configuration."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import click

from nodeplug.commands.choice import Choice
from nodeplug.commands.failure import remember_output

F = TypeVar("F", bound=Callable[..., Any])
Output: TypeAlias = Literal["table", "wide", "json", "yaml"]

CONFIGURATION_FILE = click.Path(path_type=Path, readable=False)  # the reader reports why not, like other mistakes
_ELSEWHERE = "Another machine: a folder with sys/, proc/ and dev/, or a file that `nodeplug capture` made."


def root_option(command: F) -> F:
    """Add `--root` to a command that reads a host, or a recording of one."""
    return _root(_ELSEWHERE)(command)


def live_root_option(command: F) -> F:
    """Add `--root` to a command about a running host, wherever it is mounted."""
    return _root("The directory with the host's sys/, proc/ and dev/.")(command)


def output_option(command: F) -> F:
    """Add `-o`, the output format, to a command whose answer is a table."""
    help_text = "wide adds columns; json and yaml contain everything, for scripts."
    return output_choice("table", "wide", "json", "yaml", help_text=help_text)(command)


def output_choice(first: str, *others: str, help_text: str | None = None) -> Callable[[F], F]:
    """Return a decorator that adds `-o` with other formats to a command. Default: `first`."""
    return click.option(
        "-o",
        "--output",
        default=first,
        show_default=True,
        type=Choice([first, *others]),
        callback=remember_output,
        help=help_text,
    )


def _root(help_text: str) -> Callable[[F], F]:
    return click.option("--root", default="/", show_default=True, type=click.Path(path_type=Path), help=help_text)
