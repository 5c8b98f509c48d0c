"""The stand-in kubelet's Node object on the API server: it registers the node, and keeps its status.

As a kubelet does, it reads the object every ten seconds: what others changed in the kubelet's fields becomes as the
kubelet reports it again, and what others added to the capacity becomes allocatable, too.
Source: the kubelet's `kubelet_node_status.go`; kubernetes.io "Advertise Extended Resources for a Node".
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from kubelet import Node
from nodeplug.commands.kubelet_node import NODE_ANNOTATIONS, is_reported, node_status, with_heartbeat
from resourceapi.client import Refused
from resourceapi.client.blocking import Client
from resourceapi.objects import format_time
from resourceapi.objects.names import is_extended_resource
from resourceapi.objects.release import RELEASES

Json = dict[str, Any]

_STRATEGIC = "application/strategic-merge-patch+json"
_PERIOD = 10.0  # seconds, a kubelet's default


class NodeSync:
    """Writes the node's status whenever it differs from that on the server."""

    def __init__(self, node: Node, client: Client) -> None:
        """`client` is closed by the caller."""
        self._node = node
        self._nodes = client.raw("v1", "nodes", namespaced=False)
        self._status: Json = {}  # as the server last returned it
        self._is_due = False
        self.is_registered = asyncio.Event()

    async def run(self, changed: Callable[[], None]) -> None:
        """Call `changed` until cancelled, each time that `sync` has to read the object again."""
        await self.is_registered.wait()
        while True:
            await self._node.clock.sleep(_PERIOD)
            if self._node.is_running:
                self._is_due = True
                changed()

    async def sync(self) -> None:
        """Write the status if it differs; register the node first if needed. Raises `ClientError`, `DecodeError`."""
        now = format_time(datetime.now(UTC))
        if self._is_due:
            await self._read()
        devices = self._node.capacity(), self._node.allocatable()
        reported = node_status(self._node.object, RELEASES[self._node.release.version], *devices, self._status, now)
        if is_reported(reported, self._status):
            return
        if not self._status:
            await self._register()
        try:
            await self._write(with_heartbeat(reported, now))
        except Refused as refusal:
            if not refusal.is_missing:
                raise
            await self._register()
            await self._write(with_heartbeat(reported, now))
        self.is_registered.set()

    async def _read(self) -> None:
        try:
            found = await asyncio.to_thread(self._nodes.get, self._node.node_name)
        except Refused as refusal:
            if not refusal.is_missing:  # a kubelet does not register a deleted node again
                raise
        else:
            self._status = found["status"]
        self._is_due = False

    async def _write(self, status: Json) -> None:
        written = await asyncio.to_thread(
            self._nodes.patch,
            self._node.node_name,
            {"status": status},
            content_type=_STRATEGIC,
            subresource="status",
        )
        self._status = written["status"]

    async def _register(self) -> None:
        """Create the node on the server; if it exists, set the labels and annotations of a kubelet on it.

        A kubelet without a checkpoint takes a node that exists for one that was reinstalled: its extended resources are
        zero until plugins register them.
        """
        name = self._node.node_name
        metadata = {"labels": dict(self._node.object.labels), "annotations": NODE_ANNOTATIONS}
        made = {"apiVersion": "v1", "kind": "Node", "metadata": metadata | {"name": name}, "spec": {}}
        try:
            await asyncio.to_thread(self._nodes.create, made)
        except Refused as refusal:
            if refusal.reason not in ("AlreadyExists", "Forbidden"):  # it can exist all the same
                raise
            try:
                found = await asyncio.to_thread(self._nodes.patch, name, {"metadata": metadata})
            except Refused as other:
                raise refusal if other.is_missing else other from None
            zeros = {key: "0" for key in found["status"].get("capacity", ()) if is_extended_resource(key)}
            if zeros and not self._node.has_checkpoint:
                await self._write({"capacity": zeros, "allocatable": zeros})
