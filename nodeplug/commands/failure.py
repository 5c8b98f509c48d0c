"""A command that does not do what it was asked for: in words, or as data where `-o json` or `-o yaml` asks for that.

Data goes to the standard output, `{"errors": [{"message": ...}]}`; the exit code is the same. A command line that is
wrong is always answered in words: nobody knows then what was asked for.
"""

from collections.abc import Sequence
from typing import IO, Any, TypeVar

import click

from nodeplug.commands.structured import as_text

_OUTPUT = "nodeplug.output"  # in the context that all commands of a line share
T = TypeVar("T")


class Failure(click.ClickException):
    """Says why, and what to do; `findings` are lines of their own, each about a place as compilers have it."""

    def __init__(self, message: str, exit_code: int = 1, findings: Sequence[str] = ()) -> None:
        """Have the program end with `exit_code`."""
        super().__init__(message)
        vars(self)["exit_code"] = exit_code  # click has one for all errors of a class
        self.findings = tuple(findings)

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it in words, on the standard error."""
        for finding in self.findings:
            click.echo(finding, file=file, err=True)
        click.echo(f"Error: {self.message}", file=file, err=True)


class _AsData(click.ClickException):
    def __init__(self, error: click.ClickException, output: str) -> None:
        super().__init__(error.message)
        vars(self)["exit_code"] = error.exit_code
        self._output = output
        self._messages = getattr(error, "findings", ()) or (error.message,)

    def show(self, file: IO[Any] | None = None) -> None:
        del file
        found = {"errors": [{"message": message} for message in self._messages]}
        click.echo(as_text(found, self._output), nl=False)


def remember_output(ctx: click.Context, parameter: click.Parameter, value: T) -> T:
    """Note what the option `-o` says, for failures (the option's callback)."""
    del parameter
    ctx.meta[_OUTPUT] = value
    return value


def as_asked(ctx: click.Context, error: click.ClickException) -> click.ClickException:
    """Return a failure as the command line wants it said."""
    output = ctx.meta.get(_OUTPUT)
    return _AsData(error, output) if output in ("json", "yaml") and not isinstance(error, click.UsageError) else error
