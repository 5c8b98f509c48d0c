"""`nodeplug doctor`: whether this machine has what nodeplug needs, and what to do if not.

Exit codes: 0 nothing is wrong, 1 something is, 2 the command line is wrong.
"""

import sys
from pathlib import Path

import click

from hostdevices import Host, HostDevicesError
from hostdevices.printable import escaped
from nodeplug.commands.examples import examples
from nodeplug.commands.options import Output, live_root_option, output_option
from nodeplug.commands.running_daemon import config_options
from nodeplug.commands.structured import as_text
from nodeplug.doctor.examination import findings

_COLOURS = {"ok": "green", "note": "yellow", "wrong": "red"}


@click.command(
    epilog=examples(
        "nodeplug doctor",
        "nodeplug doctor --config /etc/nodeplug/config.yaml -o json",
        "nodeplug doctor --state /tmp/play/state",
    )
)
@config_options
@live_root_option
@output_option
def doctor(path: Path, state: Path | None, root: Path, output: Output) -> None:
    """Check everything that nodeplug needs on this machine; show what is wrong, and what to do about it.

    Checks the configuration, the daemon, the kubelet's sockets, CDI in the container runtime, the host's devices, and
    for DRA the API server. Changes nothing. Run it as root: other users cannot read everything. Exits with 1 if
    something is wrong.
    """
    try:
        host = Host(root)
    except HostDevicesError as error:
        raise click.ClickException(str(error)) from None
    found = list(findings(path, host, state))
    if output in ("json", "yaml"):
        click.echo(as_text({"findings": found}, output), nl=False)
    else:
        for x in found:
            click.echo(f"{click.style(f'{x.outcome:6}', fg=_COLOURS[x.outcome])}{x.subject:14} {escaped(x.message)}")
            if x.hint:
                click.echo(f"{'':21}{escaped(x.hint)}")
    sys.exit(int(any(x.outcome == "wrong" for x in found)))
