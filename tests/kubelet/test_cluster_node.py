"""A node of a cluster whose API server goes away and comes back, or refuses something."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

from controlplane.apiserver import Server
from kubelet import Node
from nodeplug.commands.kubelet_api import ClusterNode
from nodeplug.commands.kubelet_cluster import background
from resourceapi.client import Credentials
from resourceapi.client.blocking import Client
from resourceapi.objects.core import Pod

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


def refusal_of(name: str) -> list[dict[str, Any]]:
    """A policy that lets nobody write the status of a pod, and its binding."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/status"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": f"object.metadata.name != '{name}'"}],
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
    """Wait until the server has heard that a pod runs."""
    async with asyncio.timeout(30), aclosing(client.aio.resource(Pod).watch("default")) as events:
        async for event in events:
            for pod in event.items if event.type == "LISTED" else [event.object]:
                if pod.metadata.name == name and pod.status.phase == "Running":
                    return


async def test_a_pod_whose_status_is_refused_holds_up_no_other(folder: Path) -> None:
    async with Server(token=TOKEN) as server:
        for each in refusal_of("p"):
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
