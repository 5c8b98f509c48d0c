"""An API server and controllers. Tests read and write over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar, cast

from msgspec.structs import replace

from controlplane.apiserver import Server
from controlplane.apiserver.app import Application
from controlplane.apiserver.kinds import Decoded, Rules
from dra_plugin.publishing.slices import Controller, DriverResources, Owner, Statistics
from resourceapi.client import Credentials
from resourceapi.client.blocking import Client
from resourceapi.objects import ObjectMeta, core, v1
from tests.dra_plugin.publishing.slices.build import DRIVER, NODE
from tests.running import running

T = TypeVar("T")
LOCAL = Owner.node(NODE)
Plain = dict[str, Any]
TIMEOUT = 30.0  # time limit of any step on a slow machine


class Cluster:
    """A cluster that contains only a Node."""

    def __init__(self) -> None:
        self.server = Server(token="t", collect_after=None)
        self.faults = Faults(self.server.application)
        self.server.application = cast("Application", self.faults)
        self.errors: list[str] = []

    async def __aenter__(self) -> Self:
        self._changed = self.server.store.subscribe().changed
        await self.server.__aenter__()
        credentials = Credentials(server=self.server.url, token="t")
        self.client = Client(lambda: credentials, attempts=1)
        node = core.Node(metadata=ObjectMeta(name=NODE))
        self.node = await asyncio.to_thread(self.client.resource(core.Node).create, node)
        self._slices = self.client.resource(v1.ResourceSlice)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.__aexit__()
        self.client.close()

    @asynccontextmanager
    async def controller(
        self, resources: DriverResources | None = None, owner: Owner | None = LOCAL, **options: Any
    ) -> AsyncIterator[Controller]:
        """A running controller that has synced the desired resources once."""
        options = {"on_error": self.record_error, **options}
        found = Controller(self.client.aio, DRIVER, owner, resources=resources, **options)
        async with running(found.run()):
            async with asyncio.timeout(TIMEOUT):
                await found.wait_synced()
            yield found

    def record_error(self, error: Exception, message: str) -> None:
        """Record an error."""
        self.errors.append(f"{message}: {error}")

    async def create(self, *objects: v1.ResourceSlice) -> None:
        """Create slices as another client."""
        for each in objects:
            await asyncio.to_thread(self._slices.create, each)

    async def update(self, changed: v1.ResourceSlice) -> None:
        """Change a slice as another client."""
        await asyncio.to_thread(self._slices.update, changed)

    async def delete(self, *names: str) -> None:
        """Delete slices as another client."""
        for name in names:
            await asyncio.to_thread(self._slices.delete, name)

    async def slices(self) -> list[v1.ResourceSlice]:
        """The slices on the server, sorted by name."""
        page = await asyncio.to_thread(self._slices.list)
        return sorted(page.items, key=lambda each: each.metadata.name)

    async def until(self, ask: Callable[[], Awaitable[T | None]]) -> T:
        """Call `ask` after each change of the server's objects, and return its first result that is not None."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                self._changed.clear()
                if (answer := await ask()) is not None:
                    return answer
                await self._changed.wait()

    async def until_names(self, count: int, *, without: Collection[str] = ()) -> list[str]:
        """Wait for this number of slices, none of which is in `without`; return their names."""

        async def there() -> list[str] | None:
            names = [each.metadata.name for each in await self.slices()]
            return names if len(names) == count and not set(without) & set(names) else None

        return await self.until(there)

    async def until_watched(self) -> None:
        """Wait until a client has listed slices and watches them."""
        async with asyncio.timeout(TIMEOUT):
            await self.faults.watched.wait()

    def serve_slices(self, *versions: str) -> None:
        """Make the server serve slices in these versions only."""
        kind = _kind(self.server)
        kept = tuple(each for each in kind.versions if each.name in versions)
        self.server.registry.add(replace(kind, versions=kept))

    def drop_fields(self, drop: Callable[[Plain], None]) -> None:
        """Make the server drop fields of every slice that it receives; `drop` changes the spec."""
        drop_fields(self.server, drop)


class Faults:
    """A layer before the server: counts requests, and injects faults in the order of their registration."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._planned: list[tuple[str, int, dict[str, str], bytes]] = []
        self.requests: list[str] = []
        self.watched = asyncio.Event()

    def refuse(self, method: str, code: int, **headers: str) -> None:
        """Answer the next request with this method with this status, without executing it."""
        self._planned.append((method, code, headers, b""))

    def execute_but_garble(self, method: str, body: bytes = b"no JSON") -> None:
        """Execute the next request with this method, but answer with an unreadable body."""
        self._planned.append((method, 200, {}, body))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        self.requests.append(f"{scope['method']} {scope['path']}")
        if b"watch=true" in scope["query_string"]:
            self.watched.set()
        if not self._planned or self._planned[0][0] != scope["method"]:
            await self._application(scope, receive, send)
            return
        _, code, headers, garbled = self._planned.pop(0)
        if garbled:
            await self._application(scope, receive, _nowhere)
        status = {"kind": "Status", "code": code, "reason": "Scripted", "message": "scripted"}
        body = garbled or json.dumps(status).encode()
        shown = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": code, "headers": shown})
        await send({"type": "http.response.body", "body": body})


async def _nowhere(message: Any) -> None:
    """Drop a message."""


def drop_fields(server: Server, drop: Callable[[Plain], None]) -> None:
    """Make a server drop fields of every slice that it receives; `drop` changes the spec."""
    kind = _kind(server)
    server.registry.add(replace(kind, rules=cast("Rules", _Dropping(kind.rules, drop))))


def _kind(server: Server) -> Any:
    return next(kind for kind in server.registry if kind.plural == "resourceslices")


class _Dropping:
    """Rules of a server with a disabled feature."""

    def __init__(self, rules: Rules, drop: Callable[[Plain], None]) -> None:
        self._rules, self._drop = rules, drop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rules, name)

    def decode(self, value: Plain, version: str) -> Decoded:
        """The object without the feature's fields."""
        found = self._rules.decode(value, version)
        self._drop(found.object["spec"])
        return found


def writes(controller: Controller) -> tuple[int, int, int]:
    """The numbers of creates, updates and deletes."""
    found: Statistics = controller.statistics
    return found.creates, found.updates, found.deletes
