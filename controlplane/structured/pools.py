"""Pools as one node sees them.

Rules, in this order:
- a slice concerns a node by its node name; without one, if it is for all nodes; then by its node selector; then by the
  node selection of one of its devices;
- of the slices of a pool that concern the node, those of the highest generation are used;
- a pool is complete if all slices of that generation exist, for any node, and are supported. If the pool is incomplete
  and has a newer generation, for another node or unsupported, it does not exist for this node;
- a complete pool is invalid if device or counter set names repeat, or if a device draws on a counter that does not
  exist;
- slices are ordered by name, pools by driver and name; usable pools that have devices with binding conditions come
  last.

Nothing is allocated from incomplete or invalid pools.
"""

from collections.abc import Iterable, Sequence

from controlplane.structured.counters import CounterName, Draw, declared
from controlplane.structured.errors import AllocationError
from controlplane.structured.features import Features
from controlplane.structured.identity import PoolID
from controlplane.structured.node_selector import NodeSelectorError, is_for_node
from controlplane.structured.records import SliceRecord
from resourceapi.objects.core import Node
from resourceapi.objects.v1 import ResourceSlice


class Pool:
    """One pool: the slices that concern the node, and those that matter for completeness and counters only."""

    def __init__(
        self,
        records: Sequence[SliceRecord],
        others: Sequence[SliceRecord] = (),
        *,
        is_incomplete: bool = False,
        with_counters: bool = True,
    ) -> None:
        self.id = records[0].pool
        self.is_incomplete = is_incomplete
        self.records = tuple(sorted(records, key=_slice_name))
        self.others = tuple(others)
        self.device_records = () if is_incomplete else tuple(r for r in self.records if not r.has_counters)
        self.counters: dict[CounterName, int] = {}
        self.invalid = "" if is_incomplete else self._fault(with_counters)
        self.is_conditional = not self.invalid and any(record.with_conditions for record in self.device_records)

    def __repr__(self) -> str:
        return f"Pool({self.id}, incomplete={self.is_incomplete}, invalid={self.invalid!r})"

    @property
    def slices(self) -> tuple[ResourceSlice, ...]:
        """The slices that concern the node, ordered by name."""
        return tuple(record.slice for record in self.records)

    @property
    def is_invalid(self) -> bool:
        """Whether the pool breaks a rule; `invalid` is the reason."""
        return bool(self.invalid)

    def draws(self) -> Iterable[tuple[str, Draw]]:
        """The names of all devices that draw on the pool's counters, for any node, with what they draw."""
        for record in self._all_device_records():
            for index, draw in record.draws.items():
                yield record.devices[index].name, draw

    def _all_device_records(self) -> tuple[SliceRecord, ...]:
        return (*self.device_records, *(record for record in self.others if not record.has_counters))

    def _fault(self, with_counters: bool) -> str:
        names: set[str] = set()
        for record in self.device_records:
            for name in (device.name for device in record.devices):
                if name in names:
                    return f"duplicate device name {name}"
                names.add(name)
        return self._counter_fault() if with_counters else ""

    def _counter_fault(self) -> str:
        sets: set[str] = set()
        for record in (*self.records, *self.others):
            for name in (counter_set.name for counter_set in record.slice.spec.shared_counters):
                if name in sets:
                    return f"duplicate counter set name {name}"
                sets.add(name)
            self.counters |= declared(record.slice.spec.shared_counters)
        for record in self._all_device_records():
            for index in record.draws:
                for part in record.devices[index].consumes_counters:
                    if part.counter_set not in sets:
                        return f"counter set {part.counter_set} not found"
                    for counter in part.counters:
                        if CounterName(part.counter_set, counter) not in self.counters:
                            return f"counter {counter} not found in counter set {part.counter_set}"
        return ""


def reaches_node(record: SliceRecord, node: Node) -> bool:
    """Return whether a slice has devices for the node. Raises NodeSelectorError."""
    spec = record.slice.spec
    if record.node_name or spec.all_nodes or spec.node_selector is not None:
        try:
            return is_for_node(node, spec.node_name, spec.all_nodes, spec.node_selector)
        except NodeSelectorError as error:
            raise NodeSelectorError(f"failed to perform node selection for slice {record.name}: {error}") from None
    if not record.selects_per_device:
        return False
    for index, device in enumerate(record.devices):
        try:
            if device_reaches_node(record, index, node):
                return True
        except NodeSelectorError as error:
            raise NodeSelectorError(
                f"failed to perform node selection for device {device.name} in slice {record.name}: {error}"
            ) from None
    return False


def device_reaches_node(record: SliceRecord, index: int, node: Node) -> bool:
    """Return whether one device of a slice with selection per device is for the node. Raises NodeSelectorError."""
    device = record.devices[index]
    return is_for_node(node, device.node_name, device.all_nodes, device.node_selector)


def assemble(
    candidates: Iterable[SliceRecord],
    by_pool: dict[PoolID, list[SliceRecord]],
    node: Node,
    features: Features,
) -> list[Pool]:
    """Return the pools of a node, in order.

    `candidates` are the slices that might concern the node; `by_pool` has all slices. Raises AllocationError for node
    selectors that cannot be parsed.
    """
    kept: dict[PoolID, list[SliceRecord]] = {}
    for record in candidates:
        if record.is_grouped or (record.needs_partitioning and not features.partitionable_devices):
            continue
        try:
            if not reaches_node(record, node):
                continue
        except NodeSelectorError as error:
            raise AllocationError(f"gather pool information: {error}") from error
        so_far = kept.get(record.pool)
        if so_far is None or record.generation > so_far[0].generation:
            kept[record.pool] = [record]
        elif record.generation == so_far[0].generation:
            so_far.append(record)
    pools = [_complete(records, by_pool[id_], features.partitionable_devices) for id_, records in kept.items()]
    return sorted((pool for pool in pools if pool is not None), key=lambda pool: (pool.is_conditional, pool.id))


def _complete(records: list[SliceRecord], all_records: Iterable[SliceRecord], with_counters: bool) -> Pool | None:
    """The pool of these slices; None if another node's slices have a newer generation of it."""
    generation, wanted = records[0].generation, records[0].slice_count
    if len(records) == wanted:
        return Pool(records, with_counters=with_counters)
    known = list(all_records)
    if any(record.generation > generation for record in known):
        return None
    current = [record for record in known if record.generation == generation and not record.is_grouped]
    mine = {record.name for record in records}  # upstream identifies slices by name
    others = [record for record in current if record.name not in mine]
    return Pool(records, others, is_incomplete=len(current) != wanted, with_counters=with_counters)


def _slice_name(record: SliceRecord) -> str:
    return record.name
