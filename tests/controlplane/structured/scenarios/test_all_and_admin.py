"""All devices of a class, and admin access to devices in use."""

import pytest

from controlplane.structured import AllocatedState, AllocationError
from resourceapi.objects.v1 import ResourceSlice
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import Json, claim, consumes, counter_set, device, first_of, names, request
from tests.controlplane.structured.scenarios.two_drivers import (
    ALL,
    ONE,
    allocated,
    found,
    held_a,
    slice_a,
    slice_b,
    wants_a,
    wants_b,
)

TWO = [slice_a("slice-1", [device("a1"), device("a2")])]
ADMIN = wants_a(1, adminAccess=True)


@scenario(16)
def test_all_devices_request_can_get_one_device() -> None:
    assert found([slice_a("slice-1", [device("a1")])], ALL) == [["r=pool-1/a1"]]


@scenario(17)
def test_all_devices_request_includes_devices_with_counters() -> None:
    slices = [
        slice_a("slice-1", [device("a1", **consumes(memory="4Gi"))], count=2),
        slice_a("slice-2", count=2, sharedCounters=[counter_set(memory="8Gi")]),
    ]
    assert found(slices, ALL) == [["r=pool-1/a1"]]


@scenario(18)
def test_all_devices_request_includes_every_pool() -> None:
    slices = [slice_a("slice-1", [device("a1")]), slice_a("slice-1", [device("a2")], pool="pool-2")]
    assert found(slices, ALL) == [["r=pool-1/a1", "r=pool-2/a2"]]


@scenario(19)
def test_all_devices_request_on_incomplete_pool_is_an_error() -> None:
    with pytest.raises(AllocationError) as error:
        found([slice_a("slice-1", [device("a1")], count=2)], ALL)
    assert str(error.value) == (
        "claim ns/claim, request r: asks for all devices, but resource pool driver-a/pool-1 is currently being updated"
    )


@scenario(20, 21, 22, 23)
@pytest.mark.parametrize("device_names", [("a1",), ("a1", "a2")])
@pytest.mark.parametrize("is_all_first", [True, False])
def test_all_devices_request_leaves_devices_of_other_driver(device_names: tuple[str, ...], is_all_first: bool) -> None:
    slices = [slice_a("slice-1", map(device, device_names)), slice_b("slice-1", [device("b1")])]
    claims = [ALL, claim(request("r", wants_b()), name="other")]
    expected = [[f"r=pool-1/{name}" for name in device_names], ["r=pool-1/b1"]]
    order = 1 if is_all_first else -1
    assert found(slices, *claims[::order]) == expected[::order]


@scenario(24, 25)
@pytest.mark.parametrize("is_all_first", [True, False])
def test_all_devices_request_and_second_claim_for_same_device_fail(is_all_first: bool) -> None:
    claims = [ALL, claim(request("r", wants_a()), name="other")]
    assert found([slice_a("slice-1", [device("a1")])], *claims[:: 1 if is_all_first else -1]) is None


@scenario(27)
def test_all_devices_request_without_devices_fails() -> None:
    assert found([], ALL) is None


@scenario(29, 44)
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [(wants_a(None, adminAccess=True), ["r=pool-1/a1", "r=pool-1/a2"]), (ADMIN, ["r=pool-1/a1"])],
)
def test_admin_access_includes_devices_in_use(wanted: Json, expected: list[str]) -> None:
    results = allocated(TWO, claim(request("r", wanted)), state=held_a("a1"))
    assert names(results) == [expected]
    assert results is not None
    assert all(result.admin_access for result in results[0].devices.results)


@scenario(30)
def test_admin_access_requests_of_one_claim_cannot_share_device() -> None:
    assert found(TWO, claim(request("one", ADMIN), request("all", wants_a(None, adminAccess=True)))) is None


@scenario(33)
def test_admin_access_includes_device_of_earlier_claim() -> None:
    results = allocated([slice_a("slice-1", [device("a1")])], ONE, claim(request("admin", ADMIN), name="other"))
    assert names(results) == [["r=pool-1/a1"], ["admin=pool-1/a1"]]
    assert results is not None
    assert [result.devices.results[0].admin_access for result in results] == [None, True]


@scenario(34, 35, 36)
@pytest.mark.parametrize(
    ("slices", "state"),
    [
        ([slice_a("slice-1")], None),
        ([], None),
        (TWO, held_a("a1")),
    ],
)
def test_unavailable_all_devices_alternative_falls_back_to_next(
    slices: list[ResourceSlice], state: AllocatedState | None
) -> None:
    wanted = claim(first_of("r", wants_a(None), wants_b()))
    assert found([*slices, slice_b("slice-1", [device("b1")])], wanted, state=state) == [["r/s1=pool-1/b1"]]
