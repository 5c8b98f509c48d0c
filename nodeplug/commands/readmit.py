"""`nodeplug readmit`: offer a device again that was withheld.

Exit codes: 0 it is readmitted, 1 it is not withheld, 2 the command line is wrong, 4 no daemon answers.
"""

from pathlib import Path

import click

from nodeplug.commands.examples import examples
from nodeplug.commands.options import Output, output_option
from nodeplug.commands.running_daemon import ask, clock, state_option
from nodeplug.commands.structured import as_text
from nodeplug.control.readmit import Answer, Question


@click.command(epilog=examples("nodeplug readmit gpu-0", "nodeplug status -o json | jq .withheld"))
@state_option
@output_option
@click.argument("device")
def readmit(state: Path, output: Output, device: str) -> None:
    """Allow new pods to get DEVICE again after `nodeplug withhold`. The device need not be plugged in."""
    found = ask(state, Question(device), Answer)
    if output in ("json", "yaml"):
        click.echo(as_text(found, output), nl=False)
        return
    for each in found.readmitted:
        why = f" ({each.reason})" if each.reason else ""
        click.echo(f"readmitted: {each.device}, withheld since {clock(each.since)}{why}")
