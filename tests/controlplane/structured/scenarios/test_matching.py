"""Devices that have to agree on attributes."""

from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import claim, device, request
from tests.controlplane.structured.scenarios.two_drivers import found, match_a, slice_a, wants_a

REQUESTS = [request("r", wants_a()), request("q", wants_a())]


@scenario(45)
def test_devices_match_in_attributes_of_every_type() -> None:
    attributes = {"numa": 1, "driverVersion": {"version": "1.0.0"}, "string": "value", "bool": True}
    slices = [slice_a("slice-1", [device(name, attributes=attributes) for name in ("a1", "a2")])]
    wanted = claim(*REQUESTS, constraints=[match_a(name) for name in attributes])
    assert found(slices, wanted) == [["r=pool-1/a1", "q=pool-1/a2"]]


@scenario(53)
def test_search_releases_first_device_if_no_other_matches_it() -> None:
    devices = [
        device(f"a{n}", attributes={"driverVersion": {"version": f"{n}.0.0"}, "string": text})
        for n, text in enumerate("abb", 1)
    ]
    wanted = claim(*REQUESTS, constraints=[match_a("driverVersion", "r"), match_a("string")])
    assert found([slice_a("slice-1", devices)], wanted) == [["r=pool-1/a2", "q=pool-1/a3"]]
