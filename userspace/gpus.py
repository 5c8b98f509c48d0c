"""NVIDIA's GPUs with the driver's files that containers need for them, or with the reason why there are none.

The files are those of the kernel module that is loaded. A package that was upgraded under it changes nothing as long as
our folder of the module's version is there, which stays whole while packages go one by one; what was never put
together before cannot be had until both are of one version again.
"""

import os
import threading
import time
from collections.abc import Collection
from functools import partial
from pathlib import Path

from msgspec import structs

from folderwatch import is_missing
from hostdevices import Device, DriverFiles, DriverMount, Host, Inventory
from hostdevices.certainty import certainly
from hostdevices.errors import HostExhausted
from hostdevices.readers.nvidia import module_version
from hostdevices.tree import Folder
from userspace import nvidia
from userspace.driver_folders import DriverFolders, mounts

_RETRY = 60.0  # seconds until what failed is tried again


class NvidiaUserspace:
    """Finds the driver's files below `driver_root` of the host; puts them together in `folder` unless that is None.

    `on_host` is the folder of the host that `driver_root` is, where the daemon has it elsewhere: what a runtime mounts
    is named by that. Empty: it is the same.
    """

    def __init__(self, host: Host, driver_root: str, folder: Path | None, on_host: str = "") -> None:
        """Prepare; nothing is read yet."""
        self._host = host
        self._root = os.path.realpath(f"{host.root}/{driver_root}")
        self._on_host = (on_host or self._root).rstrip("/")
        self._shown = driver_root
        self._folders = DriverFolders(folder) if folder is not None else None
        self._current: Path | None = None
        self._found: DriverFiles | None = None
        self._key: object = None  # the inputs of the stored result
        self._tried = 0.0
        self._lock = threading.Lock()  # both methods are called in threads

    def enrich(self, inventory: Inventory) -> Inventory:
        """Return the inventory, each of NVIDIA's GPUs with its driver's files."""
        gpus = {
            i: x for i, x in inventory.devices.items() if x.kind == "gpu" and x.attributes.get("driver") == "nvidia"
        }
        if not gpus:
            return inventory
        with self._lock:
            found = self._files()
        with_files: dict[str, Device] = {i: structs.replace(x, driver_files=found) for i, x in gpus.items()}
        return Inventory({**inventory.devices, **with_files}, inventory.problems)

    def prune(self, leases: Collection[object]) -> None:
        """Remove folders of other versions that no lease is left of (`DriverFolders.prune`). Raises OSError."""
        if self._folders is not None:
            with self._lock:
                self._folders.prune(self._current, leases)

    def _files(self) -> DriverFiles:
        version = module_version(self._host)
        folders = (*nvidia.folders(version), *nvidia.SOCKET_FOLDERS)
        key = (version, *map(self._changed, folders))
        is_there = self._current is None or not is_missing(self._current)
        found = self._found
        if (
            found is None
            or key != self._key
            or not is_there
            or (found.problem and time.monotonic() > self._tried + _RETRY)
        ):
            self._tried = time.monotonic()
            try:
                found = self._find(version)
            except (OSError, HostExhausted) as error:
                found = DriverFiles(problem=f"the files of NVIDIA's driver: {error}")
            self._found, self._key = found, key
        return found

    def _find(self, version: str) -> DriverFiles:
        if not version:
            return DriverFiles(problem="the kernel does not say which version NVIDIA's driver has")
        root = Folder("" if self._root == "/" else self._root)
        installed = certainly(partial(nvidia.versions, root))
        if version not in installed:
            made = self._folders.of_version(version) if self._folders is not None else None
            if made is not None:
                return self._files_of(made)
            return DriverFiles(problem=self._why_none(version, installed))
        files = certainly(partial(nvidia.find, root, "" if self._root == "/" else self._root, version))
        if self._folders is None:
            return DriverFiles()
        return self._files_of(self._folders.fuller_than(files) or self._folders.make(files))

    def _files_of(self, folder: Path) -> DriverFiles:
        self._current = folder
        root = "" if self._root == "/" else self._root
        sockets = (DriverMount(f"{self._on_host}{path}", path) for path in nvidia.sockets(Folder(root)))
        return DriverFiles((*mounts(folder), *sockets))

    def _why_none(self, version: str, installed: tuple[str, ...]) -> str:
        if not installed:
            return f"NVIDIA's driver {version} has no libraries below {self._shown}; settings.driverRoot says where"
        return (
            f"NVIDIA's kernel module is {version}, its libraries below {self._shown} are {', '.join(installed)}: load"
            " the module that goes with them, or start the node again"
        )

    def _changed(self, folder: str) -> int:
        try:
            return os.stat(f"{self._root}{folder}").st_mtime_ns
        except OSError:
            return 0
