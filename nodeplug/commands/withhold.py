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
@click.option("--reason", default="", help="The reason, in one line, which is shown wherever the device is shown.")
@click.argument("device")
def withhold(state: Path, output: Output, reason: str, device: str) -> None:
    """Stop allocating DEVICE to new pods, until `nodeplug readmit`; a pod that has it keeps it.

    DEVICE is an id that `nodeplug discover` shows, a device node or the kernel's name. The daemon reports the device
    as unhealthy to the kubelet, and adds a taint in its ResourceSlice. The device stays withheld during restarts,
    other configurations, and while it is unplugged. Its parts and shares, and the group that it belongs to, are
    withheld with it. If you repeat the command with another reason, the device gets that reason.
    """
    found = ask(state, Question(device, reason), Answer)
    if output in ("json", "yaml"):
        click.echo(as_text(found, output), nl=False)
        return
    for each in found.withheld:
        click.echo(f"withheld: {each.device}" + (f" ({each.reason})" if each.reason else ""))
    if found.leases:
        click.echo("\n".join(("until they end it stays with:", *lease_lines(found.leases, is_wide=output == "wide"))))
