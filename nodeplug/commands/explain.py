"""`nodeplug explain`: why a device is offered or not, or why a resource has its devices.

Exit codes: 0 explained, 1 there is neither a device nor a resource with this name, 2 the command line is wrong, 4 no
daemon answers.
"""

from collections.abc import Iterator
from pathlib import Path

import click

from nodeplug.commands.columns import aligned
from nodeplug.commands.examples import examples
from nodeplug.commands.leases import lease_lines
from nodeplug.commands.options import Output, output_option
from nodeplug.commands.running_daemon import ask, state_option
from nodeplug.commands.structured import as_text
from nodeplug.control.explain import Answer, Question


@click.command(
    epilog=examples("nodeplug explain example.com/gpu", "nodeplug explain misc-kvm", "nodeplug explain /dev/kvm")
)
@state_option
@output_option
@click.argument("name", metavar="DEVICE|RESOURCE")
def explain(state: Path, output: Output, name: str) -> None:
    """Explain why a device or resource is offered or not, with the line of the configuration, and what is missing.

    DEVICE is an id that `nodeplug discover` shows, a device node or the kernel's name. For a RESOURCE it shows what
    the resource selects, which devices it has, which pods have them, and why other devices of the same kind do not
    belong to it.
    """
    found = ask(state, Question(name), Answer)
    if output in ("json", "yaml"):
        click.echo(as_text(found, output), nl=False)
    else:
        click.echo("\n".join(_lines(found, is_wide=output == "wide")))


def _lines(found: Answer, *, is_wide: bool) -> Iterator[str]:
    yield f"{found.name} {found.summary}"
    yield from (f"missing: {each}" for each in found.missing)
    if not found.missing:
        yield "nothing is missing: a pod can get it" if not found.leases else "nothing is missing"
    if found.rules:
        rows = ((x.resource, x.place, x.means, x.outcome) for x in found.rules)
        yield from ("", *aligned(("RESOURCE", "LINE", "SELECTS", "THIS DEVICE"), rows))
    if found.devices:
        devices = ((x.id, x.api, x.health, str(x.leased), x.reason) for x in found.devices)
        yield from ("", *aligned(("DEVICE", "API", "HEALTH", "LEASED", "REASON"), devices))
    if found.near:
        yield from ("", *aligned(("OTHER DEVICE", "WHY NOT"), ((x.device, x.reason) for x in found.near)))
    if found.leases:
        yield from ("", *lease_lines(found.leases, is_wide=is_wide))
