"""A minimal kubelet end that misbehaves on demand: a Registration service that connects to the plugin, or does not.

`kubelet.node.Node` is the faithful kubelet. This one does what a faithful kubelet never does.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from grpcunix import Client, Context, RpcError, Status, UnixServer, handler
from kubelet.rpc import connect
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api

_REGISTRATION = api.DESCRIPTOR.services_by_name["Registration"]
_PLUGIN = api.DESCRIPTOR.services_by_name["DevicePlugin"]


class KubeletEnd:
    """Serves kubelet.sock in `folder`. `answers` are the reactions to each Register; the last one repeats."""

    def __init__(self, folder: Path, *answers: str) -> None:
        """Answers: `ok` connects and listens, `early` listens first and answers after `answer_now` is set.

        `deaf` never listens, `refuse` returns an error, `busy` that of a kubelet that is not ready, `hang` never
        answers.
        """
        self.folder = folder
        self.requests: asyncio.Queue[api.RegisterRequest] = asyncio.Queue()
        self.lists: asyncio.Queue[list[api.Device]] = asyncio.Queue()
        self._answers = list(answers or ("ok",))
        self.endpoint = ""  # the last registered
        self._endpoints: dict[str, str] = {}
        self._server: UnixServer | None = None
        self._streams: dict[str, asyncio.Task[None]] = {}
        self.answer_now = asyncio.Event()

    async def start(self, wipe: bool = True) -> None:
        """Start as a kubelet does: remove all sockets, then serve."""
        if wipe:
            for path in self.folder.iterdir():
                if path.is_socket():
                    path.unlink()
        self._server = UnixServer(self.folder / "kubelet.sock", [handler(_REGISTRATION, self)], transport="grpcio")
        await self._server.start()

    async def stop(self) -> None:
        """Stop as a killed kubelet does: the streams break."""
        await self.cut_streams()
        if self._server is not None:
            await self._server.stop()

    async def cut_streams(self) -> None:
        """End every open ListAndWatch on the kubelet's side."""
        for endpoint in tuple(self._streams):
            await self.cut_stream_of(endpoint)

    async def cut_stream_of(self, endpoint: str) -> None:
        """End one ListAndWatch on the kubelet's side."""
        stream = self._streams.pop(endpoint)
        stream.cancel()
        await asyncio.wait([stream])

    async def register(self, request: api.RegisterRequest, context: Context) -> api.Empty:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        self.requests.put_nowait(request)
        self.endpoint = self._endpoints[request.resource_name] = request.endpoint
        if answer == "refuse":
            raise RpcError(Status.UNKNOWN, 'the ResourceName "example.com/fuse" is invalid')
        if answer == "busy":
            raise RpcError(Status.UNAVAILABLE, "too busy")
        if answer == "hang":
            await asyncio.Event().wait()
        async with connect(self.folder / request.endpoint) as channel:
            await Client(channel, _PLUGIN).call("GetDevicePluginOptions", api.Empty())
        if answer in ("ok", "early"):
            self.listen(request.endpoint)
        if answer == "early":
            await self.answer_now.wait()
        return api.Empty()

    def listen(self, endpoint: str) -> None:
        """Open ListAndWatch, as late as the test wants."""
        self._streams[endpoint] = asyncio.ensure_future(self._listen(endpoint))

    async def call(self, method: str, request: Any) -> Any:
        """Call the plugin that registered last."""
        async with connect(self.folder / self.endpoint) as channel:
            return await Client(channel, _PLUGIN).call(method, request, timeout=30)

    def endpoint_of(self, resource: str) -> str:
        """The endpoint of a resource's last registration."""
        return self._endpoints[resource]

    async def until_unregistered(self, resource: str) -> None:
        """Wait until the endpoint of a resource is removed."""
        async with asyncio.timeout(30):
            while (self.folder / self._endpoints[resource]).exists():  # noqa: ASYNC110 - no event reports it
                await asyncio.sleep(0.005)

    async def _listen(self, endpoint: str) -> None:
        async with connect(self.folder / endpoint) as channel:
            with contextlib.suppress(RpcError):
                async for message in Client(channel, _PLUGIN).stream("ListAndWatch", api.Empty()):
                    self.lists.put_nowait(list(message.devices))


@contextlib.asynccontextmanager
async def kubelet_end(folder: Path, *answers: str) -> AsyncIterator[KubeletEnd]:
    """A running kubelet end."""
    kubelet = KubeletEnd(folder, *answers)
    await kubelet.start()
    try:
        yield kubelet
    finally:
        await kubelet.stop()


async def allocate(kubelet: KubeletEnd, *unit_ids: str) -> api.ContainerAllocateResponse:
    """Return the Allocate response of a container that requests these units."""
    request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=unit_ids)])
    response: api.AllocateResponse = await kubelet.call("Allocate", request)
    return response.container_responses[0]


async def refusal(kubelet: KubeletEnd, *unit_ids: str) -> tuple[Status, str]:
    """Return the status code and message with which Allocate refuses these units."""
    with pytest.raises(RpcError) as error:
        await allocate(kubelet, *unit_ids)
    return error.value.code, error.value.details


async def until_listed(kubelet: KubeletEnd, health: Mapping[str, str]) -> None:
    """Wait for a list with this health by unit."""
    while {x.ID: x.health for x in await kubelet.lists.get()} != health:
        pass
