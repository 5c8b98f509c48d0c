"""`nodeplug bundle`: the data for a report about this node, in one archive.

Exit codes: 0 written, also if parts are missing in it, which are listed; 1 it cannot be written; 2 the command line is
wrong.
"""

import time
from pathlib import Path

import click

from hostdevices import Host, HostDevicesError
from hostdevices.printable import escaped
from nodeplug.commands.examples import examples
from nodeplug.commands.new_file import STANDARD_OUTPUT, write_new
from nodeplug.commands.options import live_root_option
from nodeplug.commands.running_daemon import config_options
from nodeplug.report.bundle import collect, pack


@click.command(
    epilog=examples(
        "nodeplug bundle",
        "nodeplug bundle report.tar.gz --config /etc/nodeplug/config.yaml",
        "kubectl exec -n nodeplug ds/nodeplug -- nodeplug bundle - >report.tar.gz",
    )
)
@click.argument("file", required=False, type=click.Path(path_type=Path, allow_dash=True, dir_okay=False))
@config_options
@live_root_option
def bundle(file: Path | None, path: Path, state: Path | None, root: Path) -> None:
    """Collect what a report about this node needs into FILE, a .tar.gz; `-` is standard output.

    FILE contains versions, the configuration, the findings of `nodeplug doctor`, the latest lines of the journal, and
    the daemon's status, leases, events and metrics if the daemon answers. It contains names of pods and devices and
    serial numbers, but no credentials and no values of `env` and `annotations`. An existing FILE is not changed.
    """
    try:
        host = Host(root)
    except HostDevicesError as error:
        raise click.ClickException(str(error)) from None
    content, missing = pack(collect(path, host, state))
    made = file or Path(time.strftime("nodeplug-bundle-%Y%m%dT%H%M%SZ.tar.gz", time.gmtime()))
    write_new(made, content)
    if made != STANDARD_OUTPUT:
        click.echo(f"{made}: {len(content) / 1024:.0f} KiB; check its contents before you send it", err=True)
    for line in missing:
        click.echo(f"missing: {escaped(line)}", err=True)
