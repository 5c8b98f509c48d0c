"""Both neighbours of the gRPC side: the kubelet's end of its sockets, and a scripted driver."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from controlplane.apiserver import Server
from dra_plugin.driver import ClaimFailed, ClaimRef, Prepared, PreparedDevice
from dra_plugin.serving.claims import Fetched
from grpcunix import Client
from kubelet.rpc import connect
from kubeletapi.dra.v1 import api_pb2 as v1
from kubeletapi.dra.v1beta1 import api_pb2 as v1beta1
from resourceapi.client import AsyncClient, Credentials
from resourceapi.objects import v1 as resource

DRIVER, POOL = "nodeplug.dev", "worker-1"
TIMEOUT = 30.0  # seconds that a test waits for an expected event
APIS: dict[str, Any] = {"v1": v1, "v1beta1": v1beta1}


class KubeletEnd:
    """A connection to a driver's socket, kept open as a kubelet does."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    async def prepare(self, *refs: ClaimRef, version: str = "v1", limit: float = TIMEOUT) -> dict[str, Any]:
        """Return the entries of the answer by claim uid. Raises RpcError."""
        return await self._call("Prepare", refs, version, limit)

    async def unprepare(self, *refs: ClaimRef, version: str = "v1", limit: float = TIMEOUT) -> dict[str, str]:
        """Return the errors by claim uid. Raises RpcError."""
        entries = await self._call("Unprepare", refs, version, limit)
        return {uid: entry.error for uid, entry in entries.items()}

    def health(self, api: Any) -> Any:
        """Open a stream of a version of DRAResourceHealth."""
        service = api.DESCRIPTOR.services_by_name["DRAResourceHealth"]
        return Client(self._channel, service).stream("NodeWatchResources", api.NodeWatchResourcesRequest())

    async def reconnected(self) -> None:
        """Wait until the connection has ended, and a new one exists."""
        await self._channel.grpc.wait_for_state_change(grpc.ChannelConnectivity.READY)
        await asyncio.wait_for(self._channel.grpc.channel_ready(), TIMEOUT)

    async def _call(self, verb: str, refs: Sequence[ClaimRef], version: str, limit: float) -> dict[str, Any]:
        api = APIS[version]
        claims = [api.Claim(namespace=ref.namespace, name=ref.name, uid=ref.uid) for ref in refs]
        request = getattr(api, f"Node{verb}ResourcesRequest")(claims=claims)
        client = Client(self._channel, api.DESCRIPTOR.services_by_name["DRAPlugin"])
        answer = await client.call(f"Node{verb}Resources", request, timeout=limit)
        return dict(answer.claims)


@asynccontextmanager
async def kubelet_end(endpoint: Path) -> AsyncIterator[KubeletEnd]:
    """Connect to a driver's socket; wait until it accepts."""
    async with connect(endpoint) as channel, asyncio.timeout(TIMEOUT):
        await channel.grpc.channel_ready()
        yield KubeletEnd(channel)


class ScriptedDriver:
    """Records its calls, returns scripted answers, and waits at the gates of blocked claims."""

    def __init__(self) -> None:
        self.journal: list[str] = []  # `prepare A B`, `prepared A B`, `unprepare A`, ...
        self.answers: dict[str, Prepared] = {}
        self.refusals: dict[str, ClaimFailed] = {}
        self.failure: Exception | None = None
        self.unanswered: set[str] = set()
        self.extra_answers: dict[str, Prepared] = {}
        self._begun: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._gates: dict[str, asyncio.Event] = {}

    def block(self, uid: str) -> asyncio.Event:
        """Block calls with this claim until the returned gate is set."""
        return self._gates.setdefault(uid, asyncio.Event())

    async def wait_for(self, entry: str) -> None:
        """Wait until the journal contains `entry`."""
        await asyncio.wait_for(self._begun[entry].wait(), TIMEOUT)

    async def wait_restored(self) -> None:
        pass

    async def prepare(self, claims: Sequence[resource.ResourceClaim]) -> Mapping[str, Prepared]:
        uids = [claim.metadata.uid for claim in claims]
        await self._work("prepare", uids)
        answers = {uid: self.answers.get(uid, (device_of(uid),)) for uid in uids if uid not in self.unanswered}
        return answers | self.extra_answers

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, ClaimFailed | None]:
        uids = [claim.uid for claim in claims]
        await self._work("unprepare", uids)
        return {uid: self.refusals.get(uid) for uid in uids if uid not in self.unanswered}

    async def _work(self, verb: str, uids: Sequence[str]) -> None:
        self._note(f"{verb} {' '.join(uids)}")
        for uid in uids:
            if uid in self._gates:
                await self._gates[uid].wait()
        if self.failure is not None:
            raise self.failure
        self._note(f"{verb}d {' '.join(uids)}")

    def _note(self, entry: str) -> None:
        self.journal.append(entry)
        self._begun[entry].set()


class NoClaims:
    """No API server, for calls that need none."""

    async def fetch(self, ref: ClaimRef) -> Fetched:
        raise AssertionError("no claim may be fetched")


def device_of(uid: str) -> PreparedDevice:
    """Return the device that a scripted driver prepares for a claim."""
    return PreparedDevice(("r",), POOL, f"device-of-{uid}", (f"nodeplug.dev/claim={uid}",))


def api_client(server: Server, **options: Any) -> AsyncClient:
    """Return a client of the stand-in server; arguments are those of AsyncClient."""
    return AsyncClient(lambda: Credentials(server=server.url, token=server.token), **options)


async def make_claim(server: Server, name: str, *, allocated: bool = True) -> ClaimRef:
    """Create a claim on the server, with a device of ours if it is `allocated`."""
    metadata = {"name": name, "namespace": "default"}
    value: dict[str, Any] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}},
    }
    if allocated:
        result = {"request": "r", "driver": DRIVER, "pool": POOL, "device": "d"}
        value["status"] = {"allocation": {"devices": {"results": [result]}}}
    server.write(value)
    client = api_client(server)
    stored = await client.resource(resource.ResourceClaim).get(name, "default")
    client.close()
    return ClaimRef("default", name, stored.metadata.uid)
