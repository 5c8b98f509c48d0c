"""`nodeplug withhold`: withhold a device from new holders.

Exit codes: 0 it is withheld, 1 there is no such device, 2 the command line is wrong, 4 no daemon answers.
"""

from pathlib import Path

import click

from nodeplug.commands.examples import examples
from nodeplug.commands.leases import lease_lines
from nodeplug.commands.options import Output, output_option
from nodeplug.commands.running_daemon import ask, state_option
from nodeplug.commands.structured import as_text
from nodeplug.control.withhold import Answer, Question


@click.command(
    epilog=examples('nodeplug withhold gpu-0 --reason "fan makes a noise"', "nodeplug withhold /dev/ttyUSB0")
)
@state_option
@output_option
@click.option("--reason", default="", help="The reason, in one line; shown with the device everywhere.")
@click.argument("device")
def withhold(state: Path, output: Output, reason: str, device: str) -> None:
    """Stop giving DEVICE to new pods, until it is readmitted; a pod that has it keeps it.

    DEVICE is an id of `nodeplug discover`, a node or the kernel's name. The kubelet is told that it is unhealthy, its
    slice gets a taint. That outlasts restarts, other configurations, and the device's being away. With a device go
    its parts and shares, and the group that it is a member of. Said again with a reason, it gets that one.
    """
    found = ask(state, Question(device, reason), Answer)
    if output in ("json", "yaml"):
        click.echo(as_text(found, output), nl=False)
        return
    for each in found.withheld:
        click.echo(f"withheld: {each.device}" + (f" ({each.reason})" if each.reason else ""))
    if found.leases:
        click.echo("\n".join(("until they end it stays with:", *lease_lines(found.leases, is_wide=output == "wide"))))
