"""The stand-in kubelet rejects pods that do not fit its Node object on the API server."""

import asyncio
from pathlib import Path

from tests.controlplane.scheduler.kit import SECONDS, Json, condition, pod
from tests.nodeplug.cluster import NODE, ClusterStand


async def test_labels_and_taints_on_the_server_count(socket_dir: Path) -> None:
    selecting: Json = {"nodeName": NODE, "nodeSelector": {"disk": "ssd"}}

    async def is_registered() -> bool:
        return "capacity" in (await stand.get("Node", NODE)).get("status", {})

    async with ClusterStand(socket_dir) as stand:
        await stand.until(is_registered)
        await stand.create(pod("p", **selecting))
        failed = (await stand.until_phase("p", "Failed"))["status"]
        text = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
        assert (failed["reason"], failed["message"]) == ("NodeAffinity", f"Pod was rejected: {text}")
        await stand.until_event("NodeAffinity", text)
        await stand.patch("Node", NODE, {"metadata": {"labels": {"disk": "ssd"}}})
        await stand.create(pod("q", **selecting))
        await stand.until_phase("q", "Running")
        await stand.patch("Node", NODE, {"spec": {"taints": [{"key": "ill", "effect": "NoExecute"}]}})
        async with asyncio.timeout(SECONDS):
            while not (await stand.node.object.read()).spec.taints:
                await stand.get("Node", NODE)  # the kubelet's watch is as fast as a request
        await stand.create(pod("r", nodeName=NODE))
        assert (await stand.until_phase("r", "Failed"))["status"]["reason"] == "TaintToleration"


async def test_capacity_on_the_server_is_the_nodes(socket_dir: Path) -> None:
    async with ClusterStand(socket_dir) as stand:
        await stand.plugin("example.com/x", "d0")
        node = await stand.get("Node", NODE)
        amounts = {"cpu": "1k", "memory": "10Ti", "ephemeral-storage": "10Ti", "pods": "10k", "example.com/x": "1"}
        assert node["status"]["capacity"] == amounts
        made = pod("p", nodeName=NODE)
        made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1001"}}
        await stand.create(made)
        failed = (await stand.until_phase("p", "Failed"))["status"]
        text = "Node didn't have enough resource: cpu, requested: 1001000, used: 0, capacity: 1000000"
        assert (failed["reason"], failed["message"]) == ("OutOfcpu", f"Pod was rejected: {text}")
        await stand.until_event("OutOfcpu", text)


async def test_preempted_pod_has_the_condition(socket_dir: Path) -> None:
    async with ClusterStand(socket_dir, capacity={"pods": 1}) as stand:
        await stand.create(pod("p"))
        await stand.until_phase("p", "Running")
        await stand.create(pod("q", priorityClassName="system-node-critical", nodeName=NODE))
        await stand.until_phase("q", "Running")
        await stand.until_event("Preempting", "Preempted in order to admit critical pod")
        ended = await stand.until_phase("p", "Failed")
        assert (condition(ended, "DisruptionTarget")["reason"], ended["status"]["containerStatuses"][0]["ready"]) == (
            "TerminationByKubelet",
            False,
        )
