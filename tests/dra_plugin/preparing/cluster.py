"""The API server's side of a claim: claims as created by users and the scheduler, and a connection that can be cut."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress

from msgspec.structs import replace

from controlplane.apiserver import Server
from resourceapi.client import AsyncClient, Credentials
from resourceapi.objects import ObjectMeta, to_dict, v1
from tests.dra_plugin.kubelet_end import TIMEOUT


class Cluster:
    """Claims on a server, created and allocated as by users and the scheduler."""

    def __init__(self, client: AsyncClient, version: str = "") -> None:
        self.claims = client.resource(v1.ResourceClaim, version)

    async def allocate(
        self,
        name: str,
        *results: v1.DeviceRequestAllocationResult,
        configs: tuple[v1.DeviceAllocationConfiguration, ...] = (),
    ) -> v1.ResourceClaim:
        """Create a claim with these devices allocated."""
        requests = tuple(
            v1.DeviceRequest(name=request, exactly=v1.ExactDeviceRequest(device_class_name="any"))
            for request in dict.fromkeys(result.request for result in results)
        )
        claim = v1.ResourceClaim(
            metadata=ObjectMeta(name=name, namespace="default"),
            spec=v1.ResourceClaimSpec(devices=v1.DeviceClaim(requests=requests)),
        )
        made = await self.claims.create(claim)
        devices = v1.DeviceAllocationResult(results=results, config=configs)
        status = v1.ResourceClaimStatus(allocation=v1.AllocationResult(devices=devices))
        return await self.claims.update_status(replace(made, status=status))

    async def get(self, name: str) -> v1.ResourceClaim:
        """Return the current claim."""
        return await self.claims.get(name, "default")

    async def until(self, name: str, agrees: Callable[[v1.ResourceClaim], bool]) -> v1.ResourceClaim:
        """Get a claim repeatedly until it satisfies a condition."""
        async with asyncio.timeout(TIMEOUT):
            while not agrees(found := await self.get(name)):  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.005)
        return found

    async def deallocate(self, name: str) -> None:
        """Remove a claim's allocation."""
        gone = {"status": {"allocation": None, "devices": None}}  # a patch: the node can also write now
        await self.claims.patch(name, gone, "default", subresource="status")

    async def allocate_again(self, claim: v1.ResourceClaim) -> None:
        """Restore the allocation of a claim that was deallocated."""
        await self.claims.patch(claim.metadata.name, {"status": to_dict(claim.status)}, "default", subresource="status")

    async def delete(self, name: str) -> None:
        """Delete a claim by force; it is not unprepared."""
        await self.claims.delete(name, "default")


def serve_claims(server: Server, *versions: str) -> None:
    """Make the server serve claims in these versions only."""
    kind = next(kind for kind in server.registry if kind.plural == "resourceclaims")
    server.registry.add(replace(kind, versions=tuple(each for each in kind.versions if each.name in versions)))


class ApiProxy:
    """The connection from a node to an API server; tests can stall, cut and reopen it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._port = 0
        self._listener: asyncio.Server | None = None
        self._copying: set[asyncio.Task[None]] = set()
        self.is_flowing = asyncio.Event()  # while it is not set, data to the server or back stalls
        self.is_flowing.set()
        self.stalled = b""  # data that was stalled

    @property
    def url(self) -> str:
        """This end's URL, after `open`."""
        return f"http://127.0.0.1:{self._port}"

    def client(self) -> AsyncClient:
        """A client of this end, without retries."""
        credentials = Credentials(server=self.url, token=self._server.token)
        return AsyncClient(lambda: credentials, attempts=1)

    async def open(self) -> None:
        """Accept connections."""
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._listener.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Refuse new connections, and close existing ones."""
        assert self._listener is not None
        self._listener.close()
        for task in self._copying:
            task.cancel()
        if self._copying:
            await asyncio.wait(self._copying)

    async def _accept(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        host, _, port = self._server.url.removeprefix("http://").partition(":")
        far, forth = await asyncio.open_connection(host, int(port))
        for task in (asyncio.create_task(self._copy(near, forth)), asyncio.create_task(self._copy(far, back))):
            self._copying.add(task)
            task.add_done_callback(self._copying.discard)

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with closing(sink), suppress(ConnectionError):
            while data := await source.read(65536):
                if not self.is_flowing.is_set():
                    self.stalled += data
                    await self.is_flowing.wait()
                sink.write(data)


@asynccontextmanager
async def proxy_to(server: Server) -> AsyncIterator[ApiProxy]:
    """A running proxy."""
    proxy = ApiProxy(server)
    await proxy.open()
    yield proxy
    await proxy.cut()
