"""Search steps: upstream's published numbers without pruning, fewer with it, and the same devices."""

from collections.abc import Sequence

import pytest

from resourceapi.objects.v1 import ResourceClaim, ResourceSlice
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import (
    Json,
    allocator,
    claim,
    class_,
    consumes,
    counter_set,
    counters,
    device,
    distinct,
    draw,
    equal_devices,
    first_of,
    match,
    names,
    node,
    request,
    slice_,
    wants,
)

X, Y = ('device.attributes["drv"].type == "X"', 'device.attributes["drv"].type == "Y"')


def _types(text: str) -> list[Json]:
    return [device(f"d{number:03}", attributes={"type": kind}) for number, kind in enumerate(text)]


def _numbered(count: int) -> list[Json]:
    return [device(f"d{number:03}", attributes={"n": number}) for number in range(count)]


def _grouped(groups: int, size: int) -> list[Json]:
    return [device(f"d{n:03}", attributes={"numa": n // size}) for n in range(groups * size)]


BACKTRACKING = [
    device(f"d{n}", **consumes(**{f"cpu{n}": "1", "mem": "20Gi" if n == 1 else "10Gi"})) for n in range(1, 9)
]


@scenario(213, 214, 217, 219)
@pytest.mark.parametrize(
    ("devices", "requests", "steps", "found"),
    [
        (equal_devices(4), [request("r", wants(5))], 16, None),
        (
            _types("XYY"),
            [request("a", wants(2)), request("b", wants(1, X))],
            12,
            ["a=pool/d001", "a=pool/d002", "b=pool/d000"],
        ),
        (
            _types("XYY"),
            [first_of("a", wants(3, Y), wants(2)), first_of("b", wants(2), wants(1, X))],
            26,
            ["a/s1=pool/d001", "a/s1=pool/d002", "b/s1=pool/d000"],
        ),
        (_types("Y" * 31 + "XX"), [first_of("a", wants(None, Y), wants(2, Y)), request("b", wants(2, X))], 42, ...),
        (equal_devices(64), [first_of("a", wants(32), wants(16)), first_of("b", wants(32), wants(16))], 75, ...),
        (equal_devices(5), [request("r", wants(6))], 32, None),
    ],
)
@pytest.mark.parametrize("parts", [1, 2])
def test_search_steps_equal_upstream_numbers(
    devices: list[Json], requests: list[Json], steps: int, found: object, parts: int
) -> None:
    cut = len(devices) // parts
    slices = [slice_(f"s{n}", devices[n * cut : None if n == parts - 1 else cut], count=parts) for n in range(parts)]
    made = allocator(slices, prune=False)
    results = names(made.allocate(node(), [claim(*requests)]))
    assert made.stats.num_allocate_one_invocations == steps
    if found is not ...:
        assert results == (None if found is None else [found])


def test_counter_set_without_counters_limits_no_request() -> None:
    """A counter set without counters limits no request, however far the search looks ahead."""
    devices = equal_devices(3, consumesCounters=[{"counterSet": "set"}])
    slices = [slice_("s", devices, count=2), slice_("t", count=2, sharedCounters=[{"name": "set"}])]
    wanted = [claim(request("a", wants(2)), request("b", wants(1, "device.driver != ''")))]
    made = allocator(slices, failures_before_pruning=-1)
    assert names(made.allocate(node(), wanted)) == [["a=pool/d000", "a=pool/d001", "b=pool/d002"]]


def test_scheduler_perf_backtracking_workload_takes_upstream_steps() -> None:
    amounts = {**{f"cpu{n}": "1" for n in range(1, 9)}, "mem": "70Gi"}
    slices = [slice_("s", BACKTRACKING, count=2), counters("t", **amounts)]
    plain, pruned = allocator(slices, prune=False), allocator(slices, failures_before_pruning=0)
    wanted = [claim(request("r", wants(7)))]
    assert names(plain.allocate(node(), wanted)) == [[f"r=pool/d{n}" for n in range(2, 9)]]
    assert names(pruned.allocate(node(), wanted)) == [[f"r=pool/d{n}" for n in range(2, 9)]]
    assert plain.stats.num_allocate_one_invocations == 130
    assert pruned.stats.num_allocate_one_invocations < 70


def _gpus(count: int) -> list[ResourceSlice]:
    """GPUs that are available whole or in parts. Each has its own counters in one pool."""
    parts = [
        device(
            f"gpu{gpu}-{size}-{n}", attributes={"size": size}, consumesCounters=[draw(f"gpu{gpu}", slices=str(size))]
        )
        for gpu in range(count)
        for size in (7, 3, 2, 1)
        for n in range(7 // size)
    ]
    sets = [counter_set(f"gpu{gpu}", slices="7") for gpu in range(count)]
    return [slice_("s", parts, count=2), slice_("t", count=2, sharedCounters=sets)]


def _of_size(count: int, size: int) -> Json:
    return wants(count, f'device.attributes["drv"].size == {size}')


def _devices_with_half_the_counters(count: int) -> list[ResourceSlice]:
    devices = [device(f"d{n:03}", **consumes(m="1")) for n in range(count)]
    return [slice_("s", devices, count=2), counters("t", m=str(count // 2))]


def _shared(count: int, first_size: int) -> list[Json]:
    sizes = [str(first_size + n) for n in range(count)]
    return [device(f"d{n}", allowMultipleAllocations=True, capacity={"m": {"value": x}}) for n, x in enumerate(sizes)]


def _one_each(count: int, *selectors: str) -> list[Json]:
    return [request(f"r{number}", wants(1, *selectors)) for number in range(count)]


EXPONENTIAL_SEARCHES: dict[str, tuple[list[ResourceSlice], list[ResourceClaim]]] = {
    "one device more than identical devices exist": (
        [slice_("s", equal_devices(31))],
        [claim(request("r", wants(32)))],
    ),
    "last request matches no device": (
        [slice_("s", _types("Y" * 64))],
        [claim(request("a", wants(8)), request("b", wants(1, X)))],
    ),
    "match constraint needs more devices than a group has": (
        [slice_("s", _grouped(4, 16))],
        [claim(request("r", wants(17)), constraints=[match("numa")])],
    ),
    "counters suffice for half of the devices": (_devices_with_half_the_counters(20), [claim(request("r", wants(11)))]),
    "partitions of all sizes exceed the counters together": (
        [
            slice_("s", [device(f"d{n:02}", **consumes(m=str(50 + n * 7 % 30))) for n in range(30)], count=2),
            counters("t", m="500"),
        ],
        [claim(request("a", wants(5)), request("b", wants(5)))],
    ),
    "whole GPUs and small partitions exceed the counters together": (
        _gpus(8),
        [claim(request("small", _of_size(30, 1)), name="one"), claim(request("whole", _of_size(4, 7)), name="two")],
    ),
    "partitions of several sizes need one slice too many": (
        _gpus(8),
        [claim(request("a", _of_size(10, 3)), request("b", _of_size(13, 2)), request("c", _of_size(1, 1)))],
    ),
    "one claim more than devices exist": (
        [slice_("s", equal_devices(20))],
        [claim(request("r"), name=f"c{n}") for n in range(21)],
    ),
    "match constraint over more requests than a group has devices": (
        [slice_("s", _grouped(4, 11))],
        [claim(*_one_each(12), constraints=[match("numa")])],
    ),
    "one request more than devices with distinct values": (
        [slice_("s", _numbered(30))],
        [claim(*[request(f"r{n}", wants(1, f'device.attributes["drv"].n != {n}')) for n in range(31)])],
    ),
    "alternative always exceeds the device limit": (
        [slice_("s", equal_devices(40))],
        [claim(request("a", wants(20)), first_of("b", {**wants(None), "deviceClassName": "none"}, wants(20)))],
    ),
    "shared devices and an impossible last request": (
        [slice_("s", _shared(10, 4))],
        [claim(*[request(f"r{n}", wants(1, capacity={"requests": {"m": "0"}})) for n in range(20)],
               request("z", wants(1, "false")))],
    ),
    "capacity of shared devices is slightly too small": (
        [slice_("s", _shared(8, 10))],
        [claim(*[request(f"r{n}", wants(1, capacity={"requests": {"m": "4"}})) for n in range(27)])],
    ),
    "eight alternatives per request and an impossible last request": (
        [slice_("s", equal_devices(20))],
        [claim(*[first_of(f"r{n}", *[wants()] * 8) for n in range(12)], request("z", wants(1, "false")))],
    ),
    "distinct constraint needs more values than exist": (
        [slice_("s", [device(f"d{n}", attributes={"n": n % 11}) for n in range(60)])],
        [claim(request("r", wants(12)), constraints=[distinct("n")])],
    ),
    "requests exceed the total capacity of shared devices": (
        [slice_("s", _shared(8, 100))],
        [
            claim(*[
                request(f"r{n}", wants(1, capacity={"requests": {"m": "10" if n < 20 else "80"}})) for n in range(29)
            ])
        ],
    ),
    "one of ten matching pairs has no partner": (
        [
            slice_(
                "s",
                [
                    *[device(f"gpu{n}", attributes={"type": "X", "root": n}) for n in range(10)],
                    *[device(f"nic{n}", attributes={"type": "Y", "root": min(n, 8)}) for n in range(10)],
                ],
            )
        ],
        [
            claim(
                *[request(f"gpu{n}", wants(1, X)) for n in range(10)],
                *[request(f"nic{n}", wants(1, Y)) for n in range(10)],
                constraints=[match("root", f"gpu{n}", f"nic{n}") for n in range(10)],
            )
        ],
    ),
    "second claim can never be satisfied": (
        [slice_("s", [device(f"d{n:02}", attributes={"n": n, "numa": n // 4}) for n in range(16)])],
        [
            claim(request("a", wants(3)), request("b", wants(3)), constraints=[distinct("n")]),
            claim(request("r", wants(5)), name="other", constraints=[match("numa")]),
        ],
    ),
    "distinct constraint over more requests than values": (
        [slice_("s", [device(f"d{n}", attributes={"n": n % 11}) for n in range(60)])],
        [claim(*_one_each(12), constraints=[distinct("n")])],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPONENTIAL_SEARCHES)
def test_pruning_ends_exponential_search_within_step_limit(name: str) -> None:
    slices, claims = EXPONENTIAL_SEARCHES[name]
    made = allocator(slices, classes=[class_("none", "false")])
    assert made.allocate(node(), claims, timeout=10) is None
    assert made.stats.num_allocate_one_invocations < 3000


def test_pruning_keeps_only_solution_of_last_group() -> None:
    devices = _grouped(4, 10)
    devices[-1]["attributes"]["type"] = {"string": "X"}
    last = request("x", wants(1, '"type" in device.attributes["drv"]'))
    slices, claims = [slice_("s", devices)], [claim(*_one_each(9), last, constraints=[match("numa")])]
    wanted = [[*(f"r{n}=pool/d{30 + n:03}" for n in range(9)), "x=pool/d039"]]
    assert names(allocator(slices).allocate(node(), claims, timeout=10)) == wanted


@pytest.mark.parametrize("failures_before_pruning", [0, 3, 16])
def test_pruning_keeps_selector_error_that_search_would_reach(failures_before_pruning: int) -> None:
    """Upstream reaches the device without the attribute before it has tried all sets of the others."""
    devices = [*equal_devices(40, attributes={"ok": True}), device("last")]
    made = allocator([slice_("s", devices)], failures_before_pruning=failures_before_pruning)
    needs_attribute = wants(8, 'device.attributes["drv"].ok')
    claims: Sequence[ResourceClaim] = [claim(request("a", needs_attribute), request("b", wants(1, "false")))]
    with pytest.raises(Exception, match="on device drv/pool/last: CEL runtime error: no such key: ok"):
        made.allocate(node(), claims, timeout=10)
