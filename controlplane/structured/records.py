"""The contents of one ResourceSlice, read once.

The devices of a slice are numbered; a set of them is an integer with one bit per device. The contents never change, but
the record caches results: the result of a selector on a device is kept for as long as the slice stays the same.
"""

from functools import cached_property

from controlplane.structured.capacity import CapacityError, consumption
from controlplane.structured.counters import Draw, draws_of
from controlplane.structured.identity import DeviceID, PoolID
from controlplane.structured.selectors import Selector, SelectorError
from resourceapi.objects.v1 import Device, ResourceSlice

_MAX_REMEMBERED = 256


class SelectorOutcomes:
    """The known results of one selector on the devices of one slice."""

    __slots__ = ("decided", "failures", "true")

    def __init__(self) -> None:
        self.decided = 0
        self.true = 0
        self.failures: dict[int, SelectorError] = {}

    @property
    def failed(self) -> int:
        """The devices on which the selector raised an error."""
        return sum(1 << index for index in self.failures)


class SliceRecord:
    """One slice and what is known about its devices."""

    def __init__(self, slice_: ResourceSlice) -> None:
        spec = slice_.spec
        self.slice = slice_
        self.name = slice_.metadata.name
        self.pool = PoolID(spec.driver, spec.pool.name)
        self.generation = spec.pool.generation
        self.slice_count = spec.pool.resource_slice_count
        self.node_name = spec.node_name or ""
        self.devices: tuple[Device, ...] = spec.devices
        self._outcomes: dict[str, SelectorOutcomes] = {}

    @cached_property
    def is_grouped(self) -> bool:
        """Whether a device has compatibility groups, an alpha feature that makes its slice unsupported."""
        return any(draw.compatibility_groups for device in self.devices for draw in device.consumes_counters)

    @cached_property
    def needs_partitioning(self) -> bool:
        """Whether the slice needs the feature of partitionable devices."""
        return self.slice.spec.per_device_node_selection is not None or self.has_counters

    @property
    def has_counters(self) -> bool:
        """Whether the slice publishes counters. Such a slice has no usable devices."""
        return bool(self.slice.spec.shared_counters)

    @property
    def skips_operations(self) -> bool:
        """Whether the slice has `skipNodeOperations`, an alpha feature that makes its devices unusable."""
        return bool(self.slice.spec.skip_node_operations)

    @property
    def selects_per_device(self) -> bool:
        """Whether each device has its own node selection."""
        return bool(self.slice.spec.per_device_node_selection)

    @cached_property
    def names(self) -> dict[str, int]:
        """The index of each device, by name."""
        return {device.name: index for index, device in enumerate(self.devices)}

    @cached_property
    def shareable(self) -> int:
        """The devices that can be allocated more than once."""
        return sum(1 << i for i, device in enumerate(self.devices) if device.allow_multiple_allocations)

    @cached_property
    def tainted(self) -> list[int]:
        """The indexes of the devices with taints."""
        return [index for index, device in enumerate(self.devices) if device.taints]

    @cached_property
    def with_conditions(self) -> int:
        """The devices with binding conditions."""
        return sum(1 << i for i, device in enumerate(self.devices) if device.binding_conditions)

    @cached_property
    def draws(self) -> dict[int, Draw]:
        """What each device that draws on counters draws, by index."""
        return {i: draws_of(device) for i, device in enumerate(self.devices) if device.consumes_counters}

    @cached_property
    def with_counters(self) -> int:
        """The devices that draw on counters."""
        return sum(1 << i for i in self.draws)

    @cached_property
    def fits_default_request(self) -> int:
        """The devices that suit a request that names no capacity."""
        return sum(1 << i for i, device in enumerate(self.devices) if not device.capacity or _is_plain(device))

    def device_id(self, index: int) -> DeviceID:
        """The identity of a device."""
        return DeviceID(*self.pool, self.devices[index].name)

    def outcomes(self, key: str) -> SelectorOutcomes:
        """Return the known results of a selector on this slice, to read and extend."""
        outcomes = self._outcomes.get(key)
        if outcomes is None:
            while len(self._outcomes) >= _MAX_REMEMBERED:
                del self._outcomes[next(iter(self._outcomes))]
            outcomes = self._outcomes[key] = SelectorOutcomes()
        return outcomes

    def evaluate(self, selector: Selector, index: int) -> bool:
        """Return the result of the selector on one device, and cache it. Raises what the evaluation raises."""
        outcomes = self.outcomes(selector.key)
        bit = 1 << index
        if not outcomes.decided & bit:
            try:
                if selector.matches(self.pool.driver, self.devices[index]):
                    outcomes.true |= bit
            except SelectorError as error:
                outcomes.failures[index] = error
            outcomes.decided |= bit
        if index in outcomes.failures:
            raise outcomes.failures[index].with_traceback(None)
        return bool(outcomes.true & bit)


def _is_plain(device: Device) -> bool:
    try:
        return consumption(device.capacity, {}) is not None
    except CapacityError:
        return False
