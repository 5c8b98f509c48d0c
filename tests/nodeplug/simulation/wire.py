"""The daemon's connections without sockets: gRPC to the kubelet's pod-resources, HTTP to the API server.

Messages are encoded and decoded as on a socket; only the transport is replaced.
"""

import asyncio
import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol
from unittest.mock import patch

import dra_plugin.plugin
import witnesses.pod_resources
from dra_plugin.serving.calls import ClaimCalls
from kubeletapi.podresources.v1 import api_pb2 as podresources
from resourceapi.client import AsyncClient, Refused, Unreachable
from resourceapi.client.transport import Answer
from tests.nodeplug.simulation.process import Loop, turns

GRACE = 5.0  # seconds for running calls at a stop


class Peers(Protocol):
    """The peers of the daemon."""

    def list_pods(self) -> podresources.ListPodResourcesResponse | None:
        """The answer of pod-resources; None if no kubelet runs."""
        ...

    def claim(self, path: str) -> Mapping[str, Any] | None:
        """The object at a path of the API server; None if there is none. Raises ConnectionError."""
        ...


class _PodResourcesClient:
    """Replaces `grpcunix.Client`."""

    def __init__(self, peers: Peers, *_: object) -> None:
        self._peers = peers

    async def call(self, name: str, request: Any, **_: object) -> Any:
        assert name == "List"
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        request.SerializeToString()
        await turns(loop.random.randrange(4))
        answer = self._peers.list_pods()
        await turns(loop.random.randrange(4))
        if answer is None:
            raise ConnectionRefusedError("no kubelet listens")
        return podresources.ListPodResourcesResponse.FromString(answer.SerializeToString())


class DirectKubeletPlugin:
    """Replaces `KubeletPlugin`: calls come through `calls`, and no socket is served."""

    registration_status = None
    registrations = 0
    errors = ()

    def __init__(self, _: str, driver: Any, claims: Any, health: Any, folders: Any, watcher: Any, turns: Any, *__: Any):
        self.calls = ClaimCalls(driver, claims, turns)
        self.serves = False

    async def run(self) -> None:
        """Accept calls until cancelled; then finish the running ones."""
        self.serves = True
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.serves = False
            self.calls.close()
            await self.calls.finish(GRACE)


@contextlib.contextmanager
def in_place(peers: Peers) -> Iterator[None]:
    """Connect all clients to `peers` for the block."""

    async def send(_: object, method: str, path: str, *__: object, **___: object) -> Answer:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        await turns(loop.random.randrange(6))
        try:
            found = peers.claim(path)
        except ConnectionError as error:
            raise Unreachable(str(error)) from error
        if found is None:
            raise Refused.of_status(_missing(path), 404)
        text = json.dumps(found)
        return Answer(json.loads(text), len(text))

    @contextlib.asynccontextmanager
    async def connect(*_: object, **__: object) -> Any:
        yield None
        await asyncio.sleep(0)

    with (
        patch.object(witnesses.pod_resources, "connect", connect),
        patch.object(witnesses.pod_resources, "Client", lambda *_: _PodResourcesClient(peers)),
        patch.object(dra_plugin.plugin, "KubeletPlugin", DirectKubeletPlugin),
        patch.object(AsyncClient, "send", send),
    ):
        yield


def _missing(path: str) -> dict[str, Any]:
    name = path.rpartition("/")[2]
    message = f'resourceclaims.resource.k8s.io "{name}" not found'
    return {"kind": "Status", "reason": "NotFound", "message": message, "details": {"name": name}}
