"""`nodeplug run`: signals at every moment, and parts of it that end."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

from hostdevices import Host
from kubelet.node import Node
from nodeplug import logs
from nodeplug.config import load
from nodeplug.config_file import ConfigFile
from nodeplug.daemon import Daemon
from nodeplug.signals import STOP_TIMEOUT, _run_with, _signal_handlers, run_until_signalled
from telemetry import Telemetry
from tests.deviceplugin.host import MadeUpHost
from tests.nodeplug.conftest import StartDaemon, ended, pod, until_logged
from tests.running import running, until
from tests.threads import no_more_threads


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_instance_waiting_for_the_state_stops_on_a_signal(
    start: StartDaemon, socket_dir: Path, number: signal.Signals
) -> None:
    async with Node(socket_dir) as node:
        first = await start()
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
        second = await start(lockWaitSeconds=600)
        await until_logged(second, "offering")  # the part that needs no state
        second.send_signal(number)
        async with asyncio.timeout(30):
            code, errors = await ended(second)
        assert code == 0
        assert "did not end" not in errors
        assert first.returncode is None
        assert node.allocatable()["example.com/fuse"] == 2


async def test_instance_waiting_for_the_kubelet_stops_on_sigterm(start: StartDaemon, socket_dir: Path) -> None:
    process = await start()
    await until_logged(process, f"waiting for the kubelet: there is no {socket_dir}/device-plugins")
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(30):
        assert (await ended(process))[0] == 0


async def test_instance_with_a_full_log_pipe_serves_and_stops_on_sigterm(start: StartDaemon, socket_dir: Path) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    async with Node(socket_dir) as node:
        process = await start(stderr=writer)
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
        assert (await node.admit(pod("a"))).phase == "Running"
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0
    os.close(writer)
    os.close(reader)


async def test_instance_that_cannot_start_threads_stops_on_sigterm(
    made_up: MadeUpHost, socket_dir: Path, tmp_path: Path
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        f"settings: {{kubeletRoot: {socket_dir}, stateDirectory: {tmp_path}/state, cdiDirectory: {tmp_path}/cdi}}\n"
        "resources: [{name: example.com/fuse, select: fuse}]\n"
    )
    async with Node(socket_dir) as node:
        file = ConfigFile(path, load(path))
        instance = asyncio.ensure_future(run_until_signalled(file, Host(made_up.root), Telemetry()))
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 1, 30)
        try:
            with no_more_threads():
                os.kill(os.getpid(), signal.SIGTERM)
                async with asyncio.timeout(30):
                    await instance
        finally:
            left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
        assert 0 < left <= STOP_TIMEOUT
        assert not list(node.device_plugins.glob("nodeplug-*"))


async def test_warnings_about_states_end_with_the_daemon_that_logged_them(
    made_up: MadeUpHost, socket_dir: Path, tmp_path: Path
) -> None:
    def write(kubelet: Path) -> None:
        path.write_text(
            f"settings: {{kubeletRoot: {kubelet}, stateDirectory: {tmp_path}/state, cdiDirectory: {tmp_path}/cdi}}\n"
            "resources: [{name: example.com/fuse, select: fuse}]\n"
        )

    def shown() -> list[str]:
        return [each.message for each in logs.recent() if str(wrong) in each.message]

    path, wrong = tmp_path / "config.yaml", socket_dir / "wrong"
    write(wrong)
    file = ConfigFile(path, load(path))
    # `run_until_signalled` would end this process after `STOP_TIMEOUT`
    async with Node(socket_dir) as node, running(_run_with(file, Host(made_up.root), Telemetry())):
        await until(lambda: any("waiting for the kubelet" in each for each in shown()))
        write(socket_dir)
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 1, 30)
        assert shown() == []


async def test_signal_is_handled_after_a_thousand_pending_signals() -> None:
    reread, stopped = asyncio.Event(), asyncio.Event()
    with _signal_handlers({signal.SIGHUP: lambda _: reread.set(), signal.SIGTERM: lambda _: stopped.set()}):
        for _ in range(1000):
            os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(30):
            await stopped.wait()
            await reread.wait()


async def test_failed_part_stops_the_daemon_and_is_named(made_up: MadeUpHost, socket_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        f"settings: {{kubeletRoot: {socket_dir}, stateDirectory: {tmp_path}/state, cdiDirectory: {tmp_path}/cdi,"
        " rescanSeconds: 1}\n"
        "resources: [{name: example.com/fuse, select: fuse}]\n"
    )
    registered = asyncio.Event()

    def fail_once_registered(*_: object) -> None:
        if registered.is_set():
            raise ZeroDivisionError("a defect")

    async with Node(socket_dir) as node:
        daemon = asyncio.ensure_future(Daemon(load(path), Host(made_up.root), fail_once_registered).run())
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 1, 30)
        registered.set()
        made_up.add("x1", 41)
        async with asyncio.timeout(100):
            with pytest.raises(ZeroDivisionError) as error:
                await daemon
        assert error.value.__notes__ == ["part host"]
        assert not list(node.device_plugins.glob("nodeplug-*"))
