"""The control interface of a stand-in kubelet in another process: one JSON request and one answer per connection.

The unix socket is specific to the stand-in; a real kubelet has nothing like it.
"""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from grpcunix import GrpcUnixError
from kubelet.dramanager import MemoryCluster
from kubelet.errors import ClaimError, KubeletError, NodeError
from kubelet.node import Node
from kubelet.pods import decode_pod
from resourceapi.objects import DecodeError, from_dict, read_object, to_dict, v1
from resourceapi.objects.core import Pod, PodStatus

Json: TypeAlias = dict[str, Any]
SOCKET_NAME = "control.sock"
_MAX_WAIT = 60.0  # seconds
_MAX_MESSAGE = 16 * 1024 * 1024  # bytes of one request or answer


class ControlError(KubeletError):
    """The kubelet cannot be reached, or refuses the request."""


class Request(Struct, frozen=True, omit_defaults=True):
    """A request; `do` is the operation. Pods and claims are manifests, as an API server accepts them.

    - `admit`: run the pod `admit`. `remove`: end `pod`, a name or `namespace/name`.
    - `restart`, `kill`: stop or kill the kubelet, and start it again.
    - `hold`: make the API server unavailable. `release`: make it available again.
    - `put-claim`: add `claim` to the cluster. `remove-claim`: remove the claim `name`, or `namespace/name`. Both only
      without an API server.
    - `status`: return the state. `wait`: answer when there are more changes than `since`, at the latest in `seconds`.
    """

    do: str
    admit: Json | None = None
    pod: str = ""
    claim: Json | None = None
    name: str = ""
    since: int = -1
    seconds: float = 30.0


class ResourceView(Struct, frozen=True):
    """A resource on the node: capacity, allocatable, and device id -> health."""

    capacity: int
    allocatable: int
    devices: dict[str, str] = msgspec.field(default_factory=dict)


class PodView(Struct, frozen=True):
    """A pod on the node; `allocations` is container -> resource -> ids, `claimed` is container -> CDI ids.

    `status` is the status that a kubelet would report to an API server, without times.
    """

    name: str
    uid: str
    status: Json
    allocations: dict[str, dict[str, list[str]]] = msgspec.field(default_factory=dict)
    claimed: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)

    @property
    def pod_status(self) -> PodStatus:
        """The status as a record. Raises DecodeError."""
        return from_dict(PodStatus, self.status)


class ControlReply(Struct, frozen=True, omit_defaults=True):
    """The answer: an error, or the state of the node after the request. `changes` is the number of changes so far.

    `drivers` are the registered and connected DRA drivers.
    """

    error: str = ""
    changes: int = 0
    drivers: list[str] = msgspec.field(default_factory=list)
    resources: dict[str, ResourceView] = msgspec.field(default_factory=dict)
    pods: list[PodView] = msgspec.field(default_factory=list)


class ControlServer:
    """Answers requests about a node at `control.sock` in its folder."""

    def __init__(self, node: Node) -> None:
        """Prepare; `start` serves."""
        self._node = node
        self._path = node.directory / SOCKET_NAME
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Serve, only for the owner of the folder. Raises OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self._path, limit=_MAX_MESSAGE)
        os.chmod(self._path, 0o600)

    async def stop(self) -> None:
        """Stop serving. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await self._answer(await reader.readline())
            writer.write(msgspec.json.encode(answer) + b"\n")
            await writer.drain()
        except (OSError, ValueError):
            pass  # the client disconnected, or sent an invalid line
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, line: bytes) -> ControlReply:
        try:
            await self._execute(msgspec.json.decode(line, type=Request))
            return view(self._node)
        except RecursionError:
            return ControlReply(error="the request is nested too deeply")
        except (GrpcUnixError, KubeletError, OSError, DecodeError, msgspec.DecodeError, UnicodeError) as error:
            return ControlReply(error=str(error))

    async def _execute(self, request: Request) -> None:
        if request.do == "admit" and request.admit is not None:
            await self._node.admit(decode_pod(request.admit, "admit"))
        elif request.do == "remove":
            await self._node.remove(request.pod)
        elif request.do in ("restart", "kill"):
            await self._node.restart(kill=request.do == "kill")
        elif request.do == "hold":
            self._node.sources.hold()
        elif request.do == "release":
            self._node.sources.release()
        elif request.do == "wait":
            with contextlib.suppress(TimeoutError):
                await self._node.changed_since(request.since, min(request.seconds, _MAX_WAIT))
        elif request.do == "put-claim" and request.claim is not None:
            self._claims.put(_decode_claim(request.claim))
        elif request.do == "remove-claim":
            namespace, _, name = request.name.rpartition("/")
            self._claims.remove(name, namespace or "default")
        elif request.do != "status":
            raise NodeError(f"{request.do}: no such request, or a field is missing")

    @property
    def _claims(self) -> MemoryCluster:
        if not isinstance(self._node.cluster, MemoryCluster):
            raise NodeError("this kubelet has an API server: create and delete claims there")
        return self._node.cluster


def view(node: Node) -> ControlReply:
    """Return the state of a node."""
    changes = node.changes
    capacity, allocatable, devices = node.capacity(), node.allocatable(), node.devices()
    resources = {
        name: ResourceView(
            capacity[name],
            allocatable.get(name, 0),
            {id_: device.health for id_, device in devices.get(name, {}).items()},
        )
        for name in sorted(capacity)
    }
    pods = [
        PodView(
            f"{pod.metadata.namespace}/{pod.metadata.name}",
            pod.uid,
            to_dict(status),
            {container.name: node.allocations(pod, container.name) for container in pod.all_containers},
            {container.name: _claimed(node, pod, container.name) for container in pod.all_containers},
        )
        for pod, status in node.pods()
    ]
    plugins = node.dra_manager.plugins
    drivers = [driver for driver in plugins.drivers() if plugins.is_usable(driver)]
    return ControlReply(changes=changes, resources=resources, pods=pods, drivers=drivers)


def _decode_claim(manifest: Json) -> v1.ResourceClaim:
    """Decode a claim of any served version; `kind` and `apiVersion` are optional. Raises `NodeError`, DecodeError."""
    found = read_object({"apiVersion": v1.ResourceClaim.API_VERSION, "kind": v1.ResourceClaim.KIND} | manifest)
    if not isinstance(found, v1.ResourceClaim):
        raise NodeError(f"kind {found.KIND}, but only claims can be put in")
    return found


def _claimed(node: Node, pod: Pod, container: str) -> tuple[str, ...]:
    try:
        return node.claimed_devices(pod, container)
    except ClaimError:
        return ()  # not prepared yet, or not any more


async def ask(directory: Path, request: Request) -> ControlReply:
    """Send a request to the kubelet that runs on `directory`. Raises `ControlError`."""
    path = directory / SOCKET_NAME
    try:
        reader, writer = await asyncio.open_unix_connection(path, limit=_MAX_MESSAGE)
    except OSError as error:
        raise ControlError(f"{path}: {error.strerror or error}; is `nodeplug kubelet run` running there?") from error
    try:
        writer.write(msgspec.json.encode(request) + b"\n")
        await writer.drain()
        answer = msgspec.json.decode(await reader.readline(), type=ControlReply)
    except (OSError, msgspec.DecodeError) as error:
        raise ControlError(f"{path}: the kubelet stopped before it answered") from error
    except ValueError as error:
        raise ControlError(f"{path}: the answer has more than {_MAX_MESSAGE} bytes") from error
    finally:
        writer.close()
    if answer.error:
        raise ControlError(answer.error)
    return answer
