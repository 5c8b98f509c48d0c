"""The stand-in kubelet's copy of its Node object on the API server, from which it decides whether pods fit.

Source: the kubelet's `nodeLister`. A kubelet gets no pods from the API server before it has listed its node.
"""

import asyncio
import logging
from collections.abc import Callable

from kubelet import Node
from resourceapi.client import ClientError, Event, Informer
from resourceapi.client.blocking import Client
from resourceapi.objects import DecodeError, core

log = logging.getLogger(__name__)


class NodeWatch:
    """Follows the Node object. Without one, the kubelet uses its own."""

    def __init__(self, node: Node, client: Client) -> None:
        """`client` is closed by the caller."""
        self.is_synced = False
        """Whether the server has answered once, even if it refused."""
        self._name = node.node_name
        self._client = client
        self._found: core.Node | None = None
        self._changed: Callable[[], None] = lambda: None
        node.object.api_server = self._read

    async def run(self, changed: Callable[[], None]) -> None:
        """Follow until cancelled; call `changed` when `is_synced` becomes true."""
        self._changed = changed
        selector = f"metadata.name={self._name}"
        nodes = self._client.aio.resource(core.Node)
        await Informer(nodes, self._on_event, self._failed, field_selector=selector).run()

    async def _read(self, again: bool) -> core.Node | None:
        if again:
            try:
                self._found = await asyncio.to_thread(self._client.resource(core.Node).get, self._name)
            except (ClientError, DecodeError) as error:
                log.info("cannot read node %s again: %s", self._name, error)
        return self._found

    def _on_event(self, event: Event[core.Node]) -> None:
        if event.type == "LISTED":
            self._found = next(iter(event.items), None)
        else:
            self._found = None if event.type == "DELETED" else event.object
        self._set_synced()

    def _failed(self, error: ClientError | DecodeError) -> None:
        log.warning("cannot follow node %s: %s", self._name, error)
        if isinstance(error, DecodeError) or not error.is_transient:  # otherwise it answers later
            self._set_synced()

    def _set_synced(self) -> None:
        if not self.is_synced:
            self.is_synced = True
            self._changed()
