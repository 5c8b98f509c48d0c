"""The previous folder of CDI specs: a runtime that still reads it must not find outdated specs.

After a renumbering such a spec would describe another device's node, and of two folders a runtime uses the one that it
reads last. `cdi-directory` in the state directory contains the folder.
"""

import contextlib
import logging
import os
from pathlib import Path
from typing import Final, get_args

import cdi
from checkpoint.lease import Api
from folderwatch import is_missing
from nodeplug.config import Settings

_MARK: Final = "cdi-directory"
log = logging.getLogger("nodeplug")


def remove_specs_of_previous_folder(settings: Settings) -> None:
    """Remove our files from the earlier folder, and record the present one.

    Call it once this instance has the state.
    """
    mark = Path(settings.state_directory) / _MARK
    before, now = _recorded_folder(mark), settings.cdi_directory
    if before == now:
        return
    if before is not None and os.path.realpath(before) != os.path.realpath(now):  # /var/run is usually a link to /run
        is_seen = not is_missing(Path(before))
        try:
            for owner in get_args(Api):
                cdi.CdiDirectory(Path(before), owner).remove_others(())
        except OSError as error:
            says = "CDI specs stay in the previous folder %s, and a runtime that reads it can use outdated specs: %s"
            log.error(says, before, error.strerror or error)
            return
        if is_seen:
            log.info("CDI specs are written to %s from now on; the previous ones in %s are removed", now, before)
        else:  # for example in a pod that no longer mounts it
            says = (
                "CDI specs are written to %s from now on; the previous folder %s is not visible here: on the node,"
                " remove nodeplug-* in it"
            )
            log.warning(says, now, before)
    with contextlib.suppress(OSError):  # the ledger is in the same directory and reports what is wrong with the disk
        mark.parent.mkdir(0o700, parents=True, exist_ok=True)
        cdi.replace_file(mark, f"{now}\n".encode())


def _recorded_folder(mark: Path) -> str | None:
    try:
        text = mark.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text if text.startswith("/") else None
