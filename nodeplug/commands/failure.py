"""The failure of a command: as text, or as data if `-o json` or `-o yaml` asks for that.

Data goes to the standard output, `{"errors": [{"message": ...}]}`; the exit code is the same. An invalid command line
is always answered as text, because its output format is not known.
"""

from collections.abc import Sequence
from typing import IO, Any, TypeVar

import click

from nodeplug.commands.structured import as_text

_OUTPUT = "nodeplug.output"  # in the context that all commands of a line share
T = TypeVar("T")


class Failure(click.ClickException):
    """The message is the reason and what to do; `findings` are separate lines, each with a place as from a compiler."""

    def __init__(self, message: str, exit_code: int = 1, findings: Sequence[str] = ()) -> None:
        """Make the program end with `exit_code`."""
        super().__init__(message)
        vars(self)["exit_code"] = exit_code  # click has one for all errors of a class
        self.findings = tuple(findings)

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it as text, on the standard error."""
        for finding in self.findings:
            click.echo(finding, file=file, err=True)
        click.echo(f"Error: {self.message}", file=file, err=True)


class _StructuredFailure(click.ClickException):
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
    """Record the value of the option `-o`, for failures (the option's callback)."""
    del parameter
    ctx.meta[_OUTPUT] = value
    return value


def in_requested_output(ctx: click.Context, error: click.ClickException) -> click.ClickException:
    """Return a failure in the format that the command line asks for."""
    output = ctx.meta.get(_OUTPUT)
    if output in ("json", "yaml") and not isinstance(error, click.UsageError):
        return _StructuredFailure(error, output)
    return error
