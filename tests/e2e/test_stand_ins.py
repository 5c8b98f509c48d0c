"""The scheduler and the stand-in kubelet with a real API server, which must accept their writes."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

import pytest

from controlplane.scheduler import Scheduler
from kubelet import Node
from kubelet.dramanager import ApiCluster
from kubelet.release import EXTENDED_RESOURCE
from kubelet.stubs import DRAPluginStub, claimed
from kubeletapi.dra.v1 import api_pb2 as api
from nodeplug.commands.kubelet_api import ClusterNode
from nodeplug.commands.kubelet_cluster import background
from resourceapi.client.blocking import Client
from tests.controlplane.scheduler.kit import (
    DRIVER,
    EVENT_TIMEOUT,
    Json,
    claim,
    device_class,
    devices,
    pod,
    slice_,
    template,
)
from tests.e2e.realnode import needs
from tests.e2e.realserver import RealServer, skip_reason

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(skip_reason()), reason=skip_reason())]

_API = "resource.k8s.io/v1"


class Cluster:
    """Objects of a real API server, and waits for them."""

    def __init__(self, client: Client, node: Node, driver: DRAPluginStub) -> None:
        self.client, self.node, self.driver = client, node, driver
        self.pods = client.raw("v1", "pods", namespaced=True)
        self.claims = client.raw(_API, "resourceclaims", namespaced=True)

    async def create(self, *objects: Json) -> None:
        """Create objects."""
        plurals = {"DeviceClass": "deviceclasses", "ResourceSlice": "resourceslices", "Pod": "pods"}
        for each in objects:
            plural = plurals.get(each["kind"], f"{each['kind'].lower()}s")
            namespaced = "namespace" in each["metadata"]
            await asyncio.to_thread(self.client.raw(each["apiVersion"], plural, namespaced=namespaced).create, each)

    async def until_phase(self, name: str, phase: str) -> Json:
        """Wait until a pod is in a phase, and return it."""
        found = await asyncio.to_thread(
            self.until, "pods", name, lambda x: x is not None and x["status"]["phase"] == phase
        )
        return found or {}

    async def until_deleted(self, plural: str, name: str) -> None:
        """Wait until an object is gone."""
        await asyncio.to_thread(self.until, plural, name, lambda x: x is None)

    def until(self, plural: str, name: str, is_it: Callable[[Json | None], bool]) -> Json | None:
        """Block until an object, or None if it does not exist, satisfies a condition; return it."""
        objects = self.pods if plural == "pods" else self.claims
        found: Json | None = None
        is_over = False
        watch = objects.watch("default", field_selector=f"metadata.name={name}")
        ending = threading.Timer(40, watch.close)
        ending.start()
        for event in watch:
            if is_over:
                continue
            found = event.items[0] if event.items and event.type != "DELETED" else None
            if is_it(found):
                is_over = True
                watch.close()  # ends the iteration
        ending.cancel()
        assert is_over, f"{plural} {name}: {found}"
        return found


@pytest.fixture
async def cluster(tmp_path_factory: pytest.TempPathFactory, socket_dir: Path) -> AsyncIterator[Cluster]:
    """A cluster without controllers, with our scheduler and the stand-in kubelet."""
    server = RealServer(tmp_path_factory.mktemp("server"), "--disable-admission-plugins=ServiceAccount")
    await asyncio.to_thread(server.__enter__)
    client = server.client()

    def prepared(asked: api.Claim) -> Iterable[api.Device]:
        return [claimed([], "n1", "gpu-0", f"vendor.test/gpu={asked.name}")]

    try:
        node = Node(socket_dir, cluster=ApiCluster(client), node_name="n1", reconcile_period=0.1)
        async with Scheduler(client), node, background(ClusterNode(node, client).run()):
            services = ("v1.DRAPlugin", "v1alpha1.DRAResourceHealth")
            async with DRAPluginStub(node.plugins_registry, DRIVER, prepared, services=services) as driver:
                await driver.until(lambda: driver.notified == [(True, "")], EVENT_TIMEOUT)
                yield Cluster(client, node, driver)
    finally:
        client.close()
        await asyncio.to_thread(server.__exit__)


async def test_template_claim_is_prepared_and_deleted_with_its_pod(cluster: Cluster) -> None:
    await cluster.create(device_class(), slice_("n1", "gpu-0"), template())
    await cluster.create(pod("p", templates={"g": "t"}, restartPolicy="Never", terminationGracePeriodSeconds=0))
    running = await cluster.until_phase("p", "Running")
    conditions = {each["type"]: each["status"] for each in running["status"]["conditions"]}
    assert set(conditions.values()) == {"True"}
    (status,) = running["status"]["resourceClaimStatuses"]
    name = status["resourceClaimName"]
    made = await asyncio.to_thread(cluster.claims.get, name, "default")
    assert devices(made) == ["n1/gpu-0"]
    assert cluster.driver.claims("NodePrepareResources") == [[name]]
    cluster.node.finish("p")
    await cluster.until_phase("p", "Succeeded")
    await cluster.until_deleted("resourceclaims", name)


@needs(EXTENDED_RESOURCE)
async def test_extended_resource_becomes_a_claim(cluster: Cluster) -> None:
    await cluster.create(device_class(extendedResourceName="example.com/gpu"), slice_("n1", "gpu-0"))
    await cluster.create(pod("q", limits=[{"example.com/gpu": "1"}]))
    q = await cluster.until_phase("q", "Running")
    special = q["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    assert cluster.node.claimed_devices("q", "c0") == (f"vendor.test/gpu={special}",)
    await asyncio.to_thread(cluster.pods.delete, "q", "default")
    await cluster.until_deleted("pods", "q")
    await cluster.driver.until(lambda: cluster.driver.claims("NodeUnprepareResources") == [[special]], EVENT_TIMEOUT)


async def test_pods_share_a_claim_and_another_claim_waits(cluster: Cluster) -> None:
    await cluster.create(device_class(), slice_("n1", "gpu-0"), claim("c"), claim("d"))
    await cluster.create(pod("p", {"g": "c"}), pod("q", {"g": "c"}))
    await cluster.until_phase("p", "Running")
    await cluster.until_phase("q", "Running")
    await cluster.create(pod("r", {"g": "d"}))

    def refused(found: Json | None) -> bool:
        conditions = (found or {}).get("status", {}).get("conditions", ())
        return any("cannot allocate all claims" in each.get("message", "") for each in conditions)

    await asyncio.to_thread(cluster.until, "pods", "r", refused)
