"""The pods in the kernel: the uids of those that have a cgroup, or a process, independent of the kubelet's state.

The kubelet creates a cgroup for each pod before its first container starts, and removes it after the last one has
ended:

    kubepods/[burstable|besteffort/]pod<uid>                                            driver cgroupfs
    kubepods.slice/[kubepods-burstable.slice/]kubepods[-burstable]-pod<uid_>.slice      driver systemd, - written as _

below the root of the (v2), or of each (v1), hierarchy, or below the folder of --cgroup-root: kubelet/kubepods,
kubelet.slice/kubelet-kubepods.slice. A static pod's uid has 32 hexadecimal digits without dashes.

Rule: absence is not a fact. Every root of pods counts, and if any of them cannot be read the result is None and never a
smaller set. Nothing below a pod is read.

Source: k8s.io/kubernetes/pkg/kubelet/cm (cgroup_manager_linux.go, pod_container_manager_linux.go); cgroups(7),
`cgroup.events`; Linux, Documentation/admin-guide/cgroup-v1/pids.rst, kernel/cgroup/cgroup-v1.c (pidlist_array_load).
"""

from collections.abc import Iterator, Set

from hostdevices.errors import UnreadableFile
from hostdevices.host import Host
from hostdevices.tree import exhausted

_CGROUPS = "/sys/fs/cgroup"
_CGROUP_V2 = "cgroup.controllers"  # a file that only the root of the unified hierarchy has
_PIDS = "pids"  # a hierarchy of version 1
_COUNTER = "pids.current"  # processes and threads in a cgroup and those below it
_DEPTH = 4  # folders from a hierarchy down to a root of pods: docker/<id>/kubelet/kubepods
_MAX_FOLDERS = 4096  # the most folders that are listed
_LEAVES = (".service", ".mount", ".socket", ".swap", ".device")  # systemd's units that contain no other unit's cgroup


class _NotKnown(Exception):
    """Something cannot be read, or is too large."""


def running_pods(host: Host) -> frozenset[str] | None:
    """Return the uids of all pods that have a cgroup; None if that is unknown. Takes about a millisecond."""
    folders = _Folders(host)
    try:
        roots = [root for hierarchy in _hierarchies(host, folders) for root in _roots(folders, hierarchy)]
        found = frozenset(uid for root in roots for uid, _ in _pods(folders, root))
    except (_NotKnown, UnreadableFile):
        return None
    return found if roots else None


def pods_with_processes(host: Host, pods: Set[str]) -> frozenset[str] | None:
    """Return which of these pods have a process; None if that is unknown.

    Folders that cannot be read are skipped, because cgroups of other programs can end during the search, unless no file
    descriptor was left.
    """
    try:
        found, error = exhausted(lambda: _with_processes(host, pods))
    except UnreadableFile:
        return None
    return found if error is None else None


def _with_processes(host: Host, pods: Set[str]) -> frozenset[str]:
    is_unified, folders = _is_unified(host), _Folders(host, needs_all=False)
    # version 1: the folders of all hierarchies could exceed the limit
    found = tuple(_roots(folders, _CGROUPS if is_unified else f"{_CGROUPS}/{_PIDS}"))
    paths = [(uid, path) for root in found for uid, path in _pods(folders, root) if uid in pods]
    return frozenset(uid for uid, path in paths if _has_processes(host, path, is_unified=is_unified))


def _has_processes(host: Host, path: str, *, is_unified: bool) -> bool:
    """Return whether a cgroup or one below it has a process.

    cgroup.procs is not read: a version 1 hierarchy hides there what is in another PID namespace, such as a pod's.
    """
    if is_unified:
        return "populated 1" in (host.read(f"{path}/cgroup.events") or "")
    return (host.read(f"{path}/{_COUNTER}") or "0") != "0"


def shows_processes(host: Host) -> bool:
    """Return whether the kernel reports which pods have processes.

    The unified hierarchy does (version 2), and the hierarchy of the controller for pids (version 1).
    """
    return _is_unified(host) or host.exists(f"{_CGROUPS}/{_PIDS}")


def _is_unified(host: Host) -> bool:
    return host.exists(f"{_CGROUPS}/{_CGROUP_V2}")


class _Folders:
    """Lists folders, up to a limit. Without `needs_all`, those that cannot be listed are empty."""

    def __init__(self, host: Host, *, needs_all: bool = True) -> None:
        self._host = host
        self._needs_all = needs_all
        self._left = _MAX_FOLDERS

    def below(self, path: str) -> list[str]:
        """Return the names of the folders in a folder. Raises `_NotKnown`."""
        self._left -= 1
        names = self._host.folders(path) if self._left >= 0 else None
        if names is None and self._needs_all:
            raise _NotKnown(path)
        return names or []


def _hierarchies(host: Host, folders: _Folders) -> list[str]:
    if _is_unified(host):
        return [_CGROUPS]
    return [f"{_CGROUPS}/{name}" for name in folders.below(_CGROUPS)]


def _roots(folders: _Folders, hierarchy: str) -> Iterator[str]:
    """Yield the folders that contain pods."""
    level = [hierarchy]
    for _ in range(_DEPTH):
        below = [(f"{folder}/{name}", name) for folder in level for name in folders.below(folder)]
        level = []
        for path, name in below:
            if name in ("kubepods", "kubepods.slice") or name.endswith("-kubepods.slice"):
                yield path
            elif not name.endswith(_LEAVES):
                level.append(path)


def _pods(folders: _Folders, root: str) -> Iterator[tuple[str, str]]:
    """Yield the uids of pods below a root, and the paths of their cgroups."""
    for name in folders.below(root):
        path = f"{root}/{name}"
        if uid := _uid(name):
            yield uid, path
        elif name.removesuffix(".slice").rpartition("-")[2] in ("burstable", "besteffort"):
            yield from ((uid, f"{path}/{each}") for each in folders.below(path) if (uid := _uid(each)))


def _uid(name: str) -> str:
    """Return the uid of a pod's cgroup; empty if it is not a pod's."""
    if name.endswith(".slice"):
        return name.removesuffix(".slice").rpartition("-pod")[2].replace("_", "-") if "-pod" in name else ""
    return name.removeprefix("pod") if name.startswith("pod") else ""
