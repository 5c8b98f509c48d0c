"""NVIDIA's GPUs with the driver's files that their containers need, or with the reason why these are missing.

The files are those of the loaded kernel module. If the package is upgraded while the module is loaded, our folder of
the module's version stays complete. Without such a folder the files are not available until module and package have the
same version again.

nvidia-modprobe makes the device nodes. NVIDIA's toolkit runs it for each container; without the toolkit the operator
has to, or CUDA finds no GPU. A graphical node has no nvidia-uvm after boot, and new MIG instances have no nodes.
"""

import os
import threading
import time
from collections.abc import Collection, Iterable
from functools import partial
from pathlib import Path

from msgspec import structs

from folderwatch import is_missing
from hostdevices import Device, DriverFiles, DriverMount, Host, Inventory
from hostdevices.conclusive_calls import call_conclusively
from hostdevices.errors import HostExhausted
from hostdevices.readers.nvidia import module_version
from hostdevices.tree import Folder
from userspace import nvidia
from userspace.driver_folders import DriverFolders, mounts

_RETRY = 60.0  # seconds until a failure is retried
_MTIME_RESOLUTION = 0.1  # seconds, more than the resolution of file times: two changes within it can have the same time
_MIG_NODE_COUNT = 2  # nodes below `_CAPABILITIES`: of the GPU instance and of the compute instance
_CAPABILITIES = "/dev/nvidia-caps/"


class NvidiaUserspace:
    """Finds the driver's files below `driver_root` of the host; copies them to `folder` unless that is None.

    `on_host` is the host's path of `driver_root` if the daemon sees it at another one: mounts for runtimes have that
    path. Empty: both are the same.
    """

    def __init__(self, host: Host, driver_root: str, folder: Path | None, on_host: str = "") -> None:
        """Prepare; nothing is read yet."""
        self._host = host
        self._root = os.path.realpath(f"{host.root}/{driver_root}")
        self._on_host = (on_host or self._root).rstrip("/")
        self._driver_root = driver_root
        self._folders = DriverFolders(folder) if folder is not None else None
        self._current: Path | None = None
        self._found: DriverFiles | None = None
        self._key: object = None  # the inputs of the stored result
        self._tried = 0.0
        self._lock = threading.Lock()  # both methods are called in threads

    def enrich(self, inventory: Inventory) -> Inventory:
        """Return the inventory, with the driver's files for each NVIDIA GPU."""
        gpus = {
            i: x for i, x in inventory.devices.items() if x.kind == "gpu" and x.attributes.get("driver") == "nvidia"
        }
        if not gpus:
            return inventory
        with self._lock:
            found = self._files()
        with_files: dict[str, Device] = {}
        for i, gpu in gpus.items():
            problem = found.problem or _node_problem(gpu)
            files = structs.replace(found, problem=problem) if problem else found
            with_files[i] = structs.replace(gpu, driver_files=files)
        return Inventory({**inventory.devices, **with_files}, inventory.problems)

    def prune(self, leases: Collection[object]) -> None:
        """Remove folders of other versions that no lease uses (`DriverFolders.prune`). Raises OSError."""
        if self._folders is not None:
            with self._lock:
                self._folders.prune(self._current, leases)

    def _files(self) -> DriverFiles:
        version = module_version(self._host)
        folders = (*nvidia.folders(version), *nvidia.SOCKET_FOLDERS)
        changes = tuple(map(self._mtime, folders))
        key = version, changes
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
            self._found, self._key = found, key if _are_distinguishable(changes) else None
        return found

    def _find(self, version: str) -> DriverFiles:
        if not version:
            return DriverFiles(problem="the kernel does not report the version of NVIDIA's driver")
        root = Folder("" if self._root == "/" else self._root)
        installed = call_conclusively(partial(nvidia.versions, root))
        if version not in installed:
            folder = self._folders.of_version(version) if self._folders is not None else None
            if folder is not None:
                return self._files_of(folder)
            return DriverFiles(problem=self._library_problem(version, installed))
        files = call_conclusively(partial(nvidia.find, root, "" if self._root == "/" else self._root, version))
        if self._folders is None:
            return DriverFiles()
        return self._files_of(self._folders.more_complete_than(files) or self._folders.make(files))

    def _files_of(self, folder: Path) -> DriverFiles:
        self._current = folder
        root = "" if self._root == "/" else self._root
        sockets = (DriverMount(f"{self._on_host}{path}", path) for path in nvidia.sockets(Folder(root)))
        return DriverFiles((*mounts(folder), *sockets))

    def _library_problem(self, version: str, installed: tuple[str, ...]) -> str:
        if not installed:
            return f"NVIDIA's driver {version} has no libraries below {self._driver_root}; set settings.driverRoot"
        return (
            f"NVIDIA's kernel module is {version}, its libraries below {self._driver_root} are {', '.join(installed)};"
            " load the matching module, or reboot the node"
        )

    def _mtime(self, folder: str) -> int:
        try:
            return os.stat(f"{self._root}{folder}").st_mtime_ns
        except OSError:
            return 0


def _are_distinguishable(changes: Iterable[int]) -> bool:
    """Return whether the next change of a folder has another time than these, in nanoseconds."""
    now = time.time_ns()
    return all(abs(now - change) > _MTIME_RESOLUTION * 1e9 for change in changes)


def _node_problem(gpu: Device) -> str:
    """Return which node that CUDA needs of a GPU is not there, and how it is made; empty where all are."""
    index, nodes = gpu.attributes.get("index"), {node.path for node in gpu.devnodes}
    if index is None:
        return "NVIDIA's driver does not report its number in /proc/driver/nvidia/gpus; see the kernel's log"
    for path in (f"/dev/nvidia{index}", "/dev/nvidiactl", "/dev/nvidia-uvm"):
        if path not in nodes:
            return (
                f"there is no {path}, without which CUDA finds no GPU; run `nvidia-modprobe -u -c {index}` at each boot"
            )
    if gpu.attributes.get("type") == "mig" and sum(x.startswith(_CAPABILITIES) for x in nodes) < _MIG_NODE_COUNT:
        files = f"/proc/driver/nvidia/capabilities/gpu{index}/mig"
        return f"its nodes in {_CAPABILITIES} are missing; run `nvidia-modprobe -f FILE` for its files in {files}"
    return ""
