"""Rules for slices and taint rules: one row per rule of the specification."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.resourceapi.objects import samples
from tests.resourceapi.objects.samples import validate_status_update, validate_update

IDENTIFIER = "a valid C identifier must start with alphabetic character or '_'"
SUBDOMAIN = "a lowercase RFC 1123 subdomain must"
ONE_OF_FOUR = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
ONE_OF_THREE = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true"
    " in the ResourceSlice spec"
)
TERM = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
DEVICE = "spec.devices.0"
AT = "spec.devices[0]"


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("spec.driver", "", ["spec.driver: Required value"]),
        ("spec.pool.name", "", ["spec.pool.name: Required value"]),
        ("spec.pool.name", "a/b.c/d", []),
        ("spec.pool.name", "a//b", [f'spec.pool.name: Invalid value: "": {SUBDOMAIN}']),
        ("spec.pool.name", "a/" + "b" * 252, ["spec.pool.name: Too long: may not be more than 253 bytes"]),
        (
            "spec.pool.resourceSliceCount",
            0,
            ["spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero"],
        ),
        (
            "spec.pool.generation",
            -1,
            ["spec.pool.generation: Invalid value: -1: must be greater than or equal to zero"],
        ),
        (
            "spec.nodeName",
            "",
            [
                'spec.nodeName: Invalid value: "": must be either unset or set to a non-empty string',
                f"spec: Required value: {ONE_OF_FOUR}",
            ],
        ),
        ("spec.nodeName", "A", [f'spec.nodeName: Invalid value: "A": {SUBDOMAIN}']),
        ("spec.nodeName", None, [f"spec: Required value: {ONE_OF_FOUR}"]),
        (
            "spec.allNodes",
            True,
            [f'spec: Invalid value: "{{`nodeName`, `allNodes`}}": {ONE_OF_FOUR}, but multiple fields are set'],
        ),
        ("spec.allNodes", False, ["spec.allNodes: Invalid value: false: must be either unset or set to true"]),
        (
            "spec.perDeviceNodeSelection",
            False,
            ["spec.perDeviceNodeSelection: Invalid value: false: must be either unset or set to true"],
        ),
        (
            "spec.sharedCounters",
            [{"name": "a", "counters": {"c": {}}}],
            ['spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed'],
        ),
        ("spec.skipNodeOperations", ["NodePrepareResources", "NodeUnprepareResources"], []),
        ("spec.skipNodeOperations", ["NodeUnprepareResources"], []),
        ("spec.skipNodeOperations", ["NodePrepareResources", "*"], []),
        ("spec.skipNodeOperations", ["*", "*"], ['spec.skipNodeOperations[1]: Duplicate value: "*"']),
        (
            "spec.skipNodeOperations",
            ["NodePrepareResources", "All"],
            [
                'spec.skipNodeOperations[1]: Unsupported value: "All": supported values: "*", "NodeP',
                'spec.skipNodeOperations: Invalid value: ["NodePrepareResources","All"]: NodePrepareResources cannot',
            ],
        ),
        ("spec.devices", [{"name": f"d{number}"} for number in range(128)], []),
        ("spec.devices", [{"name": "D"}] * 129, ["spec.devices: Too many: 129: must have at most 128 items"]),
        (
            "spec.devices",
            [{"name": f"d{number}", "attributes": {"a": {"ints": [1]}}} for number in range(65)],
            ["spec.devices: Too many: 65: must have at most 64 items"],
        ),
        ("spec.devices", [{"name": "a"}, {"name": "a"}], ['spec.devices[1]: Duplicate value: "a"']),
        (f"{DEVICE}.name", "A", [f'{AT}.name: Invalid value: "A": a lowercase RFC 1123 label']),
        (
            f"{DEVICE}.nodeName",
            "x",
            [f"{AT}: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be"],
        ),
        (
            f"{DEVICE}.allNodes",
            False,
            [f"{AT}: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only"],
        ),
    ],
)
def test_new_slice_is_validated(path: str, value: Any, expected: list[str]) -> None:
    samples.check_create(samples.SLICE, path, value, expected)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (
            "spec.nodeSelector.nodeSelectorTerms",
            [],
            [
                "spec.nodeSelector.nodeSelectorTerms: Required value: must have at least one node selector term",
                "spec.nodeSelector.nodeSelectorTerms: Invalid value: []: must have exactly one node selector term",
            ],
        ),
        (
            "spec.nodeSelector.nodeSelectorTerms",
            [TERM, TERM],
            [
                'spec.nodeSelector.nodeSelectorTerms: Invalid value: [{"MatchExpressions":[{"Key":"a",'
                '"Operator":"Exists","Values":null}],"MatchFields":null},{"MatchExpressions":'
            ],
        ),
        (
            "spec.sharedCounters",
            [{"name": f"c{number}", "counters": {"c": {}}} for number in range(9)],
            ["spec.sharedCounters: Too many: 9: must have at most 8 items"],
        ),
        (
            "spec.sharedCounters",
            [{}, {"name": "A", "counters": {"C": {}}}, {"name": "A", "counters": {str(n): {} for n in range(33)}}],
            [
                "spec.sharedCounters[0].name: Required value",
                "spec.sharedCounters[0].counters: Required value",
                'spec.sharedCounters[1].name: Invalid value: "A": a lowercase RFC 1123 label',
                'spec.sharedCounters[1].counters: Invalid value: "C": a lowercase RFC 1123 label',
                'spec.sharedCounters[2].name: Invalid value: "A": a lowercase RFC 1123 label',
                "spec.sharedCounters[2].counters: Too many: 33: must have at most 32 items",
                'spec.sharedCounters[2]: Duplicate value: "A"',
            ],
        ),
        (
            "spec.partitionTypeAttribute",
            "gpu.example.com/profile",
            ["spec.partitionTypeAttribute: Forbidden: may only be set on a slice which declares devices that consume"],
        ),
    ],
)
def test_new_counter_slice_is_validated(path: str, value: Any, expected: list[str]) -> None:
    samples.check_create(samples.COUNTER_SLICE, path, value, expected)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("attributes", {f"a{number}": {"int": 1} for number in range(30)}, []),
        (
            "attributes",
            {f"a{number}": {"int": 1} for number in range(31)},
            [f"{AT}: Invalid value: 33: the total number of attributes and capacities must not exceed 32"],
        ),
        (
            "attributes",
            {"a": {"ints": [1] * 47}, "b": {"strings": []}},
            [f"{AT}.attributes[b].strings: Invalid value: []: must"],
        ),
        (
            "attributes",
            {"a": {"ints": [1] * 47}, "b": {"bool": True}, "c": {"int": 0}},
            [f"{AT}: Invalid value: 49: the total number of attribute values must not exceed 48"],
        ),
        ("attributes", {"": {"int": 1}}, [f'{AT}.attributes: Invalid value: "": {IDENTIFIER}']),
        ("attributes", {"a-b": {"int": 1}}, [f'{AT}.attributes: Invalid value: "a-b": {IDENTIFIER}']),
        ("attributes", {"x" * 33: {"int": 1}}, [f"{AT}.attributes: Too long: may not be more than 32 bytes"]),
        ("attributes", {"/a": {"int": 1}}, [f'{AT}.attributes: Invalid value: "": the domain must not be empty']),
        ("attributes", {"a/": {"int": 1}}, [f'{AT}.attributes: Invalid value: "": the name must not be empty']),
        ("attributes", {"a_b/c": {"int": 1}}, [f'{AT}.attributes: Invalid value: "a_b": {SUBDOMAIN}']),
        ("attributes", {"A.example.com/c": {"int": 1}, "a/b/c": {"int": 1}}, []),
        ("attributes", {"a": {}}, [f'{AT}.attributes[a]: Invalid value: "": exactly one value must be specified']),
        (
            "attributes",
            {"a": {"int": 1, "strings": ["x"]}},
            [
                f'{AT}.attributes[a]: Invalid value: {{"IntValue":1,"BoolValue":null,"StringValue":null,'
                '"VersionValue":null,"IntValues":null,"BoolValues":null,"StringValues":["x"],"VersionValues":null}: ex'
            ],
        ),
        ("attributes", {"a": {"string": "\u00e9" * 32}}, []),
        (
            "attributes",
            {"a": {"string": "\u00e9" * 33}},
            [f"{AT}.attributes[a].string: Too long: may not be more than 64"],
        ),
        (
            "attributes",
            {"a": {"strings": ["", "x" * 65]}},
            [f"{AT}.attributes[a].strings[1]: Too long: may not be more"],
        ),
        ("attributes", {"a": {"version": "1.2.3-rc.1+build.5"}}, []),
        (
            "attributes",
            {"a": {"versions": ["1.2.3", "1.2", "01.2.3", "1.2.3\n"]}},
            [
                f'{AT}.attributes[a].versions[1]: Invalid value: "1.2": must be a string compatible',
                f'{AT}.attributes[a].versions[2]: Invalid value: "01.2.3": must be a string compatible',
                f'{AT}.attributes[a].versions[3]: Invalid value: "1.2.3\\n": must be a string compatible',
            ],
        ),
        (
            "attributes",
            {"x" * 200: {}},
            [
                f"{AT}.attributes: Too long: may not be more than 32 bytes",
                f'{AT}.attributes[{"x" * 47}...{"x" * 46}]: Invalid value: "": exactly one value must be specified',
            ],
        ),
        (
            "capacity",
            {"a-b": {"value": "1"}, "memory": {"value": "1"}},
            [f'{AT}.capacity: Invalid value: "a-b": {IDENTIFIER}'],
        ),
        (
            "allowMultipleAllocations",
            False,
            [
                f"{AT}.capacity[engines].requestPolicy: Forbidden: allowMultipleAllocations must be true",
                f"{AT}.capacity[memory].requestPolicy: Forbidden: allowMultipleAllocations must be true",
            ],
        ),
        (
            "consumesCounters",
            [{"counterSet": "a", "counters": {"c": {}}}] * 2,
            [f'{AT}.consumesCounters[1]: Duplicate value: "a"'],
        ),
        ("consumesCounters", [{}] * 3, [f"{AT}.consumesCounters: Too many: 3: must have at most 2 items"]),
        (
            "consumesCounters",
            [{}],
            [
                f"{AT}.consumesCounters[0].counterSet: Required value",
                f"{AT}.consumesCounters[0].counters: Required value",
            ],
        ),
        ("taints", [{"key": "a", "effect": "None"}] * 16, []),
        ("taints", [{"key": "a", "effect": "None"}] * 17, [f"{AT}.taints: Too many: 17: must have at most 16 items"]),
        (
            "taints",
            [{"value": "-"}],
            [
                f'{AT}.taints[0].key: Invalid value: "": name part must be non-empty',
                f'{AT}.taints[0].key: Invalid value: "": name part must consist',
                f'{AT}.taints[0].value: Invalid value: "-": a valid label must',
                f"{AT}.taints[0].effect: Required value",
            ],
        ),
        (
            "taints",
            [{"key": "a", "effect": "Panic"}],
            [
                f'{AT}.taints[0].effect: Unsupported value: "Panic": supported values: "NoExecute", "NoSchedule", "N',
            ],
        ),
        ("bindingConditions", ["a", "b", "c", "d", "e"], [f"{AT}.bindingConditions: Too many: 5: must have at most 4"]),
        (
            "bindingFailureConditions",
            ["a", "a", "Attached"],
            [
                f'{AT}.bindingFailureConditions[1]: Duplicate value: "a"',
                f'{AT}.bindingFailureConditions[2]: Invalid value: "Attached": bindingFailureConditions must not',
            ],
        ),
        (
            "bindingConditions",
            [],
            [f"{AT}.bindingConditions: Invalid value: []: bindingConditions are required to use bindingFailureC"],
        ),
        (
            "nodeAllocatableResources",
            {
                "example.com/x": {},
                "cpu": {"mapping": {"capacityKey": "none", "capacityMultiplier": "0"}, "overhead": {"perPod": "-1"}},
            },
            [
                f'{AT}.nodeAllocatableResources[cpu].mapping.capacityKey: Not found: "none"',
                f'{AT}.nodeAllocatableResources[cpu].mapping.capacityMultiplier: Invalid value: "0": must be positive',
                f'{AT}.nodeAllocatableResources[cpu].overhead.perPod: Invalid value: "-1": must be non-negative',
                f'{AT}.nodeAllocatableResources[example.com/x]: Invalid value: "example.com/x": must be a node',
                f'{AT}.nodeAllocatableResources[example.com/x]: Invalid value: "": at least one of mapping or overhead',
            ],
        ),
    ],
)
def test_new_device_is_validated(path: str, value: Any, expected: list[str]) -> None:
    samples.check_create(samples.SLICE, f"{DEVICE}.{path}", value, expected)


def test_partition_type_attribute_must_exist_on_consuming_devices() -> None:
    path = "spec.partitionTypeAttribute"
    samples.check_create(samples.SLICE, path, "gpu.example.com/model", [])
    unqualified = 'spec.partitionTypeAttribute: Invalid value: "model": a fully qualified name must'
    samples.check_create(samples.SLICE, path, "model", [unqualified])
    samples.check_create(
        samples.SLICE, path, "example.com/numa", [f"{AT}.attributes[example.com/numa]: Required value"]
    )


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ({"nodeName": "x"}, []),
        ({"allNodes": True}, []),
        ({"nodeSelector": {"nodeSelectorTerms": [TERM, TERM]}}, []),
        ({}, [f"{AT}: Required value: {ONE_OF_THREE}"]),
        ({"nodeName": ""}, [f'{AT}.nodeName: Invalid value: "": must not be empty', f"{AT}: Required value"]),
        (
            {"allNodes": False, "nodeName": "x"},
            [f"{AT}.allNodes: Invalid value: false: must be either unset or set to true"],
        ),
        ({"allNodes": True, "nodeName": "x"}, [f'{AT}: Invalid value: "{{`nodeName`, `allNodes`}}": {ONE_OF_THREE}']),
        ({"nodeSelector": {}}, [f"{AT}.nodeSelector.nodeSelectorTerms: Required value"]),
    ],
)
def test_device_needs_one_node_field_with_per_device_selection(device: dict[str, Any], expected: list[str]) -> None:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d", "pool": pool, "perDeviceNodeSelection": True, "devices": [{"name": "a"} | device]}
    samples.check_create(samples.SLICE, "spec", spec, expected)


def update_errors(path: str, value: Any, sample: dict[str, Any] = samples.SLICE) -> list[str]:
    """The errors of changing a stored sample."""
    old, new = samples.build_object(sample), samples.build_object(sample, path, value)
    meta = replace(old.metadata, resource_version="1")
    errors = validate_update(replace(new, metadata=meta), replace(old, metadata=meta))
    return [str(error) for error in errors]


def test_immutable_slice_field_cannot_be_changed() -> None:
    assert update_errors("spec.pool.generation", 2) == []
    assert update_errors("spec.pool.name", "p") == ['spec.pool.name: Invalid value: "p": field is immutable']
    assert update_errors("spec.driver", "d") == ['spec.driver: Invalid value: "d": field is immutable']
    assert update_errors("spec.nodeName", "n") == ['spec.nodeName: Invalid value: "n": field is immutable']


def test_unchanged_taint_is_not_validated_again() -> None:
    with_unknown_effect = samples.changed(samples.SLICE, f"{DEVICE}.taints.0.effect", "Panic")
    assert update_errors("spec.pool.generation", 2, with_unknown_effect) == []
    assert update_errors(f"{DEVICE}.taints.0.key", "b", with_unknown_effect) == [
        f'{AT}.taints[0].effect: Unsupported value: "Panic": supported values: "NoExecute", "NoSchedule", "None"'
    ]


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("spec.deviceSelector", None, []),
        ("spec.deviceSelector", {}, []),
        (
            "spec.deviceSelector",
            {"driver": "", "pool": "", "device": ""},
            [
                "spec.deviceSelector.driver: Required value",
                "spec.deviceSelector.pool: Required value",
                'spec.deviceSelector.device: Invalid value: "": a lowercase RFC 1123 label',
            ],
        ),
        ("spec.taint.effect", "", ["spec.taint.effect: Required value"]),
        (
            "spec.taint.effect",
            "Panic",
            ['spec.taint.effect: Unsupported value: "Panic": supported values: "NoExecute"'],
        ),
        ("spec.taint.key", "-", ['spec.taint.key: Invalid value: "-": name part must']),
    ],
)
def test_new_taint_rule_is_validated(path: str, value: Any, expected: list[str]) -> None:
    samples.check_create(samples.TAINT_RULE, path, value, expected)


def test_unchanged_taint_rule_effect_is_not_validated_again() -> None:
    with_unknown_effect = samples.changed(samples.TAINT_RULE, "spec.taint.effect", "Panic")
    assert update_errors("spec.taint.value", "x", with_unknown_effect) == []


def test_taint_rule_conditions_must_be_unique_and_limited() -> None:
    condition = samples.CLAIM["status"]["devices"][0]["conditions"][0]
    nine = [condition | {"type": f"C{number}"} for number in range(9)]
    old = samples.build_object(samples.TAINT_RULE, "metadata.resourceVersion", "1")
    new = samples.build_object(samples.TAINT_RULE, "status.conditions", [*nine, condition | {"type": "C0"}])
    errors = validate_status_update(replace(new, metadata=old.metadata), old)
    assert [str(error) for error in errors] == [
        'status.conditions[9].type: Duplicate value: "C0"',
        "status.conditions: Too many: 10: must have at most 8 items",
    ]
