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
async def asked(node: Node) -> AsyncIterator[Node]:
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


async def test_a_claim_of_another_namespace_is_removed(asked: Node) -> None:
    there = CLAIM | {"metadata": {"name": "c1", "uid": "u", "namespace": "team"}}
    await ask(asked.directory, Request("put-claim", claim=there))
    assert await asked.cluster.get_claim("team", "c1")
    await ask(asked.directory, Request("remove-claim", name="team/c1"))
    with pytest.raises(ClusterError, match="not found"):
        await asked.cluster.get_claim("team", "c1")


async def test_a_status_is_what_an_api_server_would_have_of_it(asked: Node) -> None:
    manifest = to_dict(pod("p", container("c"), init=(container("i"),), restart_policy="Never"))
    (found,) = (await ask(asked.directory, Request("admit", admit=manifest))).pods
    assert found.status["phase"] == "Running"
    assert [each["state"] for each in found.status["containerStatuses"]] == [{"running": {}}]
    assert [each["state"] for each in found.status["initContainerStatuses"]] == [
        {"terminated": {"exitCode": 0, "reason": "Completed"}}
    ]
    await asked.exit_container("p", "c", 3)
    (found,) = (await ask(asked.directory, Request("status"))).pods
    (state,) = [each["state"] for each in found.status["containerStatuses"]]
    assert state == {"terminated": {"exitCode": 3, "reason": "Error"}}
    assert found.pod_status == asked.status("p")


async def test_an_init_container_that_stays_is_one_in_a_manifest_too(asked: Node) -> None:
    asking = pod("p", container("c"), init=(container("i", stays=True),))
    (found,) = (await ask(asked.directory, Request("admit", admit=to_dict(asking)))).pods
    assert [each["state"] for each in found.status["initContainerStatuses"]] == [{"running": {}}]


async def test_a_claim_may_ask_for_capacity(asked: Node) -> None:
    request = {"name": "r", "exactly": {"deviceClassName": "any", "capacity": {"requests": {"memory": "1Gi"}}}}
    await put(asked, CLAIM | {"spec": {"devices": {"requests": [request]}}})
    assert await capacity_of(asked) == {"memory": Quantity.parse("1Gi")}


async def test_a_claim_of_an_older_version(asked: Node) -> None:
    request = {"name": "r", "deviceClassName": "any", "capacity": {"requests": {"memory": "2Gi"}}}
    kind = {"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaim"}
    await put(asked, CLAIM | kind | {"spec": {"devices": {"requests": [request]}}})
    assert await capacity_of(asked) == {"memory": Quantity.parse("2Gi")}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "the kubelet stopped before it answered"),
        (b"{", "the kubelet stopped before it answered"),
        (b" " * (16 * 1024 * 1024 + 1), "the answer has more than 16777216 bytes"),
    ],
)
async def test_a_kubelet_that_does_not_answer(folder: Path, answer: bytes, message: str) -> None:
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
async def test_what_is_no_manifest_is_refused_in_words(asked: Node, request_: Request, message: str) -> None:
    with pytest.raises(ControlError, match=message):
        await ask(asked.directory, request_)
    assert asked.pods() == []
