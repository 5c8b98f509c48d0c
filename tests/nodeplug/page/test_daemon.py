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
from tests.nodeplug.page.clients import connected
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


async def test_page_is_served_with_the_metrics_when_configured(daemon: DaemonUnderTest, node: Node) -> None:
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
    async with connected(port) as client:
        await client.head()
        assert (await client.message())["about"]["node"] == "worker-1"
        assert (await node.admit(pod("a"))).phase == "Running"
        await client.until(lambda: client.tiles["misc-fuse"].get("isLeased"))
        assert (await daemon.run("withhold", "misc-fuse", "--reason", "noise")).exit_code == 0
        await client.until(lambda: client.tiles["misc-fuse"].get("reason") == "withheld: noise")


async def test_ui_command_serves_the_page_at_a_secret_address(daemon: DaemonUnderTest) -> None:
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
        async with connected(int(port), f"/{secret}/live") as client:
            await client.head()
            await client.until(lambda: client.tiles.keys() >= {"misc-fuse", "misc-kvm"})
            assert client.tiles["misc-kvm"]["resources"] == ["example.com/kvm"]
            await daemon.stop()
            await client.until(lambda: client.trouble)
            assert client.trouble.startswith(f"there is no {daemon.state / SOCKET_NAME}: no daemon runs")
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_ui_command_exits_with_4_without_a_daemon(daemon: DaemonUnderTest) -> None:
    result = await daemon.run("ui")
    assert (result.exit_code, result.stderr.startswith("Error: there is no ")) == (4, True)
