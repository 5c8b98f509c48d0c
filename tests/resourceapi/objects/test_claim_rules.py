"""Rules for the requests of claims and claim templates: one row per rule of the specification."""

from typing import Any

import pytest

from tests.resourceapi.objects import samples
from tests.resourceapi.objects.samples import validate_create

NAME_OF_A_REQUEST = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)
ONE_OF_TWO = "exactly one of `exactly` or `firstAvailable` is required"
CONFIG = {"opaque": {"driver": "d", "parameters": {}}}
SELECTOR = {"cel": {"expression": "true"}}
EXACTLY = "spec.devices.requests.0.exactly"


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("spec.devices", {}, []),
        (EXACTLY, None, [f"spec.devices.requests[0]: Required value: {ONE_OF_TWO}"]),
        (
            "spec.devices.requests.1.exactly",
            {"deviceClassName": "x"},
            [f"spec.devices.requests[1]: Invalid value: null: {ONE_OF_TWO}, but multiple fields are set"],
        ),
        (f"{EXACTLY}.deviceClassName", "", ["spec.devices.requests[0].exactly.deviceClassName: Required value"]),
        (
            f"{EXACTLY}.deviceClassName",
            "A",
            ['spec.devices.requests[0].exactly.deviceClassName: Invalid value: "A": a low'],
        ),
        (f"{EXACTLY}.selectors", [SELECTOR] * 33, ["spec.devices.requests[0].exactly.selectors: Too many: 33"]),
        (
            f"{EXACTLY}.allocationMode",
            "Some",
            [
                'spec.devices.requests[0].exactly.allocationMode: Unsupported value: "Some":'
                ' supported values: "All", "ExactCount"'
            ],
        ),
        (
            f"{EXACTLY}.allocationMode",
            "All",
            [
                "spec.devices.requests[0].exactly.count: Invalid value: 2:"
                " must not be specified when allocationMode is 'All'"
            ],
        ),
        (
            f"{EXACTLY}.count",
            0,
            ["spec.devices.requests[0].exactly.count: Invalid value: 0: must be greater than zero"],
        ),
        (f"{EXACTLY}.count", 2**62, []),
        (
            f"{EXACTLY}.tolerations",
            [
                {"operator": "Exists", "value": "x"},
                {"operator": "Equal", "value": "-"},
                {"key": "-"},
                {"operator": "Like", "effect": "Panic"},
                {"operator": "Exists", "effect": "None"},
            ],
            [
                'spec.devices.requests[0].exactly.tolerations[0].value: Invalid value: "x": must be empty for operator'
                " `Exists`",
                'spec.devices.requests[0].exactly.tolerations[1].value: Invalid value: "-": a valid label must',
                'spec.devices.requests[0].exactly.tolerations[2].key: Invalid value: "-": name part',
                "spec.devices.requests[0].exactly.tolerations[2].operator: Required value",
                'spec.devices.requests[0].exactly.tolerations[3].operator: Unsupported value: "Like": supported values:'
                ' "Equal", "Exists"',
                'spec.devices.requests[0].exactly.tolerations[3].effect: Unsupported value: "Panic": supported values:'
                ' "NoExecute", "NoSchedule", "None"',
            ],
        ),
        (
            "spec.devices.requests.1.firstAvailable.1.name",
            "fast",
            ['spec.devices.requests[1].firstAvailable[1]: Duplicate value: "fast"'],
        ),
        (
            "spec.devices.requests.1.firstAvailable.0.deviceClassName",
            "",
            ["spec.devices.requests[1].firstAvailable[0].deviceClassName: Required value"],
        ),
        (
            "spec.devices.constraints.0.requests",
            ["gpu", "gpu"],
            ['spec.devices.constraints[0].requests[1]: Duplicate value: "gpu"'],
        ),
        (
            "spec.devices.constraints.0.requests",
            ["nic/slow", "gpu/x", "nic/fast/x", "A"],
            [
                f'spec.devices.constraints[0].requests[0]: Invalid value: "nic/slow": {NAME_OF_A_REQUEST}',
                f'spec.devices.constraints[0].requests[1]: Invalid value: "gpu/x": {NAME_OF_A_REQUEST}',
                f'spec.devices.constraints[0].requests[2]: Invalid value: "nic/fast/x": {NAME_OF_A_REQUEST}',
                'spec.devices.constraints[0].requests[3]: Invalid value: "A": a lowercase RFC 1123 label',
                f'spec.devices.constraints[0].requests[3]: Invalid value: "A": {NAME_OF_A_REQUEST}',
            ],
        ),
        (
            "spec.devices.constraints.0.matchAttribute",
            "numa",
            [
                'spec.devices.constraints[0].matchAttribute: Invalid value: "numa":'
                " a fully qualified name must be a domain and a name separated by a slash"
            ],
        ),
        (
            "spec.devices.constraints.0.matchAttribute",
            "/",
            [
                'spec.devices.constraints[0].matchAttribute: Invalid value: "": the domain must not be empty',
                'spec.devices.constraints[0].matchAttribute: Invalid value: "": the name must not be empty',
            ],
        ),
        (
            "spec.devices.constraints",
            [{}],
            [
                'spec.devices.constraints[0]: Required value: exactly one of "matchAttribute" or "distinctAttribute" is'
                " required, but multiple fields are set"
            ],
        ),
        ("spec.devices.constraints", [{"distinctAttribute": "a/b"}] * 32, []),
        ("spec.devices.constraints", [{"distinctAttribute": "a/b"}] * 33, ["spec.devices.constraints: Too many: 33"]),
        ("spec.devices.config.0.requests", ["no"], ["spec.devices.config[0].requests[0]: Invalid value"]),
        ("spec.devices.config", [CONFIG] * 33, ["spec.devices.config: Too many: 33"]),
    ],
)
def test_new_claim_and_template_are_validated(path: str, value: Any, expected: list[str]) -> None:
    samples.check_create(samples.CLAIM, path, value, expected)
    in_template = [text.replace("spec.", "spec.spec.", 1) for text in expected]
    samples.check_create(samples.TEMPLATE, path.replace("spec", "spec.spec", 1), value, in_template)


def test_request_names_must_be_labels_and_unique() -> None:
    unnamed = samples.build_object(samples.CLAIM, "spec.devices.requests.0.name", "")
    errors = [str(error) for error in validate_create(unnamed)]
    assert errors[0].startswith('spec.devices.requests[0].name: Invalid value: "": a lowercase RFC 1123 label must')
    with_duplicate_name = samples.build_object(samples.CLAIM, "spec.devices.requests.0.name", "nic")
    assert 'spec.devices.requests[1]: Duplicate value: "nic"' in [
        str(error) for error in validate_create(with_duplicate_name)
    ]


def test_requests_over_limit_are_not_validated() -> None:
    spec = {"devices": {"requests": [{"name": "A"}] * 33}}
    samples.check_create(
        samples.CLAIM, "spec", spec, ["spec.devices.requests: Too many: 33: must have at most 32 items"]
    )
    nine = [{"name": "A"}] * 9
    samples.check_create(
        samples.CLAIM,
        "spec.devices.requests.1.firstAvailable",
        nine,
        ["spec.devices.requests[1].firstAvailable: Too many: 9", "spec.devices.constraints[0].requests[1]"],
    )
