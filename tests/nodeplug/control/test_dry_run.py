"""`nodeplug dry-run allocate`: the kubelet's answer, without an effect."""

import json

import pytest

from kubelet.node import Node
from tests.deviceplugin.host import MadeUpHost
from tests.nodeplug.conftest import pod
from tests.nodeplug.control.conftest import FUSE, KVM, Asked, cells

FULL = {
    **FUSE,
    "env": {"WHERE": "{devnodes}"},
    "mounts": [{"hostPath": "/opt/lib", "containerPath": "/usr/lib/x"}],
    "annotations": {"example.com/ids": "{ids}"},
    "reset": False,
}


async def test_the_answer_is_the_one_that_the_kubelet_gets(asked: Asked, node: Node) -> None:
    await asked.start(FULL, allowedMounts=["/opt"])
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
    early = await asked.run("dry-run", "allocate", "example.com/fuse")
    assert (early.exit_code, "the devices of running pods are not known yet" in early.stderr) == (1, True)
    assert (await node.admit(pod("a"))).phase == "Running"
    before = asked.telemetry.events.latest
    found = await asked.json("dry-run", "allocate", "example.com/fuse")
    assert asked.telemetry.events.latest == before
    (lease,) = (await asked.json("leases", "list"))["leases"]
    (unit,) = found["units"]
    assert (unit["device"], unit["unit"] != lease["unit"], found["free"]) == ("misc-fuse", True, 1)
    assert (await asked.json("dry-run", "allocate", "example.com/fuse", "--device", "misc-fuse")) == found
    assert found["envs"] == {"NODEPLUG_EXAMPLE_COM_FUSE": unit["unit"], "WHERE": "/dev/fuse"}
    assert found["mounts"] == [{"hostPath": "/opt/lib", "containerPath": "/usr/lib/x", "readOnly": True}]
    assert found["nodes"] == [{"hostPath": "/dev/fuse", "containerPath": "/dev/fuse", "permissions": "rw"}]
    assert found["cdiDevices"] == ["example.com/fuse=misc-fuse"]
    assert found["annotations"] == {"example.com/ids": unit["unit"]}


async def test_a_table(asked: Asked) -> None:
    await asked.start(FUSE)
    rows = cells((await asked.run("dry-run", "allocate", "example.com/fuse", "--count", "2")).stdout)
    assert rows[:3] == [["UNIT", "(OF", "2", "FREE)"], ["misc-fuse.0"], ["misc-fuse.1"]]
    assert ["node", "/dev/fuse", "/dev/fuse", "(rw)"] in rows


@pytest.mark.parametrize(
    ("words", "says"),
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
async def test_refusals_in_words_and_as_data(asked: Asked, words: tuple[str, ...], says: str) -> None:
    await asked.start(FUSE, KVM)
    assert (await asked.run("withhold", "misc-kvm", "--reason", "noise")).exit_code == 0
    result = await asked.run("dry-run", "allocate", *words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {says}")
    result = await asked.run("dry-run", "allocate", *words, "-o", "json")
    assert (result.exit_code, result.stderr) == (1, "")
    (error,) = json.loads(result.stdout)["errors"]
    assert error["message"].startswith(says)
    assert asked.telemetry.refusals.total() == 0


async def test_a_leased_unit_is_named_with_its_holder(asked: Asked, node: Node, made_up: MadeUpHost) -> None:
    await asked.start({**FUSE, "shares": 1})
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 1, 30)
    assert (await node.admit(pod("a"))).phase == "Running"
    result = await asked.run("dry-run", "allocate", "example.com/fuse", "--device", "misc-fuse")
    assert (result.exit_code, "is leased: example.com/fuse (device-plugin) has allocated" in result.stderr) == (1, True)
