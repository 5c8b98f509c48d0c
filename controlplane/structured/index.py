"""What is known about the cluster's slices, shared by successive allocators.

Rule: knowledge is kept as long as a slice stays equal. A changed slice invalidates only the nodes that see it or its
pool. One index serves one cluster.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from operator import is_

from controlplane.structured.features import Features
from controlplane.structured.identity import PoolID
from controlplane.structured.layout import Layout
from controlplane.structured.pools import assemble
from controlplane.structured.records import SliceRecord
from controlplane.structured.selectors import Selectors
from resourceapi.objects.core import Node
from resourceapi.objects.v1 import ResourceSlice

_MAX_POSITIONS = 2_000_000
"""When the layouts together have more devices than this, the oldest layouts are dropped."""


class SliceIndex:
    """Slices by node and pool, and the layouts of nodes."""

    def __init__(self) -> None:
        # Several threads can call `allocate`, as in upstream. Searches write their results here, so they take turns.
        self.lock = threading.Lock()
        self.selectors = Selectors()
        self._slices: Sequence[ResourceSlice] = ()
        self._records: dict[str, list[SliceRecord]] = {}
        self._by_node: dict[str, list[SliceRecord]] = {}
        self._by_pool: dict[PoolID, list[SliceRecord]] = {}
        self._views: dict[tuple[str, bool], tuple[Mapping[str, str], Layout]] = {}
        self._positions = 0

    def update(self, slices: Sequence[ResourceSlice]) -> None:
        """Replace the slices by the current ones; unchanged slices keep what is known about them."""
        if slices is self._slices and isinstance(slices, tuple):
            return
        if len(slices) == len(self._slices) and all(map(is_, slices, self._slices)):
            return
        changed = self._replace(slices)
        if changed:
            self._forget(changed)
        self._slices = tuple(slices)

    def layout(self, node: Node, features: Features) -> Layout:
        """Return the devices that the node can use. Raises AllocationError for selectors that cannot be parsed."""
        key = (node.metadata.name, features.partitionable_devices)
        known = self._views.get(key)
        if known is not None and (known[0] is node.metadata.labels or known[0] == node.metadata.labels):
            return known[1]
        owners = dict.fromkeys((node.metadata.name, ""))
        candidates = [record for owner in owners for record in self._by_node.get(owner, ())]
        layout = Layout(assemble(candidates, self._by_pool, node, features), node)
        self._drop(key)
        self._positions += layout.size
        while self._positions > _MAX_POSITIONS and self._views:
            self._drop(next(iter(self._views)))
        self._views[key] = (node.metadata.labels, layout)
        return layout

    def _replace(self, slices: Iterable[ResourceSlice]) -> list[SliceRecord]:
        """Make records for the slices, reusing old ones if possible. Return those that were added or removed."""
        before, self._records = self._records, {}
        self._by_node, self._by_pool = {}, {}
        came = []
        for slice_ in slices:
            name = slice_.metadata.name
            old = before.get(name, [])
            record = next((r for r in old if r.slice is slice_ or r.slice == slice_), None)
            if record is None:
                record = SliceRecord(slice_)
                came.append(record)
            else:
                old.remove(record)
            self._records.setdefault(name, []).append(record)
            self._by_node.setdefault(record.node_name, []).append(record)
            self._by_pool.setdefault(record.pool, []).append(record)
        return came + [record for gone in before.values() for record in gone]

    def _forget(self, changed: Iterable[SliceRecord]) -> None:
        """Drop the layouts that a change can affect."""
        nodes = {record.node_name for record in changed}
        pools = {record.pool for record in changed}
        if "" in nodes:
            self._views.clear()
            self._positions = 0
            return
        for key, (_, layout) in list(self._views.items()):
            if key[0] in nodes or any(pool.id in pools for pool in layout.pools):
                self._drop(key)

    def _drop(self, key: tuple[str, bool]) -> None:
        view = self._views.pop(key, None)
        if view is not None:
            self._positions -= view[1].size
