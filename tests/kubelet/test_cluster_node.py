"""A node of a cluster whose API server stops and returns, or refuses requests."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from controlplane.apiserver import Server
from kubelet import FakeClock, Node
from nodeplug.commands import kubelet_lease
from nodeplug.commands.kubelet_api import ClusterNode
from nodeplug.commands.kubelet_cluster import background
from nodeplug.commands.kubelet_lease import NodeLease
from resourceapi.client import Credentials
from resourceapi.client.blocking import Client
from resourceapi.objects.core import Pod

TOKEN = "token"


def bound(name: str) -> dict[str, Any]:
    spec = {"nodeName": "node", "containers": [{"name": "c", "image": "any"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def test_kubelet_restarted_without_api_server_gets_pods_later(folder: Path) -> None:
    async with Server(token=TOKEN, data=folder / "data") as server:
        credentials = Credentials(server=server.url, token=TOKEN)
        port = int(server.url.rpartition(":")[2])
        client = Client(lambda: credentials)
        pods = client.raw("v1", "pods", namespaced=True)
        node = Node(folder)
        await node.start()
        working = background(ClusterNode(node, client).run())
        await working.__aenter__()
        for name in "pq":
            await asyncio.to_thread(pods.create, bound(name))
        await node.until(lambda: [status.phase for _, status in node.pods()] == ["Running"] * 2)
    try:
        assert len(node.active_pods()) == 2
        await node.restart()
        assert (node.active_pods(), node.sources.all_ready) == ([], False)
        assert [status.phase for _, status in node.pods()] == ["Running"] * 2
        async with Server(token=TOKEN, data=folder / "data", port=port):
            await node.until(lambda: len(node.active_pods()) == 2, 30)
            await working.__aexit__(None, None, None)
    finally:
        await node.stop()
        client.close()


class FirstMessage(logging.Handler):
    """The first log message."""

    def __init__(self) -> None:
        super().__init__()
        self.message: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def emit(self, record: logging.LogRecord) -> None:
        if not self.message.done():
            self.message.set_result(record.getMessage())


async def test_failed_lease_renewal_is_logged(folder: Path) -> None:
    logged = FirstMessage()
    kubelet_lease.log.addHandler(logged)
    async with Server(token=TOKEN) as server, Node(folder, clock=FakeClock()) as node:
        client = Client(lambda: Credentials(server=server.url, token="another"))
        try:
            async with background(NodeLease(node, client).run()), asyncio.timeout(30):
                message = await logged.message
        finally:
            client.close()
            kubelet_lease.log.removeHandler(logged)
    assert message.startswith(
        "lease kube-node-lease/node cannot be renewed, without which the cluster considers the node lost: 40"
    )


def denying_policy(name: str, operation: str = "UPDATE", resource: str = "pods/status") -> list[dict[str, Any]]:
    """A policy that denies an operation for one object, by default the write of a pod's status, and its binding."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": f"object.metadata.name != '{name}'", "reason": "Forbidden"}],
    }
    binding = {"policyName": "refuse", "validationActions": ["Deny"]}
    return [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": "refuse"},
            "spec": specified,
        }
        for kind, specified in (
            ("ValidatingAdmissionPolicy", spec),
            ("ValidatingAdmissionPolicyBinding", binding),
        )
    ]


async def until_running(client: Client, name: str) -> None:
    """Wait until the server's pod has the phase Running."""
    async with asyncio.timeout(30), aclosing(client.aio.resource(Pod).watch("default")) as events:
        async for event in events:
            for pod in event.items if event.type == "LISTED" else [event.object]:
                if pod.metadata.name == name and pod.status.phase == "Running":
                    return


async def run_until_node_object(client: Client, folder: Path, is_so: Callable[[Any], bool]) -> None:
    """Run a node until the server's node object fulfils a condition."""
    nodes = client.aio.raw("v1", "nodes", namespaced=False)
    async with (
        Node(folder) as node,
        background(ClusterNode(node, client).run()),
        asyncio.timeout(30),
        aclosing(nodes.watch()) as events,
    ):
        async for event in events:
            if any(map(is_so, event.items if event.type == "LISTED" else [event.object])):
                return


async def test_existing_node_object_gets_kubelet_labels(folder: Path) -> None:
    async with Server(token=TOKEN) as server:
        labels = {"kubernetes.io/os": "plan9", "mine": "too"}
        server.write({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node", "labels": labels}})
        credentials = Credentials(server=server.url, token=TOKEN)
        client = Client(lambda: credentials)
        wanted = {"kubernetes.io/os": "linux", "kubernetes.io/hostname": "node", "mine": "too"}
        try:
            await run_until_node_object(
                client, folder, lambda node: wanted.items() <= node["metadata"]["labels"].items()
            )
        finally:
            client.close()


async def test_existing_node_object_needs_no_create_permission(folder: Path) -> None:
    """A kubelet reads its node if it is not allowed to create it."""
    async with Server(token=TOKEN) as server:
        server.write({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}})
        for each in denying_policy("node", "CREATE", "nodes"):
            server.write(each)
        credentials = Credentials(server=server.url, token=TOKEN)
        client = Client(lambda: credentials)
        try:
            await run_until_node_object(client, folder, lambda node: bool(node["status"]["nodeInfo"]["kubeletVersion"]))
        finally:
            client.close()


async def test_refused_pod_status_does_not_block_other_pods(folder: Path) -> None:
    async with Server(token=TOKEN) as server:
        for each in denying_policy("p"):
            server.write(each)
        credentials = Credentials(server=server.url, token=TOKEN)
        client = Client(lambda: credentials)
        pods = client.raw("v1", "pods", namespaced=True)
        policies = client.raw("admissionregistration.k8s.io/v1", "validatingadmissionpolicies", namespaced=False)
        try:
            async with Node(folder) as node, background(ClusterNode(node, client).run()):
                for name in "pq":
                    await asyncio.to_thread(pods.create, bound(name))
                await until_running(client, "q")
                assert (await asyncio.to_thread(pods.get, "p", "default"))["status"]["phase"] == "Pending"
                await asyncio.to_thread(policies.delete, "refuse")
                await until_running(client, "p")
        finally:
            client.close()


async def last_object_of(client: Client, name: str, delete: Callable[[], Awaitable[None]]) -> Any:
    """Delete a pod once it runs, and return its last state in the server."""
    is_deleted = False
    async with asyncio.timeout(30), aclosing(client.aio.raw("v1", "pods", namespaced=True).watch("default")) as events:
        async for event in events:
            for pod in event.items if event.type == "LISTED" else [event.object]:
                if pod["metadata"]["name"] != name:
                    continue
                if event.type == "DELETED":
                    return pod
                if not is_deleted and pod.get("status", {}).get("phase") == "Running":
                    is_deleted = True
                    await delete()
    raise AssertionError("a watch does not end by itself")


async def test_last_status_is_written_before_pod_object_is_deleted(folder: Path) -> None:
    """The kubelet can end the pod later: here it is stopped when the pod is deleted."""
    async with Server(token=TOKEN) as server, Node(folder) as node:
        client = Client(lambda: Credentials(server=server.url, token=TOKEN))
        pods = client.aio.raw("v1", "pods", namespaced=True)

        async def delete() -> None:
            await node.stop()
            await pods.delete("p", "default")
            await node.start()

        try:
            async with background(ClusterNode(node, client).run()):
                await pods.create(bound("p"))
                status = (await last_object_of(client, "p", delete))["status"]
        finally:
            client.close()
    assert status["phase"] == "Failed"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143


async def test_pod_removed_from_node_can_be_deleted_in_server(folder: Path) -> None:
    """For example after `nodeplug kubelet remove`, which does not inform the server."""
    async with Server(token=TOKEN) as server, Node(folder) as node:
        client = Client(lambda: Credentials(server=server.url, token=TOKEN))
        pods = client.aio.raw("v1", "pods", namespaced=True)

        async def delete() -> None:
            await node.remove("p")
            await pods.delete("p", "default")

        try:
            async with background(ClusterNode(node, client).run()):
                await pods.create(bound("p"))
                await last_object_of(client, "p", delete)
        finally:
            client.close()


async def test_cancelled_node_finishes_its_status_write(folder: Path) -> None:
    """The write in progress is finished, and a kubelet that starts meanwhile runs."""
    held, goes_on = asyncio.Event(), asyncio.Event()
    async with (
        Server(token=TOKEN) as server,
        Node(folder) as node,
        holding_proxy(server.url, b'"observedGeneration":2', held, goes_on) as url,
    ):
        client = Client(lambda: Credentials(server=server.url, token=TOKEN))
        through = Client(lambda: Credentials(server=url, token=TOKEN))
        pods = client.aio.raw("v1", "pods", namespaced=True)
        working = asyncio.create_task(ClusterNode(node, through).run())
        try:
            await pods.create(bound("p"))
            await until_running(client, "p")
            await pods.delete("p", "default")
            await asyncio.wait_for(held.wait(), 30)
            working.cancel()
            await node.restart()
            await node.until(lambda: node.sources.all_ready, 10)
            goes_on.set()
            await asyncio.wait([working])
            assert working.cancelled()
            assert (await pods.get("p", "default"))["status"]["observedGeneration"] == 2
        finally:
            through.close()
            client.close()


@asynccontextmanager
async def holding_proxy(url: str, text: bytes, held: asyncio.Event, goes_on: asyncio.Event) -> AsyncIterator[str]:
    """A proxy of a server. A request that contains `text` waits for `goes_on`."""
    host, _, port = url.removeprefix("http://").rpartition(":")

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_request: bool) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                if is_request and text in data:
                    held.set()
                    await goes_on.wait()
                writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, asked = await asyncio.open_connection(host, int(port))
        await asyncio.gather(copy(reader, asked, is_request=True), copy(answers, writer, is_request=False))

    async with await asyncio.start_server(serve, "127.0.0.1") as listener:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
