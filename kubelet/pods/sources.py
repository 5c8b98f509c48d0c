"""The sources of a kubelet's pods: manifests on the node, available at once, and the API server, when it answers.

Until every source has delivered, the kubelet's set of pods is incomplete: it frees no devices, ends no pods that are
missing in the sources, and pod resources lists only the known pods. This lasts while the API server is unavailable.
Source: the kubelet's `config` package; observed: 1.0 to 1.4 s after the start of a kubelet whose API server is there.
"""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from kubelet.errors import NodeError
from resourceapi.objects import to_dict
from resourceapi.objects.core import Pod

Source = Literal["file", "api"]


class PodSources:
    """The sources of one node. `hold` stays in effect over restarts of the kubelet."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        """`on_change` is called when a source that was unavailable can deliver."""
        self.api_server: Callable[[], Awaitable[None]] | None = None
        """Called when a kubelet starts; returns when the API server has delivered its pods. None: no need to wait."""
        self._on_change = on_change
        self._is_held = False
        self._is_late = False
        self._delivered: set[Source] = set()

    @property
    def is_held(self) -> bool:
        """Whether the API server is unavailable."""
        return self._is_held

    @property
    def all_ready(self) -> bool:
        """Whether all sources have delivered their pods to the running kubelet."""
        return self._delivered == {"file", "api"}

    def hold(self) -> None:
        """Make the API server unavailable: a running kubelet keeps its pods, a starting one gets none from it."""
        self._is_held = True

    def release(self) -> None:
        """Make the API server available again: it delivers all its pods at once."""
        self._is_held = False
        self._on_change()

    def begin(self, *, late: bool = False) -> None:
        """Reset at the start of a kubelet, which has no pods yet.

        A `late` API server delivers after `api_server_available`.
        """
        self._delivered.clear()
        self._is_late = late or self.api_server is not None

    async def api_server_available(self) -> None:
        """End the delay of the API server, and wait until it has delivered."""
        if self.api_server is not None:
            await self.api_server()
        self._is_late = False
        self._on_change()

    def deliverable_sources(self) -> frozenset[Source]:
        """Return the sources that can deliver their pods now."""
        return frozenset({"file"} if self._is_held or self._is_late else {"file", "api"})

    def mark_delivered(self, sources: frozenset[Source]) -> None:
        """Record that the kubelet has added all pods of these sources."""
        self._delivered |= sources


def static_pod(manifest: Pod, node_name: str) -> Pod:
    """Return the static pod for a manifest on a node, whatever node it names.

    Raises `NodeError` for one with claims, like the kubelet.
    """
    if manifest.spec.resource_claims:
        raise NodeError(f"static pod {manifest.metadata.name}: static pods may not use ResourceClaims")
    meta = manifest.metadata
    digest = hashlib.blake2b(msgspec.json.encode(to_dict(manifest)) + node_name.encode(), digest_size=16).hexdigest()
    named = msgspec.structs.replace(meta, name=f"{meta.name}-{node_name.lower()}", uid=meta.uid or digest)
    spec = msgspec.structs.replace(manifest.spec, node_name=node_name)
    return msgspec.structs.replace(manifest, metadata=named, spec=spec)
