"""Tainted devices: a request must tolerate all taints of a device."""

import pytest

from controlplane.structured import Features
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import Json, claim, class_, device, first_of, held, request, slice_, wants
from tests.controlplane.structured.scenarios.shared_devices import HERE, allocated, found

NO_SCHEDULE = {"key": "taint-key", "value": "taint-value", "effect": "NoSchedule"}
NO_EXECUTE = {"key": "taint-key", "value": "taint-value-2", "effect": "NoExecute"}
NO_EFFECT = {"key": "taint-key", "value": "taint-value", "effect": "None"}
TOLERATE_NO_SCHEDULE = {"key": "taint-key", "operator": "Exists", "effect": "NoSchedule"}
TOLERATE_NO_EXECUTE = {"key": "taint-key", "operator": "Equal", "value": "taint-value-2", "effect": "NoExecute"}
OFF = Features(device_taints=False)

NOTHING = class_("nothing", "false")
ONE_TAINT_EACH = [device("a", taints=[NO_SCHEDULE]), device("b", taints=[NO_EXECUTE])]
TWO_TAINTS = [device("a", taints=[NO_SCHEDULE, NO_EXECUTE])]
ONE = [device("a", taints=[NO_SCHEDULE])]
EMPTY_CLASS_OR_ANY = claim(first_of("r", wants(deviceClassName="nothing"), wants()))


def _devices_and_tolerations(devices: list[Json], wanted: Json) -> list[tuple[str, str, object]]:
    results = allocated([slice_("s", devices)], claim(wanted), classes=[NOTHING])
    assert results is not None
    assert results[0]["nodeSelector"] == HERE
    return [(x["request"], x["device"], x.get("tolerations")) for x in results[0]["devices"]["results"]]


@scenario(98, 99)
@pytest.mark.parametrize("devices", [ONE_TAINT_EACH, TWO_TAINTS])
def test_tainted_device_is_not_allocated_without_toleration(devices: list[Json]) -> None:
    assert found([slice_("s", devices)], claim(request("r"))) is None


@scenario(100)
def test_toleration_selects_matching_taint_and_is_in_result() -> None:
    wanted = request("r", wants(tolerations=[TOLERATE_NO_EXECUTE]))
    assert _devices_and_tolerations(ONE_TAINT_EACH, wanted) == [("r", "b", [TOLERATE_NO_EXECUTE])]


@scenario(101)
def test_toleration_applies_only_to_its_alternative() -> None:
    wanted = first_of("r", wants(), wants(tolerations=[TOLERATE_NO_EXECUTE]))
    assert _devices_and_tolerations(ONE_TAINT_EACH, wanted) == [("r/s1", "b", [TOLERATE_NO_EXECUTE])]


@scenario(102)
def test_taint_with_effect_none_is_ignored() -> None:
    assert found([slice_("s", [device("a", taints=[NO_EFFECT])])], claim(request("r"))) == ["r=pool/a"]


@scenario(103)
def test_every_taint_needs_toleration_and_result_contains_all() -> None:
    assert _devices_and_tolerations(
        TWO_TAINTS, request("r", wants(tolerations=[TOLERATE_NO_SCHEDULE, TOLERATE_NO_EXECUTE]))
    ) == [("r", "a", [TOLERATE_NO_SCHEDULE, TOLERATE_NO_EXECUTE])]
    assert found([slice_("s", TWO_TAINTS)], claim(request("r", wants(tolerations=[TOLERATE_NO_SCHEDULE])))) is None


@scenario(104)
def test_taints_are_ignored_when_feature_is_off() -> None:
    assert found([slice_("s", TWO_TAINTS)], claim(request("r")), features=OFF) == ["r=pool/a"]


@scenario(105, 106)
def test_taint_blocks_last_alternative_unless_feature_is_off() -> None:
    slices = [slice_("s", ONE)]
    assert found(slices, EMPTY_CLASS_OR_ANY, classes=[NOTHING]) is None
    assert found(slices, EMPTY_CLASS_OR_ANY, classes=[NOTHING], features=OFF) == ["r/s1=pool/a"]


@scenario(107, 108)
def test_admin_access_does_not_tolerate_taints() -> None:
    admin, slices = claim(request("r", wants(adminAccess=True))), [slice_("s", ONE)]
    assert found(slices, admin, state=held("a")) is None
    results = allocated(slices, admin, state=held("a"), features=OFF)
    device = {"request": "r", "driver": "drv", "pool": "pool", "device": "a", "adminAccess": True}
    assert results == [{"devices": {"results": [device]}, "nodeSelector": HERE}]


@scenario(109, 110)
def test_all_devices_request_fails_if_one_device_is_tainted() -> None:
    slices, every = [slice_("s", ONE)], claim(request("r", wants(None)))
    assert found(slices, every) is None
    assert found([slice_("s", [device("b"), *ONE])], every) is None
    assert found(slices, every, features=OFF) == ["r=pool/a"]
