"""Results of the administrator's own probes: a file for each unhealthy device, in a folder of theirs.

    FOLDER/gpu-0000-81-00-0      FOLDER/0000:81:00.0      FOLDER/GPU-8a56a4bc-...      its first line is the reason

Rules:
1. A device is unhealthy if its file exists, whatever its contents. A missing folder means nothing.
2. A name can be our id, a PCI address or a UUID, and applies to the device with that name and to its parts.
3. Names that begin with a dot are files that are being written.
4. A file that names no device is reported once, as a problem: the device may be unplugged.
"""

import logging
import os
import stat
from functools import partial
from pathlib import Path

from msgspec import structs

from hostdevices import Device, Health, Inventory, Problem
from hostdevices.printable import printable
from resources.unit_names import unit_names

_MAX_BYTES = 1024  # the most bytes that are read of a file
_MAX_FILES = 4096
log = logging.getLogger("nodeplug")


class HealthFiles:
    """The folder of a configuration. `enrich` is called in threads, one at a time."""

    def __init__(self, folder: Path) -> None:
        """Prepare; nothing is read yet."""
        self._folder = folder
        self._logged: frozenset[Problem] = frozenset()

    def enrich(self, inventory: Inventory) -> Inventory:
        """Return the inventory; the devices with a probe's file are unhealthy. Blocks for as long as the disk does."""
        try:
            names = sorted(x for x in os.listdir(self._folder) if not x.startswith("."))
        except FileNotFoundError:
            names = []
        except OSError as error:
            return self._with_problems(inventory, [Problem(str(self._folder), f"not read: {error.strerror}")])
        problems = [Problem(str(self._folder), f"more than {_MAX_FILES} files")] if len(names) > _MAX_FILES else []
        listed = set(names[:_MAX_FILES])
        meant = {
            device.id: found for device in inventory.devices.values() if listed and (found := listed & _names(device))
        }
        problems += [
            Problem(str(self._folder / name), "no device here has this name; `nodeplug discover` shows the ids")
            for name in sorted(listed.difference(*meant.values()))
        ]
        reasons = {name: self._reason(name) for name in set[str]().union(*meant.values())}
        devices = dict(inventory.devices)
        for identity, found in meant.items():
            device = devices[identity]
            before = [] if device.health.healthy else [device.health.reason]
            health = Health(False, "; ".join((*before, *(reasons[name] for name in sorted(found)))))
            devices[identity] = structs.replace(device, health=health)
        return self._with_problems(structs.replace(inventory, devices=devices) if meant else inventory, problems)

    def _reason(self, name: str) -> str:
        path = self._folder / name
        first = _first_line(path)
        return f"{printable(first)} (says {path})" if first else f"reported by {path}"

    def _with_problems(self, inventory: Inventory, problems: list[Problem]) -> Inventory:
        for problem in set(problems) - self._logged:
            extra = {"is_current": partial(self._is_logged, problem)}
            log.warning("settings.healthDirectory: %s: %s", problem.where, problem.reason, extra=extra)
        self._logged = frozenset(problems)
        return structs.replace(inventory, problems=(*inventory.problems, *problems)) if problems else inventory

    def _is_logged(self, problem: Problem) -> bool:
        return problem in self._logged


def _names(device: Device) -> set[str]:
    return {device.id, *device.parents, *unit_names(device)}


def _first_line(path: Path) -> str:
    """Return the first line of a file; empty if it cannot be read or is not a regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return os.read(descriptor, _MAX_BYTES).decode(errors="replace").strip().partition("\n")[0].strip()
    except OSError:
        return ""
    finally:
        os.close(descriptor)
