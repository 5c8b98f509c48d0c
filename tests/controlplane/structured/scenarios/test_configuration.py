"""The configuration of classes and claims in an allocation, and the requests it applies to."""

from typing import Any

from resourceapi.objects import to_dict
from resourceapi.objects.v1 import ResourceClaim, ResourceSlice
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import Json, claim, class_, device, first_of, request
from tests.controlplane.structured.scenarios.two_drivers import allocated, slice_a, slice_b, wants_a, wants_b


def _set(name: str, driver: str = "driver-a") -> Json:
    """A driver's configuration parameters."""
    return {"opaque": {"driver": driver, "parameters": {name: "value"}}}


A, B = _set("of-class-a"), _set("of-class-b", "driver-b")
CONFIGURED = [
    class_("class-a", 'device.driver == "driver-a"', config=[A]),
    class_("class-b", 'device.driver == "driver-b"', config=[B]),
]
OF_A = slice_a("slice-1", [device("a1"), device("a2"), device("a3")])
OF_B = slice_b("slice-1", [device("b1"), device("b2")])


def _kept(slices: list[ResourceSlice], wanted: ResourceClaim, **options: Any) -> list[Json]:
    """The configuration in the allocation."""
    results = allocated(slices, wanted, **options)
    assert results is not None
    config: list[Json] = to_dict(results[0])["devices"]["config"]
    return config


@scenario(55)
def test_the_configuration_of_a_class_names_the_requests_for_it() -> None:
    wanted = claim(request("r", wants_a()), request("q", wants_a()), request("p", wants_b()))
    assert _kept([OF_A, OF_B], wanted, classes=CONFIGURED) == [
        {"source": "FromClass", "requests": ["r", "q"], **A},
        {"source": "FromClass", "requests": ["p"], **B},
    ]


@scenario(56)
def test_the_configuration_of_a_claim_keeps_the_requests_that_it_names() -> None:
    requests = [request(name, wants_a()) for name in ("r", "q", "p")]
    config = {**_set("two"), "requests": ["r", "q"]}
    assert _kept([OF_A], claim(*requests, config=[config])) == [{"source": "FromClaim", **config}]


ALTERNATIVES = first_of("r", wants_a(), wants_b(2))


@scenario(70)
def test_the_alternative_that_is_taken_keeps_its_configuration() -> None:
    config = [{**_set("first"), "requests": ["r/s0"]}, {**_set("second"), "requests": ["r/s1"]}]
    assert _kept([OF_B], claim(ALTERNATIVES, config=config)) == [{"source": "FromClaim", **_set("second")}]


@scenario(71)
def test_the_alternative_that_is_taken_keeps_the_configuration_of_its_class() -> None:
    assert _kept([OF_B], claim(ALTERNATIVES), classes=CONFIGURED) == [{"source": "FromClass", **B}]


@scenario(72)
def test_configuration_for_both_alternatives_is_kept_once_and_for_no_other_request() -> None:
    config = {**_set("either"), "requests": ["r/s0", "r/s1"]}
    wanted = claim(ALTERNATIVES, request("q", wants_a()), config=[config])
    assert _kept([OF_A], wanted) == [{"source": "FromClaim", **config}]
