"""Functions about claims that several folders use."""

import pytest

from resourceapi.objects import v1
from resourceapi.objects.claims import (
    ClaimLookupError,
    ClaimName,
    check_made_for,
    claim_name,
    config_for_result,
    is_reserved_for,
    tolerates,
)
from resourceapi.objects.core import Pod, PodResourceClaim, PodResourceClaimStatus, PodStatus
from resourceapi.objects.meta import ObjectMeta, OwnerReference
from tests.dra_scenarios import scenario

POD = Pod(
    metadata=ObjectMeta(name="pod", namespace="ns", uid="1"),
    status=PodStatus(
        resource_claim_statuses=(
            PodResourceClaimStatus(name="made", resource_claim_name="pod-made-xyz"),
            PodResourceClaimStatus(name="unneeded"),
        )
    ),
)


@scenario(54)
def test_claim_name_is_resolved_from_pod_reference() -> None:
    direct = PodResourceClaim(name="a", resource_claim_name="claim")
    assert claim_name(POD, direct) == ClaimName("claim", must_own=False)
    made = PodResourceClaim(name="made", resource_claim_template_name="t")
    assert claim_name(POD, made) == ClaimName("pod-made-xyz", must_own=True)
    unneeded = PodResourceClaim(name="unneeded", resource_claim_template_name="t")
    assert claim_name(POD, unneeded) == ClaimName(None, must_own=True)
    with pytest.raises(ClaimLookupError, match=r'^pod "ns/pod": ResourceClaim not created yet$'):
        claim_name(POD, PodResourceClaim(name="later", resource_claim_template_name="t"))
    with pytest.raises(
        ClaimLookupError, match=r'^pod "ns/pod", spec.resourceClaim "x": none of the supported fields are'
    ):
        claim_name(POD, PodResourceClaim(name="x"))


def claim(namespace: str = "ns", *owners: OwnerReference) -> v1.ResourceClaim:
    return v1.ResourceClaim(metadata=ObjectMeta(name="claim", namespace=namespace, owner_references=owners))


@scenario(52)
def test_claim_must_be_in_namespace_of_pod_and_owned_by_it() -> None:
    check_made_for(claim("ns", OwnerReference(uid="0"), OwnerReference(uid="1", controller=True)), POD)
    with pytest.raises(
        ClaimLookupError, match=r"^ResourceClaim other/claim is not in the same namespace as Pod ns/pod$"
    ):
        check_made_for(claim("other"), POD)
    for owners in ((), (OwnerReference(uid="1"),), (OwnerReference(uid="2", controller=True),)):
        with pytest.raises(
            ClaimLookupError, match=r"^ResourceClaim ns/claim was not created for Pod ns/pod \(Pod is not"
        ):
            check_made_for(claim("ns", *owners), POD)


@scenario(53)
def test_claim_is_reserved_for_pod_in_its_status() -> None:
    user = v1.ResourceClaimConsumerReference(resource="pods", name="pod", uid="1")
    assert is_reserved_for(v1.ResourceClaim(status=v1.ResourceClaimStatus(reserved_for=(user,))), POD)
    assert not is_reserved_for(v1.ResourceClaim(), POD)


@scenario(57)
def test_result_gets_configuration_of_its_request() -> None:
    def config(*requests: str) -> v1.DeviceAllocationConfiguration:
        return v1.DeviceAllocationConfiguration(requests=requests, opaque=v1.OpaqueDeviceConfiguration(driver="d"))

    all_, base, full, other = config(), config("a", "b"), config("a/x"), config("a/y", "x")
    empty = v1.DeviceAllocationConfiguration()
    result = v1.DeviceRequestAllocationResult(request="a/x")
    assert config_for_result([full, other, empty, all_, base], result) == [full, all_, base]


@scenario(58)
@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (v1.DeviceToleration(operator="Exists"), True),
        (v1.DeviceToleration(operator="Exists", key="k", effect="NoSchedule"), True),
        (v1.DeviceToleration(operator="Exists", key="x"), False),
        (v1.DeviceToleration(operator="Exists", effect="NoExecute"), False),
        (v1.DeviceToleration(operator="Equal", key="k", value="v"), True),
        (v1.DeviceToleration(key="k", value="v"), True),
        (v1.DeviceToleration(key="k"), False),
        (v1.DeviceToleration(operator="Like", key="k", value="v"), False),
    ],
)
def test_toleration_matches_key_value_and_effect(toleration: v1.DeviceToleration, expected: bool) -> None:
    assert tolerates(toleration, v1.DeviceTaint(key="k", value="v", effect="NoSchedule")) is expected
