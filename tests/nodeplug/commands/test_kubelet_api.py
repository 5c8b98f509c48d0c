"""From YAML to CDI names in a stand-in cluster: API server, scheduler and kubelet over real HTTP and gRPC."""

import asyncio
from pathlib import Path

import kubelet
from kubelet import Node
from kubelet.dramanager import ApiCluster
from kubelet.node_object import NodeObject
from kubelet.stubs import failing
from kubeletapi.dra_health.v1alpha1 import api_pb2 as health
from nodeplug.commands.kubelet_api import ClusterNode
from nodeplug.commands.kubelet_cluster import background
from nodeplug.commands.kubelet_node import node_status
from resourceapi.objects.release import RELEASES
from tests.controlplane.scheduler.kit import (
    EVENT_TIMEOUT,
    Json,
    claim,
    condition,
    device_class,
    devices,
    pod,
    request,
    template,
    users,
)
from tests.dra_scenarios import scenario
from tests.nodeplug.cluster import NODE, NodeCluster, using


def devices_of(amounts: Json) -> Json:
    """The devices in a node's resources."""
    return {name: amount for name, amount in amounts.items() if "/" in name}


async def test_claim_from_a_template_gives_the_container_cdi_devices(socket_dir: Path) -> None:
    async with NodeCluster(socket_dir) as cluster:
        driver = await cluster.driver("gpu-0")
        await cluster.create(device_class(), template(), using("p", ["g"], templates={"g": "t"}))
        running = await cluster.until_phase("p", "Running")
        assert running["spec"]["nodeName"] == NODE
        (name,) = [each["metadata"]["name"] for each in (await cluster.claims_of("p")).values()]
        assert cluster.node.claimed_devices("p", "c0") == (f"vendor.test/gpu={name}-gpu-0",)
        conditions = {each["type"]: each["status"] for each in running["status"]["conditions"]}
        assert conditions == dict.fromkeys(
            ("PodScheduled", "PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"), "True"
        )
        (container,) = running["status"]["containerStatuses"]
        assert (container["name"], container["ready"]) == ("c0", True)
        assert container["state"]["running"]["startedAt"]
        await cluster.until_event("Started", "Container started")
        await cluster.delete("Pod", "p")
        await driver.until(lambda: driver.claims("NodeUnprepareResources") == [[name]], EVENT_TIMEOUT)
        await cluster.until_gone("ResourceClaim", name)


@scenario(197)
async def test_failed_preparation_is_retried(socket_dir: Path) -> None:
    async with NodeCluster(socket_dir) as cluster:
        driver = await cluster.driver("gpu-0")
        driver.behaviours["NodePrepareResources"] = failing("no such gpu")
        await cluster.create(device_class(), claim(), using("p", ["g"], claims={"g": "c"}))
        text = "Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources: "
        text += "rpc error: code = Internal desc = no such gpu"
        await cluster.until_event("FailedPrepareDynamicResources", text)
        pending = await cluster.get("Pod", "p")
        assert pending["status"]["phase"] == "Pending"
        driver.behaviours.clear()
        await cluster.advance_clock(80, "Pod", "p", "Running")


async def test_repeated_event_increases_its_count(socket_dir: Path) -> None:
    """Recorded from a real kubelet in events-dra-prepare-retries-pr1."""
    async with NodeCluster(socket_dir) as cluster:
        driver = await cluster.driver("gpu-0")
        driver.behaviours["NodePrepareResources"] = failing("no such gpu")
        await cluster.create(device_class(), claim(), using("p", ["g"], claims={"g": "c"}))

        async def event_with_count(times: int, events: int = 1) -> Json:
            """Wait for an Event with at least this count and this number of Events; return the first."""
            async with asyncio.timeout(EVENT_TIMEOUT):
                while True:
                    found = [each for each in await cluster.all("Event") if each["message"].endswith("no such gpu")]
                    enough = [each for each in found if each["count"] >= times]
                    if enough and len(found) == events:
                        return enough[0]
                    assert len(found) <= events
                    await cluster.clock.advance(80)

        first = await event_with_count(1)
        again = await event_with_count(first["count"] + 1)
        assert again["metadata"]["uid"] == first["metadata"]["uid"]
        assert again["firstTimestamp"] == first["firstTimestamp"] <= again["lastTimestamp"]
        await cluster.delete("Event", first["metadata"]["name"])
        new = await event_with_count(again["count"] + 1)
        assert new["metadata"]["uid"] != first["metadata"]["uid"]
        await cluster.node.restart()
        await event_with_count(1, events=2)


@scenario(199)
async def test_claim_of_a_force_deleted_pod_is_unprepared(socket_dir: Path) -> None:
    async with NodeCluster(socket_dir) as cluster:
        driver = await cluster.driver("gpu-0")
        await cluster.create(device_class(), claim(), using("p", ["g"], claims={"g": "c"}))
        await cluster.until_phase("p", "Running")
        await cluster.end_pod_by_force("p")
        assert await cluster.get("Pod", "p") == {}, "nobody waits for the kubelet"
        await driver.until(lambda: driver.claims("NodeUnprepareResources") == [["c"]], EVENT_TIMEOUT)
        await cluster.until_free("c")


async def test_deleted_pod_with_a_finalizer_keeps_its_reservation(socket_dir: Path) -> None:
    async with NodeCluster(socket_dir) as cluster:
        driver = await cluster.driver("gpu-0")
        held = using("p", ["g"], claims={"g": "c"})
        held["metadata"]["finalizers"] = ["example.com/wait"]
        await cluster.create(device_class(), claim(), held)
        await cluster.until_phase("p", "Running")
        await cluster.delete("Pod", "p")
        await driver.until(lambda: driver.claims("NodeUnprepareResources") == [["c"]], EVENT_TIMEOUT)
        assert users(await cluster.get("ResourceClaim", "c")) == {"p"}, "it is there, until the finalizer goes"
        await cluster.patch("Pod", "p", {"metadata": {"finalizers": None}})
        await cluster.until_gone("Pod", "p")
        await cluster.until_free("c")


@scenario(200)
async def test_claim_that_no_container_uses_is_prepared(socket_dir: Path) -> None:
    async with NodeCluster(socket_dir) as cluster:
        driver = await cluster.driver("gpu-0")
        await cluster.create(device_class(), claim(), using("p", claims={"g": "c"}))
        await cluster.until_phase("p", "Running")
        assert driver.claims("NodePrepareResources") == [["c"]]
        assert cluster.node.claimed_devices("p", "c0") == ()


@scenario(201, 209)
async def test_every_container_gets_the_devices_of_its_requests(socket_dir: Path) -> None:
    async with NodeCluster(socket_dir) as cluster:
        await cluster.driver("a", "b", "c", "d")
        await cluster.create(device_class(), claim("c1", request("x"), request("y")), claim("c2"))
        wanted = using("p", ["one/x"], ["one", "two"], [], claims={"one": "c1", "two": "c2"})
        init = {"name": "init", "image": "any", "resources": {"claims": [{"name": "one", "request": "y"}]}}
        wanted["spec"]["initContainers"] = [init]
        await cluster.create(wanted)
        running = await cluster.until_phase("p", "Running")
        x, y = (each.partition("/")[2] for each in devices(await cluster.get("ResourceClaim", "c1")))
        (z,) = (each.partition("/")[2] for each in devices(await cluster.get("ResourceClaim", "c2")))
        c1, c2 = "vendor.test/gpu=c1-", "vendor.test/gpu=c2-"
        found = {name: set(cluster.node.claimed_devices("p", name)) for name in ("init", "c0", "c1", "c2")}
        assert found == {"init": {c1 + y}, "c0": {c1 + x}, "c1": {c1 + x, c1 + y, c2 + z}, "c2": set()}
        assert running["status"]["initContainerStatuses"][0]["state"]["terminated"]["reason"] == "Completed"


@scenario(202)
async def test_new_claim_of_the_same_name_waits_for_the_old_one(socket_dir: Path) -> None:
    async with NodeCluster(socket_dir) as cluster:
        driver = await cluster.driver("a", "b")
        await cluster.create(device_class(), claim(), using("p", ["g"], claims={"g": "c"}))
        await cluster.until_phase("p", "Running")
        old = (await cluster.get("ResourceClaim", "c"))["metadata"]["uid"]
        driver.behaviours["NodeUnprepareResources"] = failing("not yet")
        await cluster.end_pod_by_force("p")
        await driver.until(lambda: len(driver.called("NodeUnprepareResources")) > 0, EVENT_TIMEOUT)
        await cluster.delete("ResourceClaim", "c")
        await cluster.until_gone("ResourceClaim", "c")
        await cluster.create(claim(), using("q", ["g"], claims={"g": "c"}))
        text = f"old ResourceClaim with same name c and different UID {old} still exists (previous pod force-deleted?!)"
        await cluster.until_event(
            "FailedPrepareDynamicResources",
            f"Failed to prepare dynamic resources: prepare dynamic resources: {text}",
        )
        driver.behaviours.clear()
        await cluster.advance_clock(90, "Pod", "q", "Running")


@scenario(210, 211, 219)
async def test_succeeded_pod_releases_its_claim(socket_dir: Path) -> None:
    async with NodeCluster(socket_dir) as cluster:
        driver = await cluster.driver("gpu-0")
        await cluster.create(device_class(), template(), claim())
        await cluster.create(using("p", ["g"], templates={"g": "t"}, restartPolicy="Never"))
        await cluster.until_phase("p", "Running")
        (name,) = [each["metadata"]["name"] for each in (await cluster.claims_of("p")).values()]
        await cluster.create(using("q", ["g"], claims={"g": "c"}))
        await cluster.until_refused("q", "cannot allocate all claims")
        cluster.node.finish("p")
        await cluster.until_phase("p", "Succeeded")
        await cluster.until_gone("ResourceClaim", name)
        await cluster.until_phase("q", "Running")
        assert driver.claims("NodeUnprepareResources") == [[name]]


@scenario(213)
async def test_pod_runs_once_the_driver_has_published(socket_dir: Path) -> None:
    async with NodeCluster(socket_dir) as cluster:
        await cluster.create(device_class(), claim(), using("p", ["g"], claims={"g": "c"}))
        await cluster.until_refused("p", "cannot allocate all claims")
        await cluster.driver("gpu-0")
        await cluster.until_phase("p", "Running")


@scenario(220)
async def test_claim_shared_by_two_pods_is_prepared_once(socket_dir: Path) -> None:
    async with NodeCluster(socket_dir) as cluster:
        driver = await cluster.driver("gpu-0")
        await cluster.create(device_class(), claim())
        for name in "pq":
            await cluster.create(using(name, ["g"], claims={"g": "c"}))
            await cluster.until_phase(name, "Running")
        assert driver.claims("NodePrepareResources") == [["c"]]
        await cluster.delete("Pod", "p")
        await cluster.delete("Pod", "q")
        await driver.until(lambda: driver.claims("NodeUnprepareResources") == [["c"]], EVENT_TIMEOUT)


@scenario(225, 240)
async def test_extended_resource_is_allocated_through_a_claim(socket_dir: Path) -> None:
    async with NodeCluster(socket_dir) as cluster:
        await cluster.driver("gpu-0")
        await cluster.create(device_class(extendedResourceName="example.com/gpu"))
        await cluster.create(pod("p", limits=[{"example.com/gpu": "1"}]))
        await cluster.until_phase("p", "Running")
        made = (await cluster.claims_of("p"))["extended"]["metadata"]["name"]
        assert cluster.node.claimed_devices("p", "c0") == (f"vendor.test/gpu={made}-gpu-0",)


@scenario(237)
async def test_no_execute_taint_evicts_the_running_pod(socket_dir: Path) -> None:
    async with NodeCluster(socket_dir) as cluster:
        driver = await cluster.driver("gpu-0")
        await cluster.create(device_class(), claim(), using("p", ["g"], claims={"g": "c"}))
        await cluster.until_phase("p", "Running")
        ill = [{"name": "gpu-0", "taints": [{"key": "example.com/ill", "effect": "NoExecute"}]}]
        await cluster.patch("ResourceSlice", "gpu.example.com-slice", {"spec": {"devices": ill}})
        await driver.until(lambda: driver.claims("NodeUnprepareResources") == [["c"]], EVENT_TIMEOUT)
        await cluster.until_gone("Pod", "p")


async def test_rejected_pod_has_the_reason_in_its_status(socket_dir: Path) -> None:
    async with NodeCluster(socket_dir) as cluster:
        await cluster.plugin("example.com/x", "d0")
        await cluster.create(pod("p", limits=[{"example.com/x": "3"}], nodeName=NODE))
        failed = await cluster.until_phase("p", "Failed")
        assert failed["status"]["reason"] == "UnexpectedAdmissionError"
        assert "Requested: 3, Available: 1" in failed["status"]["message"]
        assert not {"containerStatuses", "conditions"} & failed["status"].keys()


def test_node_status_counts_devices_as_quantities() -> None:
    """Observation 16."""
    counts = {"example.com/x": 60_000, "example.com/y": 0}, {"example.com/x": 59_999}
    status = node_status(NodeObject("n", {}, dict), RELEASES["1.37"], *counts, {}, "now")
    assert devices_of(status["capacity"]) == {"example.com/x": "60k", "example.com/y": "0"}
    assert devices_of(status["allocatable"]) == {"example.com/x": "59999"}


def test_node_status_has_amounts_as_the_server_returns_them() -> None:
    """Otherwise the status would differ after each write, and would be written again and again."""
    given = NodeObject("n", {"cpu": "0.5", "memory": "16384Mi"}, dict)
    status = node_status(given, RELEASES["1.37"], {}, {}, {}, "now")
    assert (status["capacity"]["cpu"], status["capacity"]["memory"]) == ("500m", "16Gi")


async def test_node_has_labels_conditions_and_node_info(socket_dir: Path) -> None:
    async with NodeCluster(socket_dir) as cluster:
        await cluster.create(pod("p", nodeSelector={"kubernetes.io/os": "linux", "kubernetes.io/hostname": NODE}))
        await cluster.until_phase("p", "Running")
        node = await cluster.get("Node", NODE)
        assert node["metadata"]["labels"]["kubernetes.io/arch"] == node["status"]["nodeInfo"]["architecture"]
        assert node["metadata"]["annotations"] == {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
        assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.37.1"
        assert node["status"]["allocatable"].keys() == {"cpu", "memory", "pods", "ephemeral-storage"}
        conditions = {each["type"]: each["status"] for each in node["status"]["conditions"]}
        assert conditions == {"Ready": "True"} | dict.fromkeys(
            ("MemoryPressure", "DiskPressure", "PIDPressure"), "False"
        )
        assert all(each["lastHeartbeatTime"] for each in node["status"]["conditions"])


async def test_node_lease_is_renewed_while_the_kubelet_runs(socket_dir: Path) -> None:
    async with NodeCluster(socket_dir) as cluster:
        leases = cluster.client.raw("coordination.k8s.io/v1", "leases", namespaced=True)

        async def lease_later() -> Json:
            await cluster.clock.advance(10)
            found = (await asyncio.to_thread(leases.list, "kube-node-lease")).items
            return found[0] if found else {}

        async def renewed(before: Json) -> Json:
            async with asyncio.timeout(EVENT_TIMEOUT):
                while (found := await lease_later()) == before:
                    pass
            return found

        first = await renewed({})
        assert (first["spec"]["holderIdentity"], first["spec"]["leaseDurationSeconds"]) == (NODE, 40)
        node = await cluster.get("Node", NODE)
        assert [each["uid"] for each in first["metadata"]["ownerReferences"]] == [node["metadata"]["uid"]]
        assert (await renewed(first))["spec"]["renewTime"] > first["spec"]["renewTime"]
        await cluster.node.stop()
        await lease_later()  # started before the stop
        assert len({(await lease_later())["spec"]["renewTime"] for _ in range(5)}) == 1


async def test_node_status_counts_the_devices_of_plugins(socket_dir: Path) -> None:
    async with NodeCluster(socket_dir) as cluster:
        await cluster.create(pod("p", limits=[{"example.com/x": "1"}]))
        await cluster.plugin("example.com/x", "d0", "d1")
        await cluster.until_phase("p", "Running")
        node = await cluster.get("Node", NODE)
        assert devices_of(node["status"]["allocatable"]) == {"example.com/x": "2"}
        assert condition(node, "Ready")["status"] == "True"
        assert cluster.node.allocations("p", "c0")["example.com/x"]


async def test_extended_resources_of_others_become_allocatable(socket_dir: Path) -> None:
    """Extended resources of others are allocatable, the kubelet's own fields return to what it reports."""
    async with NodeCluster(socket_dir) as cluster:
        await cluster.plugin("example.com/x", "d0")

        async def until(resources: Json) -> Json:
            """Advance the clock until these, and one device, are allocatable."""
            async with asyncio.timeout(EVENT_TIMEOUT):
                while True:
                    node = await cluster.get("Node", NODE)
                    if devices_of(node["status"]["allocatable"]) == resources | {"example.com/x": "1"}:
                        return node
                    await cluster.clock.advance(10)

        lost = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "lost"}
        node = await cluster.get("Node", NODE)
        conditions = [each for each in node["status"]["conditions"] if each["type"] != "Ready"]
        capacity = {"example.com/licence": "12", "example.com/x": "7"}
        await cluster.set_status("Node", NODE, capacity=capacity, conditions=[*conditions, lost])
        node = await until({"example.com/licence": "12"})
        assert devices_of(node["status"]["capacity"]) == {"example.com/licence": "12", "example.com/x": "1"}
        ready = condition(node, "Ready")
        assert (ready["status"], ready["reason"]) == ("True", "KubeletReady")
        await cluster.set_status("Node", NODE, capacity={"example.com/licence": None})
        await until({})


async def test_extended_resources_of_a_reinstalled_node_are_zero(socket_dir: Path) -> None:
    """A kubelet without a checkpoint joins with the name of a node that exists."""
    async with NodeCluster(socket_dir) as cluster:
        metadata = {"name": "n2", "labels": {"a": "b"}}
        await cluster.create(
            {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"unschedulable": True}}
        )
        counts = {"example.com/x": "7", "cpu": "1"}
        await cluster.set_status("Node", "n2", capacity=counts, allocatable=counts)

        async def registered() -> Json | None:
            node = await cluster.get("Node", "n2")
            return node if node["status"].get("conditions") else None

        async with (
            Node(socket_dir / "2", node_name="n2", cluster=ApiCluster(cluster.client)) as node,
            background(ClusterNode(node, cluster.client).run()),
        ):
            found = await cluster.until(registered)
        assert found is not None
        for part in ("capacity", "allocatable"):
            assert devices_of(found["status"][part]) == {"example.com/x": "0"}
        assert (found["metadata"]["labels"]["a"], found["spec"]["unschedulable"]) == ("b", True)


async def test_pods_that_are_not_on_the_server_keep_running(socket_dir: Path) -> None:
    async with NodeCluster(socket_dir) as cluster:
        await cluster.node.admit(kubelet.pod("local", kubelet.container("c")))
        await cluster.create(pod("p"))
        await cluster.until_phase("p", "Running")
        await cluster.delete("Pod", "p")
        await cluster.node.until(lambda: len(cluster.node.pods()) == 1, EVENT_TIMEOUT)
        assert cluster.node.status("local").phase == "Running"


async def test_restarted_kubelet_keeps_running_pods_and_starts_new_ones(socket_dir: Path) -> None:
    async with NodeCluster(socket_dir) as cluster:
        driver = await cluster.driver("gpu-0")
        await cluster.create(device_class(), claim(), using("p", ["g"], claims={"g": "c"}))
        await cluster.until_phase("p", "Running")
        await cluster.node.stop()
        await cluster.create(pod("q"))
        await cluster.until_bound("q")
        await cluster.node.start()
        await cluster.until_phase("q", "Running")
        assert (await cluster.get("Pod", "p"))["status"]["phase"] == "Running"
        assert len(driver.claims("NodePrepareResources")) == 1


async def test_device_health_is_shown_in_the_pod_status(socket_dir: Path) -> None:
    async with NodeCluster(socket_dir) as cluster:
        driver = await cluster.driver("gpu-0")
        await cluster.create(device_class(), claim(), using("p", ["g"], claims={"g": "c"}))
        await cluster.until_phase("p", "Running")
        await driver.until(lambda: driver.streams == 1, EVENT_TIMEOUT)
        ill = health.DeviceHealth(
            device=health.DeviceIdentifier(pool_name=NODE, device_name="gpu-0"),
            health=health.HealthStatus.UNHEALTHY,
            message="overheated",
            last_updated_time=4102444800,
        )
        driver.report(ill)

        async def shown() -> object:
            (container,) = (await cluster.get("Pod", "p"))["status"]["containerStatuses"]
            return "overheated" in str(container.get("allocatedResourcesStatus"))

        await cluster.until(shown)
