"""Alternatives that request all devices, and the limit of devices per claim."""

from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import (
    Json,
    allocator,
    claim,
    class_,
    consumes,
    device,
    equal_devices,
    first_of,
    held,
    request,
    slice_,
    wants,
)
from tests.controlplane.structured.scenarios.shared_devices import NODE, found, partitioned

V5, V6 = ('device.attributes["drv"].generation == "v5"', 'device.attributes["drv"].generation == "v6"')
CLASSES = [class_("class-a", 'device.attributes["drv"].a'), class_("class-b", '!device.attributes["drv"].a')]
NEWEST = claim(first_of("r", wants(None, V6), wants(None, V5)))


def _device_of(generation: str, name: str, **more: bool) -> Json:
    return device(name, attributes={"generation": generation, **more})


def _steps(devices: list[Json], *requests: Json) -> int:
    made = allocator([slice_("s", devices)], classes=CLASSES, prune=False)
    assert made.allocate(NODE, [claim(*requests)]) is not None
    return made.stats.num_allocate_one_invocations


@scenario(111)
def test_all_devices_alternative_falls_back_if_a_device_is_in_use() -> None:
    wanted = claim(first_of("r", wants(None), wants()))
    assert found([slice_("s", [device("a"), device("b")])], wanted, state=held("b")) == ["r/s1=pool/a"]


@scenario(112)
def test_all_devices_alternative_falls_back_if_it_matches_nothing() -> None:
    devices = [_device_of("v5", "a"), _device_of("v5", "b")]
    assert found([slice_("s", devices)], NEWEST) == ["r/s1=pool/a", "r/s1=pool/b"]


@scenario(113)
def test_all_devices_alternative_includes_every_pool() -> None:
    slices = [slice_("s", [_device_of("v5", "a")], pool="p1"), slice_("t", [_device_of("v5", "a")], pool="p2")]
    assert found(slices, NEWEST) == ["r/s1=p1/a", "r/s1=p2/a"]


@scenario(114)
def test_all_devices_alternative_ignores_devices_of_other_nodes() -> None:
    elsewhere = slice_("t", [_device_of("v5", "a"), _device_of("v6", "b")], pool="p2", nodeName="node-2")
    assert found([slice_("s", [_device_of("v5", "a")], pool="p1"), elsewhere], NEWEST) == ["r/s1=p1/a"]


@scenario(115)
def test_all_devices_alternative_respects_class_selectors() -> None:
    selected = class_("selected", 'device.attributes["drv"].selected')
    devices = [
        _device_of("v5", "a", selected=False),
        _device_of("v6", "b", selected=False),
        _device_of("v5", "c", selected=True),
    ]
    both = [wants(None, generation, deviceClassName="selected") for generation in (V6, V5)]
    assert found([slice_("s", devices)], claim(first_of("r", *both)), classes=[selected]) == ["r/s1=pool/c"]


@scenario(116)
def test_claim_can_allocate_32_devices() -> None:
    assert found([slice_("s", equal_devices(32))], claim(request("r", wants(32)))) == [
        f"r=pool/d{n:03}" for n in range(32)
    ]


@scenario(117)
def test_search_releases_device_that_later_request_needs() -> None:
    devices = [device(name, attributes={"special": name == "a"}, **consumes(**{name: "1"})) for name in "abc"]
    special = wants(1, 'device.attributes["drv"].special')
    slices = partitioned(devices, a="1", b="1", c="1")
    assert found(slices, claim(request("q", wants(2)), request("r", special))) == ["q=pool/b", "q=pool/c", "r=pool/a"]


@scenario(118)
def test_alternatives_over_device_limit_are_skipped_in_few_steps() -> None:
    devices = equal_devices(64, attributes={"a": True})
    wanted = [first_of(name, wants(32), wants(16)) for name in "qr"]
    names = [f"{'qr'[n // 16]}/s1=pool/d{n:03}" for n in range(32)]
    assert found([slice_("s", devices)], claim(*wanted)) == names
    assert _steps(devices, *wanted) == 75


@scenario(119)
def test_all_devices_alternative_over_device_limit_falls_back() -> None:
    devices = [*equal_devices(31, attributes={"a": True}), *equal_devices(2, "e", attributes={"a": False})]
    some = first_of("q", wants(None, deviceClassName="class-a"), wants(2, deviceClassName="class-a"))
    others = request("r", wants(2, deviceClassName="class-b"))
    names = ["q/s1=pool/d000", "q/s1=pool/d001", "r=pool/e000", "r=pool/e001"]
    assert found([slice_("s", devices)], claim(some, others), classes=CLASSES) == names
    assert _steps(devices, some, others) == 42
