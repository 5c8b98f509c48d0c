"""The allocator's interface: inputs, results, and error messages."""

import threading
from collections.abc import Sequence
from typing import ClassVar

import pytest

from controlplane.structured import (
    AllocatedState,
    AllocationAborted,
    AllocationError,
    Allocator,
    Cancelled,
    DeviceClasses,
    DeviceID,
    Features,
    NodeError,
    PoolID,
    SharedDeviceID,
    gather_pools,
    new_allocator,
)
from resourceapi.objects import from_dict
from resourceapi.objects.v1 import DeviceClass, ResourceClaim, ResourceSlice
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import (
    allocator,
    claim,
    class_,
    consumes,
    counters,
    device,
    equal_devices,
    first_of,
    held,
    match,
    names,
    node,
    request,
    slice_,
    wants,
)


class Lister:
    """Claims and slices, with the interface of an API server cache."""

    def __init__(self, slices: Sequence[ResourceSlice] = (), allocated: Sequence[ResourceClaim] = ()) -> None:
        self._slices = slices
        self.allocated_claims = allocated

    def list(self) -> Sequence[ResourceSlice]:
        return self._slices

    def list_all_allocated(self) -> Sequence[ResourceClaim]:
        return self.allocated_claims


class FailingLister(Lister):
    def list_all_allocated(self) -> Sequence[ResourceClaim]:
        raise ConnectionError("the cache is gone")


def allocated(name: str, device: str) -> ResourceClaim:
    results = [{"request": "r", "driver": "drv", "pool": "pool", "device": device}]
    status = {"allocation": {"devices": {"results": results}}}
    return from_dict(ResourceClaim, {"metadata": {"name": name}, "status": status})


def test_gather_pools_reads_slice_lister_and_reports_its_error() -> None:
    class FailingSliceLister(Lister):
        def list(self) -> Sequence[ResourceSlice]:
            raise ConnectionError("the cache is gone")

    (pool,) = gather_pools(Lister([slice_("s", equal_devices(2))]), node())
    assert [each.metadata.name for each in pool.slices] == ["s"]
    with pytest.raises(AllocationError, match="gather pool information: list resource slices: the cache is gone"):
        gather_pools(FailingSliceLister(), node())


def test_pool_and_device_ids_are_printed_as_paths() -> None:
    assert str(PoolID("drv", "pool")) == "drv/pool"
    assert str(DeviceID("drv", "pool", "dev")) == "drv/pool/dev"
    assert str(SharedDeviceID(DeviceID("drv", "pool", "dev"), "uid")) == "drv/pool/dev/uid"


def test_new_allocator_keeps_claims_and_skips_allocated_devices() -> None:
    old_claim = allocated("old", "d000")
    claims = [claim(request("r"))]
    lister = Lister([slice_("s", equal_devices(2))], [old_claim, claim(request("not allocated"))])
    made = new_allocator(claims, lister, DeviceClasses([class_()]), lister)
    assert made.claims_to_allocate() is claims
    assert names(made.allocate(node())) == [["r=pool/d001"]]


def test_each_allocation_reads_listers_again() -> None:
    """An existing allocator does not allocate devices that were allocated after its creation."""

    class ChangingLister(Lister):
        classes: ClassVar[list[DeviceClass]] = [class_()]

        def get(self, name: str) -> DeviceClass:
            return DeviceClasses(self.classes).get(name)

    lister = ChangingLister([slice_("s", equal_devices(3))])
    made = new_allocator([claim(request("r"))], lister, lister, lister)
    first = made.allocate(node())
    assert names(first) == [["r=pool/d000"]]
    lister.allocated_claims = [allocated("old", "d000"), allocated("other", "d001")]
    assert names(made.allocate(node())) == [["r=pool/d002"]]
    lister.classes.clear()
    with pytest.raises(AllocationError, match="not found"):
        made.allocate(node())


def test_claim_lister_failure_is_an_allocation_error() -> None:
    lister = FailingLister([slice_("s", equal_devices(1))])
    made = new_allocator([claim(request("r"))], lister, DeviceClasses([class_()]), lister)
    with pytest.raises(AllocationError, match=r"^list allocated claims: the cache is gone$"):
        made.allocate(node())


@scenario(1, 15)
def test_no_claims_return_no_results() -> None:
    assert allocator([]).allocate(node(), []) == []
    assert allocator([slice_("s", equal_devices(1))]).allocate(node(), []) == []


def test_devices_are_allocated_in_pool_and_slice_order() -> None:
    made = allocator(
        [slice_("slice-2", equal_devices(2, "c")), slice_("slice-10", equal_devices(1, "b"), pool="pool-0")]
    )
    assert names(made.allocate(node(), [claim(request("r", wants(3)))])) == [
        ["r=pool/c000", "r=pool/c001", "r=pool-0/b000"]
    ]


@scenario(13)
def test_missing_devices_return_none_and_unknown_class_is_an_error() -> None:
    made = allocator([slice_("s", equal_devices(1))])
    assert made.allocate(node(), [claim(request("r", wants(2)))]) is None
    assert made.allocate(node("other"), [claim(request("r"))]) is None
    unknown = {**wants(), "deviceClassName": "nope"}
    with pytest.raises(AllocationError) as error:
        made.allocate(node(), [claim(request("r", unknown))])
    assert str(error.value) == (
        'claim ns/claim, request r: could not retrieve device class nope: deviceclass.resource.k8s.io "nope" not found'
    )


@scenario(14, 58, 59)
@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (
            {**wants(), "deviceClassName": ""},
            "claim ns/claim, request r: missing device class name (unsupported request type?)",
        ),
        ({**wants(), "allocationMode": "Some"}, "claim ns/claim, request r: unsupported count mode Some"),
        (
            {**wants(), "selectors": [{}]},
            "claim ns/claim, request r, selector #0: CEL expression empty (unsupported selector type?)",
        ),
        (
            wants(33),
            "claim ns/claim, request r: adding 33 devices exceeds the claim limit of 32, with 0 already accounted for",
        ),
        (
            wants(1, "device.attributes['drv'].nope == 1"),
            "claim ns/claim: selector #0 on device drv/pool/d000: CEL runtime error: no such key: nope. consider using "
            "CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields",
        ),
        (
            wants(1, capacity={"requests": {"memory": "-1"}}),
            'claim ns/claim, request r: checking capacity for device drv/pool/d000: capacity "memory": '
            "capacity value is negative",
        ),
    ],
)
def test_allocation_error_names_claim_request_and_cause(wanted: dict[str, object], text: str) -> None:
    made = allocator([slice_("s", equal_devices(1, capacity={"memory": {"value": "4"}}))])
    with pytest.raises(AllocationError) as error:
        made.allocate(node(), [claim(request("r", wanted))])
    assert str(error.value) == text


def test_selector_compile_error_names_device_class() -> None:
    made = allocator([slice_("s", equal_devices(1))], classes=[class_("bad", "noSuchVar")])
    with pytest.raises(AllocationError, match=r"^class bad: selector #0: CEL compile error: compilation failed: ERROR"):
        made.allocate(node(), [claim(request("r", {**wants(), "deviceClassName": "bad"}))])


@scenario(239)
def test_selector_error_is_raised_only_for_devices_that_search_reaches() -> None:
    needs_attribute = wants(1, 'device.attributes["drv"].good')
    slices = [slice_("s", [device("a", attributes={"good": True}), device("b")])]
    assert names(allocator(slices).allocate(node(), [claim(request("r", needs_attribute))])) == [["r=pool/a"]]
    assert names(allocator(slices, state=held("b")).allocate(node(), [claim(request("r", needs_attribute))])) == [
        ["r=pool/a"]
    ]
    with pytest.raises(AllocationError, match="on device drv/pool/b"):
        allocator(slices, state=held("a")).allocate(node(), [claim(request("r", needs_attribute))])


@scenario(238)
def test_device_limit_applies_to_each_claim() -> None:
    made = allocator([slice_("s", equal_devices(64))])
    results = made.allocate(node(), [claim(request("r", wants(32)), name=name) for name in ("one", "two")])
    assert results is not None
    assert [len(result.devices.results) for result in results] == [32, 32]
    with pytest.raises(AllocationError, match=r"request b: adding 20 devices exceeds .* with 20 already"):
        made.allocate(node(), [claim(request("a", wants(20)), request("b", wants(20)))])


@scenario(82)
def test_alternative_over_device_limit_is_skipped() -> None:
    made = allocator([slice_("s", equal_devices(40))])
    assert names(made.allocate(node(), [claim(first_of("r", wants(500), wants(1)))])) == [["r/s1=pool/d000"]]


@scenario(26, 28)
def test_all_devices_request_needs_every_device_and_at_least_one() -> None:
    every = [claim(request("r", wants(None)))]
    assert names(allocator([slice_("s", equal_devices(2))]).allocate(node(), every)) == [["r=pool/d000", "r=pool/d001"]]
    assert allocator([slice_("s", equal_devices(2))], state=held("d001")).allocate(node(), every) is None
    assert allocator([slice_("s")]).allocate(node(), every) is None


@scenario(48)
def test_all_devices_request_that_violates_constraint_is_an_error() -> None:
    slices = [slice_("s", [device("a", attributes={"numa": 0}), device("b", attributes={"numa": 1})])]
    with pytest.raises(AllocationError) as error:
        allocator(slices).allocate(node(), [claim(request("r", wants(None)), constraints=[match("numa")])])
    assert str(error.value) == (
        "claim ns/claim, request r: cannot add device drv/pool/b because a claim constraint would not be satisfied"
    )


def test_invalid_pool_is_node_error_unless_other_pool_fits() -> None:
    slices = [slice_("s", [device("a"), device("a")])]
    with pytest.raises(NodeError, match=r"^invalid resource pools were encountered$"):
        allocator(slices).allocate(node(), [claim(request("r"))])
    with_other = [*slices, slice_("t", equal_devices(1), pool="good")]
    assert names(allocator(with_other).allocate(node(), [claim(request("r"))])) == [["r=good/d000"]]


@scenario(31, 32)
def test_admin_access_includes_devices_in_use_once_per_claim() -> None:
    slices = [slice_("s", equal_devices(2))]
    admin = wants(2, adminAccess=True)
    results = allocator(slices, state=held("d000")).allocate(node(), [claim(request("r", admin))])
    assert names(results) == [["r=pool/d000", "r=pool/d001"]]
    assert results is not None
    assert all(result.admin_access for result in results[0].devices.results)
    assert allocator(slices).allocate(node(), [claim(request("r", wants(3, adminAccess=True)))]) is None
    both = [claim(request("r", wants(1, adminAccess=True)), name=name) for name in ("one", "two")]
    assert names(allocator(slices).allocate(node(), both)) == [["r=pool/d000"], ["r=pool/d000"]]


def test_released_admin_access_keeps_device_of_other_claim() -> None:
    """The second claim takes the first one's device, fails, and releases it. The first claim must keep it."""
    slices = [slice_("s", [device("a", attributes={"k": 1}), device("b", attributes={"k": 2})])]
    first = claim(request("r", wants(1, 'device.attributes["drv"].k == 1')), name="first")
    admin = claim(request("r", wants(2, adminAccess=True)), constraints=[match("k")], name="admin")
    third = claim(request("r", wants(1, 'device.attributes["drv"].k == 1')), name="third")
    assert allocator(slices).allocate(node(), [first, admin, third]) is None
    assert allocator(slices).allocate(node(), [first, third]) is None


@scenario(43)
@pytest.mark.parametrize(
    ("feature", "wanted", "text"),
    [
        ("admin_access", wants(adminAccess=False), "request r: admin access is requested, but the feature is disabled"),
        (
            "consumable_capacity",
            wants(capacity={}),
            "request r: has capacity requests, but the DRAConsumableCapacity feature is disabled",
        ),
    ],
)
def test_request_field_of_disabled_feature_is_refused(feature: str, wanted: dict[str, object], text: str) -> None:
    made = allocator([slice_("s", equal_devices(1))], features=Features(**{feature: False}))
    with pytest.raises(AllocationError, match=f"^claim ns/claim, {text}$"):
        made.allocate(node(), [claim(request("r", wanted))])


@scenario(79)
def test_alternatives_are_refused_when_feature_is_off() -> None:
    made = allocator([slice_("s", equal_devices(1))], features=Features(prioritized_list=False))
    text = "^claim ns/claim, request r: has subrequests, but the DRAPrioritizedList feature is disabled$"
    with pytest.raises(AllocationError, match=text):
        made.allocate(node(), [claim(first_of("r", wants()))])


@scenario(93)
def test_devices_with_counters_are_skipped_when_feature_is_off() -> None:
    slices = [slice_("s", [device("a", **consumes(m="1")), device("b")], count=2), counters("t", m="4")]
    off = allocator(slices, features=Features(partitionable_devices=False))
    assert names(off.allocate(node(), [claim(request("r"))])) == [["r=pool/b"]]
    assert names(allocator(slices).allocate(node(), [claim(request("r"))])) == [["r=pool/a"]]


def test_unsupported_request_is_refused_and_unsupported_slice_skipped() -> None:
    derived = wants(1, derivedAttributes=[{"name": "derived/n", "expression": "1"}])
    made = allocator(
        [slice_("s", equal_devices(1), skipNodeOperations=["*"]), slice_("t", equal_devices(1, "e"), pool="other")]
    )
    with pytest.raises(
        AllocationError, match="request r: cannot handle request with derived attributes, the feature is"
    ):
        made.allocate(node(), [claim(request("r", derived))])
    assert names(made.allocate(node(), [claim(request("r"))])) == [["r=other/e000"]]
    assert made.allocate(node(), [claim(request("r", wants(None)))]) is None


@scenario(220, 221, 222, 223)
def test_timeout_and_cancellation_abort_allocation() -> None:
    slices, wanted = [slice_("s", equal_devices(5))], [claim(request("r", wants(6)))]
    made = allocator(slices)
    for timeout in (0, 1e-9):
        with pytest.raises(AllocationAborted, match=r"^filter operation aborted: context deadline exceeded$") as late:
            made.allocate(node(), wanted, timeout=timeout)
        assert isinstance(late.value.__cause__, TimeoutError)
    stop = threading.Event()
    stop.set()
    with pytest.raises(AllocationAborted, match=r"^filter operation aborted: context canceled$") as stopped:
        made.allocate(node(), wanted, is_cancelled=stop.is_set)
    assert isinstance(stopped.value.__cause__, Cancelled)
    assert made.allocate(node(), wanted, timeout=60) is None
    assert made.allocate(node(), wanted) is None


def test_allocated_state_is_built_from_claims() -> None:
    result = {"request": "r", "driver": "drv", "pool": "pool"}
    share = {"shareID": "u1", "consumedCapacity": {"m": "1Gi"}}
    results = [
        {**result, "device": "own"},
        {**result, "device": "admin", "adminAccess": True},
        {**result, "device": "shared", **share},
        {**result, "device": "shared", **share, "shareID": "u2"},
    ]
    allocated_claim = from_dict(ResourceClaim, {"status": {"allocation": {"devices": {"results": results}}}})
    state = AllocatedState.from_claims([allocated_claim, claim(request("r"))])
    shared = DeviceID("drv", "pool", "shared")
    assert state.allocated_devices == {DeviceID("drv", "pool", "own")}
    assert state.allocated_shared_device_ids == {SharedDeviceID(shared, "u1"), SharedDeviceID(shared, "u2")}
    assert {str(held) for held in state.aggregated_capacity[shared].values()} == {"2Gi"}


def test_allocator_serves_several_nodes_and_counts_steps() -> None:
    slices = [slice_(name, equal_devices(1), pool=name, nodeName=name) for name in ("a", "b")]
    made: Allocator = allocator(slices)
    wanted = [claim(request("r"))]
    assert names(made.allocate(node("a"), wanted)) == [["r=a/d000"]]
    assert names(made.allocate(node("b"), wanted)) == [["r=b/d000"]]
    assert made.stats.num_allocate_one_invocations == 8
