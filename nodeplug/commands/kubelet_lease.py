"""The lease with which a node proves that it is alive: without it, a cluster evicts the node's pods after a while.

Source: kubernetes.io "Leases", "Nodes": `kube-node-lease`, every ten seconds, forty until the node counts as away.
"""

import logging
from datetime import UTC, datetime
from typing import Any

from kubelet import Node
from resourceapi.client import ClientError, Refused
from resourceapi.client.blocking import Client
from resourceapi.objects import DecodeError

NAMESPACE = "kube-node-lease"
_PERIOD = 10.0  # seconds
_DURATION = 40

log = logging.getLogger(__name__)
Json = dict[str, Any]


class NodeLease:
    """Renews the lease of a node that the server has, while its kubelet runs."""

    def __init__(self, node: Node, client: Client) -> None:
        """`client` is closed by the caller."""
        self._node = node
        self._leases = client.aio.raw("coordination.k8s.io/v1", "leases", namespaced=True)
        self._nodes = client.aio.raw("v1", "nodes", namespaced=False)

    async def run(self) -> None:
        """Renew it until cancelled; a failure is retried when the next renewal is due."""
        while True:
            if self._node.is_running:
                try:
                    await self._renew()
                except (ClientError, DecodeError) as error:
                    text = "lease %s/%s cannot be renewed, without which the cluster considers the node lost: %s"
                    log.warning(text, NAMESPACE, self._node.node_name, error)
            await self._node.clock.sleep(_PERIOD)

    async def _renew(self) -> None:
        name = self._node.node_name
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec: Json = {"holderIdentity": name, "leaseDurationSeconds": _DURATION, "renewTime": now}
        try:
            await self._leases.patch(name, {"spec": spec}, NAMESPACE)
        except Refused as refusal:
            if not refusal.is_missing:
                raise
            await self._leases.create(await self._new(spec))

    async def _new(self, spec: Json) -> Json:
        """Return a lease that is deleted with its node."""
        name = self._node.node_name
        uid = (await self._nodes.get(name))["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
        metadata = {"name": name, "namespace": NAMESPACE, "ownerReferences": [owner]}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
