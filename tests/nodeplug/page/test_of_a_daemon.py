"""A real daemon's page: together with its metrics if enabled, and through its control socket."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from http.client import HTTPConnection

from kubelet.node import Node
from nodeplug.control.sockets import SOCKET_NAME
from tests.nodeplug.conftest import pod
from tests.nodeplug.control.conftest import FUSE, KVM, DaemonUnderTest, daemon, node
from tests.nodeplug.page.asked import looking
from tests.ports import free_ports

__all__ = ["daemon", "node"]


async def get(port: int, path: str) -> tuple[int, str]:
    def work() -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", path)
        answer = connection.getresponse()
        try:
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    return await asyncio.to_thread(work)


async def test_beside_the_metrics_where_the_configuration_asks_for_it(daemon: DaemonUnderTest, node: Node) -> None:
    (port,) = free_ports(1)
    await daemon.start(FUSE, metricsAddress=f"127.0.0.1:{port}", nodeName="worker-1")
    assert await get(port, "/") == (404, "there are /metrics, /livez and /readyz\n")
    assert await get(port, "/live") == (404, "there are /metrics, /livez and /readyz\n")
    await daemon.stop()
    await daemon.start(FUSE, metricsAddress=f"127.0.0.1:{port}", nodeName="worker-1", statusPage="local")
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
    status, text = await get(port, "/")
    assert (status, text.startswith("<!doctype html>")) == (200, True)
    assert (await get(port, "/metrics"))[0] == (await get(port, "/livez"))[0] == 200
    async with looking(port) as looker:
        await looker.head()
        assert (await looker.message())["about"]["node"] == "worker-1"
        assert (await node.admit(pod("a"))).phase == "Running"
        await looker.until(lambda: looker.tiles["misc-fuse"].get("isLeased"))
        assert (await daemon.run("withhold", "misc-fuse", "--reason", "noise")).exit_code == 0
        await looker.until(lambda: looker.tiles["misc-fuse"].get("reason") == "withheld: noise")


async def test_through_the_control_socket_for_who_has_the_address(daemon: DaemonUnderTest) -> None:
    await daemon.start(FUSE, KVM)
    command = ("env", "--default-signal=INT", sys.executable, "-m", "nodeplug", "ui", "--state", str(daemon.state))
    process = await asyncio.create_subprocess_exec(
        *command, stdout=PIPE, stderr=PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    try:
        assert process.stdout is not None
        address = (await asyncio.wait_for(process.stdout.readline(), 30)).decode().strip()
        port, _, secret = address.removeprefix("http://127.0.0.1:").removesuffix("/").partition("/")
        assert len(secret) >= 20
        assert (await get(int(port), "/"))[0] == (await get(int(port), "/live"))[0] == 404
        assert (await get(int(port), f"/{secret}/"))[0] == 200
        async with looking(int(port), f"/{secret}/live") as looker:
            await looker.head()
            await looker.until(lambda: looker.tiles.keys() >= {"misc-fuse", "misc-kvm"})
            assert looker.tiles["misc-kvm"]["resources"] == ["example.com/kvm"]
            await daemon.stop()
            await looker.until(lambda: looker.trouble)
            assert looker.trouble.startswith(f"there is no {daemon.state / SOCKET_NAME}: no daemon runs")
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_without_a_daemon_it_says_so(daemon: DaemonUnderTest) -> None:
    result = await daemon.run("ui")
    assert (result.exit_code, result.stderr.startswith("Error: there is no ")) == (4, True)
