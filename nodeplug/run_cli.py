"""`nodeplug run`: the daemon.

Exit codes: 0 stopped by a signal, 1 it cannot work here, 2 the configuration is wrong, 3 another instance runs.
"""

import sys
from pathlib import Path

import click

RUNTIME, CONFIGURATION, LOCKED = 1, 2, 3


@click.command()
@click.option("--config", "path", required=True, type=click.Path(path_type=Path), help="The configuration, YAML.")
@click.option("--root", default="/", type=click.Path(path_type=Path), help="Where the host's sys/, proc/ and dev/ are.")
def run(path: Path, root: Path) -> None:
    """Offer the host's devices to the kubelet until SIGTERM or SIGINT."""
    from nodeplug.config import ConfigError, load

    try:
        config = load(path)
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(CONFIGURATION)
    unix_only = not config.settings.metrics_address and all(x.api == "device-plugin" for x in config.resources)
    if unix_only and "asyncio" not in sys.modules:
        # Unix sockets need no TLS, and asyncio works without; it would load 2 MiB of it all the same.
        sys.modules.setdefault("ssl", None)  # type: ignore[arg-type]  # how Python marks what is not to be had
    import asyncio
    import logging

    from checkpoint import StateLocked
    from hostdevices import Host, HostDevicesError
    from nodeplug import logs
    from nodeplug.daemon import run_until_signalled
    from nodeplug.fronts import CannotOffer

    logs.setup(config.settings.log_level, config.settings.log_format)
    log = logging.getLogger("nodeplug")
    try:
        asyncio.run(run_until_signalled(config, Host(root)))
    except StateLocked as error:
        log.error("%s", error)
        sys.exit(LOCKED)
    except (OSError, HostDevicesError, CannotOffer) as error:
        log.error("%s", error)
        sys.exit(RUNTIME)
