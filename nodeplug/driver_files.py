"""The drivers' files for `userspace`, from the configuration and the ledger. Loaded only for GPUs."""

import logging
from functools import partial
from pathlib import Path

from checkpoint import Lease, Ledger
from hostdevices import Host
from hostdevices.errors import HostExhausted
from hostdevices.threads import in_thread
from nodeplug.config import Config
from userspace import NvidiaUserspace

log = logging.getLogger("nodeplug")


def driver_files(config: Config, host: Host, *, made: bool = True) -> NvidiaUserspace:
    """Return the finder of the drivers' files, which also creates their folders if they are to be `made`."""
    settings = config.settings
    return NvidiaUserspace(
        host, settings.driver_root, folder_of(config) if made else None, settings.driver_root_on_host
    )


def folder_of(config: Config) -> Path:
    """Return the folder in which the drivers' files are collected."""
    return Path(config.settings.state_directory) / "userspace"


async def prune(files: NvidiaUserspace, ledger: Ledger) -> None:
    """Remove files that no container uses. Nothing is removed after leases were lost: their files are unknown.

    No container of an earlier boot runs.
    """
    if not ledger.is_complete:
        return
    leases = [_key(lease) for lease in ledger.leases() if lease.boot_id == ledger.boot_id]
    try:
        await in_thread(partial(files.prune, leases))
    except (OSError, HostExhausted) as error:
        log.warning("files of a driver that no container uses any more cannot be removed: %s", error)


def _key(lease: Lease) -> object:
    """Return a key that distinguishes a lease from a later one of the same device.

    A claim's are rewritten while it lives.
    """
    return (lease.resource, lease.unit, lease.owner if lease.api == "dra" else lease.granted_at)
