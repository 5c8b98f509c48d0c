"""Rules for device classes: one row per rule of the specification."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.resourceapi.objects import samples
from tests.resourceapi.objects.samples import validate_update

CONFIG = {"opaque": {"driver": "d", "parameters": {}}}
SELECTOR = {"cel": {"expression": "true"}}


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("spec.selectors", [SELECTOR] * 32, []),
        ("spec.selectors", [SELECTOR] * 33, ["spec.selectors: Too many: 33: must have at most 32 items"]),
        ("spec.selectors", [{}, SELECTOR], ["spec.selectors[0].cel: Required value"]),
        ("spec.selectors.0.cel.expression", "é" * 5120, []),
        (
            "spec.selectors.0.cel.expression",
            "é" * 5120 + "x",
            ["spec.selectors[0].cel.expression: Too long: may not be more than 10240 bytes"],
        ),
        ("spec.config", [CONFIG] * 32, []),
        ("spec.config", [CONFIG] * 33, ["spec.config: Too many: 33: must have at most 32 items"]),
        ("spec.config", [{}], ["spec.config[0].opaque: Required value"]),
        (
            "spec.config.0.opaque",
            {},
            ["spec.config[0].opaque.driver: Required value", "spec.config[0].opaque.parameters: Req"],
        ),
        ("spec.config.0.opaque.driver", "A.Example.com", []),
        (
            "spec.config.0.opaque.driver",
            "a_b",
            ['spec.config[0].opaque.driver: Invalid value: "a_b": a lowercase RFC 1123'],
        ),
        ("spec.config.0.opaque.driver", "a" * 63, []),
        (
            "spec.config.0.opaque.driver",
            "a" * 64,
            ["spec.config[0].opaque.driver: Too long: may not be more than 63 bytes"],
        ),
        ("spec.config.0.opaque.parameters", {"a": "x" * (10240 - 8)}, []),
        (
            "spec.config.0.opaque.parameters",
            {"a": "x" * (10240 - 7)},
            ["spec.config[0].opaque.parameters: Too long: may not be more than 10240 bytes"],
        ),
        (
            "spec.config.0.opaque.parameters",
            "text",
            ['spec.config[0].opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON object'],
        ),
        ("spec.config.0.opaque.parameters", None, ["spec.config[0].opaque.parameters: Required value"]),
        (
            "spec.extendedResourceName",
            "gpu",
            ['spec.extendedResourceName: Invalid value: "gpu": must be a valid extended resource name'],
        ),
        (
            "spec.suitableNodes",
            {"nodeSelectorTerms": []},
            ["suitableNodes.nodeSelectorTerms: Required value: must have at least one node selector term"],
        ),
    ],
)
def test_new_class_is_validated(path: str, value: Any, expected: list[str]) -> None:
    samples.check_create(samples.DEVICE_CLASS, path, value, expected)


def test_stored_class_parameters_can_exceed_limit_for_new_ones() -> None:
    large = samples.build_object(samples.DEVICE_CLASS, "spec.config.0.opaque.parameters", {"a": "x" * 20_000})
    stored = replace(large, metadata=replace(large.metadata, resource_version="1"))
    assert validate_update(stored, stored) == []
    changed_parameters = samples.build_object(
        samples.DEVICE_CLASS, "spec.config.0.opaque.parameters", {"a": "y" * 20_000}
    )
    (error,) = validate_update(replace(changed_parameters, metadata=stored.metadata), stored)
    assert error.message == "Too long: may not be more than 10240 bytes"
