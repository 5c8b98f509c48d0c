"""`nodeplug run`: the daemon. Exit codes are those of process.py."""

import sys
from pathlib import Path

import click

from nodeplug import process
from nodeplug.commands.examples import examples
from nodeplug.commands.options import CONFIGURATION_FILE, live_root_option


@click.command(epilog=examples("nodeplug run --config /etc/nodeplug/config.yaml"))
@click.option("--config", "path", required=True, type=CONFIGURATION_FILE, help="The configuration, YAML.")
@live_root_option
def run(path: Path, root: Path) -> None:
    """Offer the host's devices to the kubelet until SIGTERM or SIGINT."""
    sys.exit(process.run(path, root))
