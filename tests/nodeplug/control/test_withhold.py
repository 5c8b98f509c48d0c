"""`nodeplug withhold` and `readmit`: no new holder gets the device, and a current one keeps it, whatever happens."""

import asyncio
import json
import shutil

import pytest

from kubelet.node import Node
from nodeplug.control.client import ask
from nodeplug.control.metrics import Answer, Question
from tests.checkpoint.build import lease, opened
from tests.deviceplugin.host import MadeUpHost
from tests.nodeplug.conftest import pod
from tests.nodeplug.control.conftest import FUSE, KVM, Asked, cells
from tests.running import until

PAIR = {"name": "example.com/pair", "group": {"paths": [{"path": "/dev/fuse"}, {"path": "/dev/kvm"}]}}


async def withheld(asked: Asked) -> list[tuple[str, str, bool]]:
    status = json.loads((await asked.run("status", "-o", "json")).stdout)
    return [(x["device"], x["reason"], x["isHere"]) for x in status["withheld"]]


async def test_a_life_with_a_device_that_is_withheld(asked: Asked, node: Node) -> None:
    await asked.start(FUSE)
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
    assert (await node.admit(pod("a"))).phase == "Running"
    result = await asked.run("withhold", "/dev/fuse", "--reason", "noise")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("withheld: misc-fuse (noise)\nuntil they end it stays with:\nLEASED")
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 0, 30)
    refused = await node.admit(pod("b"))
    assert refused.phase == "Failed"
    status = json.loads((await asked.run("status", "-o", "json")).stdout)
    assert [(x["id"], x["health"], x["reason"]) for x in status["devices"]] == [
        ("misc-fuse", "unavailable", "withheld: noise")
    ]
    assert len(status["leases"]) == 1
    rows = cells((await asked.run("status")).stdout)
    assert next(x for x in rows if x[:1] == ["misc-fuse"])[-2:] == ["yes", "noise"]
    explained = await asked.json("explain", "misc-fuse")
    assert "device-plugin: unavailable: withheld: noise" in explained["missing"]
    shown = (await asked.run("topology", "--root", asked.root)).stdout
    assert "unavailable: withheld: noise" in shown

    result = await asked.run("withhold", "misc-fuse", "--reason", "smoke")
    assert result.stdout.startswith("withheld: misc-fuse (smoke)\n")
    result = await asked.run("withhold", "misc-fuse")  # without a new reason, the old one stays
    assert result.stdout.startswith("withheld: misc-fuse (smoke)\n")
    result = await asked.run("readmit", "fuse")
    assert result.stdout.startswith("readmitted: misc-fuse, withheld since ")
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
    assert (await node.admit(pod("c"))).phase == "Running"
    found = [(x.kind, x.device, x.message) for x in asked.telemetry.events.since(0)]
    assert [x for x in found if x[0] in ("withheld", "readmitted")] == [
        ("withheld", "misc-fuse", "noise"),
        ("withheld", "misc-fuse", "smoke"),
        ("withheld", "misc-fuse", "smoke"),
        ("readmitted", "misc-fuse", "new pods can get it again"),
    ]


async def test_restarts_other_configurations_and_being_away(asked: Asked, node: Node, made_up: MadeUpHost) -> None:
    await asked.start(KVM)
    await node.until(lambda: node.allocatable().get("example.com/kvm") == 1, 30)
    assert (await asked.run("withhold", "misc-kvm")).exit_code == 0
    await asked.stop()
    (made_up.root / "sys/class/misc/kvm").unlink()
    shutil.rmtree(made_up.root / "sys/devices/virtual/misc/kvm")
    await asked.start(KVM, FUSE)
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
    assert await withheld(asked) == [("misc-kvm", "", False)]
    (made_up.root / "dev/kvm").unlink()
    made_up.add("kvm", minor=1)

    async def offered() -> list[tuple[str, str, str]]:
        devices = json.loads((await asked.run("status", "-o", "json")).stdout)["devices"]
        return [(x["id"], x["resource"], x["reason"]) for x in devices if x["id"] == "misc-kvm"]

    await until(lambda: asked.telemetry.events.counts["plugged"])
    assert await offered() == [("misc-kvm", "example.com/kvm", "withheld")]
    asked.write({**KVM, "name": "example.com/other"})
    assert (await asked.run("reload")).exit_code == 0
    assert await offered() == [("misc-kvm", "example.com/other", "withheld")]
    asked.write(FUSE)
    assert (await asked.run("reload")).exit_code == 0
    assert (await asked.json("explain", "misc-kvm"))["missing"][-1] == "and it is withheld"
    assert (await asked.run("readmit", "misc-kvm")).exit_code == 0
    assert await withheld(asked) == []


async def test_who_has_nothing_to_do_with_it_stays_and_a_lost_lease_is_restored(asked: Asked, node: Node) -> None:
    ledger = await opened(asked.state)
    await ledger.grant([lease("misc-fuse", "example.com/fuse", holder="pod/default/a/c")])
    await ledger.close()
    await asked.start({**FUSE, "shares": 1}, KVM)
    await node.until(lambda: node.allocatable().get("example.com/kvm") == 1, 30)
    assert (await asked.run("withhold", "misc-fuse")).exit_code == 0
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 0, 30)
    assert node.allocatable()["example.com/kvm"] == 1
    assert [x["unit"] for x in (await asked.json("leases", "list"))["leases"]] == ["misc-fuse"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("withhold", "misc-fusd"), "there is no device misc-fusd here; did you mean misc-fuse?"),
        (
            ("withhold", "example.com/fuse"),
            "example.com/fuse is a resource; withhold one of its devices: misc-fuse",
        ),
        (("withhold", "misc-fuse", "--reason", "x" * 201), "a reason is one line of at most 200 characters"),
        (("withhold", "misc-fuse", "--reason", "a\nb"), "a reason is one line of at most 200 characters"),
        (("readmit", "misc-fuse"), "misc-fuse is not withheld"),
        (("readmit", "misc-fusd"), "misc-fusd is neither withheld nor a device here; nothing is withheld"),
    ],
)
async def test_refusals(asked: Asked, words: tuple[str, ...], says: str) -> None:
    await asked.start(FUSE)
    result = await asked.run(*words)
    assert (result.exit_code, result.stderr) == (1, f"Error: {says}\n")


async def test_a_group_goes_with_its_member_and_a_group_is_its_members(asked: Asked) -> None:
    await asked.start(PAIR)
    (pair,) = json.loads((await asked.run("status", "-o", "json")).stdout)["devices"]
    assert (await asked.run("withhold", "misc-kvm", "--reason", "hot")).exit_code == 0

    async def reason() -> str:
        (found,) = json.loads((await asked.run("status", "-o", "json")).stdout)["devices"]
        return str(found["reason"])

    assert await reason() == "withheld with misc-kvm: hot"
    assert (await asked.run("withhold", pair["id"], "--reason", "both")).exit_code == 0
    assert await withheld(asked) == [("misc-kvm", "both", True), ("misc-fuse", "both", True)]
    asked.write(FUSE)
    assert (await asked.run("reload")).exit_code == 0
    assert await reason() == "withheld: both"
    asked.write(PAIR)
    assert (await asked.run("reload")).exit_code == 0
    assert (await asked.run("readmit", pair["id"])).exit_code == 0
    assert (await withheld(asked), await reason()) == ([], "")


async def test_metrics_say_so_and_alerts_of_illness_stay_silent(asked: Asked) -> None:
    await asked.start(FUSE, KVM)
    assert (await asked.run("withhold", "misc-fuse")).exit_code == 0

    async def told() -> str:
        return (await asyncio.to_thread(ask, asked.state, Question(), Answer)).text

    text = await told()
    for health, fuse, kvm in (("healthy", 0, 1), ("unhealthy", 0, 0), ("withheld", 2, 0)):
        assert f'nodeplug_devices{{health="{health}",resource="example.com/fuse"}} {fuse}.0' in text
        assert f'nodeplug_devices{{health="{health}",resource="example.com/kvm"}} {kvm}.0' in text
    assert 'nodeplug_events_total{kind="withheld"} 1.0' in text
