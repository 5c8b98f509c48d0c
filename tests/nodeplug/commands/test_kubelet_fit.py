"""The cluster-in kubelet rejects pods that do not fit its Node object on the API server."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from kubelet import Node
from nodeplug.commands.kubelet_api import ClusterNode
from nodeplug.commands.kubelet_cluster import background
from nodeplug.commands.kubelet_node_watch import NodeWatch
from resourceapi.client import Refused
from tests.controlplane.scheduler.kit import (
    EVENT_TIMEOUT,
    Json,
    SchedulerCluster,
    condition,
    intercepted_client,
    node,
    pod,
)
from tests.nodeplug.cluster import NODE, NodeCluster


async def test_labels_and_taints_on_the_server_count(socket_dir: Path) -> None:
    selecting: Json = {"nodeName": NODE, "nodeSelector": {"disk": "ssd"}}

    async def is_registered() -> bool:
        return "capacity" in (await cluster.get("Node", NODE)).get("status", {})

    async with NodeCluster(socket_dir) as cluster:
        await cluster.until(is_registered)
        await cluster.create(pod("p", **selecting))
        failed = (await cluster.until_phase("p", "Failed"))["status"]
        text = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
        assert (failed["reason"], failed["message"]) == ("NodeAffinity", f"Pod was rejected: {text}")
        await cluster.until_event("NodeAffinity", text)
        await cluster.patch("Node", NODE, {"metadata": {"labels": {"disk": "ssd"}}})
        await cluster.create(pod("q", **selecting))
        await cluster.until_phase("q", "Running")
        await cluster.patch("Node", NODE, {"spec": {"taints": [{"key": "ill", "effect": "NoExecute"}]}})
        async with asyncio.timeout(EVENT_TIMEOUT):
            while not (await cluster.node.object.read()).spec.taints:
                await cluster.get("Node", NODE)  # the kubelet's watch is as fast as a request
        await cluster.create(pod("r", nodeName=NODE))
        assert (await cluster.until_phase("r", "Failed"))["status"]["reason"] == "TaintToleration"


async def test_capacity_and_labels_on_the_server_are_the_nodes(socket_dir: Path) -> None:
    async with NodeCluster(socket_dir, labels={"example.com/gpu": "true"}) as cluster:
        await cluster.plugin("example.com/x", "d0")
        node = await cluster.get("Node", NODE)
        assert node["metadata"]["labels"]["example.com/gpu"] == "true"
        amounts = {"cpu": "1k", "memory": "10Ti", "ephemeral-storage": "10Ti", "pods": "10k", "example.com/x": "1"}
        assert node["status"]["capacity"] == amounts
        made = pod("p", nodeName=NODE)
        made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1001"}}
        await cluster.create(made)
        failed = (await cluster.until_phase("p", "Failed"))["status"]
        text = "Node didn't have enough resource: cpu, requested: 1001000, used: 0, capacity: 1000000"
        assert (failed["reason"], failed["message"]) == ("OutOfcpu", f"Pod was rejected: {text}")
        await cluster.until_event("OutOfcpu", text)


async def test_preempted_pod_has_the_condition(socket_dir: Path) -> None:
    async with NodeCluster(socket_dir, capacity={"pods": 1}) as cluster:
        await cluster.create(pod("p"))
        await cluster.until_phase("p", "Running")
        await cluster.create(pod("q", priorityClassName="system-node-critical", nodeName=NODE))
        await cluster.until_phase("q", "Running")
        await cluster.until_event("Preempting", "Preempted in order to admit critical pod")
        ended = await cluster.until_phase("p", "Failed")
        status = ended["status"]
        assert (status["reason"], status["message"]) == ("Preempting", "Preempted in order to admit critical pod")
        assert condition(ended, "DisruptionTarget")["reason"] == "TerminationByKubelet"
        assert not status["containerStatuses"][0]["ready"]


async def test_kubelet_waits_for_its_node_if_the_server_fails_at_first(socket_dir: Path) -> None:
    """A pod would be compared with the kubelet's own object, which has neither labels nor taints of others."""
    failed: list[str] = []

    def fail_once(_: str, path: str, send: Callable[[], Any]) -> Any:
        if not failed:
            failed.append(path)
            raise Refused(503, "ServiceUnavailable", "busy", {}, None)
        return send()

    async with SchedulerCluster() as cluster:
        await cluster.create(node(NODE, {"disk": "ssd"}))
        kubelet, client = Node(socket_dir, node_name=NODE), intercepted_client(cluster.server, fail_once)
        synced = asyncio.Event()
        async with background(NodeWatch(kubelet, client).run(synced.set)), asyncio.timeout(EVENT_TIMEOUT):
            await synced.wait()
            found = await kubelet.object.read()
        client.close()
    assert failed
    assert found.metadata.labels == {"disk": "ssd"}


async def test_kubelet_reads_its_node_before_the_watch_has_it(socket_dir: Path) -> None:
    """Static pods are admitted before."""
    async with SchedulerCluster() as cluster:
        kubelet = Node(socket_dir, node_name=NODE)
        NodeWatch(kubelet, cluster.client)
        assert "kubernetes.io/hostname" in (await kubelet.object.read(again=True)).metadata.labels
        await cluster.create(node(NODE, {"disk": "ssd"}))
        assert (await kubelet.object.read(again=True)).metadata.labels == {"disk": "ssd"}


async def test_older_pods_come_first_when_a_kubelet_starts(socket_dir: Path) -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(pod("older", nodeName=NODE))
        later = cluster.server.rest.clock() + timedelta(seconds=2)
        cluster.server.rest.clock = lambda: later
        await cluster.create(pod("newer", nodeName=NODE))

        async def are_decided() -> bool:
            return not any(each["status"]["phase"] == "Pending" for each in await cluster.all("Pod"))

        async with (
            Node(socket_dir, node_name=NODE, capacity={"pods": 1}) as kubelet,
            background(ClusterNode(kubelet, cluster.client).run()),
        ):
            await cluster.until(are_decided)
        assert (await cluster.get("Pod", "older"))["status"]["phase"] == "Running"
        assert (await cluster.get("Pod", "newer"))["status"]["reason"] == "OutOfpods"
