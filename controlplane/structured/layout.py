"""The devices that a node can use, numbered.

A position is a device's number in the order of the search. A set of devices is an integer with one bit per position:
the first candidate is the lowest bit of a few combined sets. A layout depends on slices and node only, never on claims
or allocations. The selector results that it caches serve every later search.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from controlplane.structured.capacity import Amounts, CapacityError, consumption
from controlplane.structured.counters import Draw
from controlplane.structured.identity import DeviceID
from controlplane.structured.node_selector import NodeSelectorError
from controlplane.structured.pools import Pool, device_reaches_node
from controlplane.structured.records import SelectorOutcomes, SliceRecord
from controlplane.structured.selectors import Selector, SelectorError
from resourceapi.objects.core import Node
from resourceapi.objects.v1 import Device, DeviceAttribute, DeviceTaint

_MAX_REMEMBERED = 256


class Fault(Exception):
    """A device on which a request cannot be decided. `selector` is the index of the selector that failed, or None."""

    def __init__(self, cause: Exception, selector: int | None = None) -> None:
        super().__init__(cause)
        self.cause = cause
        self.selector = selector


class Attribute:
    """The values of one attribute. Each distinct value has a number; a list has several."""

    __slots__ = ("present", "valued", "values", "with_value")

    def __init__(self, values: Mapping[int, tuple[int, ...]], *, is_list: bool) -> None:
        self.values = values
        self.valued = 0
        everything = 0
        self.with_value: dict[int, int] = {}
        for position, numbers in values.items():
            bit = 1 << position
            everything |= bit
            if numbers:
                self.valued |= bit
            for number in numbers:
                self.with_value[number] = self.with_value.get(number, 0) | bit
        self.present = self.valued if is_list else everything


class Layout:
    """Pools in order, with their usable devices."""

    def __init__(self, pools: Sequence[Pool], node: Node) -> None:
        self.pools = tuple(pools)
        self.spans: list[tuple[Pool, int, int]] = []
        self._starts: list[int] = []
        self._records: list[SliceRecord] = []
        size = 0
        for pool in pools:
            start = size
            if not pool.is_incomplete and not pool.is_invalid:
                for record in pool.device_records:
                    if record.devices:
                        self._starts.append(size)
                        self._records.append(record)
                        size += len(record.devices)
            self.spans.append((pool, start, size))
        self.size = size
        self._per_node: dict[int, Exception | None] = {}
        for start, record in self.records():
            if record.selects_per_device:
                self._select_devices(start, record, node)
        self.node_dependent = sum(1 << position for position in self._per_node)
        self._suitability: dict[tuple[object, ...], Suitability] = {}
        self._attributes: dict[tuple[str, bool], Attribute] = {}

    @property
    def is_any_invalid(self) -> bool:
        """Whether the node sees an invalid pool."""
        return any(pool.is_invalid for pool in self.pools)

    def records(self) -> Iterator[tuple[int, SliceRecord]]:
        """The slices, each with the position of its first device."""
        return zip(self._starts, self._records, strict=True)

    def locate(self, position: int) -> tuple[SliceRecord, int]:
        """The slice of a device, and the device's index in it."""
        index = bisect_right(self._starts, position) - 1
        return self._records[index], position - self._starts[index]

    def device(self, position: int) -> Device:
        """The device at a position."""
        record, index = self.locate(position)
        return record.devices[index]

    def device_id(self, position: int) -> DeviceID:
        """The identity of the device at a position."""
        record, index = self.locate(position)
        return record.device_id(index)

    @cached_property
    def pool_numbers(self) -> list[int]:
        """The index in `spans` of each position's pool."""
        return [number for number, (_, start, end) in enumerate(self.spans) for _ in range(start, end)]

    @cached_property
    def shareable(self) -> int:
        """The devices that can be allocated more than once."""
        return sum(record.shareable << start for start, record in self.records())

    @cached_property
    def tainted(self) -> list[tuple[tuple[DeviceTaint, ...], int]]:
        """Each distinct list of taints, with the set of devices that have it."""
        groups: dict[object, tuple[tuple[DeviceTaint, ...], int]] = {}
        for start, record in self.records():
            for index in record.tainted:
                taints = record.devices[index].taints
                key = tuple([(taint.key, taint.value, taint.effect) for taint in taints])
                groups[key] = (taints, groups.get(key, (taints, 0))[1] | 1 << start + index)
        return list(groups.values())

    @cached_property
    def with_conditions(self) -> int:
        """The devices with binding conditions."""
        return sum(record.with_conditions << start for start, record in self.records())

    @cached_property
    def fits_default_request(self) -> int:
        """The devices that suit a request that names no capacity."""
        return sum(record.fits_default_request << start for start, record in self.records())

    @cached_property
    def with_counters(self) -> int:
        """The devices that draw on counters."""
        return sum(record.with_counters << start for start, record in self.records())

    @cached_property
    def with_skipped_operations(self) -> int:
        """The devices of slices with `skipNodeOperations`."""
        skipping = [(start, record) for start, record in self.records() if record.skips_operations]
        return sum(((1 << len(record.devices)) - 1) << start for start, record in skipping)

    @cached_property
    def draws(self) -> dict[int, Draw]:
        """What each device that draws on counters draws."""
        return {start + index: draw for start, record in self.records() for index, draw in record.draws.items()}

    def positions_of(self, devices: frozenset[DeviceID] | Mapping[DeviceID, object]) -> dict[int, DeviceID]:
        """The positions of those of these devices that the node can use."""
        if not devices:
            return {}
        if len(devices) < self.size:
            return {position: device for device in devices if (position := self._position(device)) is not None}
        return {
            start + index: id_
            for start, record in self.records()
            for index in range(len(record.devices))
            if (id_ := record.device_id(index)) in devices
        }

    def attribute(self, name: str, *, is_list: bool) -> Attribute:
        """The values of an attribute by its full name; with `is_list`, lists are sets of values."""
        known = self._attributes.get((name, is_list))
        if known is None:
            known = Attribute(self._values(name, is_list=is_list), is_list=is_list)
            self._attributes[name, is_list] = known
        return known

    def suitability(
        self,
        selectors: tuple[Selector, ...],
        capacity: tuple[tuple[str, str], ...] | None,
        requests: Amounts,
        *,
        with_conditions: bool,
    ) -> "Suitability":
        """Return the devices that suit the selectors and, unless `capacity` is None, the requested amounts."""
        key = (tuple([selector.key for selector in selectors]), capacity, with_conditions)
        known = self._suitability.get(key)
        if known is None:
            while len(self._suitability) >= _MAX_REMEMBERED:
                del self._suitability[next(iter(self._suitability))]
            known = Suitability(self, selectors, None if capacity is None else requests, with_conditions)
            self._suitability[key] = known
        return known

    def check_node(self, position: int) -> bool:
        """Return whether a device with its own node selection is for this node. Raises NodeSelectorError."""
        if position not in self._per_node:
            return True
        fault = self._per_node[position]
        if fault is not None:
            raise fault
        return False

    @cached_property
    def _by_pool(self) -> dict[tuple[str, str], list[tuple[int, SliceRecord]]]:
        grouped: dict[tuple[str, str], list[tuple[int, SliceRecord]]] = {}
        for start, record in self.records():
            grouped.setdefault(record.pool, []).append((start, record))
        return grouped

    def _position(self, device: DeviceID) -> int | None:
        for start, record in self._by_pool.get(device[:2], ()):
            index = record.names.get(device.device)
            if index is not None:
                return start + index
        return None

    def _select_devices(self, start: int, record: SliceRecord, node: Node) -> None:
        for index in range(len(record.devices)):
            try:
                if not device_reaches_node(record, index, node):
                    self._per_node[start + index] = None
            except NodeSelectorError as error:
                self._per_node[start + index] = error

    def _values(self, name: str, *, is_list: bool) -> dict[int, tuple[int, ...]]:
        domain, _, bare = name.rpartition("/")
        numbers: dict[tuple[str, object], int] = {}
        values = {}
        for start, record in self.records():
            own = bare if domain == record.pool.driver else None
            for index, device in enumerate(record.devices):
                attribute = device.attributes.get(name)
                if attribute is None and own is not None:
                    attribute = device.attributes.get(own)
                if attribute is not None:
                    values[start + index] = tuple(
                        numbers.setdefault(value, len(numbers)) for value in _typed_values(attribute, is_list)
                    )
        return values


class Suitability:
    """Results of some selectors and requested amounts on every device, evaluated on demand."""

    __slots__ = ("_layout", "_requests", "_selectors", "decided", "failed", "faults", "true")

    def __init__(
        self, layout: Layout, selectors: tuple[Selector, ...], requests: Amounts | None, with_conditions: bool
    ) -> None:
        self._layout = layout
        self._selectors = selectors
        self._requests = requests
        self.faults: dict[int, Fault] = {}
        self.failed = 0
        excluded = 0 if with_conditions else layout.with_conditions
        self.decided = excluded
        self.true = 0
        sure = (1 << layout.size) - 1 if requests is None else (0 if requests else layout.fits_default_request)
        for start, record in layout.records():
            yes, no = _combine([record.outcomes(selector.key) for selector in selectors], len(record.devices))
            self.true |= yes << start
            self.decided |= no << start
        self.true &= sure & ~self.decided & ~layout.node_dependent
        self.decided |= self.true

    def evaluate(self, position: int) -> bool:
        """Decide one device. Raises Fault."""
        bit = 1 << position
        if not self.decided & bit:
            try:
                if self._decide(position):
                    self.true |= bit
            except Fault as fault:
                self.faults[position] = fault
                self.failed |= bit
            self.decided |= bit
        if self.failed & bit:
            raise self.faults[position].with_traceback(None)
        return bool(self.true & bit)

    def evaluate_all(self, check: Callable[[], None] | None) -> None:
        """Decide every device. Faults are stored, not raised; an exception of `check` stops the evaluation."""
        unknown = ~self.decided & ((1 << self._layout.size) - 1)
        while unknown:
            low = unknown & -unknown
            unknown ^= low
            if check is not None:
                check()
            try:
                self.evaluate(low.bit_length() - 1)
            except Fault:
                continue

    def _decide(self, position: int) -> bool:
        record, index = self._layout.locate(position)
        for number, selector in enumerate(self._selectors):
            try:
                if not record.evaluate(selector, index):
                    return False
            except SelectorError as error:
                raise Fault(error, number) from None
        try:
            if not self._layout.check_node(position):
                return False
            return self._requests is None or consumption(record.devices[index].capacity, self._requests) is not None
        except (NodeSelectorError, CapacityError) as error:
            raise Fault(error) from None


def _combine(by_selector: list[SelectorOutcomes], size: int) -> tuple[int, int]:
    """The devices that pass all selectors, and those that a selector rejects before any selector fails."""
    alive, no = (1 << size) - 1, 0
    for outcomes in by_selector:
        no |= alive & outcomes.decided & ~outcomes.true & ~outcomes.failed
        alive &= outcomes.true
    return alive, no


def _typed_values(attribute: DeviceAttribute, is_list: bool) -> list[tuple[str, object]]:
    """The values with their types: 1 and true are different, and so are a string and a version of the same text."""
    if is_list:
        for kind, values in (
            ("int", attribute.int_values),
            ("bool", attribute.bool_values),
            ("string", attribute.string_values),
            ("version", attribute.version_values),
        ):
            if values is not None:
                return [(kind, value) for value in dict.fromkeys(values)]
    for kind, value in (
        ("int", attribute.int_value),
        ("bool", attribute.bool_value),
        ("string", attribute.string_value),
        ("version", attribute.version_value),
    ):
        if value is not None:
            return [(kind, value)]
    return []
