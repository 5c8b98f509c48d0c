"""Where a kubelet hears of its pods: manifests on the node, at once; the API server, when it answers.

Until every source has delivered, a kubelet does not know what it does not know: it frees no device, ends no pod that
nobody named, and pod resources lists the pods that it has heard of. With the API server away that lasts for ever.
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
    """The sources of one node. What is held stays held over restarts of the kubelet."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        """Nothing is held; `on_change` is called when a source that was silent can deliver."""
        self.api_server: Callable[[], Awaitable[None]] | None = None
        """Called when a kubelet starts, returns when the API server has named its pods; without, they are known."""
        self._on_change = on_change
        self._is_held = False
        self._is_late = False
        self._delivered: set[Source] = set()

    @property
    def is_held(self) -> bool:
        """True while the API server is away."""
        return self._is_held

    @property
    def all_ready(self) -> bool:
        """True when the kubelet that runs has been told of all pods."""
        return self._delivered == {"file", "api"}

    def hold(self) -> None:
        """Let the API server be away: a kubelet that runs keeps the pods it knows, one that starts hears of none."""
        self._is_held = True

    def release(self) -> None:
        """Let the API server be back: it delivers all its pods at once."""
        self._is_held = False
        self._on_change()

    def begin(self, *, late: bool = False) -> None:
        """A kubelet starts, and has heard of nothing. An API server that is `late` delivers after `arrive`."""
        self._delivered.clear()
        self._is_late = late or self.api_server is not None

    async def arrive(self) -> None:
        """The time has come that an API server needs; return when it has delivered."""
        if self.api_server is not None:
            await self.api_server()
        self._is_late = False
        self._on_change()

    def delivering(self) -> frozenset[Source]:
        """The sources that name their pods now."""
        return frozenset({"file"} if self._is_held or self._is_late else {"file", "api"})

    def delivered(self, sources: frozenset[Source]) -> None:
        """The kubelet has taken in all pods that these named when it began to, and only then knows them."""
        self._delivered |= sources


def static_pod(manifest: Pod, node_name: str) -> Pod:
    """The pod that a manifest on a node makes. Raises `NodeError` for one with claims, which a kubelet refuses."""
    if manifest.spec.resource_claims:
        raise NodeError(f"static pod {manifest.metadata.name}: static pods may not use ResourceClaims")
    meta = manifest.metadata
    digest = hashlib.blake2b(msgspec.json.encode(to_dict(manifest)) + node_name.encode(), digest_size=16).hexdigest()
    named = msgspec.structs.replace(meta, name=f"{meta.name}-{node_name.lower()}", uid=meta.uid or digest)
    return msgspec.structs.replace(manifest, metadata=named)
