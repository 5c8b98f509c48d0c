"""`nodeplug dry-run`: the daemon's answer, without any effect.

Exit codes: 0 it would be allocated, 1 it would be refused, 2 the command line is wrong, 4 no daemon answers.
"""

from collections.abc import Iterator
from pathlib import Path

import click

from nodeplug.commands.columns import aligned
from nodeplug.commands.examples import examples
from nodeplug.commands.group import CommandGroup
from nodeplug.commands.options import Output, output_option
from nodeplug.commands.running_daemon import ask, state_option
from nodeplug.commands.structured import as_text
from nodeplug.control.dry_run import Answer, Question


@click.group(cls=CommandGroup, epilog=examples("nodeplug dry-run allocate example.com/gpu"))
def dry_run() -> None:
    """Show what the daemon would answer; nothing is leased, written or counted."""


@dry_run.command(
    epilog=examples(
        "nodeplug dry-run allocate example.com/gpu",
        "nodeplug dry-run allocate example.com/gpu --count 2 -o json",
        "nodeplug dry-run allocate example.com/kvm --device misc-kvm",
    )
)
@state_option
@output_option
@click.option(
    "--count", type=click.IntRange(min=1), default=1, show_default=True, help="How many units the container requests."
)
@click.option("--device", "devices", multiple=True, help="A unit or device that must be among them; repeatable.")
@click.argument("resource")
def allocate(state: Path, output: Output, count: int, devices: tuple[str, ...], resource: str) -> None:
    """Show what a container that requests units of RESOURCE would get, or why it would be refused.

    Shows which of the healthy and free units GetPreferredAllocation chooses, and the answer to Allocate for them:
    variables, mounts, device nodes, CDI names, annotations. Nothing is allocated. For claims use `nodeplug allocate`.
    """
    found = ask(state, Question(resource, count, devices), Answer)
    if output in ("json", "yaml"):
        click.echo(as_text(found, output), nl=False)
    else:
        click.echo("\n".join(_lines(found, is_wide=output == "wide")))


def _lines(found: Answer, *, is_wide: bool) -> Iterator[str]:
    more = ("DEVICE", "NUMA NODES") if is_wide else ()
    rows = ((x.unit, *((x.device, ",".join(map(str, x.numa_nodes))) if is_wide else ())) for x in found.units)
    yield from aligned((f"UNIT (OF {found.free} FREE)", *more), rows)
    yield ""
    yield from aligned(("PART", "IN THE CONTAINER", "VALUE"), _rows(found))
    if found.pre_start:
        yield ""
        yield "before each start of the container the kubelet calls PreStartContainer" + (
            ", which resets the devices" if found.reset else ""
        )


def _rows(found: Answer) -> Iterator[tuple[str, str, str]]:
    yield from (("variable", name, value) for name, value in found.envs.items())
    yield from (("node", x.container_path, f"{x.host_path} ({x.permissions})") for x in found.nodes)
    yield from (("mount", x.container_path, x.host_path + (" (ro)" if x.read_only else "")) for x in found.mounts)
    yield from (("CDI device", "", name) for name in found.cdi_devices)
    yield from (("annotation", name, value) for name, value in found.annotations.items())
