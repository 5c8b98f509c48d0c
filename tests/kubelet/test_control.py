"""Control of a kubelet from another process: manifests as for an API server, and statuses as from one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubelet import Node, container, pod
from kubelet.control import ControlError, ControlServer, Request, ask
from kubelet.dramanager.cluster import ClusterError
from resourceapi.objects import Quantity, to_dict

CLAIM = {
    "metadata": {"name": "c1", "uid": "u"},
    "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "any"}}]}},
}


@pytest.fixture
async def controlled_node(node: Node) -> AsyncIterator[Node]:
    server = ControlServer(node)
    await server.start()
    yield node
    await server.stop()


async def put(node: Node, claim: dict[str, Any]) -> None:
    await ask(node.directory, Request("put-claim", claim=claim))


async def capacity_of(node: Node) -> Any:
    (request,) = (await node.cluster.get_claim("default", "c1")).spec.devices.requests
    assert request.exactly is not None
    assert request.exactly.capacity is not None
    return request.exactly.capacity.requests


async def test_claim_of_other_namespace_is_removed(controlled_node: Node) -> None:
    there = CLAIM | {"metadata": {"name": "c1", "uid": "u", "namespace": "team"}}
    await ask(controlled_node.directory, Request("put-claim", claim=there))
    assert await controlled_node.cluster.get_claim("team", "c1")
    await ask(controlled_node.directory, Request("remove-claim", name="team/c1"))
    with pytest.raises(ClusterError, match="not found"):
        await controlled_node.cluster.get_claim("team", "c1")


async def test_status_reply_has_the_form_of_the_api(controlled_node: Node) -> None:
    manifest = to_dict(pod("p", container("c"), init=(container("i"),), restart_policy="Never"))
    (found,) = (await ask(controlled_node.directory, Request("admit", admit=manifest))).pods
    assert found.status["phase"] == "Running"
    assert [each["state"] for each in found.status["containerStatuses"]] == [{"running": {}}]
    assert [each["state"] for each in found.status["initContainerStatuses"]] == [
        {"terminated": {"exitCode": 0, "reason": "Completed"}}
    ]
    await controlled_node.exit_container("p", "c", 3)
    (found,) = (await ask(controlled_node.directory, Request("status"))).pods
    (state,) = [each["state"] for each in found.status["containerStatuses"]]
    assert state == {"terminated": {"exitCode": 3, "reason": "Error"}}
    assert found.pod_status == controlled_node.status("p")


async def test_stays_field_is_read_from_manifest(controlled_node: Node) -> None:
    asking = pod("p", container("c"), init=(container("i", stays=True),))
    (found,) = (await ask(controlled_node.directory, Request("admit", admit=to_dict(asking)))).pods
    assert [each["state"] for each in found.status["initContainerStatuses"]] == [{"running": {}}]


async def test_claim_with_capacity_request_is_stored(controlled_node: Node) -> None:
    request = {"name": "r", "exactly": {"deviceClassName": "any", "capacity": {"requests": {"memory": "1Gi"}}}}
    await put(controlled_node, CLAIM | {"spec": {"devices": {"requests": [request]}}})
    assert await capacity_of(controlled_node) == {"memory": Quantity.parse("1Gi")}


async def test_v1beta1_claim_is_converted(controlled_node: Node) -> None:
    request = {"name": "r", "deviceClassName": "any", "capacity": {"requests": {"memory": "2Gi"}}}
    kind = {"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaim"}
    await put(controlled_node, CLAIM | kind | {"spec": {"devices": {"requests": [request]}}})
    assert await capacity_of(controlled_node) == {"memory": Quantity.parse("2Gi")}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "the kubelet stopped before it answered"),
        (b"{", "the kubelet stopped before it answered"),
        (b" " * (16 * 1024 * 1024 + 1), "the answer has more than 16777216 bytes"),
    ],
)
async def test_truncated_or_oversized_answer_is_an_error(folder: Path, answer: bytes, message: str) -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer)
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(half, folder / "control.sock"):
        with pytest.raises(ControlError, match=message):
            await ask(folder, Request("status"))


def _pod(*containers: str) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": name} for name in containers]}}


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request("admit", admit={"metadata": {"name": "p"}, "spec": {"containers": 1}}), "spec.containers"),
        (Request("admit", admit={"metadata": {}, "spec": {"containers": []}}), "admit: metadata.name: Required value"),
        (Request("admit", admit=_pod("c", "c")), r'admit: spec.containers\[1\].name: Duplicate value: "c"'),
        (Request("admit", admit=_pod("")), r"admit: spec.containers\[0\].name: Required value"),
        (Request("admit", admit={"metadata": {"name": "p"}, "spec": {"container": []}}), "spec.containers: Required"),
        (Request("admit", admit={"kind": "Service"}), "kind Service, but only pods can be admitted"),
        (Request("put-claim", claim=CLAIM | {"apiVersion": "v1", "kind": "Pod"}), "but only claims can be put in"),
        (Request("put-claim", claim={"metadata": 1}), "metadata"),
    ],
)
async def test_invalid_manifest_is_refused_with_its_path(
    controlled_node: Node, request_: Request, message: str
) -> None:
    with pytest.raises(ControlError, match=message):
        await ask(controlled_node.directory, request_)
    assert controlled_node.pods() == []
