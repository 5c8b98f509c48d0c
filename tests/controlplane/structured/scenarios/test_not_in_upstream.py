"""The allocator's behaviour in cases that upstream's tests do not cover."""

from typing import Any

from resourceapi.objects.v1 import ResourceSlice
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import (
    Json,
    claim,
    class_,
    consumes,
    device,
    equal_devices,
    first_of,
    match,
    request,
    slice_,
    wants,
)
from tests.controlplane.structured.scenarios.shared_devices import allocated, found, partitioned

ONE = claim(request("r"))


def _config(name: str, *requests: str) -> Json:
    opaque = {"opaque": {"driver": "drv", "parameters": {"name": name}}}
    return {**opaque, **({"requests": list(requests)} if requests else {})}


def _kind(kind: str, **fields: Any) -> Json:
    return wants(1, f'device.attributes["drv"].kind == "{kind}"', **fields)


@scenario(233)
def test_results_follow_request_order_and_configuration_source_order() -> None:
    classes = [class_(name, config=[_config(f"{name}-1"), _config(f"{name}-2")]) for name in ("gpu", "nic")]
    requests = [request("q", wants(2, deviceClassName="nic")), request("p", wants(deviceClassName="gpu"))]
    wanted = claim(*requests, config=[_config("last", "p"), _config("for all")])
    results = allocated(
        [slice_("t", equal_devices(2, "e"), pool="2"), slice_("s", equal_devices(1), pool="1")], wanted, classes=classes
    )
    assert results is not None
    devices = results[0]["devices"]
    assert [(x["request"], x["device"]) for x in devices["results"]] == [("q", "d000"), ("q", "e000"), ("p", "e001")]
    assert [(x["source"], x["opaque"]["parameters"]["name"], x.get("requests")) for x in devices["config"]] == [
        ("FromClass", "nic-1", ["q"]),
        ("FromClass", "nic-2", ["q"]),
        ("FromClass", "gpu-1", ["p"]),
        ("FromClass", "gpu-2", ["p"]),
        ("FromClaim", "last", ["p"]),
        ("FromClaim", "for all", None),
    ]


@scenario(235)
def test_admin_access_needs_free_counters() -> None:
    slices = partitioned([device(name, **consumes(m="4")) for name in "ab"], m="4")
    admin = claim(request("r", wants(adminAccess=True)), name="admin")
    normal = claim(request("r"), name="normal")
    assert allocated(slices, normal, admin) is None
    results = allocated(slices, admin)
    assert results is not None
    assert [x["device"] for x in results[0]["devices"]["results"]] == ["a"]


@scenario(235)
def test_device_with_admin_access_is_not_for_later_claim_without_it() -> None:
    admin = claim(request("r", wants(adminAccess=True)), name="admin")
    assert allocated([slice_("s", equal_devices(1))], admin, ONE) is None
    results = allocated([slice_("s", equal_devices(1))], ONE, admin)
    assert results is not None
    assert [x.get("adminAccess") for each in results for x in each["devices"]["results"]] == [None, True]


@scenario(237)
def test_alternative_of_earlier_claim_changes_for_later_claim() -> None:
    devices = [device("a", attributes={"kind": "x"}), device("b", attributes={"kind": "y"})]
    config = [_config("first", "q/s0"), _config("second", "q/s1")]
    either = claim(first_of("q", _kind("x"), _kind("y")), config=config, name="either")
    results = allocated([slice_("s", devices)], either, claim(request("r", _kind("x"))))
    assert results is not None
    (chosen,), (other,) = (each["devices"]["results"] for each in results)
    assert (chosen["request"], chosen["device"]) == ("q/s1", "b")
    assert (other["request"], other["device"]) == ("r", "a")
    assert [x["opaque"]["parameters"]["name"] for x in results[0]["devices"]["config"]] == ["second"]
    assert "config" not in results[1]["devices"]


@scenario(240)
def test_version_build_matters_to_constraints_but_not_to_selectors() -> None:
    devices = [device(n, attributes={"v": {"version": v}}) for n, v in (("a", "1.0.0"), ("b", "1.0.0+build"))]
    wanted = request("r", wants(2, 'device.attributes["drv"].v == semver("1.0.0")'))
    assert found([slice_("s", devices)], claim(wanted)) == ["r=pool/a", "r=pool/b"]
    assert found([slice_("s", devices)], claim(wanted, constraints=[match("v")])) is None


@scenario(241)
def test_node_selector_without_terms_selects_no_node() -> None:
    assert allocated([slice_("s", equal_devices(1), nodeSelector={"nodeSelectorTerms": []})], ONE) is None


def _parts(*counts: int, **fields: Any) -> list[ResourceSlice]:
    return [slice_(f"s{n}", [device(f"d{n}")], count=count, **fields) for n, count in enumerate(counts)]


@scenario(242)
def test_first_slice_determines_slice_count_of_pool() -> None:
    assert found(_parts(2, 1), ONE) == ["r=pool/d0"]
    assert found(_parts(1, 2), ONE) is None
    assert found(_parts(2, 1)[::-1], ONE) is None


@scenario(242)
def test_new_generation_can_have_fewer_slices() -> None:
    new = slice_("new", [device("e")], generation=2)
    assert found([*_parts(2, 2), new], ONE) == ["r=pool/e"]
    assert found([new, *_parts(2, 2)], ONE) == ["r=pool/e"]
