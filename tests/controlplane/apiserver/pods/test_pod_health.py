"""Validation of device health in a pod's status."""

from typing import Any

import pytest

from tests.controlplane.apiserver.running import MERGE, Http

PODS = "/api/v1/namespaces/default/pods"
FIRST_ENTRY = "status.containerStatuses[0].allocatedResourcesStatus[0]"
NO_CLAIM = (
    "must match one of the container's resource claims as 'claim:<claimName>/<requestName>' when"
    " container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty"
)


def patch_device_health(api: Http, name: str, devices: Any) -> tuple[int, str]:
    resources = {"limits": {"example.com/gpu": "1"}, "claims": [{"name": "c", "request": "r"}, {"name": "d"}]}
    claims = [{"name": each, "resourceClaimName": each} for each in ("c", "d")]
    spec = {"containers": [{"name": "main", "image": "i", "resources": resources}], "resourceClaims": claims}
    api.ok("POST", PODS, {"metadata": {"name": "p"}, "spec": spec})
    container = {"name": "main", "image": "i", "imageID": "", "ready": True, "restartCount": 0}
    container["allocatedResourcesStatus"] = [{"name": name, "resources": devices}]
    answer = api.send("PATCH", f"{PODS}/p/status", {"status": {"containerStatuses": [container]}}, content=MERGE)
    return answer.status, answer.message if answer.status > 299 else ""


@pytest.mark.parametrize("name", ["example.com/gpu", "claim:c/r", "claim:d"])
def test_health_of_devices_of_the_container_is_accepted(api: Http, name: str) -> None:
    devices = [{"resourceID": "a", "health": "Healthy"}, {"resourceID": "b", "health": "Unhealthy", "message": "hot"}]
    assert patch_device_health(api, name, devices) == (200, "")


@pytest.mark.parametrize(
    ("name", "devices", "why"),
    [
        (
            "other",
            [],
            f'{FIRST_ENTRY}.name: Invalid value: "other": must match one of the container\'s resource requests',
        ),
        ("claim:c", [], f'{FIRST_ENTRY}.name: Invalid value: "claim:c": {NO_CLAIM}'),
        (
            "claim:d",
            [{"resourceID": "a", "health": "Ill"}],
            f'{FIRST_ENTRY}.resources[0].health: Unsupported value: "Ill": supported values: "Healthy", "Unhealthy",'
            ' "Unknown"',
        ),
        (
            "claim:d",
            [{"resourceID": "a", "health": "Healthy"}, {"resourceID": "a", "health": "Healthy", "message": ""}],
            f"[{FIRST_ENTRY}.resources[1].message: Required value: must be non-empty if specified,"
            f' {FIRST_ENTRY}.resources[1].resourceID: Duplicate value: "a"]',
        ),
    ],
)
def test_invalid_device_health_is_refused(api: Http, name: str, devices: Any, why: str) -> None:
    assert patch_device_health(api, name, devices) == (422, f'Pod "p" is invalid: {why}')


def test_invalid_port_name_reports_all_errors(api: Http) -> None:
    ports = [{"name": "Metrics--", "containerPort": 1}]
    spec = {"containers": [{"name": "c", "image": "i", "ports": ports}]}
    answer = api.send("POST", PODS, {"metadata": {"name": "p"}, "spec": spec})
    assert [each["message"].partition('--": ')[2] for each in answer.body["details"]["causes"]] == [
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        "must not contain consecutive hyphens",
        "must not begin or end with a hyphen",
    ]
