"""`nodeplug convert`: another device plugin's configuration as one of nodeplug.

Exit codes: 0 everything is converted, 1 parts are left out, with the reason, 2 the file is not understood.
"""

import sys
from pathlib import Path

import click

from hostdevices import Host, HostDevicesError
from nodeplug.commands.choice import Choice
from nodeplug.commands.examples import examples
from nodeplug.commands.options import CONFIGURATION_FILE, root_option
from nodeplug.config import ConfigError, loads, read
from nodeplug.config.tree import SIZE_LIMIT
from nodeplug.convert import FORMATS
from nodeplug.convert import convert as converted

LEFT_OUT, UNREADABLE = 1, 2


@click.command(
    epilog=examples(
        "nodeplug convert config.json > nodeplug.yaml && nodeplug check nodeplug.yaml",
        "nodeplug convert --from smarter conf.yaml --root there.gz",
    )
)
@click.argument("file", type=CONFIGURATION_FILE)
@click.option(
    "--from",
    "plugin",
    type=Choice(list(FORMATS)),
    help="The plugin that FILE is for. Default: recognized by the keys in FILE.",
)
@click.option("--domain", default="", help="The domain for names without one in FILE. Default: the other plugin's own.")
@click.option("--entry", default="", help="The entry of a ConfigMap with several entries.")
@root_option
def convert(file: Path, plugin: str | None, domain: str, entry: str, root: Path) -> None:
    """Convert the configuration FILE of another device plugin, and print it as a configuration of nodeplug.

    It offers the same devices under the same names. What nodeplug cannot do the same way is left out, and a comment
    explains why. FILE can be a ConfigMap, a DaemonSet, an object of KubeVirt, Akri or Intel's operator, a manifest or
    list with some of them, or the list of the program's arguments; - is standard input.
    """
    is_input = file == Path("-")
    source = "standard input" if is_input else str(file)
    try:
        content = sys.stdin.buffer.read(SIZE_LIMIT + 1) if is_input else read(file)
        conversion = converted(content, source, Host(root), name=plugin or "", domain=domain, entry=entry)
    except (ConfigError, HostDevicesError) as error:
        click.echo(str(error), err=True)
        sys.exit(UNREADABLE)
    text = conversion.text()
    click.echo(text, nl=False)
    for item in conversion.left_out:
        click.echo(f"{source}: {item.name} is left out: {item.reason}", err=True)
    try:
        loads(text.encode(), "the result")
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(LEFT_OUT)
    sys.exit(LEFT_OUT if conversion.left_out else 0)
