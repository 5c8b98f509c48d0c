"""`nodeplug dry-run allocate`: the kubelet's answer, without an effect."""

import json

import pytest

from kubelet.node import Node
from tests.deviceplugin.host import MadeUpHost
from tests.nodeplug.conftest import pod
from tests.nodeplug.control.conftest import FUSE, KVM, DaemonUnderTest, cells

FULL = {
    **FUSE,
    "env": {"WHERE": "{devnodes}"},
    "mounts": [{"hostPath": "/opt/lib", "containerPath": "/usr/lib/x"}],
    "annotations": {"example.com/ids": "{ids}"},
    "reset": False,
}


async def test_dry_run_prints_the_allocation_without_an_effect(daemon: DaemonUnderTest, node: Node) -> None:
    await daemon.start(FULL, allowedMounts=["/opt"])
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
    early = await daemon.run("dry-run", "allocate", "example.com/fuse")
    assert (early.exit_code, "the devices of running pods are not known yet" in early.stderr) == (1, True)
    assert (await node.admit(pod("a"))).phase == "Running"
    before = daemon.telemetry.events.latest
    found = await daemon.json("dry-run", "allocate", "example.com/fuse")
    assert daemon.telemetry.events.latest == before
    (lease,) = (await daemon.json("leases", "list"))["leases"]
    (unit,) = found["units"]
    assert (unit["device"], unit["unit"] != lease["unit"], found["free"]) == ("misc-fuse", True, 1)
    assert (await daemon.json("dry-run", "allocate", "example.com/fuse", "--device", "misc-fuse")) == found
    assert found["envs"] == {"NODEPLUG_EXAMPLE_COM_FUSE": unit["unit"], "WHERE": "/dev/fuse"}
    assert found["mounts"] == [{"hostPath": "/opt/lib", "containerPath": "/usr/lib/x", "readOnly": True}]
    assert found["nodes"] == [{"hostPath": "/dev/fuse", "containerPath": "/dev/fuse", "permissions": "rw"}]
    assert found["cdiDevices"] == ["example.com/fuse=misc-fuse"]
    assert found["annotations"] == {"example.com/ids": unit["unit"]}


async def test_table_lists_units_and_nodes(daemon: DaemonUnderTest) -> None:
    await daemon.start(FUSE)
    rows = cells((await daemon.run("dry-run", "allocate", "example.com/fuse", "--count", "2")).stdout)
    assert rows[:3] == [["UNIT", "(OF", "2", "FREE)"], ["misc-fuse.0"], ["misc-fuse.1"]]
    assert ["node", "/dev/fuse", "/dev/fuse", "(rw)"] in rows


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("example.com/fusd",), "there is no resource example.com/fusd; did you mean example.com/fuse?"),
        (("example.com/fuse", "--device", "misc-kvm"), "example.com/fuse has no device misc-kvm"),
        (
            ("example.com/fuse", "--count", "3"),
            "example.com/fuse: 3 requested, and 2 of 2 are healthy and free; `nodeplug explain example.com/fuse` says",
        ),
        (("example.com/kvm",), "example.com/kvm: 1 requested, and 0 of 1 are healthy and free; `nodeplug explain"),
        (
            ("example.com/kvm", "--device", "misc-kvm"),
            "device misc-kvm is withheld: noise; `nodeplug readmit` ends that",
        ),
    ],
)
async def test_refusals_are_printed_as_text_and_as_json(
    daemon: DaemonUnderTest, words: tuple[str, ...], message: str
) -> None:
    await daemon.start(FUSE, KVM)
    assert (await daemon.run("withhold", "misc-kvm", "--reason", "noise")).exit_code == 0
    result = await daemon.run("dry-run", "allocate", *words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {message}")
    result = await daemon.run("dry-run", "allocate", *words, "-o", "json")
    assert (result.exit_code, result.stderr) == (1, "")
    (error,) = json.loads(result.stdout)["errors"]
    assert error["message"].startswith(message)
    assert daemon.telemetry.refusals.total() == 0


async def test_leased_device_is_refused_with_a_reason(daemon: DaemonUnderTest, node: Node, made_up: MadeUpHost) -> None:
    await daemon.start({**FUSE, "shares": 1})
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 1, 30)
    assert (await node.admit(pod("a"))).phase == "Running"
    result = await daemon.run("dry-run", "allocate", "example.com/fuse", "--device", "misc-fuse")
    assert (result.exit_code, "is leased: example.com/fuse (device-plugin) has allocated" in result.stderr) == (1, True)
