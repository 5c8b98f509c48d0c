"""The cluster-in kubelet rejects pods that do not fit its Node object on the API server."""

import asyncio
from pathlib import Path

from tests.controlplane.scheduler.kit import EVENT_TIMEOUT, Json, condition, pod
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
