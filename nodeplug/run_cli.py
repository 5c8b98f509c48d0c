"""`nodeplug run`: the daemon.

Exit codes: 0 stopped by a signal, 1 it cannot work here, 2 the configuration is wrong, 3 another instance runs.
"""

import asyncio
import logging
import signal
import sys
from pathlib import Path

import click

from checkpoint import StateLocked
from hostdevices import Host, HostDevicesError
from nodeplug import logs
from nodeplug.config import Config, ConfigError, load
from nodeplug.daemon import Daemon

RUNTIME, CONFIGURATION, LOCKED = 1, 2, 3
log = logging.getLogger("nodeplug")


@click.command()
@click.option("--config", "path", required=True, type=click.Path(path_type=Path), help="The configuration, YAML.")
@click.option("--root", default="/", type=click.Path(path_type=Path), help="Where the host's sys/, proc/ and dev/ are.")
def run(path: Path, root: Path) -> None:
    """Offer the host's devices to the kubelet until SIGTERM or SIGINT."""
    try:
        config = load(path)
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(CONFIGURATION)
    logs.setup(config.settings.log_level, config.settings.log_format)
    try:
        asyncio.run(_run(config, Host(root)))
    except StateLocked as error:
        log.error("%s", error)
        sys.exit(LOCKED)
    except (OSError, HostDevicesError) as error:
        log.error("%s", error)
        sys.exit(RUNTIME)


async def _run(config: Config, host: Host) -> None:
    daemon = Daemon(config, host)
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        log.info("%s, stopping", signal.Signals(number).name)
        daemon.stop()
        loop.remove_signal_handler(number)  # a second one ends the process at once

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    await daemon.run()
