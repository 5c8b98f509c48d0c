"""The controller with a server that other clients use as well, and that fails now and then."""

import asyncio
import socket

import pytest
from msgspec.structs import replace

from controlplane.apiserver import Server
from dra_plugin.publishing.slices import Controller, DriverResources, Limits, Owner, Pool, Slice
from resourceapi.client import AsyncClient, Credentials
from resourceapi.client.blocking import Client
from resourceapi.objects import ObjectMeta, core, v1, write_object
from tests.dra_plugin.publishing.slices.build import DRIVER, NODE, changed, device, indexed, one_pool, slices, stored
from tests.dra_plugin.publishing.slices.kit import LOCAL, TIMEOUT, Cluster, writes
from tests.dra_scenarios import scenario
from tests.resourceapi.client.peer import Request, client_of, event, serving
from tests.running import running

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
D1, D2, D3 = (device(f"device-{number}") for number in (1, 2, 3))
QUICK = Limits(first_retry=0.001, max_retry=0.01, rate=1e6)


async def test_slices_deleted_by_others_are_restored_without_the_sync_delay(cluster: Cluster) -> None:
    async with cluster.controller(one_pool(*slices(D1, D2, D3)), sync_delay=3600.0) as controller:
        before = await cluster.until_names(3)
        await cluster.delete(*before)
        await cluster.until_names(3, without=before)
        await controller.wait_synced()
        found = await cluster.slices()
        assert [each.spec.devices for each in found] == [(D1,), (D2,), (D3,)]
        assert {each.spec.pool.resource_slice_count for each in found} == {3}
        assert len({each.spec.pool.generation for each in found}) == 1
    assert cluster.errors == []


async def test_single_deleted_slice_is_restored(cluster: Cluster) -> None:
    async with cluster.controller(one_pool(*slices(D1, D2)), sync_delay=3600.0) as controller:
        first, second = await cluster.until_names(2)
        await cluster.delete(second)
        assert first in await cluster.until_names(2, without=[second])
        await controller.wait_synced()
        assert writes(controller) == (3, 1, 0)
        assert {each.spec.pool.generation for each in await cluster.slices()} == {2}


async def test_deleted_slice_of_an_undesired_pool_is_not_restored(cluster: Cluster) -> None:
    await cluster.create(stored("a", D1, pool="foreign"))
    async with cluster.controller(one_pool(*slices(D1)), sync_delay=3600.0):
        await cluster.delete("a")
        (name,) = await cluster.until_names(1)
        await cluster.delete(name)
        assert await cluster.until_names(1, without=[name]) != ["a"]


async def test_slice_changed_by_others_is_corrected_after_the_sync_delay(cluster: Cluster) -> None:
    async with cluster.controller(one_pool(*slices(D1)), sync_delay=0.0):
        (found,) = await cluster.slices()
        await cluster.update(replace(found, spec=replace(found.spec, devices=(D2,))))

        async def is_right() -> bool | None:
            (now,) = await cluster.slices()
            return True if now.spec.devices == (D1,) else None

        await cluster.until(is_right)


async def test_repeated_changes_by_another_publisher_are_logged_once(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """For example, a second machine has the node name of the first: each reverts the other's changes forever."""

    def warnings() -> list[str]:
        return [x for x in caplog.messages if "changed by another program again and again" in x]

    async def is_right() -> bool | None:
        (now,) = await cluster.slices()
        return True if now.spec.devices == (D1,) else None

    async with cluster.controller(one_pool(*slices(D2)), sync_delay=0.0) as controller:
        controller.update(one_pool(*slices(D1, D3)))  # what the driver itself changes is no dispute
        await controller.wait_synced()
        for _ in range(4):  # nor is what a kubelet takes away, each time that it starts, be it one by one
            first, _ = await cluster.until_names(2)
            await cluster.delete(first)
            await cluster.until_names(2, without=[first])
            await controller.wait_synced()
        assert controller.statistics.updates > 4  # what was left was counted again
        controller.update(one_pool(*slices(D1)))
        await controller.wait_synced()
        for count in range(1, 5):
            (found,) = await cluster.slices()
            await cluster.update(replace(found, spec=replace(found.spec, devices=(D2,))))
            await cluster.until(is_right)
            await controller.wait_synced()
            assert len(warnings()) == (count >= 3)


async def test_pools_follow_the_driver_resources(cluster: Cluster) -> None:
    async with cluster.controller(one_pool(*slices(D1))) as controller:
        controller.update(DriverResources({"other": Pool(slices=slices(D2)), "third": Pool(slices=slices(D3))}))
        await controller.wait_synced()
        assert sorted(each.spec.pool.name for each in await cluster.slices()) == ["other", "third"]
        controller.update(DriverResources())
        await controller.wait_synced()
        assert await cluster.slices() == []
        assert writes(controller) == (3, 0, 3)


async def test_nothing_is_deleted_before_the_first_update(cluster: Cluster) -> None:
    await cluster.create(indexed(0, D1))
    controller = Controller(cluster.client.aio, DRIVER, LOCAL, sync_delay=0.0)
    async with running(controller.run()):
        await cluster.until_watched()
        controller.update(one_pool(*slices(D1)))
        await controller.wait_synced()
    assert writes(controller) == (0, 0, 0)


@scenario(208)
async def test_large_pool_is_created_and_deleted_ten_times(cluster: Cluster) -> None:
    large = one_pool(*(Slice(devices=tuple(device(f"d-{n}-{i}") for i in range(64))) for n in range(5)))
    async with cluster.controller(large) as controller:
        for times in range(1, 11):
            controller.update(large)
            await controller.wait_synced()
            found = await cluster.slices()
            assert sum(len(each.spec.devices) for each in found) == 320
            assert {each.spec.pool.resource_slice_count for each in found} == {5}
            controller.update(DriverResources())
            await controller.wait_synced()
            assert await cluster.slices() == []
            assert writes(controller) == (5 * times, 0, 5 * times)


async def test_slices_of_other_drivers_and_nodes_are_left_alone(cluster: Cluster) -> None:
    foreign = stored("a", D1)
    elsewhere = stored("b", D1)
    await cluster.create(
        replace(foreign, spec=replace(foreign.spec, driver="other.example.com")),
        replace(elsewhere, spec=replace(elsewhere.spec, node_name="another")),
    )
    async with cluster.controller(DriverResources(), sync_delay=0.0) as controller:
        controller.update(one_pool(*slices(D1)))
        await controller.wait_synced()
        assert [each.metadata.name for each in await cluster.slices()][1:] == ["a", "b"]


@scenario(100)
async def test_single_pool_controller_refuses_other_pools(cluster: Cluster) -> None:
    complaint = 'processing update DriverResources: ReconcilePoolWithName="pool", but found {} pools;' + (
        " expected exactly one pool with this name"
    )
    right = one_pool(*slices(D1), all_nodes=True)
    async with cluster.controller(right, reconcile_pool="pool") as controller:
        for wrong, count in (({**right.pools, "b": Pool()}, 2), ({"b": Pool(slices=slices(D2))}, 1)):
            controller.update(DriverResources(wrong))
            await controller.wait_synced()
            assert cluster.errors.pop() == complaint.format(count)
            assert writes(controller) == (1, 0, 0)
        controller.update(right)
        controller.update(DriverResources())
        await controller.wait_synced()
        assert cluster.errors == []
        assert writes(controller) == (1, 0, 1)


@scenario(102)
async def test_single_pool_controller_ignores_other_pools(cluster: Cluster) -> None:
    desired = one_pool(*slices(D1), all_nodes=True)
    async with cluster.controller(desired, reconcile_pool="pool", sync_delay=0.0):
        before = await cluster.until_names(1)
        await cluster.create(stored("other", D2, pool="other", all_nodes=True))
        await cluster.delete(*before)
        names = await cluster.until_names(2, without=before)
        assert "other" in names


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
async def test_every_api_version_of_the_server_is_supported(cluster: Cluster, version: str) -> None:
    cluster.serve_slices(version)
    async with cluster.controller(one_pool(*slices(D1))) as controller:
        controller.update(one_pool(*slices(changed("device-1"))))
        await controller.wait_synced()
        assert writes(controller) == (1, 1, 0)
        controller.update(DriverResources())
        await controller.wait_synced()
        assert writes(controller) == (1, 1, 1)
    assert cluster.errors == []


async def test_node_uid_is_requested_once(cluster: Cluster) -> None:
    async with cluster.controller(one_pool(*slices(D1, D2))) as controller:
        controller.update(one_pool(*slices(D1, D2, D3)))
        await controller.wait_synced()
    assert cluster.faults.requests.count(f"GET /api/v1/nodes/{NODE}") == 1


async def test_known_node_uid_is_not_requested(cluster: Cluster) -> None:
    async with cluster.controller(one_pool(*slices(D1)), Owner.node(NODE, "known")):
        (found,) = await cluster.slices()
    assert found.metadata.owner_references[0].uid == "known"
    assert f"GET /api/v1/nodes/{NODE}" not in cluster.faults.requests


async def test_restored_slices_are_owned_by_the_recreated_node(cluster: Cluster) -> None:
    """Otherwise the garbage collector would delete them repeatedly."""
    nodes = cluster.client.resource(core.Node)
    async with cluster.controller(one_pool(*slices(D1)), sync_delay=3600.0):
        before = await cluster.until_names(1)
        await asyncio.to_thread(nodes.delete, NODE)
        made = await asyncio.to_thread(nodes.create, core.Node(metadata=ObjectMeta(name=NODE)))
        await cluster.delete(*before)
        await cluster.until_names(1, without=before)
        (found,) = await cluster.slices()
    assert found.metadata.owner_references[0].uid == made.metadata.uid


async def test_controller_waits_for_a_missing_node(cluster: Cluster) -> None:
    nodes = cluster.client.resource(core.Node)
    await asyncio.to_thread(nodes.delete, NODE)
    async with cluster.controller(one_pool(*slices(D1)), limits=QUICK):
        assert cluster.errors[0] == (
            'processing ResourceSlice objects: retrieve node "owner": 404 NotFound: nodes "owner" not found'
        )
        await asyncio.to_thread(nodes.create, core.Node(metadata=ObjectMeta(name=NODE)))
        await cluster.until_names(1)


async def test_conflict_is_retried_and_changes_by_others_are_kept(cluster: Cluster) -> None:
    """Changes by other clients stay, unless they concern our fields."""
    async with cluster.controller(one_pool(*slices(D1)), sync_delay=3600.0) as controller:
        (found,) = await cluster.slices()
        await cluster.update(replace(found, metadata=replace(found.metadata, labels={"a": "b"})))
        cluster.faults.refuse("PUT", 409)
        controller.update(one_pool(*slices(D2)))
        await controller.wait_synced()
        (found,) = await cluster.slices()
    assert found.spec.devices == (D2,)
    assert found.metadata.labels == {"a": "b"}
    assert cluster.errors == []


async def test_repeated_conflicts_are_reported(cluster: Cluster) -> None:
    await cluster.create(indexed(0, D1))
    for _ in range(4):
        cluster.faults.refuse("PUT", 409)
    async with cluster.controller(one_pool(*slices(D2)), limits=QUICK) as controller:
        assert cluster.errors == ["processing ResourceSlice objects: update resource slice: 409 Scripted: scripted"]

        async def is_updated() -> bool | None:
            (now,) = await cluster.slices()
            return True if now.spec.devices == (D2,) else None

        await cluster.until(is_updated)
        await controller.wait_synced()


@pytest.mark.parametrize(
    ("method", "code", "step"),
    [
        ("POST", 429, "create resource slice"),
        ("POST", 403, "create resource slice"),
        ("POST", 503, "create resource slice"),
        ("PUT", 500, "update resource slice"),
        ("DELETE", 503, "remove slices"),
        ("DELETE", 403, "remove slices"),
    ],
)
async def test_refused_write_is_reported_and_retried(cluster: Cluster, method: str, code: int, step: str) -> None:
    await cluster.create(indexed(0, D1), stored("a", D1))
    cluster.faults.refuse(method, code, retry_after="0")
    async with cluster.controller(one_pool(*slices(D2, D3)), limits=QUICK) as controller:
        assert cluster.errors == [f"processing ResourceSlice objects: {step}: {code} Scripted: scripted"]

        async def is_right() -> bool | None:
            found = await cluster.slices()
            return True if [each.spec.devices for each in found] == [(D2,), (D3,)] else None

        await cluster.until(is_right)
        await controller.wait_synced()
        assert controller.problem == ""
        assert len({each.spec.pool.generation for each in await cluster.slices()}) == 1


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"no JSON", "POST"),
        (b'{"metadata": {"name": "00000-driver.example.com-owner-x"}, "spec": 3}', "apiVersion"),
    ],
)
async def test_slice_with_a_lost_answer_is_not_created_twice(cluster: Cluster, answer: bytes, says: str) -> None:
    """The slice was stored but the answer got lost: no second slice is created."""
    cluster.faults.execute_but_garble("POST", answer)
    async with cluster.controller(one_pool(*slices(D1)), limits=QUICK) as controller:
        (error,) = cluster.errors
        assert error.startswith(f"processing ResourceSlice objects: create resource slice: {says}")
        controller.update(one_pool(*slices(D2)))

        async def is_updated() -> bool | None:
            return True if [each.spec.devices for each in await cluster.slices()] == [(D2,)] else None

        await cluster.until(is_updated)
        await controller.wait_synced()
        assert writes(controller) == (0, 1, 0)


async def test_invalid_slice_is_reported_until_it_is_fixed(cluster: Cluster) -> None:
    many = Slice(devices=tuple(device(f"device-{number}") for number in range(129)))
    async with cluster.controller(one_pool(many), limits=Limits(first_retry=3600.0, max_retry=3600.0)) as controller:
        (error,) = cluster.errors
        assert error.startswith("processing ResourceSlice objects: create resource slice: 422 Invalid: ")
        assert "Too many: 129: must have at most 128 items" in error
        assert controller.problem == error
        controller.update(one_pool(replace(many, devices=many.devices[1:])))
        await controller.wait_synced()
        assert writes(controller) == (1, 0, 0)
        assert controller.problem == ""


async def test_refused_watch_is_retried(cluster: Cluster) -> None:
    """Permissions can be granted later."""
    cluster.faults.refuse("GET", 403)
    async with cluster.controller(one_pool(*slices(D1))) as controller:
        assert cluster.errors == ["watching ResourceSlices: 403 Scripted: scripted"]
        assert writes(controller) == (1, 0, 0)
        assert controller.problem == ""


async def test_slices_are_published_when_the_server_starts_later() -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    errors: list[str] = []
    has_failed = asyncio.Event()

    def note(error: Exception, message: str) -> None:
        errors.append(f"{message}: {error}")
        has_failed.set()

    credentials = Credentials(server=f"http://127.0.0.1:{port}", token="t")
    client = Client(lambda: credentials, attempts=1)
    controller = Controller(client.aio, DRIVER, Owner("apps/v1", "DaemonSet", "d", "uid"), on_error=note)
    controller.update(one_pool(*slices(D1), all_nodes=True))
    async with asyncio.timeout(TIMEOUT), running(controller.run()):
        await has_failed.wait()
        assert controller.problem.startswith("watching ResourceSlices: GET http://127.0.0.1")
        async with Server(port=port, token="t", collect_after=None):
            await controller.wait_synced()
            assert (writes(controller), controller.problem) == ((1, 0, 0), "")
    client.close()
    assert errors[0].startswith("watching ResourceSlices: GET http://127.0.0.1")


async def test_slices_are_published_again_to_a_server_that_lost_its_data() -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    credentials = Credentials(server=f"http://127.0.0.1:{port}", token="t")
    client = Client(lambda: credentials, attempts=1)
    failed = asyncio.Event()
    owner = Owner("apps/v1", "DaemonSet", "d", "uid")
    controller = Controller(client.aio, DRIVER, owner, on_error=lambda error, message: failed.set(), limits=QUICK)
    controller.update(one_pool(*slices(D1, D2), all_nodes=True))
    async with asyncio.timeout(TIMEOUT), running(controller.run()):
        async with Server(port=port, token="t", collect_after=None) as server:
            await controller.wait_synced()
            for number in range(5):  # its versions go further than the next one's will for a while
                server.write({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"n{number}"}})
        await failed.wait()
        async with Server(port=port, token="t", collect_after=None) as server:
            changed = server.store.subscribe().changed
            stored_ones = client.resource(v1.ResourceSlice)
            while len((await asyncio.to_thread(stored_ones.list)).items) < 2:
                await changed.wait()
                changed.clear()
    client.close()


async def test_stop_does_not_wait_for_a_silent_server() -> None:
    asked: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    server = await asyncio.start_server(lambda _, writer: asked.put_nowait(writer), "127.0.0.1")
    host, port = server.sockets[0].getsockname()
    credentials = Credentials(server=f"http://{host}:{port}")
    client = Client(lambda: credentials, timeout=3600.0)
    controller = Controller(client.aio, DRIVER, LOCAL)
    async with asyncio.timeout(TIMEOUT), running(controller.run()):
        connection = await asked.get()
    connection.close()
    server.close()
    await server.wait_closed()
    client.close()


def test_empty_driver_name_is_refused() -> None:
    credentials = Credentials(server="http://127.0.0.1:1")
    with pytest.raises(ValueError, match="DRA driver name is empty"):
        Controller(AsyncClient(lambda: credentials), "", LOCAL)


async def test_malformed_objects_of_the_server_are_reported_and_survived() -> None:
    """Objects of another kind, versions that are no numbers, and unreadable answers."""
    stored_one = write_object(stored("a", D1))
    malformed: list[object] = [
        {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x"}},
        b"[" * 100_000,
        stored_one | {"metadata": {"name": "b", "resourceVersion": "9" * 5000}},
        stored_one | {"metadata": {"name": "c", "resourceVersion": "\u0664"}, "spec": []},
    ]
    errors: asyncio.Queue[str] = asyncio.Queue()
    events = [event("ADDED", each) for each in malformed if isinstance(each, dict)]

    async def script(request: Request) -> None:
        if request.is_watch:
            await request.stream(events.pop(0) if events else b"\n")
            await asyncio.Event().wait()
        elif request.method == "GET":
            metadata = {"resourceVersion": "9" * 5000}
            kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList"}
            await request.answer({**kind, "metadata": metadata, "items": []})
        else:
            await request.answer(malformed.pop(0) if malformed else stored_one)

    async with serving(script) as peer:
        with client_of(peer) as client:
            owner = Owner("apps/v1", "DaemonSet", "d", "uid")
            on_error = lambda error, message: errors.put_nowait(f"{message}: {error}")  # noqa: E731
            controller = Controller(client, DRIVER, owner, on_error=on_error, limits=QUICK)
            controller.update(one_pool(*slices(D1), all_nodes=True))
            async with asyncio.timeout(TIMEOUT), running(controller.run()):
                while malformed:
                    assert await errors.get()
                await controller.wait_synced()
