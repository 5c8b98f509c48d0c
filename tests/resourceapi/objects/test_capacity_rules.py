"""Rules for requests of a capacity."""

from typing import Any

import pytest

from tests.resourceapi.objects import samples

AT = "spec.devices[0]"
VALUES = f"{AT}.capacity[memory].requestPolicy.validValues"
RANGE = f"{AT}.capacity[memory].requestPolicy.validRange"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, []),
        ({"default": "5"}, []),
        (
            {"default": "1", "validValues": ["1"], "validRange": {"min": "1"}},
            [f"{AT}.capacity[memory].requestPolicy: Forbidden: exactly one policy can be specified, cannot specify"],
        ),
        (
            {"validValues": ["1"]},
            [f"{AT}.capacity[memory].requestPolicy.default: Required value: required when validValues is defined"],
        ),
        (
            {"validRange": {}},
            [f"{AT}.capacity[memory].requestPolicy.default: Required value: required when validRange is defined"],
        ),
        ({"default": "1", "validValues": ["1", "5", "10"]}, []),
        (
            {"default": "1", "validValues": ["5", "1"]},
            [f'{VALUES}[1]: Invalid value: "1": values must be sorted in asc'],
        ),
        (
            {"default": "1", "validValues": ["1", "11"]},
            [f'{VALUES}[1]: Invalid value: "11": option is larger than capacity v'],
        ),
        ({"default": "1", "validValues": ["1", "1"]}, [f'{VALUES}[1]: Duplicate value: "1"']),
        ({"default": "1", "validValues": ["1", "2500m", "3"]}, [f'{VALUES}[2]: Duplicate value: "3"']),
        (
            {"default": "2", "validValues": ["1"]},
            [f'{VALUES}: Invalid value: "2": default value is not valid according'],
        ),
        (
            {"default": "1", "validValues": ["1"] * 11},
            [
                f"{VALUES}: Too many: 11: must have at most 10 items",
                f'{VALUES}: Invalid value: "1": default value is not',
            ],
        ),
        ({"default": "1", "validRange": {}}, [f"{RANGE}.min: Required value: required when validRange is defined"]),
        ({"default": "5", "validRange": {"min": "1", "max": "9", "step": "2"}}, []),
        (
            {"default": "11", "validRange": {"min": "11"}},
            [f'{RANGE}.min: Invalid value: "11": min is larger than capacity value: 10'],
        ),
        (
            {"default": "0", "validRange": {"min": "1"}},
            [f'{RANGE}.min: Invalid value: "0": default is less than min: 1'],
        ),
        (
            {"default": "5", "validRange": {"min": "5", "max": "4"}},
            [
                f'{RANGE}.max: Invalid value: "5": min is larger than max: 4',
                f'{RANGE}.max: Invalid value: "5": default is more than max: 4',
            ],
        ),
        (
            {"default": "1", "validRange": {"min": "1", "max": "11"}},
            [f'{RANGE}.max: Invalid value: "11": max is larger than capacity value: 10'],
        ),
        (
            {"default": "4", "validRange": {"min": "1", "max": "8", "step": "2"}},
            [
                f'{RANGE}.step: Invalid value: "4": value is not a multiple of a given step (2) from (1)',
                f'{RANGE}.step: Invalid value: "8": value is not a multiple of a given step (2) from (1)',
            ],
        ),
        (
            {"default": "1", "validRange": {"min": "1", "step": "10"}},
            [f'{RANGE}.step: Invalid value: "10": one step 11 is larger than capacity value: 10'],
        ),
        (
            {"default": "1", "validRange": {"min": "1", "step": "0"}},
            [f'{RANGE}.step: Invalid value: "0": must be greater than zero'],
        ),
        ({"default": "1", "validRange": {"min": "1", "step": "-1"}}, []),
        (
            {"default": "1", "validRange": {"min": "1", "step": "18446744073709551616"}},
            [
                f'{RANGE}.step: Invalid value: "18446744073709551616": one step 18446744073709551617 is larger than',
                f'{RANGE}.step: Invalid value: "1": value is not a multiple of a given step',
            ],
        ),
        (
            {"default": "1", "validRange": {"min": "1", "step": "1e2000000"}},
            [
                f'{RANGE}.step: Invalid value: "100e1999998": quantities 1 and 100e1999998 are too far apart',
            ],
        ),
    ],
)
def test_request_policy_is_validated(policy: dict[str, Any], expected: list[str]) -> None:
    capacity = {"memory": {"value": "10", "requestPolicy": policy}}
    samples.check_create(samples.SLICE, "spec.devices.0.capacity", capacity, expected)
