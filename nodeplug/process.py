"""The daemon as a process: configuration in, exit code out.

Exit codes: 0 stopped by a signal, 1 it cannot work here, 2 the configuration is wrong, 3 another instance runs.
"""

import gc
import re
import sys
from pathlib import Path

from nodeplug.deferred import defer_unused

_M_ARENA_MAX = -8  # malloc.h
RUNTIME, CONFIGURATION, LOCKED = 1, 2, 3


def run(path: Path, root: Path) -> int:
    """Offer the host's devices to the kubelet until SIGTERM or SIGINT; return the exit code."""
    thresholds = gc.get_threshold()
    gc.set_threshold(thresholds[0], 1_000)  # modules stay: checking each once while they are loaded is enough
    defer_unused()
    path = path.absolute()  # the path that clients in other folders receive
    from nodeplug.config import ConfigError
    from nodeplug.config_file import ConfigFile, read_for_node, stamp

    stamped = stamp(path)
    try:
        content, config, labels = read_for_node(path)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return CONFIGURATION
    import asyncio
    import logging
    import signal

    from checkpoint import StateLocked
    from deviceplugin import DevicePluginError
    from folderwatch import FolderGone
    from hostdevices import Host, HostDevicesError
    from nodeplug.parts import CannotOffer
    from nodeplug.signals import run_until_signalled
    from nodeplug.supervision import PartFailed
    from telemetry import Telemetry

    log = logging.getLogger("nodeplug")
    _share_one_arena()
    _drop_import_caches()
    gc.freeze()  # modules stay: a full collection takes 1 ms without them and 15 with them, and calls wait for it
    gc.set_threshold(*thresholds)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # else asyncio installs a handler, and replacing it loads inspect
    telemetry = Telemetry()  # for the process: it outlives a daemon that restarts
    file = ConfigFile(path, config, content, telemetry, labels=labels, stamped=stamped)
    try:
        asyncio.run(run_until_signalled(file, Host(root), telemetry))
    except StateLocked as error:
        log.error("%s", error)
        return LOCKED
    except (OSError, HostDevicesError, CannotOffer, DevicePluginError, FolderGone, PartFailed) as error:
        log.error("%s", "; ".join((str(error), *getattr(error, "__notes__", ()))))  # the notes name the part
        return RUNTIME
    except Exception as error:  # a defect of ours: log where, and let the supervisor start the process again
        log.exception("nodeplug failed: %s", "; ".join(getattr(error, "__notes__", ())))
        return RUNTIME
    return 0


def _share_one_arena() -> None:
    """Make all threads allocate from one arena, if the C library is glibc.

    Otherwise each thread gets its own arena, and other threads cannot reuse what a scan's thread frees there. Only one
    thread runs at a time.
    """
    import ctypes  # inotify needs it in any case

    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_M_ARENA_MAX, 1)


def _drop_import_caches() -> None:
    """Free what only the import of modules needed, 0.2 MiB: listings of folders, and patterns that were used once."""
    sys.path_importer_cache.clear()
    re.purge()
