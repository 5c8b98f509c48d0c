"""`nodeplug reload`: make the daemon read its configuration again, and show what that changed.

Exit codes: 0 the file is in force, changed or not; 1 it cannot be applied here, and nothing has changed; 2 the file is
invalid, and nothing has changed; 4 no daemon answers.
"""

import json
import time
from pathlib import Path

import click

from nodeplug.commands.changes import change_lines
from nodeplug.commands.examples import examples
from nodeplug.commands.failure import Failure
from nodeplug.commands.options import Output, output_option
from nodeplug.commands.running_daemon import NOT_RUNNING, REFUSED, ask, clock, state_option
from nodeplug.commands.structured import as_text
from nodeplug.control import client
from nodeplug.control import status as asking
from nodeplug.control.client import LONG_TIMEOUT, NotRunning
from nodeplug.control.protocol import Refusal
from nodeplug.control.reload import Answer, Question

_RESTART_TIMEOUT = 60.0  # seconds for a daemon that restarts to answer
_RETRY = 0.1


@click.command(epilog=examples("nodeplug check NEW.yaml --against running", "nodeplug reload"))
@state_option
@output_option
def reload(state: Path, output: Output) -> None:
    """Make the daemon read its configuration file again, and show what changed once it is in effect.

    A file with mistakes changes nothing; all mistakes are printed. The daemon also reads a changed file by itself.
    This command shows the result, and also reads a file to which a symbolic link of your own points.
    """
    found = ask(state, Question(), Answer, LONG_TIMEOUT)
    is_data = output in ("json", "yaml")
    if is_data:
        pass  # at the end, when the outcome is known: scripts read one answer
    elif not found.changes.differences:
        click.echo(f"{found.file}: nothing has changed since {clock(found.loaded_at)}")
    else:
        click.echo("\n".join((f"{found.file}:", *change_lines(found.changes))))
    if found.changes.needs_restart:
        moved = (x.after for x in found.changes.fields if (x.where, x.field) == ("settings", "stateDirectory"))
        _until_begun(Path(next(map(json.loads, moved), state)), found.file)
    if is_data:
        click.echo(as_text(found, output), nl=False)


def _until_begun(state: Path, file: str) -> None:
    """Wait for the daemon that restarts; fail if it did not take the configuration."""
    deadline = time.monotonic() + _RESTART_TIMEOUT
    while True:
        try:
            now = client.ask(state, asking.Question(), asking.Answer)
            break
        except (NotRunning, Refusal) as error:
            if time.monotonic() >= deadline:
                raise Failure(f"the daemon has not answered since it restarted: {error}", NOT_RUNNING) from None
        time.sleep(_RETRY)
    if not now.configuration.is_current:
        raise Failure(f"{file}: the configuration stays as it was", REFUSED, now.configuration.problems)
