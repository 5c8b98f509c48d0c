"""`nodeplug topology`: location, health and holders of the node's devices; as text, as data or as a drawing.

Exit codes: 0 shown, 1 the host cannot be read, 2 the command line is wrong.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from msgspec import Struct

from checkpoint.lease import UNREPORTED_POD
from hostdevices import Host, HostDevicesError, scan
from nodeplug.commands.columns import aligned
from nodeplug.commands.examples import examples
from nodeplug.commands.options import Output, output_option, root_option
from nodeplug.commands.running_daemon import state_option
from nodeplug.commands.structured import as_text
from nodeplug.config import node_name
from nodeplug.control import client
from nodeplug.control.client import NotRunning
from nodeplug.control.picture import Answer, Question
from nodeplug.control.protocol import Refusal
from nodeplug.topology.layout import Item, NumaNode, arranged, layout
from nodeplug.topology.svg import draw
from nodeplug.topology.text import lines


class _Shown(Struct, frozen=True):
    nodes: tuple[NumaNode, ...]


@click.command(
    epilog=examples(
        "nodeplug topology",
        "nodeplug topology --svg >node.svg",
        "nodeplug topology --root node.gz --all",
        "nodeplug topology -o wide",
    )
)
@click.option("--text", "form", flag_value="text", default=True, help="Print text; the default.")
@click.option("--svg", "form", flag_value="svg", help="Print an SVG drawing, for a browser or a web page.")
@click.option("--all", "is_all", is_flag=True, help="Also show devices that no resource offers.")
@output_option
@root_option
@state_option
def topology(form: str, is_all: bool, output: Output, root: Path, state: Path) -> None:
    """Show NUMA nodes, PCI roots and devices, with health and holders.

    The running daemon provides the devices, their resources, health and holders. Without a daemon, and with --root, the
    command shows all devices of the host.
    """
    if form == "svg" and output != "table":
        raise click.UsageError(f"--svg and -o {output} exclude each other: leave one out")
    name, nodes = _of_daemon(state, is_all=is_all) if root == Path("/") else ("", ())
    if not name:
        try:
            name, nodes = node_name(), layout(scan(Host(root)).devices, None)
        except HostDevicesError as error:
            raise click.ClickException(str(error)) from None
    if form == "svg":
        click.echo(draw(nodes, name), nl=False)
    elif output in ("json", "yaml"):
        click.echo(as_text(_Shown(nodes), output), nl=False)
    else:
        click.echo("\n".join(_rows(nodes) if output == "wide" else lines(nodes)))


def _of_daemon(state: Path, *, is_all: bool) -> tuple[str, tuple[NumaNode, ...]]:
    """Return the node's name and its devices; without a daemon no name, and a line on standard error."""
    try:
        found = client.ask(state, Question(), Answer)
    except (NotRunning, Refusal) as error:
        click.echo(f"leases and resources are not shown: {error}", err=True)
        return "", ()
    return found.about.node, arranged(
        (x.numa, x.root, Item(x.id, x.kind, x.state, x.reason, x.resources, x.holders, x.is_leased))
        for x in found.tiles
        if is_all or x.resources
    )


def _rows(nodes: Sequence[NumaNode]) -> Iterator[str]:
    header = ("NUMA", "PCI ROOT", "DEVICE", "KIND", "STATE", "RESOURCES", "LEASED TO", "REASON")
    rows = (
        (
            *(numa.name, root.name, x.id, x.kind, x.state, ",".join(x.resources)),
            ",".join(x.holders) or (UNREPORTED_POD if x.is_leased else ""),
            x.reason,
        )
        for numa in nodes
        for root in numa.roots
        for x in root.items
    )
    yield from aligned(header, rows)
