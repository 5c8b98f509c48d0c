"""What other claims hold already, as sets of positions of one layout."""

from collections.abc import Iterator

from controlplane.structured.capacity import Amounts
from controlplane.structured.counters import Counters, Draw
from controlplane.structured.features import Features
from controlplane.structured.identity import DeviceID
from controlplane.structured.layout import Layout
from controlplane.structured.pools import Pool
from controlplane.structured.state import AllocatedState


class Holdings:
    """The allocated state, in the positions of one layout."""

    __slots__ = ("_counters", "_shared_ids", "_state", "capacity", "exclusive", "shared")

    def __init__(self, state: AllocatedState, layout: Layout, features: Features) -> None:
        self._state = state
        self._counters: dict[Pool, Counters] = {}
        self._shared_ids = shared_ids = frozenset([share.device for share in state.allocated_shared_device_ids])
        self.exclusive = _bits(layout.positions_of(state.allocated_devices))
        self.capacity: dict[int, Amounts] = {}
        held = layout.positions_of(state.aggregated_capacity)
        if features.consumable_capacity:
            self.capacity = {position: state.aggregated_capacity[device] for position, device in held.items()}
        self.shared = _bits(held) | _bits(layout.positions_of(shared_ids))

    def draws(self, pool: Pool) -> Iterator[Draw]:
        """What allocated devices, on any node, draw on a pool's counters."""
        state = self._state
        if state.is_empty:
            return
        for name, draw in pool.draws():
            device = DeviceID(*pool.id, name)
            if device in state.allocated_devices or device in self._shared_ids or device in state.aggregated_capacity:
                yield draw

    def has_counters_for(self, pool: Pool, draw: Draw) -> bool:
        """Return whether the remainder of a pool's counters is enough for what a device draws."""
        counters = self._counters.get(pool)
        if counters is None:
            counters = self._counters[pool] = Counters(pool.counters, self.draws(pool))
        is_enough = counters.take(draw)
        if is_enough:
            counters.give_back(draw)
        return is_enough


def _bits(positions: dict[int, DeviceID]) -> int:
    bits = 0
    for position in positions:
        bits |= 1 << position
    return bits
