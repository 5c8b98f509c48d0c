"""`nodeplug status` of a daemon that serves a kubelet, or waits for one."""

import asyncio
import hashlib
import json
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from kubelet.node import Node
from nodeplug import logs
from nodeplug.cli import main
from nodeplug.unlisted_record import FILE_NAME
from tests.checkpoint.build import lease, opened
from tests.controlplane.scheduler.kit import claim, request
from tests.deviceplugin.host import MadeUpHost
from tests.deviceplugin.kubelet_end import kubelet_end
from tests.deviceplugin.node import node_of, offered
from tests.nodeplug.cluster import using
from tests.nodeplug.conftest import pod
from tests.nodeplug.control.conftest import FUSE, KVM, DaemonUnderTest, cells
from tests.nodeplug.machine import Machine
from tests.running import until


async def test_json_lists_resources_devices_and_leases(daemon: DaemonUnderTest, node: Node) -> None:
    await daemon.start(FUSE, KVM)
    await node.until(lambda: node.allocatable().get("example.com/kvm"), 30)
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
    assert (await node.admit(pod("a"))).phase == "Running"
    found = await daemon.json("status")
    assert found["problems"] == []
    assert [(x["name"], x["units"], x["healthy"], x["leased"], x["isRegistered"]) for x in found["resources"]] == [
        ("example.com/fuse", 2, 2, 1, True),
        ("example.com/kvm", 1, 1, 0, True),
    ]
    assert [(x["id"], x["health"], x["leased"]) for x in found["devices"]] == [
        ("misc-fuse", "healthy", 1),
        ("misc-kvm", "healthy", 0),
    ]
    assert [(x["unit"], x["resource"], x["devices"]) for x in found["leases"]] == [
        ("misc-fuse.0", "example.com/fuse", ["misc-fuse"])
    ]
    assert found["configuration"]["sha256"] == hashlib.sha256(daemon.path.read_bytes()).hexdigest()
    assert found["configuration"]["isCurrent"]
    assert found["daemon"]["stateDirectory"] == str(daemon.state)
    same = yaml.safe_load((await daemon.run("status", "-o", "yaml")).stdout)
    assert same["resources"] == found["resources"]


async def test_table_lists_resources_and_wide_lists_devices(daemon: DaemonUnderTest, node: Node) -> None:
    await daemon.start(FUSE, KVM)
    await node.until(lambda: node.allocatable().get("example.com/kvm"), 30)
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
    assert (await node.admit(pod("a"))).phase == "Running"
    result = await daemon.run("status")
    assert result.exit_code == 0, result.output
    rows = cells(result.stdout)
    assert rows[0][:2] == ["nodeplug", "0.1.0"]
    assert ["example.com/fuse", "device-plugin", "2", "2", "1", "registered", "-"] in rows
    assert not any("misc-kvm" in row for row in rows)
    assert ["misc-kvm", "example.com/kvm", "device-plugin", "healthy", "0", "-"] in cells(
        (await daemon.run("status", "-o", "wide")).stdout
    )


async def test_resource_without_a_device_has_a_reason(daemon: DaemonUnderTest, made_up: MadeUpHost, node: Node) -> None:
    await daemon.start(FUSE, {"name": "example.com/again", "select": "fuse"}, KVM)
    await node.until(lambda: node.allocatable().items() >= {"example.com/again": 0, "example.com/kvm": 1}.items(), 30)
    rows = {x["name"]: x["empty"] for x in (await daemon.json("status"))["resources"]}
    assert (
        rows["example.com/again"]
        == "no device here: misc-fuse belongs to example.com/fuse, which is earlier in the file"
    )
    assert rows["example.com/fuse"] == rows["example.com/kvm"] == ""
    made_up.unplug("kvm")
    await node.until(lambda: node.allocatable().get("example.com/kvm") == 0, 30)
    async with asyncio.timeout(30):
        while (await daemon.run("status")).stdout.count("no device here") != 2:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.02)
    (row,) = [x for x in (await daemon.run("status")).stdout.splitlines() if x.startswith("example.com/kvm")]
    assert row.split()[:9] == ["example.com/kvm", "device-plugin", "0", "0", "0", "registered", "no", "device", "here:"]


async def test_table_lists_only_unavailable_devices_without_a_lease(daemon: DaemonUnderTest, node: Node) -> None:
    await daemon.start({**KVM, "env": {"WHICH": "{serial}"}}, {**FUSE, "shares": 1}, {**FUSE, "name": "example.com/z"})
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 1, 30)
    assert (await node.admit(pod("a"))).phase == "Running"
    lines = (await daemon.run("status")).stdout.splitlines()
    (at,) = [n for n, line in enumerate(lines) if line.startswith("DEVICE ")]
    assert lines[at + 1].split()[:5] == ["misc-kvm", "example.com/kvm", "device-plugin", "unavailable", "0"]
    assert "serial" in lines[at + 1]
    assert lines[at + 2] == ""


async def test_node_before_its_first_pod_has_a_note_and_no_error(daemon: DaemonUnderTest, node: Node) -> None:
    await daemon.start(FUSE)
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
    async with asyncio.timeout(30):
        while "the first pod that it lists" not in (result := await daemon.run("status")).stdout:
            pass  # the kubelet is queried soon after the start
    assert result.exit_code == 0
    assert "wrong" not in result.stdout
    examined = await daemon.run_as_is("doctor", "--config", str(daemon.path), "--root", str(daemon.root))
    assert "note  daemon         the lease database is new" in examined.stdout
    assert (await node.admit(pod("a"))).phase == "Running"
    assert "note" not in (await daemon.run("status")).stdout


async def test_problems_have_a_line_and_exit_code_1(daemon: DaemonUnderTest, made_up: MadeUpHost, node: Node) -> None:
    await daemon.start(FUSE, KVM)
    await node.until(lambda: node.allocatable().get("example.com/kvm"), 30)
    made_up.remove_node("kvm")
    await node.until(lambda: node.allocatable().get("example.com/kvm") == 0, 30)
    await node.stop()
    daemon.path.write_text("resources: 3")
    assert (await daemon.run("reload")).exit_code == 2
    result = await daemon.run("status")
    assert result.exit_code == 1
    wrong = [line for line in result.stdout.splitlines() if line.startswith("wrong: ")]
    assert wrong[0] == f"wrong: {daemon.path} has a mistake (`nodeplug reload` shows it); the previous one is in effect"
    assert any("resource example.com/fuse is not registered with the kubelet" in line for line in wrong)
    assert any(f"{daemon.path}:1:12: this must be a list" in line for line in wrong)
    found = json.loads((await daemon.run("status", "-o", "json")).stdout)
    assert [x["health"] for x in found["devices"] if x["id"] == "misc-kvm"] in (["unhealthy"], [])


async def test_missing_daemon_is_an_error_with_a_hint(daemon: DaemonUnderTest) -> None:
    result = await daemon.run("status")
    assert result.exit_code == 4
    assert result.stdout == ""
    assert result.stderr.startswith(f"Error: there is no {daemon.state}/control.sock: no daemon runs")
    assert "systemctl start nodeplug" in result.stderr


async def test_claim_is_shown_with_its_lease_and_devices(machine: Machine) -> None:
    cluster = machine.cluster
    await machine.classes()
    await machine.start()
    await machine.until_published()
    wanted = request(deviceClassName="fuse.example.com")
    await cluster.create(claim("c", wanted), using("p", ["mine"], claims={"mine": "c"}))
    await cluster.until_phase("p", "Running")

    async def ask(*words: str) -> Any:
        arguments = [*words, "--state", str(machine.state), "-o", "json"]
        result = await asyncio.to_thread(CliRunner().invoke, main, arguments)
        answer = json.loads(result.stdout)
        assert "error" not in answer, result.output
        return answer

    found = await ask("status")
    assert (found["dra"]["driver"], found["dra"]["isRegistered"], found["dra"]["claims"]) == ("nodeplug.dev", True, 1)
    assert [(x["name"], x["api"], x["units"], x["leased"], x["registrations"]) for x in found["resources"]] == [
        ("example.com/fuse", "device-plugin", 1, 0, 1),
        ("example.com/fuse", "dra", 1, 1, 1),
        ("example.com/kvm", "dra", 1, 0, 1),
    ]
    assert [(x["api"], x["health"], x["leased"]) for x in found["devices"] if x["id"] == "misc-fuse"] == [
        ("device-plugin", "unavailable", 0),
        ("dra", "healthy", 1),
    ]
    (leased,) = found["leases"]
    assert (leased["claim"], leased["namespace"], leased["devices"]) == ("c", "default", ["misc-fuse"])
    (shown,) = (await ask("leases", "show", "default/c"))["leases"]
    assert {"witness": "API server", "text": "wants it prepared", "holds": True} in shown["statements"]
    assert "misc-fuse to claim/default/c/" in (await ask("explain", "misc-fuse"))["missing"][0]


async def test_holding_pod_is_named_once_the_kubelet_has_reported_it(machine: Machine) -> None:
    """The slice does not contain the holder, and does not change."""
    cluster, node = machine.cluster, machine.cluster.node
    await machine.start()
    await machine.until_published()
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 1, 30)
    made = using("p")
    made["spec"]["containers"][0]["resources"] = {"limits": {"example.com/fuse": "1"}}
    await cluster.create(made)
    await cluster.until_phase("p", "Running")
    await machine.until(lambda: [holder for *_, holder in machine.leases()] == ["pod/default/p/c0"])
    arguments = ["status", "--state", str(machine.state), "-o", "json"]
    found = json.loads((await asyncio.to_thread(CliRunner().invoke, main, arguments)).stdout)
    assert [x["pod"] for x in found["leases"]] == ["p"]
    (kept,) = [x for x in found["devices"] if (x["api"], x["id"]) == ("dra", "misc-fuse")]
    assert kept["reason"] == "example.com/fuse (device-plugin) has allocated misc-fuse to pod/default/p/c0"


async def test_driver_is_not_registered_while_the_kubelet_is_down(machine: Machine) -> None:
    async def until_registered(is_registered: bool) -> Any:
        async with asyncio.timeout(30):
            while True:
                arguments = ["status", "--state", str(machine.state), "-o", "json"]
                found = json.loads((await asyncio.to_thread(CliRunner().invoke, main, arguments)).stdout)
                if found["dra"]["isRegistered"] == is_registered:
                    return found
                await machine.cluster.clock.advance(1.0)

    await machine.classes()
    await machine.start()
    await machine.until_published()
    await until_registered(True)
    await machine.cluster.node.stop()
    found = await until_registered(False)
    reason = f"waiting for the kubelet: nothing listens at {machine.kubelet}/device-plugins/kubelet.sock"
    assert f"the DRA driver is not registered with the kubelet: {reason}" in found["problems"]
    await machine.cluster.node.start()
    await until_registered(True)


async def recent(daemon: DaemonUnderTest) -> list[str]:
    """The warnings and errors in the status."""
    found = json.loads((await daemon.run("status", "-o", "json")).stdout)
    return [each["message"] for each in found["recent"]]


async def test_warnings_about_a_missing_kubelet_end_with_their_cause(daemon: DaemonUnderTest, socket_dir: Path) -> None:
    logs.setup("warning")
    await daemon.start(FUSE)
    missing = f"pod-resources socket {socket_dir}/pod-resources/kubelet.sock not found"
    waiting = f"waiting for the kubelet: there is no {socket_dir}/device-plugins; if the kubelet has another"
    shown = await recent(daemon)
    assert [any(each.startswith(text) for each in shown) for text in (missing, waiting)] == [True, True]
    async with Node(socket_dir) as node:
        await node.until(lambda: node.allocatable().get("example.com/fuse"), 30)
        assert await recent(daemon) == []


async def test_warnings_about_states_end_with_their_causes(
    daemon: DaemonUnderTest, socket_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def until_shown(*texts: str) -> None:
        """Wait until the warnings begin with these texts, in any order."""
        async with asyncio.timeout(30):
            while True:
                shown = await recent(daemon)
                if len(shown) == len(texts) and all(any(x.startswith(text) for x in shown) for text in texts):
                    return
                await asyncio.sleep(0.05)

    logs.setup("warning")
    monkeypatch.setattr("nodeplug.status_server._RETRY", 0.01)
    (health := tmp_path / "health").touch()
    (socket_dir / "device-plugins").mkdir()
    others = ("pod-resources socket", "the kubelet refused: the ResourceName", "cannot serve metrics at 127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as other:
        async with kubelet_end(socket_dir / "device-plugins", "refuse"):
            address = f"127.0.0.1:{other.getsockname()[1]}"
            await daemon.start(KVM, metricsAddress=address, healthDirectory=str(health))
            await until_shown(*others, f"settings.healthDirectory: {health}: not read")
            health.unlink()
            health.mkdir()
            (health / "misc-kvm").touch()
            await until_shown(*others, "device is unhealthy: reported by")
            (health / "misc-kvm").unlink()
        async with Node(socket_dir) as node:
            await node.until(lambda: node.allocatable().get("example.com/kvm"), 30)
            await until_shown("cannot serve metrics at")
            other.close()
            await until_shown()


async def test_unit_of_a_force_deleted_pod_is_unavailable_after_a_restart(
    daemon: DaemonUnderTest, made_up: MadeUpHost, socket_dir: Path
) -> None:
    before = await opened(daemon.state, "unknown")  # the made-up host has no boot id
    await before.grant([lease("misc-kvm", "example.com/kvm", holder="pod/x/y/z", pods="u1", boot_id="unknown")])
    await before.close()
    (daemon.state / FILE_NAME).write_text('[{"resource": "example.com/kvm", "unit": "misc-kvm", "pods": ["u1"]}]')
    cgroup = made_up.root / "sys/fs/cgroup/kubepods/podu1"
    async with node_of(made_up, socket_dir) as node:
        cgroup.mkdir(parents=True)
        (cgroup / "cgroup.events").write_text("populated 1\n")
        await daemon.start(KVM)
        await node.until(lambda: node.capacity().get("example.com/kvm") == 1, 30)
        assert node.allocatable()["example.com/kvm"] == 0
        (device,) = (await daemon.json("status"))["devices"]
        assert device["reason"].startswith("pod x/y still runs with misc-kvm, although the kubelet does not list")
        (cgroup / "cgroup.events").write_text("populated 0\n")
        await offered(node, "example.com/kvm")
        await until(lambda: not (daemon.state / FILE_NAME).exists())
        await daemon.stop()


async def test_status_agrees_with_the_kubelet_after_each_change(
    daemon: DaemonUnderTest, made_up: MadeUpHost, node: Node
) -> None:
    async def until_status_matches(**allocatable: int) -> None:
        """Wait until the kubelet has these units, and the status shows the same."""
        wanted = {f"example.com/{name}": count for name, count in allocatable.items()}
        await node.until(lambda: node.allocatable() == wanted, 30)
        async with asyncio.timeout(30):
            while True:  # the kubelet applies the daemon's last list with a delay
                found = json.loads((await daemon.run("status", "-o", "json")).stdout)
                if {x["name"]: x["healthy"] for x in found["resources"] if x["isRegistered"]} == wanted:
                    return

    await daemon.start(FUSE, KVM)
    await until_status_matches(fuse=2, kvm=1)
    made_up.remove_node("kvm")
    await until_status_matches(fuse=2, kvm=0)
    made_up.renumber("kvm", 1)
    await until_status_matches(fuse=2, kvm=1)
    await node.restart()
    await until_status_matches(fuse=2, kvm=1)
    daemon.write({**FUSE, "shares": 3}, KVM)
    assert (await daemon.run("reload")).exit_code == 0
    await until_status_matches(fuse=3, kvm=1)
    daemon.path.write_text("nonsense")
    assert (await daemon.run("reload")).exit_code == 2
    await until_status_matches(fuse=3, kvm=1)
