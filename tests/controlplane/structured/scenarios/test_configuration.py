"""The configuration of classes and claims in an allocation, and the requests it applies to."""

from typing import Any

from resourceapi.objects import to_dict
from resourceapi.objects.v1 import ResourceClaim, ResourceSlice
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import Json, claim, class_, device, first_of, request
from tests.controlplane.structured.scenarios.two_drivers import allocated, slice_a, slice_b, wants_a, wants_b


def _parameters(name: str, driver: str = "driver-a") -> Json:
    """A driver's configuration parameters."""
    return {"opaque": {"driver": driver, "parameters": {name: "value"}}}


A, B = _parameters("of-class-a"), _parameters("of-class-b", "driver-b")
CONFIGURED = [
    class_("class-a", 'device.driver == "driver-a"', config=[A]),
    class_("class-b", 'device.driver == "driver-b"', config=[B]),
]
OF_A = slice_a("slice-1", [device("a1"), device("a2"), device("a3")])
OF_B = slice_b("slice-1", [device("b1"), device("b2")])


def _allocated_configuration(slices: list[ResourceSlice], wanted: ResourceClaim, **options: Any) -> list[Json]:
    """The configuration in the allocation."""
    results = allocated(slices, wanted, **options)
    assert results is not None
    config: list[Json] = to_dict(results[0])["devices"]["config"]
    return config


@scenario(55)
def test_class_configuration_lists_requests_of_the_class() -> None:
    wanted = claim(request("r", wants_a()), request("q", wants_a()), request("p", wants_b()))
    assert _allocated_configuration([OF_A, OF_B], wanted, classes=CONFIGURED) == [
        {"source": "FromClass", "requests": ["r", "q"], **A},
        {"source": "FromClass", "requests": ["p"], **B},
    ]


@scenario(56)
def test_claim_configuration_keeps_its_request_list() -> None:
    requests = [request(name, wants_a()) for name in ("r", "q", "p")]
    config = {**_parameters("two"), "requests": ["r", "q"]}
    assert _allocated_configuration([OF_A], claim(*requests, config=[config])) == [{"source": "FromClaim", **config}]


ALTERNATIVES = first_of("r", wants_a(), wants_b(2))


@scenario(70)
def test_chosen_alternative_keeps_claim_configuration() -> None:
    config = [{**_parameters("first"), "requests": ["r/s0"]}, {**_parameters("second"), "requests": ["r/s1"]}]
    assert _allocated_configuration([OF_B], claim(ALTERNATIVES, config=config)) == [
        {"source": "FromClaim", **_parameters("second")}
    ]


@scenario(71)
def test_chosen_alternative_keeps_class_configuration() -> None:
    assert _allocated_configuration([OF_B], claim(ALTERNATIVES), classes=CONFIGURED) == [{"source": "FromClass", **B}]


@scenario(72)
def test_configuration_of_two_alternatives_is_kept_once() -> None:
    config = {**_parameters("either"), "requests": ["r/s0", "r/s1"]}
    wanted = claim(ALTERNATIVES, request("q", wants_a()), config=[config])
    assert _allocated_configuration([OF_A], wanted) == [{"source": "FromClaim", **config}]
