"""The cgroups of pods, as folders below a root: created before a pod's containers run, removed when it has terminated.

A starting kubelet keeps them. When all sources are ready, it removes those of pods that no source has. So a pod's
cgroup exists whenever one of its containers can run, even if the kubelet does not know the pod yet.
Source: the kubelet's `pod_container_manager_linux.go` and `HandlePodCleanups`.
"""

import shutil
from pathlib import Path
from typing import Literal

from resourceapi.objects.core import Pod
from resourceapi.objects.qos import pod_qos

CgroupDriver = Literal["systemd", "cgroupfs"]


class PodCgroups:
    """Creates and removes the cgroups of pods; does nothing without a `root`."""

    def __init__(self, root: Path | None, driver: CgroupDriver = "systemd") -> None:
        """`driver` is the kubelet's `cgroupDriver`, which determines the names."""
        self._root = root
        self._driver = driver

    def begin(self) -> None:
        """Create the folders of the QoS classes, at the start of a kubelet. Raises OSError."""
        for qos in ("burstable", "besteffort"):
            if self._root is not None:
                self._parent(self._root, qos).mkdir(parents=True, exist_ok=True)

    def path(self, pod: Pod) -> Path | None:
        """Return the path of a pod's cgroup, whether it exists or not; None without a root."""
        if self._root is None:
            return None
        qos = qos_level(pod)
        if self._driver == "cgroupfs":
            return self._parent(self._root, qos) / f"pod{pod.uid}"
        prefix = "-".join(filter(None, ("kubepods", qos)))
        return self._parent(self._root, qos) / f"{prefix}-pod{pod.uid.replace('-', '_')}.slice"

    def create(self, pod: Pod) -> None:
        """Create a pod's cgroup if it does not exist. Raises OSError."""
        path = self.path(pod)
        if path is not None:
            path.mkdir(parents=True, exist_ok=True)

    def remove(self, pod: Pod) -> None:
        """Remove a pod's cgroup if it exists. Raises OSError."""
        path = self.path(pod)
        if path is not None and path.is_dir():
            shutil.rmtree(path)

    def clear(self) -> None:
        """Remove all cgroups, like a reboot. Raises OSError."""
        if self._root is not None and (top := self._parent(self._root, "")).is_dir():
            shutil.rmtree(top)

    def _parent(self, root: Path, qos: str) -> Path:
        if self._driver == "cgroupfs":
            return root / "kubepods" / qos
        top = root / "kubepods.slice"
        return top / f"kubepods-{qos}.slice" if qos else top


def qos_level(pod: Pod) -> str:
    """Return `burstable`, `besteffort`, or empty for a guaranteed pod, whose cgroup is at the top level."""
    found = pod_qos(pod)
    return "" if found == "Guaranteed" else found.lower()
