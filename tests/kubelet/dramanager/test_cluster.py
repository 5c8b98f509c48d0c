"""The DRA manager's requests for claims and slices to an API server."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from controlplane.apiserver import Server
from kubelet import ApiCluster, ClusterError, allocated_claim
from resourceapi.client import Credentials
from resourceapi.client.blocking import Client
from resourceapi.objects import v1
from tests.dra_scenarios import scenario
from tests.resourceapi.client.peer import Request, serving

NODE, DRIVER = "realnode", "driver.example.com"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(collect_after=None) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    made = Client(lambda: Credentials(server=server.url, token=server.token), attempts=1)
    yield made
    made.close()


def publish(server: Server, name: str, driver: str, **where: object) -> None:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "pool": pool, "devices": [{"name": "g0"}], **where}
    metadata = {"name": name}
    server.write({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec})


async def names(client: Client) -> set[str]:
    found = await asyncio.to_thread(client.resource(v1.ResourceSlice).list)
    return {each.metadata.name for each in found.items}


@scenario(106)
async def test_claim_is_read_from_api_server(server: Server, client: Client) -> None:
    spec = {"devices": {"requests": [{"name": "r1", "exactly": {"deviceClassName": "gpu"}}]}}
    metadata = {"name": "c1", "namespace": "default"}
    server.write({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec})
    asked = ApiCluster(client)
    found = await asked.get_claim("default", "c1")
    assert found.metadata.uid
    assert found.spec.devices.requests[0].name == "r1"
    with pytest.raises(ClusterError) as error:
        await asked.get_claim("default", "c2")
    assert str(error.value) == 'resourceclaims.resource.k8s.io "c2" not found'


@scenario(158, 183)
async def test_slices_are_deleted_by_node_and_driver(server: Server, client: Client) -> None:
    publish(server, "one", DRIVER, nodeName=NODE)
    publish(server, "two", "other.example.com", nodeName=NODE)
    publish(server, "elsewhere", DRIVER, nodeName="another")
    publish(server, "everywhere", DRIVER, allNodes=True)
    asked = ApiCluster(client)
    assert await names(client) == {"one", "two", "elsewhere", "everywhere"}
    await asked.delete_slices(NODE, DRIVER)
    assert await names(client) == {"two", "elsewhere", "everywhere"}
    await asked.delete_slices(NODE)
    assert await names(client) == {"elsewhere", "everywhere"}


def test_allocated_claim_has_results_and_users() -> None:
    made = allocated_claim("c", DRIVER, "a/pool/g0", "b/rack/1/g1", users=["p"], uid="u")
    assert made.metadata.uid == "u"
    assert made.status.allocation is not None
    assert [(it.request, it.driver, it.pool, it.device) for it in made.status.allocation.devices.results] == [
        ("a", DRIVER, "pool", "g0"),
        ("b", DRIVER, "rack/1", "g1"),
    ]
    assert [(user.resource, user.uid) for user in made.status.reserved_for] == [("pods", "p")]
    assert allocated_claim("c", DRIVER).metadata.uid


async def test_malformed_object_is_a_cluster_error() -> None:
    nonsense = {"apiVersion": "resource.k8s.io/v1", "metadata": {"name": "c1", "namespace": "default"}, "spec": []}

    async def answer(request: Request) -> None:
        items = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList", "metadata": {}, "items": [nonsense]}
        await request.answer(nonsense | {"kind": "ResourceClaim"} if request.path.endswith("c1") else items)

    async with serving(answer) as peer:
        asked = ApiCluster(Client(lambda: Credentials(server=peer.url), attempts=1))
        with pytest.raises(ClusterError, match=r"spec: json: cannot unmarshal array into Go struct field"):
            await asked.get_claim("default", "c1")
        with pytest.raises(ClusterError, match=r"spec: json: cannot unmarshal array into Go struct field"):
            await asked.delete_slices(NODE)


async def test_unreachable_server_is_a_cluster_error() -> None:
    nowhere = ApiCluster(Client(lambda: Credentials(server="http://127.0.0.1:1"), attempts=1))
    with pytest.raises(ClusterError):
        await nowhere.get_claim("default", "c1")
    with pytest.raises(ClusterError):
        await nowhere.delete_slices(NODE)
