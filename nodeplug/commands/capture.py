"""`nodeplug capture`: record this node's device tree, to be read elsewhere with `nodeplug discover --root FILE`."""

import time
from pathlib import Path

import click

from hostdevices import Host, HostDevicesError
from hostdevices.capture import capture as entries_of
from hostdevices.recording import packed
from nodeplug.commands.examples import examples
from nodeplug.commands.new_file import write_new
from nodeplug.commands.options import live_root_option
from resources.resource import VHOST_NET


@click.command(
    epilog=examples(
        "nodeplug capture --mask node.gz",
        "kubectl exec -n nodeplug ds/nodeplug -- nodeplug capture - >node.gz",
    )
)
@click.argument("file", type=click.Path(allow_dash=True, dir_okay=False, path_type=Path))
@click.option("--mask", is_flag=True, help="Replace serial numbers, MAC addresses and UUIDs, consistently.")
@live_root_option
def capture(file: Path, mask: bool, root: Path) -> None:
    """Record the device tree in FILE, as compressed text; `-` is standard output.

    Needs no privileges; as root it also records what only root can read. Device nodes are recorded by type and
    number, and never opened. An existing FILE is not changed.
    """
    started = time.monotonic()
    try:
        entries = entries_of(Host(root), masked=mask, nodes=VHOST_NET)
        content = packed(entries, masked=mask)
    except HostDevicesError as error:
        raise click.ClickException(str(error)) from None
    write_new(file, content)
    click.echo(
        f"{file}: {len(entries)} entries, {len(content) / 1024:.0f} KiB, in {time.monotonic() - started:.1f} s"
        f"{', masked' if mask else '; it contains serial numbers and addresses (--mask replaces them)'}",
        err=True,
    )
