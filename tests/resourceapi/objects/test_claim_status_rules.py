"""Rules for the status of claims: one row per rule of the specification."""

from typing import Any

import pytest
from msgspec.structs import replace

from resourceapi.objects import v1
from tests.resourceapi.objects import samples
from tests.resourceapi.objects.samples import validate_status_update

INVALID_REQUEST_NAME = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)


def check_status(path: str, value: Any, expected: list[str], before: dict[str, Any] | None = None) -> None:
    new = samples.build_object(samples.CLAIM, path, value)
    old = samples.build_object(samples.CLAIM, "status", before or {})
    meta = replace(new.metadata, resource_version="1")
    errors = validate_status_update(replace(new, metadata=meta), replace(old, metadata=meta))
    samples.check_errors([str(error) for error in errors], expected)


TERM = "status.allocation.nodeSelector.nodeSelectorTerms[0]"
USER = {"resource": "pods", "name": "p", "uid": "u"}
RESULT = samples.CLAIM["status"]["allocation"]["devices"]["results"][0]
NOT_ALLOCATED = (
    'status.devices[0]: Invalid value: {"Driver":"gpu.example.com","Pool":"node-1","Device":"gpu-0",'
    '"ShareID":"a1b2c3d4-0000-4000-8000-000000000000"}: must be an allocated device in the claim'
)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("status.reservedFor", [USER | {"uid": str(number)} for number in range(256)], []),
        (
            "status.reservedFor",
            [USER | {"uid": str(number)} for number in range(257)],
            ["status.reservedFor: Too many: 257"],
        ),
        ("status.reservedFor", [USER, USER], ['status.reservedFor[1]: Duplicate value: "u"']),
        (
            "status.reservedFor",
            [{}],
            [f"status.reservedFor[0].{name}: Required value" for name in ("resource", "name", "uid")],
        ),
        (
            "status.allocation",
            None,
            [NOT_ALLOCATED, "status.reservedFor: Forbidden: may not be specified when `allocated` is not set"],
        ),
        ("status.allocation.devices.results", [RESULT] * 33, ["status.allocation.devices.results: Too many: 33"]),
        (
            "status.allocation.devices.results",
            [RESULT, {}],
            [
                'status.allocation.devices.results[1].request: Invalid value: "": a lowercase',
                f'status.allocation.devices.results[1].request: Invalid value: "": {INVALID_REQUEST_NAME}',
                "status.allocation.devices.results[1].driver: Required value",
                "status.allocation.devices.results[1].pool: Required value",
                'status.allocation.devices.results[1].device: Invalid value: "": a lowercase',
            ],
        ),
        (
            "status.allocation.devices.results.0.bindingConditions",
            ["Ready", "Ready"],
            [
                'status.allocation.devices.results[0].bindingConditions[1]: Duplicate value: "Ready"',
                "status.allocation.devices.results[0].bindingFailureConditions: Invalid value: null:"
                " bindingFailureConditions are required to use bindingConditions",
            ],
        ),
        (
            "status.allocation.devices.config.0.source",
            "",
            ["status.allocation.devices.config[0].source: Required value"],
        ),
        (
            "status.allocation.devices.config.0.source",
            "FromSky",
            [
                'status.allocation.devices.config[0].source: Unsupported value: "FromSky": supported values:'
                ' "FromClaim", "FromClass"'
            ],
        ),
        (
            "status.allocation.devices.config.0.requests",
            ["no"],
            ["status.allocation.devices.config[0].requests[0]: Inv"],
        ),
        (
            "status.allocation.nodeSelector.nodeSelectorTerms",
            [
                {
                    "matchExpressions": [
                        {"key": "-", "operator": "Gt"},
                        {"key": "a", "operator": "Exists", "values": ["x"]},
                    ]
                }
            ],
            [
                f"{TERM}.matchExpressions[0].values: Required value: must be"
                " specified single value when `operator` is 'Lt' or 'Gt'",
                f'{TERM}.matchExpressions[0].key: Invalid value: "-": name',
                f"{TERM}.matchExpressions[1].values: Forbidden: may not be"
                " specified when `operator` is 'Exists' or 'DoesNotExist'",
            ],
        ),
        (
            "status.allocation.nodeSelector.nodeSelectorTerms.0.matchFields",
            [{"key": "spec.x", "operator": "In"}, {"key": "metadata.name", "operator": "Gt", "values": ["A"]}],
            [
                f"{TERM}.matchFields[0].values: Required value: must be only"
                " one value when `operator` is 'In' or 'NotIn' for node field selector",
                f'{TERM}.matchFields[0].key: Invalid value: "spec.x": not a valid field selector key',
                f'{TERM}.matchFields[1].operator: Invalid value: "Gt": not a valid selector operator',
                f'{TERM}.matchFields[1].values[0]: Invalid value: "A": a low',
            ],
        ),
        ("status.devices.0.device", "gpu-1", [NOT_ALLOCATED.replace("gpu-0", "gpu-1")]),
        (
            "status.devices.0.data",
            [],
            ['status.devices[0].data: Invalid value: "<value omitted>": must be a valid JSON'],
        ),
        (
            "status.devices.0.networkData.interfaceName",
            "e" * 257,
            ["status.devices[0].networkData.interfaceName: Too long"],
        ),
        (
            "status.devices.0.networkData.hardwareAddress",
            "e" * 129,
            ["status.devices[0].networkData.hardwareAddress: Too"],
        ),
        (
            "status.devices.0.networkData.ips",
            [f"10.0.0.{number}/24" for number in range(17)],
            ["status.devices[0].networkData.ips: Too many: 17: must have at most 16 items"],
        ),
        (
            "status.devices.0.networkData.ips",
            ["10.0.0.1/24", "10.0.0.1/24"],
            ['status.devices[0].networkData.ips[1]: Duplicate value: "10.0.0.1/24"'],
        ),
        (
            "status.devices.0.conditions.0.lastTransitionTime",
            None,
            ["status.devices[0].conditions[0].lastTransitionTime: R"],
        ),
        ("status.devices.0.conditions.0.reason", "", ["status.devices[0].conditions[0].reason: Required value"]),
        ("status.devices.0.conditions.0.reason", "a" * 1025, ["status.devices[0].conditions[0].reason: Too long"]),
        ("status.devices.0.conditions.0.message", "a" * 32769, ["status.devices[0].conditions[0].message: Too long"]),
        (
            "status.devices.0.conditions.0.observedGeneration",
            -1,
            ["status.devices[0].conditions[0].observedGeneration: Inv"],
        ),
        (
            "status.devices.0.conditions.0.status",
            "Yes",
            [
                'status.devices[0].conditions[0].status: Unsupported value: "Yes": supported values: "False", "True",'
                ' "Unknown"'
            ],
        ),
    ],
)
def test_claim_status_is_validated(path: str, value: Any, expected: list[str]) -> None:
    check_status(path, value, expected)


@pytest.mark.parametrize(
    ("address", "detail"),
    [
        ("10.0.0.1/24", ""),
        ("2001:db8::1/64", ""),
        ("::/0", ""),
        ("10.0.0.1", "must be a valid address in CIDR form"),
        ("10.0.0.1/33", "must be a valid address in CIDR form"),
        ("10.0.0.1/+1", "must be a valid address in CIDR form"),
        ("fe80::1%eth0/64", "must be a valid address in CIDR form"),
        ("10.0.0/8", "must be a valid address in CIDR form"),
        ("", "must be a valid address in CIDR form"),
        ("10.00.0.01/24", 'must be in canonical form ("10.0.0.1/24")'),
        ("10.0.0.1/024", 'must be in canonical form ("10.0.0.1/24")'),
        ("2001:DB8:0::1/64", 'must be in canonical form ("2001:db8::1/64")'),
        ("::ffff:10.0.0.1/120", 'must be in canonical form ("10.0.0.1/24")'),
    ],
)
def test_interface_address_must_be_canonical_cidr(address: str, detail: str) -> None:
    expected = [f'status.devices[0].networkData.ips[0]: Invalid value: "{address}": {detail}'] if detail else []
    check_status("status.devices.0.networkData.ips", [address], expected)


@pytest.mark.parametrize(
    ("uid", "detail"),
    [
        ("A1B2C3D4-0000-4000-8000-000000000000", "uid must be in RFC 4122 normalized form"),
        ("a1b2c3d4000040008000000000000000", "uid must be in RFC 4122 normalized form"),
        ("{a1b2c3d4-0000-4000-8000-000000000000}", "uid must be in RFC 4122 normalized form"),
        ("urn:uuid:a1b2c3d4-0000-4000-8000-000000000000", "uid must be in RFC 4122 normalized form"),
        ("urn:uid::a1b2c3d4-0000-4000-8000-000000000000", 'error validating uid: invalid urn prefix: "urn:uid::"'),
        ("(a1b2c3d4-0000-4000-8000-000000000000)", "error validating uid: invalid bracketed UUID format"),
        ("g1b2c3d4-0000-4000-8000-000000000000", "error validating uid: invalid UUID format"),
        ("", "error validating uid: invalid UUID length: 0"),
    ],
)
def test_invalid_share_id_is_refused(uid: str, detail: str) -> None:
    path = "status.allocation.devices.results.0.shareID"
    shown = f'status.allocation.devices.results[0].shareID: Invalid value: "{uid}": {detail}'
    check_status(path, uid, [NOT_ALLOCATED, shown])


def test_allocation_can_be_removed_but_not_changed() -> None:
    before = samples.CLAIM["status"]
    check_status("status", {}, [], before)
    other = RESULT | {"device": "gpu-1"}
    check_status(
        "status",
        {"allocation": {"devices": {"results": [other]}}},
        ['status.allocation: Invalid value: {"Devices":{"Results":[{"Request":"gpu","Driver":"gpu.example.com",'],
        before,
    )


def test_deleting_claim_accepts_no_new_consumers() -> None:
    claim = samples.build_object(samples.CLAIM, "metadata.deletionTimestamp", "2026-01-02T03:04:05Z")
    assert isinstance(claim, v1.ResourceClaim)
    claim = replace(claim, metadata=replace(claim.metadata, resource_version="1"))
    unused = replace(claim, status=replace(claim.status, reserved_for=()))
    assert validate_status_update(unused, claim) == []
    assert [str(error) for error in validate_status_update(claim, unused)] == [
        "status.reservedFor: Forbidden: new entries may not be added while `deallocationRequested` or "
        "`deletionTimestamp` are set"
    ]
