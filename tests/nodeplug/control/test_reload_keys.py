"""Each key of a resource and each setting, changed while the daemon runs: the effect, and which pods keep what."""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from kubelet.node import Node
from nodeplug.config import Settings, loads
from nodeplug.config.schema import ResourceEntry
from nodeplug.control.file_values import to_file_value
from tests.controlplane.scheduler.kit import Json
from tests.deviceplugin.host import MadeUpHost
from tests.hostdevices.machine import GPU_UUID, build_machine
from tests.nodeplug.conftest import pod
from tests.nodeplug.control.conftest import FUSE, KVM, DaemonUnderTest
from tests.running import until

_REFUSED = "0 of 1 are healthy and free"
APPLIED_LIVE: Mapping[str, tuple[Any, str, str]] = {
    "select": ({"path": "/dev/kvm"}, '"kvm" -> "path /dev/kvm"', '"device": "misc-kvm"'),
    "group": ({"attribute": "name"}, 'not set -> {"attribute":"name"}', '"device": "example-com-kvm-name-kvm"'),
    "nodes": ("/dev/none*", '[] -> ["/dev/none*"]', _REFUSED),
    "containerPath": ("/dev/x", '"" -> "/dev/x"', '"containerPath": "/dev/x"'),
    "shares": (3, "1 -> 3", '"free": 3'),
    "sharesOf": ([{"count": 4}], '[] -> [{"count":4}]', '"free": 4'),
    "permissions": ("r", '"rw" -> "r"', '"permissions": "r"'),
    "env": ({"A": "{devnodes}"}, '{} -> {"A":"{devnodes}"}', '"A": "/dev/kvm"'),
    "mounts": (
        [{"hostPath": "/opt/x", "readOnly": False}],
        '[] -> [{"hostPath":"/opt/x","containerPath":"/opt/x","readOnly":fa...',
        '"hostPath": "/opt/x"',
    ),
    "annotations": ({"a/b": "c"}, '{} -> {"a/b":"c"}', '"a/b": "c"'),
    "cdi": (False, '"auto" -> false', '"cdiDevices": []'),
    "cdiDevices": (["x.com/dev=y"], '[] -> ["x.com/dev=y"]', '"x.com/dev=y"'),
    "access": ({"gid": 20, "mode": "0660"}, 'not set -> {"gid":20,"mode":"0660"}', '"device": "misc-kvm"'),
    "preferred": ("spread", '"numa" -> "spread"', '"device": "misc-kvm"'),
    "topology": (False, "true -> false", '"device": "misc-kvm"'),
    "ids": ("path", '"identity" -> "path"', '"unit": "/dev/kvm"'),
    "vhostNet": (True, "false -> true", _REFUSED),
    "health": ("present", '"strict" -> "present"', '"device": "misc-kvm"'),
    "dangerous": (True, "false -> true", '"device": "misc-kvm"'),
}
"""By key: a new value for /dev/kvm, the text of the change, and a container's answer or refusal afterwards."""
GPU: Json = {"name": "example.com/gpu", "select": "nvidia-gpu", "shares": 2}
USB: Json = {"name": "example.com/usb", "select": "usb"}
VFIO: Json = {"name": "example.com/vfio", "select": "vfio", "compat": "sriov"}
APPLIED_LIVE_ON_HARDWARE: Mapping[str, tuple[Json, Any, str, str]] = {
    "additionalInfo": (VFIO, {"*": {"a": "b"}}, 'additionalInfo: {} -> {"*":{"a":"b"}}', r"\"extra\":{\"a\":\"b\"}"),
    "compat": (GPU, "nvidia", 'ids: "identity" -> "uuid"', f'"NVIDIA_VISIBLE_DEVICES": "{GPU_UUID}"'),
    "identity": (USB, "port", 'identity: "device" -> "port"', '"unit": "usb-port-0000-00-14-0-0-2"'),
    "mps": (
        GPU,
        {"pipeDirectory": "/opt/pipe", "shmDirectory": "/opt/shm"},
        'mps: "" -> "/opt/pipe"',
        "0 of 2 are healthy and free",
    ),
    "reset": (VFIO, True, "reset: false -> true", '"reset": true'),
    "userspace": (GPU, "nvidia", 'userspace: not set -> "nvidia"', "0 of 2 are healthy and free"),
}
"""By key that needs hardware: a resource, the value, the text of the change, and a container's answer or refusal.
Neither NVIDIA's libraries nor a control daemon of MPS are here.
"""
REQUIRES_RESTART: Mapping[str, Any] = {"evictAfterSeconds": 60, "api": "both", "nodeSelector": {"zone": "a"}}
TESTED_ELSEWHERE = {
    "name": "it is another resource: test_changed_file.py",
    "onNodes": "the resource comes or goes: config/test_nodes.py",
    "dra": "test_changed_file.py, for it takes an API server",
}
"""Keys that other tests change."""


@pytest.fixture
def made_up(tmp_path: Path) -> MadeUpHost:
    """A machine with hardware for every key."""
    host = MadeUpHost(tmp_path / "host", "fuse")
    build_machine(host.root)
    shutil.rmtree(host.root / "proc/driver/nvidia/capabilities/gpu3/mig")  # the GPU is offered as a whole
    return host


def test_every_key_of_a_resource_has_a_test() -> None:
    assert {*APPLIED_LIVE, *APPLIED_LIVE_ON_HARDWARE, *REQUIRES_RESTART, *TESTED_ELSEWHERE} == {
        x.encode_name for x in structs.fields(ResourceEntry)
    }


async def test_changed_key_applies_at_once_and_other_resources_stay(daemon: DaemonUnderTest, node: Node) -> None:
    offered = [FUSE, KVM, GPU, USB, VFIO]
    await daemon.start(*offered, allowedMounts=["/opt"])
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
    assert (await node.admit(pod("a"))).phase == "Running"
    sockets = set(node.device_plugins.glob("nodeplug-fuse-*"))
    changed = {key: (KVM, value, f"{key}: {reads}", comes) for key, (value, reads, comes) in APPLIED_LIVE.items()}
    for key, (resource, value, reads, comes) in (changed | {**APPLIED_LIVE_ON_HARDWARE}).items():
        changed_one = [{**each, key: value} if each is resource else each for each in offered]
        daemon.write(*changed_one, allowedMounts=["/opt"])
        lines = (await daemon.run("reload")).stdout.splitlines()
        assert f"{resource['name']}: {reads}" in lines
        assert lines[-1] == "nothing changes for what is leased"
        answer = (await daemon.run("dry-run", "allocate", resource["name"], "-o", "json")).stdout
        assert comes in re.sub(r"\s+", " ", answer).replace("[ ", "["), key
        assert [x["unit"] for x in (await daemon.json("leases", "list"))["leases"]] == ["misc-fuse.0"], key
    assert set(node.device_plugins.glob("nodeplug-fuse-*")) == sockets
    assert node.allocatable()["example.com/fuse"] == 2


async def test_changed_node_owner_is_written_to_the_cdi_spec(daemon: DaemonUnderTest) -> None:
    await daemon.start(KVM)
    daemon.write({**KVM, "access": {"gid": 20}})
    assert (await daemon.run("reload")).exit_code == 0
    spec = daemon.state.parent / "cdi/nodeplug-device-plugin~example.com~kvm.json"
    await until(lambda: spec.exists() and '"gid": 20' in spec.read_text())  # a thread writes the file


CHANGED_SETTINGS: Json = {
    **dict.fromkeys(("nvml", "devlink", "registerThroughPluginWatcher", "tracing", "clusterEvents"), True),
    **dict.fromkeys(("rescanSeconds", "healthSeconds", "lockWaitSeconds"), 7),
    "allowedMounts": ["/opt"],
    "ignoredXids": [1],
    "logLevel": "debug",
    "logFormat": "json",
    "transport": "grpcio",
    "metricsAddress": "127.0.0.1:1",
    "statusPage": "all",
    "driverName": "x.example.com",
    "nodeName": "other",
}
"""New values of settings; for all others, a path."""


async def test_changed_setting_requires_a_restart_and_keeps_leases(daemon: DaemonUnderTest, node: Node) -> None:
    await daemon.start(FUSE)
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
    assert (await node.admit(pod("a"))).phase == "Running"
    for setting in structs.fields(Settings):
        name = setting.encode_name
        value = CHANGED_SETTINGS.get(name, "/elsewhere")
        daemon.write(FUSE, **{name: value})
        checked = json.loads((await daemon.run("check", daemon.path, "--against", daemon.state, "-o", "json")).stdout)
        found = checked["changes"]
        assert found["needsRestart"], name
        changes = [(x["where"], x["field"], json.loads(x["after"])) for x in found["fields"]]
        assert changes == [("settings", name, value)]
        assert [(x["unit"], x["change"]) for x in checked["leases"]] == [("misc-fuse.0", "")]


@pytest.mark.parametrize(("key", "value"), REQUIRES_RESTART.items())
async def test_key_that_needs_another_component_requires_a_restart(
    daemon: DaemonUnderTest, key: str, value: Any
) -> None:
    await daemon.start(FUSE)
    daemon.write({**FUSE, key: value})
    checked = await daemon.run("check", daemon.path, "--against", daemon.state, "-o", "json")
    assert json.loads(checked.stdout)["changes"]["needsRestart"]


@pytest.mark.parametrize(
    "resource",
    [
        {"select": "gpio", "group": "parent"},
        {"select": "gpio", "group": {"within": "usb"}},
        {"select": "gpu", "group": "functions"},
        {"group": {"paths": [{"path": "/dev/a*", "containerPath": "/dev/a"}, {"path": "/dev/b*", "optional": True}]}},
        {"group": {"folder": "/dev/snd"}},
        {"select": "gpio", "access": {"uid": 1, "gid": 0}},
        {"select": "nic", "api": "dra", "dra": {"interface": "move"}},
        {"select": "nic", "api": "dra", "dra": {"interface": {"mtu": True, "addresses": ["192.0.2.0/24"]}}},
        {"select": {"kind": "pci"}, "api": "dra", "dra": {"bind": "vfio-pci", "taint": "none"}},
        {"select": {"kind": "pci"}, "api": "dra", "dra": {"bind": {"iommufd": True}}},
        {"select": "gpu", "api": "dra", "shares": 2, "dra": {"capacity": {"m": {"value": "8", "default": "1"}}}},
        {
            "select": "gpu",
            "api": "dra",
            "dra": {"counters": {"m": "4"}, "partitions": [{"name": "a", "consumes": {"m": "2"}, "count": 2}]},
        },
    ],
    ids=str,
)
def test_value_is_printed_as_in_the_file(resource: Json) -> None:
    config = loads(json.dumps({"resources": [{"name": "x/y", **resource}]}).encode())
    (last,) = [name for name in ("dra", "group", "access") if name in resource]
    text = msgspec.json.encode(to_file_value(getattr(config.resources[0], last))).decode()
    assert json.loads(text) == resource[last]
