"""Why a node cannot satisfy claims: the summary line and the details."""

from collections.abc import Sequence

import pytest

from controlplane.structured import AllocatedState, DeviceClasses, DeviceID, Features
from controlplane.structured.explain import Explainer, NodeReport
from resourceapi.objects.v1 import ResourceClaim, ResourceSlice
from tests.controlplane.structured.build import (
    claim,
    class_,
    consumes,
    counters,
    device,
    distinct,
    equal_devices,
    first_of,
    held,
    match,
    node,
    request,
    slice_,
    wants,
)


def _report(
    slices: Sequence[ResourceSlice], claims: Sequence[ResourceClaim], state: AllocatedState | None = None
) -> NodeReport:
    classes = DeviceClasses([class_(), class_("gpu", 'device.driver == "gpu"')])
    holders = {DeviceID("drv", "pool", "d000"): "ns/old"}
    return Explainer(Features(), state or AllocatedState(), classes, slices, holders=holders).report(node(), claims)


def _counts(report: NodeReport, number: int = 0) -> dict[str, int]:
    return {removal.rule: removal.count for removal in report.requests[number].removed}


def test_suitable_node_reports_allocations_without_reason() -> None:
    report = _report([slice_("s", equal_devices(1))], [claim(request("r"))])
    assert report.allocations is not None
    assert report.reason == ""


def test_each_removed_device_is_counted_for_first_failing_rule() -> None:
    devices = [
        device("d000", attributes={"model": "x"}),
        device("tainted", attributes={"model": "x"}, taints=[{"key": "old", "value": "yes", "effect": "NoSchedule"}]),
        device("other", attributes={"model": "y"}),
        device("without", attributes={"model": "x"}, capacity={"memory": {"value": "1Gi"}}),
        device("good", attributes={"model": "x"}, capacity={"memory": {"value": "4Gi"}}),
    ]
    wanted = wants(2, 'device.attributes["drv"].model == "x"', capacity={"requests": {"memory": "2Gi"}})
    slices = [slice_("s", devices), slice_("t", equal_devices(3), pool="half", count=2)]
    report = _report(slices, [claim(request("r", wanted))], held("d000"))
    assert report.requests[0].considered == 8
    assert report.requests[0].left == 1
    assert _counts(report) == {"pool incomplete": 3, "in use": 1, "capacity": 2, "selector false": 1}
    assert report.pools == ("pool drv/half is incomplete: 1 of 2 slices",)
    assert report.reason.startswith(
        "claim ns/claim, request r: needs 2, 1 of 8 devices left (3 pool incomplete [drv/half], 2 capacity"
    )


def test_all_devices_request_reports_unavailable_matching_devices() -> None:
    devices = [
        *equal_devices(3, attributes={"model": "x"}),
        device("tainted", attributes={"model": "x"}, taints=[{"key": "old", "effect": "NoSchedule"}]),
        device("other", attributes={"model": "y"}),
    ]
    all_of_model = wants(None, 'device.attributes["drv"].model == "x"')
    report = _report([slice_("s", devices)], [claim(request("r", all_of_model))], held("d000", "other"))
    assert report.reason == (
        "claim ns/claim, request r: needs all 4 that match, 2 of 5 devices left (1 in use [ns/old], 1 taint"
        ' [old:NoSchedule], 1 selector false [request r: device.attributes["drv"].model == "x"])'
    )


def test_reason_contains_taint_and_selector_error_details() -> None:
    devices = [
        device("a", attributes={"n": 1}, taints=[{"key": "old", "value": "yes", "effect": "NoSchedule"}]),
        device("b", attributes={"n": 2}),
    ]
    report = _report([slice_("s", devices)], [claim(request("r", wants(1, 'device.attributes["drv"].n == 1')))])
    assert report.reason == (
        "claim ns/claim, request r: needs 1, 0 of 2 devices left (1 taint [old=yes:NoSchedule], "
        '1 selector false [request r: device.attributes["drv"].n == 1])'
    )
    report = _report([slice_("s", devices)], [claim(request("r", wants(1, 'device.attributes["drv"].nope == 1')))])
    assert report.error == report.reason
    assert report.reason.startswith("claim ns/claim: selector #0 on device drv/pool/a: CEL runtime error: no such key")


@pytest.mark.parametrize(
    ("slices", "claims", "reason"),
    [
        ([], [claim(request("r"))], "claim ns/claim, request r: needs 1, and the node sees no devices"),
        (
            [slice_("s", [device("a", attributes={"n": 1}), device("b", attributes={"n": 2})])],
            [claim(request("r", wants(2)), constraints=[match("n")])],
            "claim ns/claim, request r: there are not enough devices that agree in drv/n",
        ),
        (
            [slice_("s", equal_devices(2, attributes={"n": 1}))],
            [claim(request("q"), request("r"), constraints=[distinct("n")])],
            "claim ns/claim, request r: there are not enough devices that all differ in drv/n",
        ),
        (
            [slice_("s", equal_devices(1))],
            [claim(request("q"), request("r"))],
            "claim ns/claim, request r: 1 device would fit, but the requests before it need what it would take",
        ),
        (
            [slice_("s", equal_devices(1))],
            [claim(request("r"), name="one"), claim(request("r"), name="two")],
            "claim ns/two, request r: 1 device would fit, but the claims before it need what it would take",
        ),
        (
            [slice_("s", equal_devices(2, **consumes(m="3")), count=2), counters("t", m="4")],
            [claim(request("r", wants(2)))],
            "claim ns/claim, request r: 2 devices would fit, but not together: "
            "counters or capacity that they share are too small",
        ),
        (
            [slice_("s", [device("a"), device("a")])],
            [claim(request("r"))],
            "claim ns/claim, request r: needs 1, 0 of 2 devices left (2 pool invalid [drv/pool])",
        ),
        (
            [slice_("s", equal_devices(1))],
            [claim(first_of("r", wants(2), wants(1, "false")))],
            "claim ns/claim, request r/s0: needs 2, 1 of 1 devices left (nothing against them); or "
            "claim ns/claim, request r/s1: needs 1, 0 of 1 devices left (1 selector false [request s1: false])",
        ),
        (
            [slice_("s", equal_devices(1), pool="p"), slice_("t", equal_devices(1), count=2, pool="q")],
            [claim(request("r", wants(None)))],
            "claim ns/claim, request r: asks for all devices, but resource pool drv/q is currently being updated",
        ),
    ],
)
def test_reason_names_first_unsatisfied_request(
    slices: list[ResourceSlice], claims: list[ResourceClaim], reason: str
) -> None:
    assert _report(slices, claims).reason == reason
