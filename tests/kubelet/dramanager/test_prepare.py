"""Preparing a pod's claims: the checks, one call per driver, and the stored state."""

import asyncio
import os
import socket
from pathlib import Path

import msgspec
import pytest

from checkpoint.kubelet_claims import PreparedDevice
from kubelet import RELEASES, ClaimError, Pod, Timeouts, Version, container, pod
from kubelet.stubs import Gate, answering, claimed, failing
from kubeletapi.dra.v1 import api_pb2 as api
from resourceapi.objects import v1
from resourceapi.objects.core import (
    ContainerExtendedResourceRequest,
    PodExtendedResourceClaimStatus,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodStatus,
)
from tests.dra_scenarios import scenario
from tests.kubelet.dramanager.kit import DRIVER, POOL, Kit, by_claim, claim, preparing, user

OTHER = "other.example.com"
PREPARE = "NodePrepareResources"


def from_template(name: str, *statuses: tuple[str, str | None]) -> Pod:
    """A pod with a claim `t` from a template, and the claim statuses from its controller."""
    made = user(name)
    spec = msgspec.structs.replace(
        made.spec, resource_claims=(PodResourceClaim(name="t", resource_claim_template_name="template"),)
    )
    status = PodStatus(
        resource_claim_statuses=tuple(
            PodResourceClaimStatus(name=name, resource_claim_name=claim) for name, claim in statuses
        )
    )
    return msgspec.structs.replace(made, spec=spec, status=status)


async def prepare_error(kit: Kit, asking: Pod) -> str:
    """The error without the prefix that all failures have."""
    with pytest.raises(ClaimError) as error:
        await kit.manager.prepare_resources(asking)
    head = "prepare dynamic resources: "
    assert str(error.value).startswith(head)
    return str(error.value)[len(head) :]


def response(**claims: api.NodePrepareResourceResponse) -> api.NodePrepareResourcesResponse:
    return api.NodePrepareResourcesResponse(claims=claims)


@scenario(117, 109)
async def test_claim_is_prepared_if_no_container_uses_it(kit: Kit) -> None:
    stub = await kit.driver()
    kit.put(claim("c1"))
    await kit.manager.prepare_resources(pod("p", container("c"), uid="p", claims={"mine": "c1"}))
    ((asked,),) = [request.claims for request in stub.called(PREPARE)]
    assert (asked.namespace, asked.name, asked.uid) == ("default", "c1", "uid-c1")
    info = kit.manager.cache.get("default", "c1")
    assert info is not None
    assert info.is_prepared
    stored = kit.stored()["c1"]
    assert (stored.claim_uid, stored.namespace, stored.pod_uids) == ("uid-c1", "default", {"p": {}})
    assert (stored.driver_state or {})[DRIVER].devices == [
        PreparedDevice(POOL, "g0", None, ["r1"], ["vendor.test/up=uid-c1-g0"])
    ]


@scenario(106)
async def test_missing_claim_fails_prepare(kit: Kit) -> None:
    stub = await kit.driver()
    text = await prepare_error(kit, user("p", "c1"))
    assert text == 'fetch ResourceClaim c1: resourceclaims.resource.k8s.io "c1" not found'
    assert stub.called(PREPARE) == []
    assert kit.stored() == {}


@scenario(107)
async def test_unregistered_driver_fails_prepare(kit: Kit) -> None:
    kit.put(claim("c1"), claim("c2", ("r", "", "g0")))
    assert await prepare_error(kit, user("p", "c1")) == f"DRA driver {DRIVER} is not registered"
    assert await prepare_error(kit, user("p", "c2")) == "DRA driver name is empty"
    assert kit.stored() == {}


@scenario(108)
async def test_unallocated_claim_fails_prepare(kit: Kit) -> None:
    await kit.driver()
    kit.put(claim("c1", allocated=False))
    assert await prepare_error(kit, user("p", "c1")) == "ResourceClaim c1: not allocated"


@scenario(110)
async def test_template_reference_without_claim_needs_no_prepare(kit: Kit) -> None:
    stub = await kit.driver()
    asking = from_template("p", ("t", None))
    await kit.manager.prepare_resources(asking)
    assert stub.called(PREPARE) == []
    assert kit.stored() == {}


@pytest.mark.parametrize("kubernetes", RELEASES)
async def test_claim_from_template_must_exist_and_be_owned_by_pod(kit: Kit, kubernetes: Version) -> None:
    await kit.driver()
    kit.put(claim("p-t-1", owner="p"), claim("p-t-2", owner="q"))
    assert await prepare_error(kit, from_template("p")) == 'pod "default/p": ResourceClaim not created yet'
    word = "pod" if kubernetes in ("1.34", "1.35") else "Pod"
    foreign = f"ResourceClaim default/p-t-2 was not created for {word} default/p ({word} is not owner)"
    assert await prepare_error(kit, from_template("p", ("t", "p-t-2"))) == foreign
    await kit.manager.prepare_resources(from_template("p", ("t", "p-t-1")))
    assert list(kit.stored()) == ["p-t-1"]


@scenario(111)
async def test_empty_answer_prepares_claim_without_devices(kit: Kit) -> None:
    stub = await kit.driver()
    stub.behaviours[PREPARE] = answering(response(**{"uid-c1": api.NodePrepareResourceResponse()}))
    kit.put(claim("c1"))
    await kit.manager.prepare_resources(user("p", "c1"))
    assert (kit.stored()["c1"].driver_state or {})[DRIVER].devices is None
    assert kit.manager.get_resources(user("p", "c1"), container("c", claims=["c1"])) == ()


@scenario(112, 122)
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (response(), "NodePrepareResources skipped 1 ResourceClaims"),
        (
            response(stranger=api.NodePrepareResourceResponse()),
            "NodePrepareResources returned result for unknown claim UID stranger",
        ),
        (
            response(**{"uid-c1": api.NodePrepareResourceResponse(error="no such gpu")}),
            "NodePrepareResources failed for ResourceClaim c1: no such gpu",
        ),
    ],
)
async def test_incomplete_or_failed_answer_fails_prepare_until_retried(
    kit: Kit, answer: api.NodePrepareResourcesResponse, text: str
) -> None:
    stub = await kit.driver()
    stub.behaviours[PREPARE] = answering(answer)
    kit.put(claim("c1"))
    assert await prepare_error(kit, user("p", "c1")) == text
    stored = kit.stored()["c1"]
    assert stored.pod_uids == {"p": {}}
    assert (stored.driver_state or {})[DRIVER].devices is None
    del stub.behaviours[PREPARE]
    await kit.manager.prepare_resources(user("p", "c1"))
    assert len((kit.stored()["c1"].driver_state or {})[DRIVER].devices or ()) == 1


@scenario(155)
async def test_rpc_error_fails_prepare(kit: Kit) -> None:
    stub = await kit.driver()
    stub.behaviours[PREPARE] = failing("prepare broke")
    kit.put(claim("c1"))
    text = "NodePrepareResources: rpc error: code = Internal desc = prepare broke"
    assert await prepare_error(kit, user("p", "c1")) == text


@scenario(155, 248)
@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_prepare_and_unprepare_use_announced_api_version(kit: Kit, version: str) -> None:
    stub = await kit.driver(
        prepare=lambda _: [claimed(["r1"], POOL, "g0", "x.test/y=g0", share_id="s1")],
        versions=[f"{version}.DRAPlugin"],
        services=[f"{version}.DRAPlugin"],
    )
    kit.put(claim("c1"))
    await kit.manager.prepare_resources(user("p", "c1"))
    (device,) = (kit.stored()["c1"].driver_state or {})[DRIVER].devices or ()
    assert device.share_id == ("s1" if version == "v1" else None), "v1beta1 has no share ids"
    await kit.manager.unprepare_resources(user("p", "c1"))
    assert [method for method, _ in stub.calls if method.startswith("Node") and "Watch" not in method] == [
        PREPARE,
        "NodeUnprepareResources",
    ]


@scenario(155)
async def test_announced_but_unserved_version_fails_prepare(kit: Kit) -> None:
    await kit.driver(versions=["v1beta1.DRAPlugin"], services=["v1.DRAPlugin"])
    kit.put(claim("c1"))
    text = await prepare_error(kit, user("p", "c1"))
    assert text.startswith("NodePrepareResources: rpc error: code = Unimplemented")


@scenario(113, 114)
async def test_claim_reserved_for_others_fails_prepare(kit: Kit) -> None:
    stub = await kit.driver()
    group = v1.ResourceClaimConsumerReference(
        api_group="scheduling.k8s.io", resource="podgroups", name="g", uid="uid-g"
    )
    reserved = claim("c2", pods=())
    status = msgspec.structs.replace(reserved.status, reserved_for=(group,))
    kit.put(claim("c1", pods=["q"]), msgspec.structs.replace(reserved, status=status))
    for name in ("c1", "c2"):
        text = f"pod p (p) is not allowed to use ResourceClaim {name} (uid-{name})"
        assert await prepare_error(kit, user("p", name)) == text
    assert stub.called(PREPARE) == []


@scenario(115, 121)
async def test_prepared_claim_is_not_prepared_again(kit: Kit) -> None:
    stub = await kit.driver()
    kit.put(claim("c1", pods=["p", "q"]), claim("c2", pods=["q"]))
    await kit.manager.prepare_resources(user("p", "c1"))
    await kit.manager.prepare_resources(user("p", "c1"))
    assert stub.claims(PREPARE) == [["c1"]]
    await kit.manager.prepare_resources(user("q", "c1", "c2"))
    assert stub.claims(PREPARE) == [["c1"], ["c2"]]
    assert kit.stored()["c1"].pod_uids == {"p": {}, "q": {}}
    devices = kit.manager.get_resources(user("q", "c1", "c2"), container("c", claims=["c1", "c2"]))
    assert devices == ("vendor.test/up=uid-c1-g0", "vendor.test/up=uid-c2-g0")


@scenario(116, 156)
async def test_slow_driver_times_out_and_claim_stays_unprepared(folder: Path) -> None:
    async with Kit(folder, timeouts=Timeouts(claims=0.2)) as kit:
        stub = await kit.driver()
        stub.behaviours[PREPARE] = Gate(response())  # never opened
        kit.put(claim("c1"))
        text = "NodePrepareResources: rpc error: code = DeadlineExceeded desc = context deadline exceeded"
        assert await prepare_error(kit, user("p", "c1")) == text
        info = kit.manager.cache.get("default", "c1")
        assert info is not None
        assert not info.is_prepared


async def test_device_of_all_requests_is_listed_once_per_extended_resource(kit: Kit) -> None:
    await kit.driver(prepare=preparing("g0", requests=()))
    kit.put(claim("p-extended"))
    mappings = tuple(
        ContainerExtendedResourceRequest(container_name="c", resource_name=name, request_name=f"container-0-{name}")
        for name in ("example.com/gpu", "example.com/nic")
    )
    status = PodStatus(
        extended_resource_claim_status=PodExtendedResourceClaimStatus(
            request_mappings=mappings, resource_claim_name="p-extended"
        )
    )
    uses = container("c", {"example.com/gpu": 1, "example.com/nic": 1})
    asking = msgspec.structs.replace(pod("p", uses, uid="p"), status=status)
    await kit.manager.prepare_resources(asking)
    assert kit.manager.get_resources(asking, uses) == ("vendor.test/up=uid-p-extended-g0",) * 2


@scenario(118, 127)
async def test_extended_resource_claim_serves_only_mapped_containers(kit: Kit) -> None:
    stub = await kit.driver(prepare=preparing("g0", "g1", requests=["container-0-request-0"]))
    kit.put(claim("p-extended"))
    mapping = ContainerExtendedResourceRequest(
        container_name="c", resource_name="example.com/gpu", request_name="container-0-request-0"
    )
    none = ContainerExtendedResourceRequest(
        container_name="none", resource_name="example.com/gpu", request_name="container-0-request-0"
    )
    status = PodStatus(
        extended_resource_claim_status=PodExtendedResourceClaimStatus(
            request_mappings=(mapping, none), resource_claim_name="p-extended"
        )
    )
    uses = container("c", {"example.com/gpu": 2})
    zero = container("none", {"example.com/gpu": 0})
    asking = msgspec.structs.replace(pod("p", uses, zero, container("o"), uid="p"), status=status)
    await kit.manager.prepare_resources(asking)
    assert stub.claims(PREPARE) == [["p-extended"]]
    ids = ("vendor.test/up=uid-p-extended-g0", "vendor.test/up=uid-p-extended-g1")
    assert kit.manager.get_resources(asking, uses) == ids
    assert kit.manager.get_resources(asking, zero) == ()
    assert kit.manager.get_resources(asking, asking.container("o")) == ()
    await kit.manager.unprepare_resources(asking)
    assert stub.claims("NodeUnprepareResources") == [["p-extended"]]


@scenario(119)
async def test_claim_with_name_of_prepared_claim_fails_prepare(kit: Kit) -> None:
    stub = await kit.driver()
    kit.put(claim("c1"))
    await kit.manager.prepare_resources(user("p", "c1"))
    kit.put(claim("c1", uid="uid-new", pods=["q"]))
    assert await prepare_error(kit, user("q", "c1")) == (
        "old ResourceClaim with same name c1 and different UID uid-c1 still exists (previous pod force-deleted?!)"
    )
    assert stub.claims(PREPARE) == [["c1"]]
    assert kit.stored()["c1"].pod_uids == {"p": {}}


@scenario(120, 194)
async def test_share_ids_are_stored_and_listed(kit: Kit) -> None:
    shares = [claimed(["r1"], POOL, "g0", share_id="s1"), claimed(["r1"], POOL, "g0", share_id="s2")]
    await kit.driver(prepare=by_claim({"c1": shares, "c2": [claimed(["r1"], POOL, "g1")]}))
    kit.put(claim("c1"), claim("c2"))
    asking = user("p", "c1", "c2")
    await kit.manager.prepare_resources(asking)
    stored = {
        name: [each.share_id for each in (state.driver_state or {})[DRIVER].devices or ()]
        for name, state in kit.stored().items()
    }
    assert stored == {"c1": ["s1", "s2"], "c2": [None]}
    listed = kit.manager.get_dynamic_resources(asking, "c")
    assert [[(it.HasField("share_id"), it.share_id) for it in each.claim_resources] for each in listed] == [
        [(True, "s1"), (True, "s2")],
        [(False, "")],
    ]


@pytest.mark.parametrize("kubernetes", ["1.36", "1.37"])
async def test_one_call_per_driver_stops_at_first_failure(kit: Kit, kubernetes: Version) -> None:
    one, two = await kit.driver(), await kit.driver(OTHER)
    kit.put(claim("c1"), claim("c2"), claim("d", ("r1", OTHER, "g0")))
    asking = user("p", "c1", "c2", "d")
    one.behaviours[PREPARE] = answering(
        response(**{"uid-c1": api.NodePrepareResourceResponse(), "uid-c2": api.NodePrepareResourceResponse(error="x")})
    )
    await prepare_error(kit, asking)
    assert (one.claims(PREPARE), two.claims(PREPARE)) == ([["c1", "c2"]], [])
    del one.behaviours[PREPARE]
    two.behaviours[PREPARE] = failing("x")
    await prepare_error(kit, asking)
    del two.behaviours[PREPARE]
    await kit.manager.prepare_resources(asking)
    assert one.claims(PREPARE) == [["c1", "c2"]] * 3
    assert two.claims(PREPARE) == [["d"]] * 2
    devices = {
        name: len((state.driver_state or {})[DRIVER].devices or ())
        for name, state in kit.stored().items()
        if name != "d"
    }
    count = 2 if kubernetes == "1.36" else 1  # 1.36 keeps the devices of the failed attempt, too
    assert devices == {"c1": count, "c2": count}


@scenario(134)
async def test_30_pods_prepare_and_unprepare_concurrently(kit: Kit) -> None:
    stub = await kit.driver()
    names = [f"c{number}" for number in range(30)]
    kit.put(*(claim(name, pods=[f"p{name}"]) for name in names))

    async def live(name: str) -> None:
        await kit.manager.prepare_resources(user(f"p{name}", name))
        assert name in kit.stored()
        await kit.manager.unprepare_resources(user(f"p{name}", name))

    await asyncio.gather(*map(live, names))
    assert sorted(stub.claims(PREPARE)) == sorted([name] for name in names)
    assert (kit.manager.cache.claims(), kit.stored()) == ([], {})


async def test_state_write_error_fails_prepare_without_call(kit: Kit) -> None:
    stub = await kit.driver()
    kit.put(claim("c1"))
    path = kit.folder / "dra_manager_state"
    path.unlink()
    (path / "in the way").mkdir(parents=True)
    text = await prepare_error(kit, user("p", "c1"))
    assert text.startswith("checkpoint ResourceClaim cache: could not save checkpoint dra_manager_state: ")
    assert stub.called(PREPARE) == []
    (path / "in the way").rmdir()
    path.rmdir()
    await kit.manager.prepare_resources(user("p", "c1"))
    assert list(kit.stored()) == ["c1"]
    assert os.stat(path).st_mode & 0o777 == 0o600


async def test_stub_records_calls_that_fail(kit: Kit) -> None:
    stub = await kit.driver(prepare=by_claim({}))
    kit.put(claim("c1"))
    assert (await prepare_error(kit, user("p", "c1"))).startswith("NodePrepareResources: rpc error: code = Unknown")
    assert stub.claims(PREPARE) == [["c1"]]
    stub.behaviours[PREPARE] = failing("not now")
    assert "code = Internal desc = not now" in await prepare_error(kit, user("p", "c1"))


async def test_stopped_driver_has_grpc_go_dial_error(kit: Kit) -> None:
    stub = await kit.driver()
    kit.put(claim("c1"))
    await stub.stop()
    await kit.connected(stub, False)
    path = str(stub.socket)

    def dialled(reason: str) -> str:
        return (
            'NodePrepareResources: rpc error: code = Unavailable desc = connection error: desc = "transport: Error'
            f' while dialing: dial unix {path}: connect: {reason}"'
        )

    assert await prepare_error(kit, user("p", "c1")) == dialled("no such file or directory")
    leave_socket(path)
    assert await prepare_error(kit, user("p", "c1")) == dialled("connection refused")


def leave_socket(path: str) -> None:
    """Leave a socket as a killed process does."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(path)
