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
from tests.nodeplug.control.conftest import FUSE, KVM, DaemonUnderTest, cells
from tests.running import until

PAIR = {"name": "example.com/pair", "group": {"paths": [{"path": "/dev/fuse"}, {"path": "/dev/kvm"}]}}


async def withheld(daemon: DaemonUnderTest) -> list[tuple[str, str, bool]]:
    status = json.loads((await daemon.run("status", "-o", "json")).stdout)
    return [(x["device"], x["reason"], x["isHere"]) for x in status["withheld"]]


async def test_withheld_device_keeps_its_pod_and_gets_no_new_one(daemon: DaemonUnderTest, node: Node) -> None:
    await daemon.start(FUSE)
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
    assert (await node.admit(pod("a"))).phase == "Running"
    result = await daemon.run("withhold", "/dev/fuse", "--reason", "noise")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("withheld: misc-fuse (noise)\nuntil they end it stays with:\nLEASED")
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 0, 30)
    refused = await node.admit(pod("b"))
    assert refused.phase == "Failed"
    status = json.loads((await daemon.run("status", "-o", "json")).stdout)
    assert [(x["id"], x["health"], x["reason"]) for x in status["devices"]] == [
        ("misc-fuse", "unavailable", "withheld: noise")
    ]
    assert len(status["leases"]) == 1
    rows = cells((await daemon.run("status")).stdout)
    assert next(x for x in rows if x[:1] == ["misc-fuse"])[-2:] == ["yes", "noise"]
    explained = await daemon.json("explain", "misc-fuse")
    assert "device-plugin: unavailable: withheld: noise" in explained["missing"]
    shown = (await daemon.run("topology")).stdout
    assert "unavailable: withheld: noise" in shown

    result = await daemon.run("withhold", "misc-fuse", "--reason", "smoke")
    assert result.stdout.startswith("withheld: misc-fuse (smoke)\n")
    result = await daemon.run("withhold", "misc-fuse")  # without a new reason, the old one stays
    assert result.stdout.startswith("withheld: misc-fuse (smoke)\n")
    result = await daemon.run("readmit", "fuse")
    assert result.stdout.startswith("readmitted: misc-fuse, withheld since ")
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
    assert (await node.admit(pod("c"))).phase == "Running"
    found = [(x.kind, x.device, x.message) for x in daemon.telemetry.events.since(0)]
    assert [x for x in found if x[0] in ("withheld", "readmitted")] == [
        ("withheld", "misc-fuse", "noise"),
        ("withheld", "misc-fuse", "smoke"),
        ("withheld", "misc-fuse", "smoke"),
        ("readmitted", "misc-fuse", "new pods can get it again"),
    ]


async def test_withholding_survives_restart_reload_and_absence(
    daemon: DaemonUnderTest, node: Node, made_up: MadeUpHost
) -> None:
    await daemon.start(KVM)
    await node.until(lambda: node.allocatable().get("example.com/kvm") == 1, 30)
    assert (await daemon.run("withhold", "misc-kvm")).exit_code == 0
    await daemon.stop()
    (made_up.root / "sys/class/misc/kvm").unlink()
    shutil.rmtree(made_up.root / "sys/devices/virtual/misc/kvm")
    await daemon.start(KVM, FUSE)
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
    assert await withheld(daemon) == [("misc-kvm", "", False)]
    (made_up.root / "dev/kvm").unlink()
    made_up.add("kvm", minor=1)

    async def offered() -> list[tuple[str, str, str]]:
        devices = json.loads((await daemon.run("status", "-o", "json")).stdout)["devices"]
        return [(x["id"], x["resource"], x["reason"]) for x in devices if x["id"] == "misc-kvm"]

    await until(lambda: daemon.telemetry.events.counts["plugged"])
    assert await offered() == [("misc-kvm", "example.com/kvm", "withheld")]
    daemon.write({**KVM, "name": "example.com/other"})
    assert (await daemon.run("reload")).exit_code == 0
    assert await offered() == [("misc-kvm", "example.com/other", "withheld")]
    daemon.write(FUSE)
    assert (await daemon.run("reload")).exit_code == 0
    assert (await daemon.json("explain", "misc-kvm"))["missing"][-1] == "and it is withheld"
    assert (await daemon.run("readmit", "misc-kvm")).exit_code == 0
    assert await withheld(daemon) == []


async def test_withholding_leaves_other_resources_and_leases_unchanged(daemon: DaemonUnderTest, node: Node) -> None:
    ledger = await opened(daemon.state)
    await ledger.grant([lease("misc-fuse", "example.com/fuse", holder="pod/default/a/c")])
    await ledger.close()
    await daemon.start({**FUSE, "shares": 1}, KVM)
    await node.until(lambda: node.allocatable().get("example.com/kvm") == 1, 30)
    assert (await daemon.run("withhold", "misc-fuse")).exit_code == 0
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 0, 30)
    assert node.allocatable()["example.com/kvm"] == 1
    assert [x["unit"] for x in (await daemon.json("leases", "list"))["leases"]] == ["misc-fuse"]


@pytest.mark.parametrize(
    ("words", "message"),
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
async def test_invalid_arguments_are_refused(daemon: DaemonUnderTest, words: tuple[str, ...], message: str) -> None:
    await daemon.start(FUSE)
    result = await daemon.run(*words)
    assert (result.exit_code, result.stderr) == (1, f"Error: {message}\n")


async def test_group_is_withheld_with_its_members(daemon: DaemonUnderTest) -> None:
    await daemon.start(PAIR)
    (pair,) = json.loads((await daemon.run("status", "-o", "json")).stdout)["devices"]
    assert (await daemon.run("withhold", "misc-kvm", "--reason", "hot")).exit_code == 0

    async def reason() -> str:
        (found,) = json.loads((await daemon.run("status", "-o", "json")).stdout)["devices"]
        return str(found["reason"])

    assert await reason() == "withheld with misc-kvm: hot"
    assert (await daemon.run("withhold", pair["id"], "--reason", "both")).exit_code == 0
    assert await withheld(daemon) == [("misc-kvm", "both", True), ("misc-fuse", "both", True)]
    daemon.write(FUSE)
    assert (await daemon.run("reload")).exit_code == 0
    assert await reason() == "withheld: both"
    daemon.write(PAIR)
    assert (await daemon.run("reload")).exit_code == 0
    assert (await daemon.run("readmit", pair["id"])).exit_code == 0
    assert (await withheld(daemon), await reason()) == ([], "")


async def test_metrics_count_withheld_devices_apart_from_unhealthy_ones(daemon: DaemonUnderTest) -> None:
    await daemon.start(FUSE, KVM)
    assert (await daemon.run("withhold", "misc-fuse")).exit_code == 0

    async def metrics() -> str:
        return (await asyncio.to_thread(ask, daemon.state, Question(), Answer)).text

    text = await metrics()
    for health, fuse, kvm in (("healthy", 0, 1), ("unhealthy", 0, 0), ("withheld", 2, 0)):
        assert f'nodeplug_devices{{health="{health}",resource="example.com/fuse"}} {fuse}.0' in text
        assert f'nodeplug_devices{{health="{health}",resource="example.com/kvm"}} {kvm}.0' in text
    assert 'nodeplug_events_total{kind="withheld"} 1.0' in text
