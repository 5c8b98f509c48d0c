"""The overlay `driver-files` in a cluster: the daemon sees the driver at another path than the host and containers.

The GPU and its driver are made up: a tree for the daemon, a node in /dev for the runtime, a driver in a folder of the
host, as from a driver container. Pods check their containers' contents.
"""

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import IMAGE
from tests.e2e.realnode import RealNode, pod
from tests.hostdevices.tree import Tree
from tests.userspace.driver_root import ETC, install, remove

pytestmark = pytest.mark.e2e
OVERLAY = Path(__file__).resolve().parents[2] / "deploy/overlays/driver-files"
OLD, NEW = "550.54.14", "560.35.03"
RESOURCE = "e2e.example/driver"
NODE = "/dev/nvidia0"
NODES = {NODE: (1, 5), "/dev/nvidiactl": (1, 3), "/dev/nvidia-uvm": (1, 7)}  # the numbers of zero, null and full
INSIDE = "/usr/local/nvidia/lib64"
MADE = "/made"
"""The path of the made-up machine in the daemon's pod; the host's root is below it."""


class Machine:
    """A machine with a GPU and a driver root, both in folders of the host."""

    def __init__(self, folder: Path) -> None:
        self.tree = Tree(folder / "machine")
        self.driver = folder / "driver"
        self.tree.pci("0000:81:00.0", vendor="10de", device="20b5", pci_class="030200", driver="nvidia")
        self.tree.file("/proc/driver/nvidia/gpus/0000:81:00.0/information", "Device Minor: 0")
        for path, (major, minor) in NODES.items():
            self.tree.node(path, f"{major}:{minor}")
        self.tree.path("/host").mkdir()
        self.load(OLD)
        install(self.driver, OLD)

    def load(self, version: str) -> None:
        """Load this version's kernel module."""
        text = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build"
        self.tree.file("/proc/driver/nvidia/version", text)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    for path, numbers in NODES.items():
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(*numbers))
    place = made.driver / "run/nvidia-persistenced/socket"
    place.parent.mkdir(parents=True)
    try:
        with socket.socket(socket.AF_UNIX) as service:
            service.bind(str(place))
            yield made
    finally:
        for path in NODES:
            os.unlink(path)


def manifest(node: RealNode, machine: Machine) -> list[dict[str, Any]]:
    """The shipped overlay, with the made-up machine as the daemon's root and the host's root below it."""
    objects = [x for x in yaml.safe_load_all(node.kubectl("kustomize", str(OVERLAY))) if x]
    (settings,) = (x for x in objects if x["kind"] == "ConfigMap")
    resource = {"name": RESOURCE, "select": "nvidia-gpu", "shares": 4, "userspace": "nvidia"}
    config = {"settings": {"rescanSeconds": 1}, "resources": [resource]}
    settings["data"]["config.yaml"] = yaml.safe_dump(config)
    (daemonset,) = (x for x in objects if x["kind"] == "DaemonSet")
    template = daemonset["spec"]["template"]["spec"]
    template["hostNetwork"] = True  # pods have no network here
    template["volumes"].append({"name": "made", "hostPath": {"path": str(machine.tree.root), "type": "Directory"}})
    (container,) = template["containers"]
    container |= {"image": IMAGE, "imagePullPolicy": "Never"}
    container["args"] += ["--root", MADE]
    environment = {x["name"]: x for x in container["env"]}
    environment["NODEPLUG_DRIVER_ROOT"]["value"] += str(machine.driver)
    environment["NODEPLUG_DRIVER_ROOT_ON_HOST"]["value"] = str(machine.driver)
    container["env"] += [
        {"name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1"},
        {"name": "KUBERNETES_SERVICE_PORT", "value": "16443"},
    ]
    mounts = container["volumeMounts"]
    (host,) = (x for x in mounts if x["name"] == "host")
    assert host["readOnly"] is True
    host["mountPath"] = f"{MADE}{host['mountPath']}"
    mounts.insert(0, {"name": "made", "mountPath": MADE, "readOnly": True})
    return objects


@pytest.fixture
def daemonset(node: RealNode, machine: Machine) -> Iterator[RealNode]:
    node.apply(*manifest(node, machine))
    try:
        node.kubectl("rollout", "status", "daemonset/nodeplug", "-n", "nodeplug", "--timeout=60s")
        node.wait_resource(RESOURCE, 4)
        yield node
    finally:
        print(node.kubectl("logs", "-n", "nodeplug", "daemonset/nodeplug"))
        node.kubectl("delete", "namespace", "nodeplug", "--wait=true", "--timeout=60s")
        node.wait_resource(RESOURCE, 0)


INSPECT = f"""
readlink {INSIDE}/libcuda.so.1
ls {INSIDE} | grep -c '^libnvidia-ml.so'
test -S /run/nvidia-persistenced/socket && echo socket
cat {ETC}; echo
ls /lib/firmware/nvidia/*/
for x in {INSIDE} {INSIDE}/libcuda.so.1 {ETC} /lib/firmware/nvidia/*/gsp_ga10x.bin; do
    touch $x 2>/dev/null && echo "written: $x"
done
stat -c '%t:%T' {NODE}
"""


def expected(version: str) -> list[str]:
    return [f"libcuda.so.{version}", "2", "socket", "{}", "gsp_ga10x.bin", "1:5"]


def inspected(node: RealNode, name: str) -> list[str]:
    """Return what a pod that just ended found."""
    node.apply(pod(name, INSPECT, {RESOURCE: 1}))
    node.wait(f"pod/{name}", ".status.phase", "Succeeded", timeout=60)
    found = node.kubectl("logs", name).splitlines()
    node.delete_pod(name)
    return found


def folders(node: RealNode) -> set[str]:
    """The versions for which the daemon has created folders."""
    script = "import os; print(*os.listdir('/var/lib/nodeplug/userspace'))"
    listed = node.kubectl("exec", "-n", "nodeplug", "daemonset/nodeplug", "--", "python3", "-c", script)
    return {x.split("-")[1] for x in listed.split() if not x.startswith(".")}


def test_containers_have_the_driver_files_of_another_root(daemonset: RealNode, machine: Machine) -> None:
    node = daemonset
    assert inspected(node, "df-first") == expected(OLD)

    holder = pod("df-holder", f"readlink {INSIDE}/libcuda.so.1; exec sleep 3600", {RESOURCE: 1})
    holder["spec"]["restartPolicy"] = "Always"
    node.apply(holder)
    node.wait("pod/df-holder", ".status.phase", "Running", timeout=60)

    remove(machine.driver, OLD)  # the package is upgraded, but the module is still the old one
    install(machine.driver, NEW)
    assert inspected(node, "df-between") == expected(OLD)

    machine.load(NEW)
    node.until(lambda: folders(node) == {OLD, NEW}, "the new driver's files")
    assert inspected(node, "df-second") == expected(NEW)
    assert node.kubectl("exec", "df-holder", "--", "readlink", f"{INSIDE}/libcuda.so.1") == f"libcuda.so.{OLD}\n"

    node.kill_container("df-holder")
    node.until(lambda: node.kubectl("logs", "df-holder") == f"libcuda.so.{NEW}\n", "the new driver in a new container")
    node.delete_pod("df-holder")
    node.until(lambda: folders(node) == {NEW}, "the end of the old driver's files", seconds=120)
