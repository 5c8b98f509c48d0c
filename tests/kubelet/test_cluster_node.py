"""A node of a cluster whose API server goes away and comes back."""

import asyncio
from pathlib import Path
from typing import Any

from controlplane.apiserver import Server
from kubelet import Node
from nodeplug.commands.kubelet_api import ClusterNode
from nodeplug.commands.kubelet_cluster import background
from resourceapi.client import Client, Credentials

TOKEN = "token"


def bound(name: str) -> dict[str, Any]:
    spec = {"nodeName": "node", "containers": [{"name": "c", "image": "any"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def test_a_kubelet_that_starts_while_its_api_server_is_away(folder: Path) -> None:
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
