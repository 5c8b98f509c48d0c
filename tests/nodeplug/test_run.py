"""`nodeplug run` as a process: start, errors, signals, exit codes, logs."""

import asyncio
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from asyncio.subprocess import PIPE
from contextlib import closing
from pathlib import Path

import pytest

from kubelet.node import Node
from tests.deviceplugin.host import MadeUpHost
from tests.nodeplug.conftest import StartDaemon, ended, pod, until_logged
from tests.ports import free_ports


async def test_sigterm_stops_the_daemon_and_leases_stay(start: StartDaemon, socket_dir: Path) -> None:
    async with Node(socket_dir) as node:
        process = await start()
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
        assert (await node.admit(pod("a"))).phase == "Running"
        process.send_signal(signal.SIGTERM)
        code, errors = await ended(process)
        assert code == 0
        assert "did not end" not in errors
        assert not list(node.device_plugins.glob("nodeplug-*"))
        await start()
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
        assert node.allocations("a", "c") == {"example.com/fuse": ["misc-fuse.0"]}
        events = [json.loads(line) for line in errors.splitlines()]
        allocated = next(event for event in events if event["message"] == "allocated")
        assert (allocated["resource"], allocated["device"]) == ("example.com/fuse", "misc-fuse.0")


async def test_second_daemon_exits_with_3(start: StartDaemon, socket_dir: Path) -> None:
    async with Node(socket_dir) as node:
        first = await start()
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
        code, errors = await ended(await start())
        assert code == 3
        assert "another" in errors
        assert first.returncode is None
        assert node.allocatable()["example.com/fuse"] == 2


async def test_one_of_two_daemons_started_together_exits_with_3(start: StartDaemon, socket_dir: Path) -> None:
    async with Node(socket_dir) as node:
        daemons = [await start(), await start()]
        exits = [asyncio.ensure_future(process.wait()) for process in daemons]
        done, pending = await asyncio.wait(exits, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result() for task in done] == [3]
        assert len(pending) == 1
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)


async def test_waiting_instance_takes_over_when_the_first_ends(start: StartDaemon, socket_dir: Path) -> None:
    async with Node(socket_dir) as node:
        first = await start()
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
        await start(lockWaitSeconds=30)
        first.send_signal(signal.SIGTERM)
        assert await first.wait() == 0
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 0, 30)
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)


async def test_invalid_configuration_exits_with_2_and_names_the_line(start: StartDaemon) -> None:
    code, errors = await ended(await start(resources=[{"name": "nonsense", "select": "fuse", "share": 2}]))
    assert code == 2
    assert "config0.yaml:1:" in errors
    assert "share" in errors
    assert "Traceback" not in errors


async def test_daemon_waits_for_the_kubelet_folder(start: StartDaemon, socket_dir: Path) -> None:
    process = await start()
    assert process.stderr is not None
    async for line in process.stderr:
        if f"{socket_dir}/device-plugins" in line.decode():
            break
    async with Node(socket_dir) as node:
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)


async def test_allocation_fails_while_the_state_directory_is_unwritable(
    start: StartDaemon, socket_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    async with Node(socket_dir) as node:
        await start()
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
        status = await node.admit(pod("a"))
        assert status.phase == "Failed"
        assert f"{tmp_path}/state" in status.message
        (tmp_path / "state").unlink()
        assert (await node.admit(pod("b"))).phase == "Running"


async def test_temporary_files_of_a_killed_daemon_are_removed(
    start: StartDaemon, socket_dir: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    half, others = state / ".cdi-directory.0123abcd.tmp", state / ".profile.tmp"
    half.touch()
    others.touch()
    async with Node(socket_dir) as node:
        await start()
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
        assert (others.exists(), half.exists()) == (True, False)
        assert (state / "cdi-directory").read_text() == f"{tmp_path}/cdi\n"


async def test_corrupt_database_is_set_aside(start: StartDaemon, socket_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/ledger.sqlite3").write_bytes(b"not a database at all" * 500)
    async with Node(socket_dir) as node:
        process = await start()
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
        assert (await node.admit(pod("a"))).phase == "Running"
        process.send_signal(signal.SIGTERM)
        code, errors = await ended(process)
        assert code == 0
        aside = [path.name for path in (tmp_path / "state").iterdir() if path.name != "ledger.sqlite3"]
        assert any(name in errors for name in aside)


async def test_lost_lease_is_restored_from_the_kubelet(start: StartDaemon, socket_dir: Path, tmp_path: Path) -> None:
    async with Node(socket_dir) as node:
        first = await start()
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
        await node.admit(pod("a"))
        first.send_signal(signal.SIGKILL)
        await first.wait()
        for path in (tmp_path / "state").glob("ledger.sqlite3*"):
            path.unlink()
        second = await start()
        assert second.stderr is not None
        async for line in second.stderr:
            if "lease restored" in line.decode():
                break
        second.send_signal(signal.SIGTERM)
        assert await second.wait() == 0
        with closing(sqlite3.connect(tmp_path / "state/ledger.sqlite3")) as reader:
            assert reader.execute("select unit, holder from lease").fetchall() == [("misc-fuse.0", "pod/default/a/c")]


async def test_hotplugged_device_is_offered(start: StartDaemon, socket_dir: Path, made_up: MadeUpHost) -> None:
    async with Node(socket_dir) as node:
        await start(
            [{"name": "example.com/misc", "select": {"kind": "misc", "id": "misc-x*"}}],
            rescanSeconds=1,
        )
        await node.until(lambda: node.capacity().get("example.com/misc") == 0 and node.devices(), 30)
        made_up.add("x1", 41)
        await node.until(lambda: node.allocatable().get("example.com/misc") == 1, 30)


async def test_systemd_is_notified_of_readiness_and_stop(start: StartDaemon, socket_dir: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(socket_dir / "notify"))
        systemd.setblocking(False)
        loop = asyncio.get_running_loop()
        async with Node(socket_dir):
            process = await start(environment={"NOTIFY_SOCKET": str(socket_dir / "notify")})
            assert await asyncio.wait_for(loop.sock_recv(systemd, 100), 30) == b"READY=1"
            path = tmp_path / "config0.yaml"
            content = json.loads(path.read_text())
            path.write_text(json.dumps({**content, "settings": {**content["settings"], "healthSeconds": 7}}))
            # all restarts stay in one process: systemd would kill a process that reports STOPPING and does not end
            assert await asyncio.wait_for(loop.sock_recv(systemd, 100), 30) == b"READY=1"
            process.send_signal(signal.SIGTERM)
            assert await loop.sock_recv(systemd, 100) == b"STOPPING=1"
            assert await process.wait() == 0


async def test_metrics_match_what_the_kubelet_received(start: StartDaemon, socket_dir: Path) -> None:
    (port,) = free_ports(1)
    async with Node(socket_dir) as node:
        await start(metricsAddress=f"127.0.0.1:{port}")
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
        await node.admit(pod("a"))
        page = await asyncio.to_thread(
            lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        )
    for line in (
        'nodeplug_devices{health="healthy",resource="example.com/fuse"} 2.0',
        'nodeplug_leases{resource="example.com/fuse"} 1.0',
        'nodeplug_registrations_total{resource="example.com/fuse"} 1.0',
        'nodeplug_kubelet_listens{resource="example.com/fuse"} 1.0',
        "nodeplug_stuck_reads 0.0",
    ):
        assert line in page


def ask(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


async def until(port: int, path: str, code: int, words: str = "") -> None:
    async with asyncio.timeout(30):
        while (found := await asyncio.to_thread(ask, port, path))[0] != code or words not in found[1]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # another process


async def test_livez_and_readyz_differ_before_registration(start: StartDaemon, socket_dir: Path) -> None:
    """An instance that waits for its predecessor is ready: otherwise a rolling update would never continue."""
    ports = free_ports(2)
    (socket_dir / "device-plugins").mkdir()  # of a kubelet that has not started yet
    await start(metricsAddress=f"127.0.0.1:{ports[0]}")
    await until(ports[0], "/readyz", 503, "not ready: resource example.com/fuse is not registered with the kubelet")
    assert ask(ports[0], "/livez") == (200, "ok\n")
    async with Node(socket_dir):
        await until(ports[0], "/readyz", 200)
        await start(metricsAddress=f"127.0.0.1:{ports[1]}", lockWaitSeconds=60)
        await until(ports[1], "/livez", 200)
        assert ask(ports[1], "/readyz") == (200, "ok\n")


async def test_new_pod_of_an_update_is_ready_before_it_owns_the_state(start: StartDaemon, socket_dir: Path) -> None:
    """If ready sooner, no pod would offer devices once the old one is removed; if later, the update would never end."""
    ports = free_ports(2)
    (socket_dir / "device-plugins").mkdir()  # of a kubelet that has not started yet
    manifest = {"POD_UID": "old", "NODEPLUG_METRICS_ADDRESS": f"127.0.0.1:{ports[0]}"}  # no setting of the file
    old = await start(environment=manifest)
    await until(ports[0], "/readyz", 503)
    new = await start(environment={"POD_UID": "new"}, metricsAddress=f"127.0.0.1:{ports[1]}", lockWaitSeconds=60)
    await until(ports[1], "/livez", 200)
    assert (await asyncio.to_thread(ask, ports[1], "/readyz"))[0] == 503
    async with Node(socket_dir) as node:
        await until(ports[1], "/readyz", 200)
        assert old.returncode is None  # it owns the state
        old.send_signal(signal.SIGTERM)
        assert await old.wait() == 0
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
        await until(ports[1], "/readyz", 200)
        assert (await node.admit(pod("a"))).phase == "Running"
        assert new.returncode is None


async def test_daemon_restarts_when_the_host_name_changes(
    made_up: MadeUpHost, socket_dir: Path, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("a host name of its own needs root")
    folders = {"kubeletRoot": socket_dir, "stateDirectory": tmp_path / "state", "cdiDirectory": tmp_path / "cdi"}
    config = {
        "settings": {name: str(path) for name, path in folders.items()},
        "resources": [{"name": "example.com/fuse", "select": "fuse", "shares": 2}],
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    words = ("-m", "nodeplug", "run", "--config", str(tmp_path / "config.yaml"), "--root", str(made_up.root))
    environment = {name: value for name, value in os.environ.items() if name != "NODE_NAME"}
    async with Node(socket_dir) as node:
        process = await asyncio.create_subprocess_exec(
            *("unshare", "--uts", sys.executable, *words), stderr=PIPE, env=environment
        )
        try:
            await until_logged(process, "registered")
            await node.restart()  # the same name changes nothing
            await until_logged(process, "registered")
            rename = ("nsenter", "-t", str(process.pid), "--uts", "hostname", "later")
            await asyncio.to_thread(subprocess.run, rename, check=True)
            await node.restart()
            await until_logged(process, "the kubelet has restarted after the host name changed from ")
            await until_logged(process, "registered")
            await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
        finally:
            if process.returncode is None:
                process.terminate()
            _, errors = await process.communicate()
        assert process.returncode == 0, errors
