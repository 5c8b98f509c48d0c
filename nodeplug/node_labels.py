"""The labels of the daemon's own node, for resources with `nodeSelector`: read from the API server, and stored.

    start -> the stored labels (`node-labels.json`) -> the Node object, every five minutes -> the file is read again

Rules:
1. No answer is no evidence. While the labels of the node are unknown, resources that depend on them are not offered,
   nor are later ones in the file: these could get devices of an earlier one.
2. Known labels stay until the API server reports others: while it is away, over restarts, and while there is no such
   node, or no right to read it.
3. A removed or changed label is a fact: the node then has another configuration, as if its file had changed.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

import cdi
from nodeplug.records import InvalidRecord, read_record
from resourceapi.client import AsyncClient, ClientError
from resourceapi.objects import DecodeError

INTERVAL: Final = 300.0  # seconds between two readings; each node adds up to a fifth, so that not all ask at once
RETRY: Final = 15.0
_FILE = "node-labels.json"
_FAILURES = (ClientError, DecodeError)
log = logging.getLogger("nodeplug")


class _Remembered(Struct):
    node: str
    labels: dict[str, str]


def remembered(state: Path, node: str) -> Mapping[str, str] | None:
    """Return the labels that `node` had at the last reading; None if there was none, or its record cannot be read."""
    try:
        known = read_record(state / _FILE, _Remembered)
    except (OSError, InvalidRecord):
        return None
    return known.labels if known.node == node else None


class NodeLabels:
    """Reads them while `run` runs, and calls `changed` with them whenever they differ from those `known`.

    `failed` is called with the reason when they cannot be read. Belongs to the event loop; `run` closes the client.
    """

    def __init__(
        self,
        client: AsyncClient,
        node: str,
        state: Path,
        known: Mapping[str, str] | None,
        changed: Callable[[Mapping[str, str]], None],
        failed: Callable[[str], None],
        *,
        interval: float = INTERVAL,
    ) -> None:
        """Prepare to read the labels of `node` every `interval` seconds, and to record them in the folder `state`."""
        self._client = client
        self._nodes = client.raw("v1", "nodes", namespaced=False)
        self._node = node
        self._state = state
        self._known = known
        self._changed = changed
        self._failed = failed
        self._interval = interval
        self._problem = ""
        self._is_remembered = True  # whether `known` is recorded on disk; other labels are recorded when they are read

    async def run(self) -> None:
        """Read them repeatedly until cancelled. Handles all errors of the API server."""
        try:
            while True:
                seconds = self._interval if await self._read() else RETRY
                await asyncio.sleep(seconds * random.uniform(1.0, 1.2))  # noqa: S311 - jitter, no secret
        finally:
            self._client.close()

    async def _read(self) -> bool:
        try:
            labels = _labels(await self._nodes.get(self._node))
        except _FAILURES as error:
            why = f"the labels of node {self._node} cannot be read: {error}"
            if why != self._problem:
                effect = "no labels are known" if self._known is None else "they stay as they were"
                log.warning("%s; %s", why, effect, extra={"is_current": lambda: self._problem == why})
            self._problem = why
            self._failed(why)
            return False
        self._problem = ""
        is_new, self._known = labels != self._known, labels
        if is_new or not self._is_remembered:
            self._is_remembered = await self._remember(labels)
        if is_new:
            self._changed(labels)
        return True

    async def _remember(self, labels: Mapping[str, str]) -> bool:
        """Record labels for the next start; return whether that succeeded. If not, it is tried again."""
        try:
            await asyncio.to_thread(self._write, labels)
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread is available
            if self._is_remembered:
                extra = {"is_current": lambda: not self._is_remembered}
                log.warning("the labels of this node are not remembered for the next start: %s", error, extra=extra)
            return False
        return True

    def _write(self, labels: Mapping[str, str]) -> None:
        self._state.mkdir(0o700, parents=True, exist_ok=True)
        cdi.replace_file(self._state / _FILE, msgspec.json.encode(_Remembered(self._node, dict(labels))))


def _labels(node: Mapping[str, Any]) -> dict[str, str]:
    try:
        return msgspec.convert((node.get("metadata") or {}).get("labels") or {}, dict[str, str])
    except msgspec.ValidationError as error:
        raise DecodeError(f"metadata.labels: {error}") from None
