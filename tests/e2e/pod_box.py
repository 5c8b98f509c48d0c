"""The DaemonSet's container without a container runtime, with a cluster of stand-ins in this process.

It is what a runtime creates from the manifest: this machine's files, read-only, instead of the image's; the manifest's
mounts, and nothing else of the node; no capabilities, and no way to get any; its own mount and PID namespaces, and the
node's network. The node is a made-up machine with at least one device of every kind, and with their device nodes. The
kubelet's folder has the same path inside and outside.
"""

import asyncio
import json
import os
import re
import shlex
import shutil
import stat
import sys
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import yaml

from checkpoint.kubelet_devices import FILE_NAME
from hostdevices import Host, scan
from tests.controlplane.scheduler.kit import Json
from tests.e2e.conftest import CHECKOUT
from tests.e2e.functions import Functions
from tests.e2e.unit_box import USUAL
from tests.hostdevices.machine import build_machine
from tests.nodeplug.cluster import NODE, NodeCluster

MANIFEST = CHECKOUT / "deploy/daemonset.yaml"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_RESOURCES: list[Json] = [
    {"name": "example.com/fuse", "select": {"id": "misc-fuse"}},
    {"name": "example.com/tun", "select": "tun", "cdi": True},
    {"name": "example.com/kvm", "select": "kvm", "api": "dra"},
]
_END_TIMEOUT = 5.0  # time for pods to end; without its sockets, a daemon can unprepare nothing
_WHOLES = ("block", "nic", "usb", "pci")  # other devices are parts of these, so they are offered first
_NODES = ("null", "zero", "full", "random", "urandom", "tty")  # a runtime creates them in each container
_BOX = """
set -e
mount -t tmpfs pod {scratch}
cd {scratch}
mkdir upper work root own-sys
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
mount -t proc proc root/proc
mount -t tmpfs tmpfs root/run
mount -t tmpfs tmpfs root/tmp
mount -t tmpfs tmpfs root/dev
mount -t tmpfs tmpfs root/srv
for node in {nodes}; do touch root/dev/$node; mount --bind /dev/$node root/dev/$node; done
mount --bind own-sys root/sys
rm -rf root/var/lib/nodeplug root/var/lib/kubelet root/etc/nodeplug
{mounts}
mkdir root/run/before
for each in root/run root/dev root/srv root; do mount -o remount,bind,ro $each; done
cd root
pivot_root . run/before
umount -l run/before
exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs {command}
"""


def skip_reason() -> str:
    """Return why no container can be created here; "" if one can."""
    if os.geteuid() != 0:
        return "mounts and device nodes need root"
    missing = [tool for tool in ("unshare", "setpriv", "nsenter") if not shutil.which(tool)]
    if missing:
        return f"util-linux is not whole: {', '.join(missing)}"
    if CHECKOUT.is_relative_to("/tmp"):
        return "the checkout is in /tmp, which the container has of its own"
    return ""


class PodBox(Functions):
    """The container on a node whose files are below `node`; `cluster` has its kubelet's folder there."""

    def __init__(self, node: Path, cluster: NodeCluster, port: int) -> None:
        super().__init__(cluster)
        self._node = node
        self._port = port
        self._process: Process | None = None
        objects = [each for each in yaml.safe_load_all(MANIFEST.read_text()) if each]
        self._pod = objects[-1]["spec"]["template"]["spec"]
        (self._container,) = self._pod["containers"]
        self._kinds = _make_node(node)

    @staticmethod
    def kubelet(node: Path) -> Path:
        """The kubelet's folder of the node with these files."""
        return node / "var/lib/kubelet"

    def rights(self) -> set[str]:
        """The rights: mounts by their paths, variables by their names, the token."""
        token = {ACCOUNT} if self._pod["automountServiceAccountToken"] else set()
        mounts = {each["mountPath"] for each in self._container["volumeMounts"]}
        return mounts | {each["name"] for each in self._container["env"]} | token

    async def prepare(self) -> None:
        """Create the DeviceClass, the configuration and the token."""
        await self.prepare_claims()
        server = self.cluster.server
        reference = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        made = server.tokens.issue("nodeplug", "nodeplug", {"spec": {"boundObjectRef": reference}})
        account = self._node / "account"
        account.mkdir()
        for name, text in {"token": made["status"]["token"], "ca.crt": server.ca, "namespace": "nodeplug"}.items():
            (account / name).write_text(text)
        classes = [
            {"name": f"example.com/class-{kind}", "select": {"kind": kind}, "dangerous": True} for kind in self._kinds
        ]
        (self._node / "config").mkdir()
        (self._node / "config/config.yaml").write_text(json.dumps({"resources": [*_RESOURCES, *classes]}))

    async def start(self, without: str = "") -> None:
        """Start without state of an earlier run, and without one right."""
        self._starts += 1
        log = (self._node / "log").open("wb")
        words = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child"]
        words += ["--propagation", "private", "bash", "-c", self._script(without)]
        self._process = await asyncio.create_subprocess_exec(*words, stdout=log, stderr=log)
        log.close()

    async def stop(self) -> None:
        """Stop the daemon, after the kubelet has ended the pods if possible; remove the records of both."""
        await self.end_pods()
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_TIMEOUT):
                while await self.cluster.all("Pod"):
                    await self.cluster.clock.advance(1.0)
                    await asyncio.sleep(0.05)  # the daemon is another process
        await self.kill()
        for path in ("var/lib/nodeplug", "var/run/cdi"):
            shutil.rmtree(self._node / path)
            (self._node / path).mkdir()
        (self.kubelet(self._node) / "device-plugins" / FILE_NAME).unlink(missing_ok=True)
        await self.forget_slices()

    async def kill(self) -> None:
        """Kill the daemon, unless it has ended."""
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()

    async def log(self) -> str:
        return (self._node / "log").read_text()

    def functions(self) -> dict[str, Callable[[], Awaitable[object]]]:
        """The functions of `Functions`; readiness; noticing ended pods; devices of each kind."""
        rest = {"ready": self._is_ready, "ends of pods": self._reads_pod_resources}
        return {**super().functions(), **rest, **self.classes()}

    def classes(self) -> dict[str, Callable[[], Awaitable[object]]]:
        """For each kind of devices: whether some are offered."""
        return {f"class {kind}": partial(self._offers, kind) for kind in self._kinds}

    async def _is_ready(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            return False
        writer.write(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        line = await reader.readline()
        writer.close()
        return b" 200 " in line

    async def _reads_pod_resources(self) -> bool:
        return "registered" in (log := await self.log()) and "leases of ended pods do not end" not in log

    async def _offers(self, kind: str) -> bool:
        return self.cluster.node.allocatable().get(f"example.com/class-{kind}", 0) > 0

    def _mount(self, there: str, here: Path, *, is_read_only: bool) -> str:
        there = there.replace("/var/run/", "/run/")  # an absolute link leads out of the box
        target = f"root{there.replace(USUAL, str(self.kubelet(self._node)))}"
        lines = [f"mkdir -p {target}", f"mount --bind {shlex.quote(str(here))} {target}"]
        return "; ".join([*lines, f"mount -o remount,bind,ro {target}"] if is_read_only else lines)

    def _script(self, without: str) -> str:
        sources = {ACCOUNT: self._node / "account"} if self._pod["automountServiceAccountToken"] else {}
        read_only = {ACCOUNT}
        for each in self._container["volumeMounts"]:
            (volume,) = (x for x in self._pod["volumes"] if x["name"] == each["name"])
            own = {"configMap": self._node / "config", "emptyDir": self._node / "empty"}
            (source,) = (
                self._node / volume["hostPath"]["path"].strip("/") if kind == "hostPath" else own[kind]
                for kind in volume
                if kind != "name"
            )
            sources[each["mountPath"]] = source
            read_only |= {each["mountPath"]} if each.get("readOnly") else set()
        environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
        port = self.cluster.server.url.rpartition(":")[2]
        environment |= {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
        facts = {"spec.nodeName": NODE, "metadata.uid": f"uid-{self._starts}"}
        for each in self._container["env"]:
            found = each["value"] if "value" in each else facts[each["valueFrom"]["fieldRef"]["fieldPath"]]
            environment |= {each["name"]: found.replace(":9400", f"127.0.0.1:{self._port}")}
        sources.pop(without, None)
        environment.pop(without, None)
        environment["NODEPLUG_KUBELET_ROOT"] = str(self.kubelet(self._node))
        lines = [self._mount(there, here, is_read_only=there in read_only) for there, here in sources.items()]
        variables = [f"{name}={value}" for name, value in environment.items()]
        command = ["env", "-i", *variables, sys.executable, "-m", "nodeplug", *self._container["args"]]
        return _BOX.format(
            scratch=self._node / "scratch", nodes=" ".join(_NODES), mounts="\n".join(lines), command=shlex.join(command)
        )


def _make_node(node: Path) -> list[str]:
    """Create a machine's files with device nodes below a folder; return its kinds of devices."""
    tree = build_machine(node)
    tree.device("/sys/devices/virtual/misc/fuse", group="class/misc", node="fuse", numbers="10:229")
    tree.usb("/sys/devices/pci0000:00/0000:00:14.0", "1-9")  # a stick without children
    for path in (node / "dev").rglob("*"):
        if path.is_file() and (found := re.fullmatch(r"([bc]) (\d+):(\d+)\n?", path.read_text())):
            path.unlink()
            kind = stat.S_IFBLK if found[1] == "b" else stat.S_IFCHR
            os.mknod(path, kind | 0o600, os.makedev(int(found[2]), int(found[3])))
    folders = ("sys/fs/cgroup", "var/lib/nodeplug", "var/run/cdi", "var/lib/kubelet/plugins/nodeplug.dev")
    for folder in (*folders, "empty", "scratch"):
        (node / folder).mkdir(parents=True, exist_ok=True)
    kinds = {each.kind for each in scan(Host(node)).devices.values()} - {"misc"}
    return sorted(kinds, key=lambda kind: (kind in _WHOLES, kind))
