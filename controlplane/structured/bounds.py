"""Looking ahead: whether the remaining requests can be served at all.

Each condition is necessary only, and ignores most of what the search has to respect:

- every request has enough devices that suit it, are free, and are accepted by the constraints in their current state;
- all requests together: there is a bipartite matching of places and devices, where a shared device counts for as many
  places as the smallest of the requests fits on it;
- a match constraint needs a value that enough devices have. A device is no candidate if it shares no value with any
  device that another request of the constraint could take. A distinct constraint needs enough values;
- the counters of the pools are enough for the devices that draw least on them: each counter for its pool's devices,
  and all counters of one name, such as the slices of every GPU, for all requests together;
- the remaining capacity of all shared devices, by name, is enough too.

The look-ahead ends before a request that might raise an error, because the search would find that error.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from controlplane.structured.capacity import billionths, consumption
from controlplane.structured.constraints import Match
from controlplane.structured.problem import Task
from controlplane.structured.search import Frame, Search


class Demand(NamedTuple):
    """The places that one request still has to fill, and the devices that could fill them."""

    claim: int
    devices: int
    places: int
    constraints: frozenset[int]  # indexes of the claim's constraints that bind every alternative
    amounts: Mapping[str, int]  # the least that it takes of each capacity of shared devices, in billionths


Drawn = Sequence[tuple[int, int]]
"""Draws on one counter: each amount with the set of devices that draw it, the smallest amount first."""


class Bounds:
    """The conditions for one search whose selectors have all been evaluated."""

    def __init__(self, search: Search, tasks: Iterable[Task]) -> None:
        self._search = search
        tasks = list(tasks)
        self._min_by_position = _min_amounts(search, tasks)
        self._min_by_task = {id(task): _min_amounts_of(task, search) for task in tasks}
        self._shareable = self._free_capacity()
        self._drawn = _drawn_by_pool(search)
        self._drawn_by_name = _drawn_by_name(search, self._drawn)

    def allow(self, frame: Frame) -> bool:
        """Return whether the decision that is about to be opened, and all later ones, could succeed."""
        demands = self._demands(frame)
        if demands is None:
            return False
        self._leave_out_unmatched(demands)
        return (
            self._constraints_allow(frame, demands)
            and self._counters_suffice(demands)
            and self._capacity_suffices(demands)
            and self._can_match(demands)
        )

    def _demands(self, frame: Frame) -> list[Demand] | None:
        """The remaining demands, up to the first request that could raise an error; None if one has too few devices."""
        task = frame.task
        assert task is not None
        demands = []
        if not task.admin_access:  # admin requests can share devices with others, which these bounds do not model
            places = task.count - frame.index
            amounts = self._min_taken([(task, places)])
            demands.append(Demand(frame.claim, frame.remaining, places, frozenset(task.constraints), amounts))
        for claim, tasks in self._tasks_after(frame):
            if any(can_raise(task) for task in tasks):
                break
            options = [(task, option) for task in tasks if (option := self._option(task, claim)) is not None]
            if not options:
                return None
            if any(task.admin_access for task in tasks):
                continue
            union = 0
            for _, (devices, _) in options:
                union |= devices
            bound = frozenset.intersection(*(frozenset(task.constraints) for task in tasks))
            least = min(places for _, (_, places) in options)
            amounts = self._min_taken([(task, places) for task, (_, places) in options])
            demands.append(Demand(claim, union, least, bound, amounts))
        return demands

    def _tasks_after(self, frame: Frame) -> Iterator[tuple[int, Sequence[Task]]]:
        """The alternatives of all requests after the current one."""
        first = frame.request + 1
        for claim in range(frame.claim, len(self._search.claims)):
            for request in self._search.claims[claim].requests[first:]:
                yield claim, request.tasks
            first = 0

    def _option(self, task: Task, claim: int) -> tuple[int, int] | None:
        """The devices that a task can still choose from, and how many it needs. None if there are too few."""
        search = self._search
        if task.positions is not None and not task.positions:
            return None
        devices = task.suitability.true & task.allowed & search.everything
        if not task.admin_access:
            devices &= ~(search.taken | search.holdings.exclusive)
        for number in task.constraints:
            devices &= search.constraints[claim][number].accepts
        return (devices, task.count) if devices.bit_count() >= task.count else None

    def _leave_out_unmatched(self, demands: list[Demand]) -> None:
        """Remove devices that share no value with any device that another demand of a match constraint could take."""
        bound_by: dict[tuple[int, int], list[int]] = {}
        for index, demand in enumerate(demands):
            if demand.places:
                for number in demand.constraints:
                    bound_by.setdefault((demand.claim, number), []).append(index)
        for (claim, number), bound in bound_by.items():
            constraint = self._search.constraints[claim][number]
            if len(bound) < 2 or not isinstance(constraint, Match):
                continue
            shared = 0
            for value, mask in constraint.attribute.with_value.items():
                if constraint.state is not None and value not in constraint.state:
                    continue
                if all(self._has_enough_devices(demands[index], mask) for index in bound):
                    shared |= mask
            for index in bound:
                demands[index] = demands[index]._replace(devices=demands[index].devices & shared)

    def _has_enough_devices(self, demand: Demand, devices: int) -> bool:
        least = 1 if demand.devices & self._search.shareable else demand.places
        return (demand.devices & devices).bit_count() >= least

    def _constraints_allow(self, frame: Frame, demands: Sequence[Demand]) -> bool:
        for number, constraint in enumerate(self._search.constraints[frame.claim]):
            bound = [demand for demand in demands if demand.claim == frame.claim and number in demand.constraints]
            places = sum(demand.places for demand in bound)
            devices = 0
            for demand in bound:
                devices |= demand.devices
            masks = [mask & devices for mask in constraint.attribute.with_value.values() if mask & devices]
            if not isinstance(constraint, Match):
                # The value of the first device can have an unknown type.
                if len(masks) + (constraint.state is None) < places:
                    return False
            elif (
                constraint.state is None
                and places > 1
                and not devices & self._search.shareable
                and not any(mask.bit_count() >= places for mask in masks)
            ):
                return False
        return True

    def _counters_suffice(self, demands: Iterable[Demand]) -> bool:
        """Return whether the counters are enough for each demand, and for it together with all earlier ones."""
        if not self._drawn:
            return True
        # only the first user of a shared device draws on counters
        paying = [demand for demand in demands if not demand.devices & self._search.shareable]
        devices = places = 0
        for demand in paying:
            devices |= demand.devices
            places += demand.places
            if self._max_drawing(demand.devices) < demand.places or self._max_drawing(devices) < places:
                return False
        return self._counter_sums_suffice(paying)

    def _counter_sums_suffice(self, demands: Iterable[Demand]) -> bool:
        """Return whether the remainder of all counters of each name covers the least that the demands draw on them."""
        left = dict.fromkeys(self._drawn_by_name, 0)
        for number in self._drawn:
            names = self._search.layout.spans[number][0].counters
            for name, amount in zip(names, self._search.counters_of(number).left(), strict=True):
                left[name.counter] += max(amount, 0)
        for demand in demands:
            for counter, drawn in self._drawn_by_name.items():
                left[counter] -= _min_draw(drawn, demand)
        return min(left.values(), default=0) >= 0

    def _max_drawing(self, devices: int) -> int:
        """The most devices of these for which the counters are enough."""
        most = 0
        for number, (members, drawn) in self._drawn.items():
            here = devices & members
            if here:
                devices ^= here
                left = self._search.counters_of(number).left()
                bounds = [_max_drawing_devices(each, here, amount) for each, amount in zip(drawn, left, strict=True)]
                most += min(bounds, default=here.bit_count())
        return most + devices.bit_count()

    def _capacity_suffices(self, demands: Iterable[Demand]) -> bool:
        """Return whether the remaining capacity of all shared devices covers the least that the demands take."""
        left = dict(self._shareable)
        for shares in self._search.sharing.values():
            for amounts in shares:
                for name, amount in amounts.items():
                    if name in left:
                        left[name] -= billionths(amount)
        for demand in demands:
            for name, least in demand.amounts.items():
                left[name] -= least
        return min(left.values(), default=0) >= 0

    def _min_taken(self, options: Sequence[tuple[Task, int]]) -> dict[str, int]:
        """The least that one of these tasks takes for its places, of each capacity that all of the tasks take."""
        names = set.intersection(*(set(self._min_by_task[id(task)]) for task, _ in options))
        return {name: min(self._min_by_task[id(task)][name] * places for task, places in options) for name in names}

    def _free_capacity(self) -> dict[str, int]:
        """The free amount of each capacity, by name, on all shared devices that a task could take before the search."""
        search = self._search
        free: dict[str, int] = {}
        for position in self._min_by_position:
            held = search.holdings.capacity.get(position, {})
            for name, capacity in search.layout.device(position).capacity.items():
                left = billionths(capacity.value) - (billionths(held[name]) if name in held else 0)
                free[name] = free.get(name, 0) + max(left, 0)
        return free

    def _can_match(self, demands: Sequence[Demand]) -> bool:
        search = self._search
        free = search.everything
        copies: dict[int, int] = {}
        wanted = []
        all_places = sum(demand.places for demand in demands)
        for _, devices, places, _, _ in demands:
            shared = devices & search.shareable
            mask: int | None = devices & ~search.shareable
            while shared and mask is not None:
                low = shared & -shared
                shared ^= low
                position = low.bit_length() - 1
                if position not in copies:
                    seats = self._max_shares(position)
                    # Seats on shared devices are bits above those of the devices.
                    # More seats than places make no difference, so their number is limited.
                    copies[position] = -1 if seats is None else ((1 << min(seats, all_places)) - 1) << free.bit_length()
                    free |= max(copies[position], 0)
                mask = None if copies[position] < 0 else mask | copies[position]
            if mask is not None:
                wanted.append((mask, places))
        return _has_matching(wanted, free)

    def _max_shares(self, position: int) -> int | None:
        """The number of places that the smallest request could use on a shared device; None if it has no limit."""
        search = self._search
        device = search.layout.device(position)
        held = [*search.sharing.get(position, ()), search.holdings.capacity.get(position, {})]
        seats = None
        for name, least in self._min_by_position.get(position, {}).items():
            if least > 0:
                used = sum([billionths(amounts[name]) for amounts in held if name in amounts])
                left = max(0, billionths(device.capacity[name].value) - used) // least
                seats = left if seats is None else min(seats, left)
        return seats


def _drawn_by_pool(search: Search) -> dict[int, tuple[int, list[Drawn]]]:
    """For each pool: the set of devices that draw on counters, and for each counter the draws on it."""
    drawn: dict[int, tuple[int, list[Drawn]]] = {}
    if not search.with_counters:
        return drawn
    for number, (pool, start, end) in enumerate(search.layout.spans):
        draws = {
            position: draw for position in range(start, end) if (draw := search.layout.draws.get(position)) is not None
        }
        # A negative draw gives something back, so that the remainder is no bound.
        if draws and all(amount >= 0 for draw in draws.values() for amount in draw.values()):
            members = sum(1 << position for position in draws)
            by_counter = [
                _grouped((draw.get(name, 0), position) for position, draw in draws.items()) for name in pool.counters
            ]
            drawn[number] = (members, by_counter)
    return drawn


def _drawn_by_name(search: Search, pools: Iterable[int]) -> dict[str, Drawn]:
    """The draws of these pools' devices on all counters of each name together."""
    amounts: dict[str, dict[int, int]] = {}
    for number in pools:
        pool, start, end = search.layout.spans[number]
        for name in pool.counters:
            amounts.setdefault(name.counter, {})
        for position in range(start, end):
            for name, amount in search.layout.draws.get(position, {}).items():
                by_position = amounts[name.counter]
                by_position[position] = by_position.get(position, 0) + amount
    return {
        counter: _grouped((amount, position) for position, amount in by_position.items() if amount)
        for counter, by_position in amounts.items()
    }


def _grouped(draws: Iterable[tuple[int, int]]) -> Drawn:
    groups: dict[int, int] = {}
    for amount, position in draws:
        groups[amount] = groups.get(amount, 0) | 1 << position
    return sorted(groups.items())


def _max_drawing_devices(drawn: Drawn, devices: int, left: int) -> int:
    """How many of the devices can draw before the counter is used up, the smallest draws first."""
    if left < 0:
        return 0
    number = 0
    for amount, group in drawn:
        wanting = (devices & group).bit_count()
        able = min(wanting, left // amount) if amount else wanting
        number += able
        left -= able * amount
        if able < wanting:
            break
    return number


def _min_draw(drawn: Drawn, demand: Demand) -> int:
    """The least that the devices of a demand draw together."""
    total = 0
    devices, places = demand.devices, demand.places
    for _, group in drawn:
        devices &= ~group
    places -= devices.bit_count()  # these draw nothing
    for amount, group in drawn:
        if places <= 0:
            break
        number = min(places, (demand.devices & group).bit_count())
        total += number * amount
        places -= number
    return total


def can_raise(task: Task) -> bool:
    """Return whether the search could raise an error at this task."""
    return bool(task.suitability.failed) or (task.positions is not None and bool(task.constraints))


def _min_amounts(search: Search, tasks: Iterable[Task]) -> dict[int, dict[str, int]]:
    """For each shared device, the least that any task takes of each of its capacities, in billionths."""
    least: dict[int, dict[str, int]] = {}
    for task in tasks:
        shared = task.suitability.true & search.shareable
        while shared:
            low = shared & -shared
            shared ^= low
            position = low.bit_length() - 1
            amounts = consumption(search.layout.device(position).capacity, task.choice.capacity_requests) or {}
            known = least.setdefault(position, {})
            for name, amount in amounts.items():
                known[name] = min(known.get(name, billionths(amount)), billionths(amount))
    return least


def _min_amounts_of(task: Task, search: Search) -> dict[str, int]:
    """The least that a task takes of each capacity, in billionths; empty if it can take devices that are not shared."""
    devices = task.suitability.true
    if devices & ~search.shareable:
        return {}
    least: dict[str, int] | None = None
    while devices:
        low = devices & -devices
        devices ^= low
        device = search.layout.device(low.bit_length() - 1)
        amounts = consumption(device.capacity, task.choice.capacity_requests) or {}
        taken = {name: billionths(amount) for name, amount in amounts.items()}
        if least is None:
            least = taken
        least = {name: min(amount, taken[name]) for name, amount in least.items() if name in taken}
    return least or {}


def _has_matching(demands: Sequence[tuple[int, int]], free: int) -> bool:
    """Return whether every demand (devices to choose from, places) can have its own devices."""
    owned = [0] * len(demands)
    for number, (mask, places) in enumerate(demands):
        for _ in range(places):
            low = mask & free
            if low:
                low &= -low
                free ^= low
                owned[number] |= low
            else:
                free, is_found = _augment(demands, owned, free, number)
                if not is_found:
                    return False
    return True


def _augment(demands: Sequence[tuple[int, int]], owned: list[int], free: int, start: int) -> tuple[int, bool]:
    """Get one more device for a demand, by moving others to free devices, if that is possible."""
    gives: dict[int, tuple[int, int]] = {}  # demand -> (the demand that would receive its device, that device)
    queue = [start]
    for number in queue:
        mask = demands[number][0]
        device = mask & free
        if device:
            device &= -device
            owned[number] |= device
            while number != start:
                receiver, given = gives[number]
                owned[number] ^= given
                owned[receiver] |= given
                number = receiver
            return free ^ device, True
        for other in range(len(demands)):
            shared = mask & owned[other]
            if shared and other != start and other not in gives:
                gives[other] = (number, shared & -shared)
                queue.append(other)
    return free, False
