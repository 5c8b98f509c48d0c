"""The claimed devices of a container, in its options, in the pod resources API and in the pod's status."""

import msgspec
import pytest

from checkpoint.kubelet_claims import PreparedDevice
from kubelet import RELEASES, ClaimError, Pod, Version, container, pod
from kubelet.dramanager.claim_info import ClaimInfo
from kubelet.dramanager.health_cache import DeviceHealth
from kubelet.pods import decode_pod
from resourceapi.objects.core import (
    ContainerStatus,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodStatus,
    ResourceHealth,
    ResourceStatus,
)
from tests.dra_scenarios import scenario
from tests.kubelet.dramanager.kit import DRIVER, POOL, Kit, user


def add_prepared_claim(kit: Kit, name: str, *devices: PreparedDevice, driver: str = DRIVER) -> ClaimInfo:
    """A prepared claim."""
    info = kit.manager.cache.add(ClaimInfo("default", name, f"uid-{name}", [driver]))
    info.pods.add("p")
    info.add_devices(driver, devices, replace=False)
    return info


def device(name: str, requests: list[str] | None, *cdi: str) -> PreparedDevice:
    return PreparedDevice(POOL, name, None, requests, list(cdi) or None)


ONE = device("g0", ["a"], "x.test/y=g0")
TWO = device("g1", ["b"], "x.test/y=g1", "x.test/y=g1-extra")
ALL = device("g2", None, "x.test/y=g2")


@scenario(105)
@pytest.mark.parametrize(
    ("claims", "ids"),
    [
        ((), ()),
        (["c1"], ("x.test/y=g0", "x.test/y=g1", "x.test/y=g1-extra", "x.test/y=g2")),
        (["c1/a"], ("x.test/y=g0", "x.test/y=g2")),
        (["c1/a", "c1/b"], ("x.test/y=g0", "x.test/y=g2", "x.test/y=g1", "x.test/y=g1-extra", "x.test/y=g2")),
        (["c1/nothing"], ("x.test/y=g2",)),
    ],
)
def test_cdi_ids_follow_requests_of_container(kit: Kit, claims: list[str], ids: tuple[str, ...]) -> None:
    add_prepared_claim(kit, "c1", ONE, TWO, ALL)
    using = container("c", claims=claims)
    assert kit.manager.get_resources(pod("p", using, claims={"c1": "c1"}), using) == ids


@scenario(105, 133)
def test_uncached_claim_is_an_internal_error(kit: Kit) -> None:
    asking = user("p", "c1")
    text = "internal error: unable to get claim info for ResourceClaim c1 in namespace default"
    with pytest.raises(ClaimError, match=text):
        kit.manager.get_resources(asking, asking.container("c"))
    with pytest.raises(ClaimError, match=text):
        kit.manager.get_container_claim_infos(asking, asking.container("c"))
    assert kit.manager.get_dynamic_resources(asking, "c") == []


def pod_with_template_claim(*statuses: PodResourceClaimStatus) -> Pod:
    made = user("p", "t")
    claims = (PodResourceClaim(name="t", resource_claim_template_name="template"),)
    spec = msgspec.structs.replace(made.spec, resource_claims=claims)
    return Pod(metadata=made.metadata, spec=spec, status=PodStatus(resource_claim_statuses=statuses))


@scenario(133)
def test_container_claims_are_resolved_from_spec_and_status(kit: Kit) -> None:
    one, two, made = add_prepared_claim(kit, "c1"), add_prepared_claim(kit, "c2"), add_prepared_claim(kit, "made-for-p")
    both = user("p", "c1", "c2")
    infos = kit.manager.get_container_claim_infos
    assert infos(both, both.container("c")) == [one, two]
    assert infos(both, container("other", claims=["c2"])) == [two]
    assert infos(both, container("none")) == []
    from_template = pod_with_template_claim(PodResourceClaimStatus(name="t", resource_claim_name="made-for-p"))
    assert infos(from_template, from_template.container("c")) == [made]
    not_needed = pod_with_template_claim(PodResourceClaimStatus(name="t"))
    assert infos(not_needed, not_needed.container("c")) == []
    assert kit.manager.get_resources(not_needed, not_needed.container("c")) == ()


def test_pod_resources_list_all_devices_with_accumulated_cdi_ids(kit: Kit) -> None:
    add_prepared_claim(kit, "c1", ONE, TWO)
    using = container("c", claims=["c1/b"])
    (listed,) = kit.manager.get_dynamic_resources(pod("p", using, claims={"c1": "c1"}), "c")
    assert (listed.claim_namespace, listed.claim_name) == ("default", "c1")
    assert [
        (each.driver_name, each.pool_name, each.device_name, [cdi.name for cdi in each.cdi_devices])
        for each in listed.claim_resources
    ] == [
        (DRIVER, POOL, "g0", ["x.test/y=g0"]),
        (DRIVER, POOL, "g1", ["x.test/y=g0", "x.test/y=g1", "x.test/y=g1-extra"]),
    ]


@pytest.mark.parametrize("kubernetes", RELEASES)
def test_claim_named_twice_is_listed_once_since_1_36(kit: Kit, kubernetes: Version) -> None:
    add_prepared_claim(kit, "c1", ONE)
    using = container("c", claims=["c1/a", "c1/b"])
    found = kit.manager.get_dynamic_resources(pod("p", using, claims={"c1": "c1"}), "c")
    assert len(found) == (2 if kubernetes in ("1.34", "1.35") else 1)


def health(kit: Kit, *claims: str, names: tuple[str, ...] = ("c1",)) -> dict[str, list[ResourceHealth]]:
    """The health in the status of the only container."""
    using = container("c", claims=claims)
    asking = pod("p", using, uid="p", claims={name: name for name in names})
    before = PodStatus(container_statuses=(ContainerStatus(name="c"),))
    (status,) = kit.manager.update_allocated_resources_status(asking, before).container_statuses
    return {each.name: list(each.resources) for each in status.allocated_resources_status}


@scenario(136, 138)
async def test_health_status_lists_each_device_of_claim_once(kit: Kit) -> None:
    bare = device("g3", ["d"])
    add_prepared_claim(kit, "c1", ONE, TWO, ONE, bare)
    add_prepared_claim(kit, "empty")
    kit.manager.health.update(
        DRIVER,
        [DeviceHealth(POOL, "g0", "Healthy"), DeviceHealth(POOL, "g1", "Unhealthy", message="overheated")],
    )
    assert health(kit) == {}
    assert health(kit, "c1", "empty", "unprepared", names=("c1", "empty", "unprepared")) == {
        "claim:c1": [
            ResourceHealth(resource_id="x.test/y=g0", health="Healthy"),
            ResourceHealth(resource_id="x.test/y=g1", health="Unhealthy", message="overheated"),
            ResourceHealth(resource_id=f"{DRIVER}/{POOL}/g3", health="Unknown"),
        ]
    }


@scenario(136, 138)
async def test_health_status_of_request_lists_only_its_devices(kit: Kit) -> None:
    """A driver must not name a subrequest. Such a device matches no request that a container can refer to."""
    add_prepared_claim(kit, "c1", ONE, TWO, ALL, device("g4", ["a/large"], "x.test/y=g4"))
    assert health(kit, "c1/a", "c1/b", "c1/nothing") == {
        "claim:c1/a": [
            ResourceHealth(resource_id="x.test/y=g0", health="Unknown"),
            ResourceHealth(resource_id="x.test/y=g2", health="Unknown"),
        ],
        "claim:c1/b": [
            ResourceHealth(resource_id="x.test/y=g1", health="Unknown"),
            ResourceHealth(resource_id="x.test/y=g2", health="Unknown"),
        ],
        "claim:c1/nothing": [ResourceHealth(resource_id="x.test/y=g2", health="Unknown")],
    }


@scenario(138)
async def test_first_of_two_devices_with_same_cdi_id_has_health(kit: Kit) -> None:
    """DRA specification, section 4.10: one entry for each id."""
    add_prepared_claim(kit, "c1", device("g0", ["a"], "x.test/y=both"), device("g1", ["a"], "x.test/y=both"))
    kit.manager.health.update(DRIVER, [DeviceHealth(POOL, "g0", "Healthy"), DeviceHealth(POOL, "g1", "Unhealthy")])
    assert health(kit, "c1") == {"claim:c1": [ResourceHealth(resource_id="x.test/y=both", health="Healthy")]}


@scenario(138)
async def test_expired_report_makes_health_unknown(kit: Kit) -> None:
    add_prepared_claim(kit, "c1", ONE)
    kit.manager.health.update(DRIVER, [DeviceHealth(POOL, "g0", "Unhealthy", 10, "overheated")])
    await kit.clock.advance(10)
    assert health(kit, "c1")["claim:c1"][0].health == "Unhealthy"
    await kit.clock.advance(1)
    assert health(kit, "c1") == {"claim:c1": [ResourceHealth(resource_id="x.test/y=g0", health="Unknown")]}


@scenario(136)
async def test_health_of_removed_claim_is_dropped_from_status(kit: Kit) -> None:
    info = add_prepared_claim(kit, "c1", ONE)
    using = container("c", claims=["c1"])
    asking = pod("p", using, uid="p", claims={"c1": "c1"})
    device_plugin = ResourceStatus("example.com/k", (ResourceHealth(resource_id="k1", health="Healthy"),))
    before = PodStatus(container_statuses=(ContainerStatus(name="c", allocated_resources_status=(device_plugin,)),))
    shown = kit.manager.update_allocated_resources_status(asking, before)
    assert [each.name for each in shown.container_statuses[0].allocated_resources_status] == [
        "example.com/k",
        "claim:c1",
    ]
    kit.manager.cache.delete(info)
    assert kit.manager.update_allocated_resources_status(asking, shown) == before


def test_claims_of_api_server_pod_are_decoded() -> None:
    """A pod's claims, a container's uses of them, and the claim statuses."""
    found = decode_pod(
        {
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {
                "containers": [{"name": "c", "resources": {"claims": [{"name": "x"}, {"name": "y", "request": "r"}]}}],
                "resourceClaims": [
                    {"name": "x", "resourceClaimName": "cx"},
                    {"name": "y", "resourceClaimTemplateName": "ty"},
                ],
            },
            "status": {
                "phase": "Running",
                "resourceClaimStatuses": [{"name": "y", "resourceClaimName": "p-y-1"}],
                "extendedResourceClaimStatus": {
                    "resourceClaimName": "p-extended",
                    "requestMappings": [
                        {"containerName": "c", "resourceName": "example.com/g", "requestName": "container-0-request-0"}
                    ],
                },
            },
        },
        "test",
    )
    assert found.spec.resource_claims == (
        PodResourceClaim(name="x", resource_claim_name="cx"),
        PodResourceClaim(name="y", resource_claim_template_name="ty"),
    )
    assert found.spec.restart_policy == "Always", "as an API server fills it in"
    assert found.container("c") == container("c", claims=["x", "y/r"])
    assert found.status.phase == "", "what another kubelet observed says nothing here"
    assert found.status.resource_claim_statuses == (PodResourceClaimStatus(name="y", resource_claim_name="p-y-1"),)
    extended = found.status.extended_resource_claim_status
    assert extended is not None
    assert (extended.resource_claim_name, extended.request_mappings[0].request_name) == (
        "p-extended",
        "container-0-request-0",
    )
