"""`nodeplug run` as a process: start, faults, signals, exit codes, logs."""

import asyncio
import json
import os
import signal
import socket
import sqlite3
import sys
import time
import urllib.request
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kubelet.node import Node
from kubelet.pods import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from tests.deviceplugin.host import MadeUpHost

StartDaemon = Callable[..., Awaitable[Process]]


@pytest.fixture
def made_up(tmp_path: Path) -> MadeUpHost:
    return MadeUpHost(tmp_path / "host", "fuse", "kvm")


@pytest.fixture
async def start(made_up: MadeUpHost, socket_dir: Path, tmp_path: Path) -> AsyncIterator[StartDaemon]:
    """Start the daemon with a configuration of its own; what still runs after the test is killed."""
    running: list[Process] = []

    async def begin(resources: object = None, environment: dict[str, str] | None = None, **settings: Any) -> Process:
        base = {
            "kubeletRoot": str(socket_dir),
            "stateDirectory": str(tmp_path / "state"),
            "cdiDirectory": str(tmp_path / "cdi"),
            "lockWaitSeconds": 0,
        }
        path = tmp_path / f"config{len(running)}.yaml"
        default = [{"name": "example.com/fuse", "select": "fuse", "shares": 2}]
        path.write_text(json.dumps({"settings": base | settings, "resources": resources or default}))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nodeplug", "run", "--config", str(path), "--root", str(made_up.root)),
            stderr=PIPE,
            env=os.environ | (environment or {}),
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def pod(name: str) -> Pod:
    requests = ResourceRequirements(limits={"example.com/fuse": 1})
    return Pod(metadata=ObjectMeta(name=name), spec=PodSpec(containers=(Container("c", requests),)))


async def ended(process: Process) -> tuple[int, str]:
    _, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, errors.decode()


async def test_sigterm_ends_it_quickly_and_leases_stay(start: StartDaemon, socket_dir: Path) -> None:
    async with Node(socket_dir) as node:
        process = await start()
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 20)
        assert (await node.admit(pod("a"))).phase == "Running"
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        code, errors = await ended(process)
        assert code == 0
        assert time.monotonic() - began < 2
        assert not list(node.device_plugins.glob("nodeplug-*"))
        await start()
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 20)
        assert node.allocations("a", "c") == {"example.com/fuse": ["misc-fuse.0"]}
        events = [json.loads(line) for line in errors.splitlines()]
        allocated = next(event for event in events if event["message"] == "allocated")
        assert (allocated["resource"], allocated["device"]) == ("example.com/fuse", "misc-fuse.0")


async def test_of_two_daemons_the_second_ends_with_3(start: StartDaemon, socket_dir: Path) -> None:
    async with Node(socket_dir) as node:
        first = await start()
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 20)
        code, errors = await ended(await start())
        assert code == 3
        assert "another" in errors
        assert first.returncode is None
        assert node.allocatable()["example.com/fuse"] == 2


async def test_two_daemons_started_at_once(start: StartDaemon, socket_dir: Path) -> None:
    async with Node(socket_dir) as node:
        daemons = [await start(), await start()]
        exits = [asyncio.ensure_future(process.wait()) for process in daemons]
        done, pending = await asyncio.wait(exits, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result() for task in done] == [3]
        assert len(pending) == 1
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 20)


async def test_a_second_instance_takes_over_when_the_first_one_ends(start: StartDaemon, socket_dir: Path) -> None:
    async with Node(socket_dir) as node:
        first = await start()
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 20)
        await start(lockWaitSeconds=30)
        first.send_signal(signal.SIGTERM)
        assert await first.wait() == 0
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 0, 20)
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 20)


async def test_a_wrong_configuration_ends_with_2_and_says_where(start: StartDaemon) -> None:
    code, errors = await ended(await start(resources=[{"name": "nonsense", "select": "fuse", "share": 2}]))
    assert code == 2
    assert "config0.yaml:1:" in errors
    assert "share" in errors
    assert "Traceback" not in errors


async def test_a_missing_kubelet_folder_ends_with_1(start: StartDaemon, socket_dir: Path) -> None:
    code, errors = await ended(await start())
    assert code == 1
    assert f"{socket_dir}/device-plugins" in errors
    assert "Traceback" not in errors


async def test_an_unwritable_state_directory_promises_nothing(
    start: StartDaemon, socket_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    async with Node(socket_dir) as node:
        await start()
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 20)
        status = await node.admit(pod("a"))
        assert status.phase == "Failed"
        assert f"{tmp_path}/state" in status.message
        (tmp_path / "state").unlink()
        assert (await node.admit(pod("b"))).phase == "Running"


async def test_a_corrupt_database_is_set_aside(start: StartDaemon, socket_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/ledger.sqlite3").write_bytes(b"not a database at all" * 500)
    async with Node(socket_dir) as node:
        process = await start()
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 20)
        assert (await node.admit(pod("a"))).phase == "Running"
        process.send_signal(signal.SIGTERM)
        code, errors = await ended(process)
        assert code == 0
        aside = [path.name for path in (tmp_path / "state").iterdir() if path.name != "ledger.sqlite3"]
        assert any(name in errors for name in aside)


async def test_a_lease_given_back_by_the_kubelets_records_after_the_loss(
    start: StartDaemon, socket_dir: Path, tmp_path: Path
) -> None:
    async with Node(socket_dir) as node:
        first = await start()
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 20)
        await node.admit(pod("a"))
        first.send_signal(signal.SIGKILL)
        await first.wait()
        for path in (tmp_path / "state").glob("ledger.sqlite3*"):
            path.unlink()
        second = await start()
        assert second.stderr is not None
        async for line in second.stderr:
            if "lease made anew" in line.decode():
                break
        second.send_signal(signal.SIGTERM)
        assert await second.wait() == 0
        with sqlite3.connect(tmp_path / "state/ledger.sqlite3") as reader:
            assert reader.execute("select unit, holder from lease").fetchall() == [("misc-fuse.0", "pod/default/a/c")]


async def test_hotplug_between_rescans_of_a_folder(start: StartDaemon, socket_dir: Path, made_up: MadeUpHost) -> None:
    async with Node(socket_dir) as node:
        await start(
            [{"name": "example.com/misc", "select": {"kind": "misc", "id": "misc-x*"}}],
            rescanSeconds=1,
        )
        await node.until(lambda: node.capacity().get("example.com/misc") == 0 and node.devices(), 20)
        made_up.add("x1", 41)
        await node.until(lambda: node.allocatable().get("example.com/misc") == 1, 20)


async def test_systemd_is_told(start: StartDaemon, socket_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(socket_dir / "notify"))
        systemd.setblocking(False)
        loop = asyncio.get_running_loop()
        async with Node(socket_dir):
            process = await start(environment={"NOTIFY_SOCKET": str(socket_dir / "notify")})
            assert await asyncio.wait_for(loop.sock_recv(systemd, 100), 20) == b"READY=1"
            process.send_signal(signal.SIGTERM)
            assert await loop.sock_recv(systemd, 100) == b"STOPPING=1"
            assert await process.wait() == 0


async def test_metrics_say_what_the_kubelet_was_told(start: StartDaemon, socket_dir: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    async with Node(socket_dir) as node:
        await start(metricsAddress=f"127.0.0.1:{port}")
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 20)
        await node.admit(pod("a"))
        page = await asyncio.to_thread(
            lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        )
    for line in (
        'nodeplug_devices{health="healthy",resource="example.com/fuse"} 2.0',
        'nodeplug_leases{resource="example.com/fuse"} 1.0',
        'nodeplug_registrations_total{resource="example.com/fuse"} 1.0',
        'nodeplug_kubelet_listens{resource="example.com/fuse"} 1.0',
    ):
        assert line in page
