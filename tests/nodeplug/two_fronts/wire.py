"""The daemon's connections, without sockets: gRPC to the kubelet's pod-resources, HTTP to the API server.

What is sent is encoded and decoded as on a socket; only the transport is another one.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol
from unittest.mock import patch

import grpc
import grpc.aio
import urllib3

from kubeletapi.podresources.v1 import api_pb2 as podresources
from tests.nodeplug.two_fronts.process import Loop, turns


class Peers(Protocol):
    """Who is at the other ends."""

    def list_pods(self) -> podresources.ListPodResourcesResponse | None:
        """What pod-resources answers; None where no kubelet does."""
        ...

    def claim(self, path: str) -> Mapping[str, Any] | None:
        """The object at a path of the API server; None where there is none. Raises ConnectionError."""
        ...


class _Channel:
    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def __aenter__(self) -> "_Channel":
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)

    def unary_unary(
        self, path: str, request_serializer: Callable[[Any], bytes], response_deserializer: Callable[[bytes], Any]
    ) -> Callable[..., Any]:
        assert path.endswith("/List")

        async def call(request: Any, **_: object) -> Any:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, Loop)
            request_serializer(request)
            await turns(loop.random.randrange(4))
            answer = self._peers.list_pods()
            await turns(loop.random.randrange(4))
            if answer is None:
                nothing = grpc.aio.Metadata()
                raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, "no kubelet listens")
            return response_deserializer(answer.SerializeToString())

        return call


@contextlib.contextmanager
def in_place(peers: Peers) -> Iterator[None]:
    """Let every connection end at `peers`."""

    def request(_: object, method: str, url: str, **options: object) -> urllib3.HTTPResponse:
        path = urllib3.util.parse_url(url).path or ""
        try:
            found = peers.claim(path)
        except ConnectionError as error:
            raise urllib3.exceptions.ProtocolError(str(error)) from error
        if found is None:
            found, code = _missing(path), 404
        else:
            code = 200
        return urllib3.HTTPResponse(json.dumps(found).encode(), status=code)

    with (
        patch.object(grpc.aio, "insecure_channel", lambda *_, **__: _Channel(peers)),
        patch.object(urllib3.PoolManager, "request", request),
    ):
        yield


def _missing(path: str) -> Mapping[str, Any]:
    name = path.rpartition("/")[2]
    message = f'resourceclaims.resource.k8s.io "{name}" not found'
    return {"kind": "Status", "reason": "NotFound", "message": message, "details": {"name": name}}
