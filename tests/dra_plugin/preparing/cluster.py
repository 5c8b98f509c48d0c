"""The API server's part in a claim's life: claims as users and the scheduler leave them, and a way there to cut."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress

from msgspec.structs import replace

from controlplane.apiserver import Server
from resourceapi.client import AsyncClient, Credentials
from resourceapi.objects import ObjectMeta, to_dict, v1
from tests.dra_plugin.kubelet_end import PATIENCE


class Cluster:
    """Claims on a server, made and allocated as users and the scheduler do."""

    def __init__(self, client: AsyncClient, version: str = "") -> None:
        self.claims = client.resource(v1.ResourceClaim, version)

    async def allocate(
        self,
        name: str,
        *results: v1.DeviceRequestAllocationResult,
        configs: tuple[v1.DeviceAllocationConfiguration, ...] = (),
    ) -> v1.ResourceClaim:
        """Make a claim that got these devices."""
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
        """A claim as it is."""
        return await self.claims.get(name, "default")

    async def until(self, name: str, agrees: Callable[[v1.ResourceClaim], bool]) -> v1.ResourceClaim:
        """Ask for a claim until it is as a test wants it."""
        async with asyncio.timeout(PATIENCE):
            while not agrees(found := await self.get(name)):
                pass
        return found

    async def deallocate(self, name: str) -> None:
        """Take the devices away from a claim."""
        gone = {"status": {"allocation": None, "devices": None}}  # a patch: the node may be writing there, too
        await self.claims.patch(name, gone, "default", subresource="status")

    async def allocate_again(self, claim: v1.ResourceClaim) -> None:
        """Give a claim that has lost its devices what it had."""
        await self.claims.patch(claim.metadata.name, {"status": to_dict(claim.status)}, "default", subresource="status")

    async def delete(self, name: str) -> None:
        """Delete a claim, by force: nobody unprepares it."""
        await self.claims.delete(name, "default")


def serve_claims(server: Server, *versions: str) -> None:
    """Have the server know claims in these versions only."""
    kind = next(kind for kind in server.registry if kind.plural == "resourceclaims")
    server.registry.add(replace(kind, versions=tuple(each for each in kind.versions if each.name in versions)))


class Road:
    """The way from a node to an API server, which can be held up, cut and opened again."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._port = 0
        self._listener: asyncio.Server | None = None
        self._travelling: set[asyncio.Task[None]] = set()
        self.is_free = asyncio.Event()  # whoever is on it goes on
        self.is_free.set()
        self.held = b""  # what was held up

    @property
    def url(self) -> str:
        """This end of it, once it was opened."""
        return f"http://127.0.0.1:{self._port}"

    def client(self) -> AsyncClient:
        """A client at this end of it, who tries once."""
        credentials = Credentials(server=self.url, token=self._server.token)
        return AsyncClient(lambda: credentials, attempts=1)

    async def open(self) -> None:
        """Let everybody pass."""
        self._listener = await asyncio.start_server(self._pass, "127.0.0.1", self._port)
        self._port = self._listener.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Turn everybody away, also those who are on it."""
        assert self._listener is not None
        self._listener.close()
        for task in self._travelling:
            task.cancel()
        if self._travelling:
            await asyncio.wait(self._travelling)

    async def _pass(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        host, _, port = self._server.url.removeprefix("http://").partition(":")
        far, forth = await asyncio.open_connection(host, int(port))
        for task in (asyncio.create_task(self._carry(near, forth)), asyncio.create_task(self._carry(far, back))):
            self._travelling.add(task)
            task.add_done_callback(self._travelling.discard)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with closing(sink), suppress(ConnectionError):
            while data := await source.read(65536):
                if not self.is_free.is_set():
                    self.held += data
                    await self.is_free.wait()
                sink.write(data)


@asynccontextmanager
async def road_to(server: Server) -> AsyncIterator[Road]:
    """A road that is open."""
    road = Road(server)
    await road.open()
    yield road
    await road.cut()
