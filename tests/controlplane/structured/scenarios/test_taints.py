"""Tainted devices: a request must tolerate all taints of a device."""

import pytest

from controlplane.structured import Features
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import Json, claim, class_, device, first_of, held, request, slice_, wants
from tests.controlplane.structured.scenarios.shared_devices import HERE, allocated, found

NO_SCHEDULE = {"key": "taint-key", "value": "taint-value", "effect": "NoSchedule"}
NO_EXECUTE = {"key": "taint-key", "value": "taint-value-2", "effect": "NoExecute"}
NO_EFFECT = {"key": "taint-key", "value": "taint-value", "effect": "None"}
SCHEDULE = {"key": "taint-key", "operator": "Exists", "effect": "NoSchedule"}
EXECUTE = {"key": "taint-key", "operator": "Equal", "value": "taint-value-2", "effect": "NoExecute"}
OFF = Features(device_taints=False)

NOTHING = class_("nothing", "false")
EITHER = [device("a", taints=[NO_SCHEDULE]), device("b", taints=[NO_EXECUTE])]
BOTH = [device("a", taints=[NO_SCHEDULE, NO_EXECUTE])]
ONE = [device("a", taints=[NO_SCHEDULE])]
SECOND_BEST = claim(first_of("r", wants(deviceClassName="nothing"), wants()))


def _with_tolerations(devices: list[Json], wanted: Json) -> list[tuple[str, str, object]]:
    results = allocated([slice_("s", devices)], claim(wanted), classes=[NOTHING])
    assert results is not None
    assert results[0]["nodeSelector"] == HERE
    return [(x["request"], x["device"], x.get("tolerations")) for x in results[0]["devices"]["results"]]


@scenario(98, 99)
@pytest.mark.parametrize("devices", [EITHER, BOTH])
def test_tainted_devices_are_for_nobody(devices: list[Json]) -> None:
    assert found([slice_("s", devices)], claim(request("r"))) is None


@scenario(100)
def test_a_toleration_opens_the_device_whose_taint_it_names_and_is_in_the_result() -> None:
    wanted = request("r", wants(tolerations=[EXECUTE]))
    assert _with_tolerations(EITHER, wanted) == [("r", "b", [EXECUTE])]


@scenario(101)
def test_an_alternative_tolerates_for_itself_only() -> None:
    wanted = first_of("r", wants(), wants(tolerations=[EXECUTE]))
    assert _with_tolerations(EITHER, wanted) == [("r/s1", "b", [EXECUTE])]


@scenario(102)
def test_a_taint_without_effect_stops_nobody() -> None:
    assert found([slice_("s", [device("a", taints=[NO_EFFECT])])], claim(request("r"))) == ["r=pool/a"]


@scenario(103)
def test_all_tolerations_of_a_request_are_in_the_result() -> None:
    assert _with_tolerations(BOTH, request("r", wants(tolerations=[SCHEDULE, EXECUTE]))) == [
        ("r", "a", [SCHEDULE, EXECUTE])
    ]
    assert found([slice_("s", BOTH)], claim(request("r", wants(tolerations=[SCHEDULE])))) is None


@scenario(104)
def test_without_the_feature_taints_do_not_count() -> None:
    assert found([slice_("s", BOTH)], claim(request("r")), features=OFF) == ["r=pool/a"]


@scenario(105, 106)
def test_a_taint_stops_the_last_alternative_as_long_as_taints_count() -> None:
    slices = [slice_("s", ONE)]
    assert found(slices, SECOND_BEST, classes=[NOTHING]) is None
    assert found(slices, SECOND_BEST, classes=[NOTHING], features=OFF) == ["r/s1=pool/a"]


@scenario(107, 108)
def test_admin_access_tolerates_no_taint() -> None:
    admin, slices = claim(request("r", wants(adminAccess=True))), [slice_("s", ONE)]
    assert found(slices, admin, state=held("a")) is None
    results = allocated(slices, admin, state=held("a"), features=OFF)
    device = {"request": "r", "driver": "drv", "pool": "pool", "device": "a", "adminAccess": True}
    assert results == [{"devices": {"results": [device]}, "nodeSelector": HERE}]


@scenario(109, 110)
def test_all_devices_are_not_to_be_had_if_one_is_tainted() -> None:
    slices, every = [slice_("s", ONE)], claim(request("r", wants(None)))
    assert found(slices, every) is None
    assert found([slice_("s", [device("b"), *ONE])], every) is None
    assert found(slices, every, features=OFF) == ["r=pool/a"]
