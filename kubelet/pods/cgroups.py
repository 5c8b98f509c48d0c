"""The cgroups of pods, as folders below a root: made before anything of a pod runs, removed when it has terminated.

A kubelet that starts leaves them, and removes those of pods that no source names once all sources are ready. So a pod's
cgroup is there whenever one of its containers can run, whatever the kubelet knows just then.
Source: the kubelet's `pod_container_manager_linux.go` and `HandlePodCleanups`; QoS classes as `ComputePodQOS`.
"""

import shutil
from pathlib import Path
from typing import Literal

from kubelet.pods.objects import Pod
from resourceapi.objects import Quantity

CgroupDriver = Literal["systemd", "cgroupfs"]

_COMPUTE = ("cpu", "memory")  # the resources that decide about the class


class PodCgroups:
    """Makes and removes them; nothing without a `root`."""

    def __init__(self, root: Path | None, driver: CgroupDriver = "systemd") -> None:
        """`driver` is the kubelet's `cgroupDriver`, which spells the names."""
        self._root = root
        self._driver = driver

    def begin(self) -> None:
        """A kubelet starts: the folders of the classes are there. Raises OSError."""
        for qos in ("burstable", "besteffort"):
            if self._root is not None:
                self._parent(self._root, qos).mkdir(parents=True, exist_ok=True)

    def path(self, pod: Pod) -> Path | None:
        """A pod's cgroup, whether it is there or not; None without a root."""
        if self._root is None:
            return None
        qos = qos_class(pod)
        if self._driver == "cgroupfs":
            return self._parent(self._root, qos) / f"pod{pod.uid}"
        prefix = "-".join(filter(None, ("kubepods", qos)))
        return self._parent(self._root, qos) / f"{prefix}-pod{pod.uid.replace('-', '_')}.slice"

    def create(self, pod: Pod) -> None:
        """Make a pod's cgroup, if it is not there. Raises OSError."""
        path = self.path(pod)
        if path is not None:
            path.mkdir(parents=True, exist_ok=True)

    def remove(self, pod: Pod) -> None:
        """Remove a pod's cgroup, if it is there. Raises OSError."""
        path = self.path(pod)
        if path is not None and path.is_dir():
            shutil.rmtree(path)

    def clear(self) -> None:
        """Remove them all, as a reboot does. Raises OSError."""
        if self._root is not None and (top := self._parent(self._root, "")).is_dir():
            shutil.rmtree(top)

    def _parent(self, root: Path, qos: str) -> Path:
        if self._driver == "cgroupfs":
            return root / "kubepods" / qos
        top = root / "kubepods.slice"
        return top / f"kubepods-{qos}.slice" if qos else top


def qos_class(pod: Pod) -> str:
    """`burstable`, `besteffort`, or empty for a guaranteed pod, whose cgroup lies at the top."""
    limits: dict[str, int] = {}
    requests: dict[str, int] = {}
    is_guaranteed = True
    for container in pod.all_containers:
        resources = container.resources
        found = {name: _milli(resources.limits.get(name)) for name in _COMPUTE}
        is_guaranteed = is_guaranteed and all(found.values())
        for name, limit in found.items():
            request = _milli(resources.requests[name]) if name in resources.requests else limit  # the API's default
            limits[name] = limits.get(name, 0) + limit
            requests[name] = requests.get(name, 0) + request
    if not any((*limits.values(), *requests.values())):
        return "besteffort"
    return "" if is_guaranteed and limits == requests else "burstable"


def _milli(amount: str | float | None) -> int:
    return 0 if amount is None else Quantity.parse(str(amount)).milli_value()
