"""Pods and their claims."""

import pytest

from controlplane.structured import (
    ClaimReference,
    PodClaimError,
    can_be_reserved,
    check_is_for_pod,
    config_for_result,
    is_reserved_for_pod,
    referenced_claim,
)
from resourceapi.objects import from_dict
from resourceapi.objects.core import Pod
from resourceapi.objects.v1 import AllocationResult, ResourceClaim

POD = from_dict(
    Pod,
    {
        "metadata": {"namespace": "ns", "name": "pod", "uid": "pod-uid"},
        "spec": {
            "resourceClaims": [
                {"name": "direct", "resourceClaimName": "shared"},
                {"name": "made", "resourceClaimTemplateName": "template"},
                {"name": "needless", "resourceClaimTemplateName": "template"},
                {"name": "late", "resourceClaimTemplateName": "template"},
                {"name": "odd"},
            ]
        },
        "status": {
            "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "pod-made-x"}, {"name": "needless"}]
        },
    },
)


def _claim(namespace: str = "ns", owner: str = "pod-uid", *, is_controller: bool = True) -> ResourceClaim:
    owners = [{"uid": owner, "controller": is_controller}]
    metadata = {"namespace": namespace, "name": "claim", "ownerReferences": owners}
    return from_dict(ResourceClaim, {"metadata": metadata, "status": {"reservedFor": [{"uid": owner}]}})


def test_how_a_pod_refers_to_claims() -> None:
    direct, made, needless, late, odd = POD.spec.resource_claims
    assert referenced_claim(POD, direct) == ClaimReference("shared", must_check_owner=False)
    assert referenced_claim(POD, made) == ClaimReference("pod-made-x", must_check_owner=True)
    assert referenced_claim(POD, needless) == ClaimReference(None, must_check_owner=True)
    with pytest.raises(PodClaimError, match=r'^pod "ns/pod": ResourceClaim not created yet$'):
        referenced_claim(POD, late)
    with pytest.raises(
        PodClaimError, match=r'^pod "ns/pod", spec.resourceClaim "odd": none of the supported fields are set$'
    ):
        referenced_claim(POD, odd)


def test_a_claim_is_made_for_one_pod() -> None:
    check_is_for_pod(POD, _claim())
    with pytest.raises(PodClaimError, match=r"^ResourceClaim other/claim is not in the same namespace as Pod ns/pod$"):
        check_is_for_pod(POD, _claim("other"))
    for claim in (_claim(owner="someone"), _claim(is_controller=False)):
        with pytest.raises(
            PodClaimError, match=r"^ResourceClaim ns/claim was not created for Pod ns/pod \(Pod is not owner\)$"
        ):
            check_is_for_pod(POD, claim)


def test_reservations() -> None:
    assert is_reserved_for_pod(POD, _claim())
    assert not is_reserved_for_pod(POD, _claim(owner="someone"))
    assert can_be_reserved(_claim(owner="someone"))


def test_configuration_of_a_device() -> None:
    names = {"all": [], "own": ["r"], "alternative": ["q", "r/s"], "other": ["q", "r/t"]}
    config = [
        {"source": "FromClaim", "requests": requests, "opaque": {"driver": "drv", "parameters": name}}
        for name, requests in names.items()
    ]
    result = {"request": "r/s", "driver": "drv", "pool": "pool", "device": "dev"}
    devices = from_dict(AllocationResult, {"devices": {"results": [result], "config": config}}).devices
    found = config_for_result(devices.config, devices.results[0])
    assert [each.parameters for each in found] == ["all", "own", "alternative"]
