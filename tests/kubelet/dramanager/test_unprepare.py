"""Unpreparing: based on the cache, only for the last pod of a claim, and repeated until it succeeds."""

import msgspec
import pytest

from kubelet import RELEASES, ClaimError, Pod, Timeouts, Version, container, pod
from kubelet.stubs import Gate, answering, failing
from kubeletapi.dra.v1 import api_pb2 as api
from resourceapi.objects import v1
from resourceapi.objects.core import PodResourceClaim, PodResourceClaimStatus, PodStatus
from tests.dra_scenarios import scenario
from tests.kubelet.dramanager.kit import DRIVER, Kit, claim, user

UNPREPARE = "NodeUnprepareResources"
NOTHING = api.NodeUnprepareResourcesResponse()


async def unprepare_error(kit: Kit, ending: Pod) -> str:
    """The error without the prefix that all failures have."""
    with pytest.raises(ClaimError) as error:
        await kit.manager.unprepare_resources(ending)
    head = "unprepare dynamic resources: "
    assert str(error.value).startswith(head)
    return str(error.value)[len(head) :]


def from_template(name: str, *statuses: PodResourceClaimStatus) -> Pod:
    """A pod with a claim from a template, with the claim statuses that exist so far."""
    made = user(name, "t")
    spec = msgspec.structs.replace(
        made.spec, resource_claims=(PodResourceClaim(name="t", resource_claim_template_name="template"),)
    )
    return Pod(metadata=made.metadata, spec=spec, status=PodStatus(resource_claim_statuses=statuses))


@scenario(128, 132)
async def test_prepared_claim_is_unprepared_without_api_object(kit: Kit) -> None:
    stub = await kit.driver()
    kit.put(claim("c1"))
    await kit.manager.prepare_resources(user("p", "c1"))
    assert kit.manager.pod_might_need_to_unprepare_resources("p")
    assert not kit.manager.pod_might_need_to_unprepare_resources("q")
    kit.cluster.remove("c1")
    await kit.manager.unprepare_resources(user("p", "c1"))
    assert stub.claims(UNPREPARE) == [["c1"]]
    assert kit.stored() == {}
    assert kit.manager.cache.claims() == []
    assert not kit.manager.pod_might_need_to_unprepare_resources("p")


async def test_claim_after_failed_prepare_is_unprepared(kit: Kit) -> None:
    stub = await kit.driver()
    stub.behaviours["NodePrepareResources"] = failing("x")
    kit.put(claim("c1"))
    with pytest.raises(ClaimError):
        await kit.manager.prepare_resources(user("p", "c1"))
    await kit.manager.unprepare_resources(user("p", "c1"))
    assert stub.claims(UNPREPARE) == [["c1"]]
    assert kit.stored() == {}


@pytest.mark.parametrize("kubernetes", RELEASES)
async def test_claim_being_unprepared_is_refused_by_newer_releases(kit: Kit, kubernetes: Version) -> None:
    stub = await kit.driver()
    kit.put(claim("c1", pods=["p", "q"]))
    await kit.manager.prepare_resources(user("p", "c1"))
    stub.behaviours[UNPREPARE] = failing("not yet")
    await unprepare_error(kit, user("p", "c1"))
    preparing = kit.manager.prepare_resources(user("q", "c1"))
    if RELEASES[kubernetes].refuses_unpreparing_claims:
        with pytest.raises(ClaimError, match=r"^prepare dynamic resources: ResourceClaim c1 is being unprepared$"):
            await preparing
        await kit.restart()
        await kit.register(stub)
        await kit.manager.prepare_resources(user("q", "c1"))  # the restart discards the mark
    else:
        await preparing
    assert set(kit.stored()["c1"].pod_uids or ()) == {"p", "q"}


async def test_state_file_is_written_for_pod_without_claims(kit: Kit) -> None:
    path = kit.folder / "dra_manager_state"
    before = path.stat().st_ino
    assert b"null" in path.read_bytes()
    plain = user("plain")
    await kit.manager.prepare_resources(plain)
    assert (b"[]" in path.read_bytes(), path.stat().st_ino != before) == (True, True)
    before = path.stat().st_ino
    await kit.manager.unprepare_resources(plain)
    assert path.stat().st_ino != before


@scenario(123)
async def test_unregistered_driver_fails_unprepare(kit: Kit) -> None:
    stub = await kit.driver()
    kit.put(claim("c1"))
    await kit.manager.prepare_resources(user("p", "c1"))
    await kit.manager.get_watcher_handler().deregister_plugin(DRIVER, str(stub.socket))
    assert await unprepare_error(kit, user("p", "c1")) == f"DRA driver {DRIVER} is not registered"
    assert list(kit.stored()) == ["c1"]
    assert stub.called(UNPREPARE) == []


@scenario(124)
async def test_claim_used_by_another_pod_is_not_unprepared(kit: Kit) -> None:
    stub = await kit.driver()
    kit.put(claim("c1", pods=["p", "q"]))
    await kit.manager.prepare_resources(user("p", "c1"))
    await kit.manager.prepare_resources(user("q", "c1"))
    await kit.manager.unprepare_resources(user("p", "c1"))
    assert stub.called(UNPREPARE) == []
    assert kit.stored()["c1"].pod_uids == {"q": {}}
    await kit.manager.unprepare_resources(user("q", "c1"))
    assert stub.claims(UNPREPARE) == [["c1"]]


@scenario(125, 156)
async def test_slow_driver_times_out_and_claim_is_kept(kit: Kit) -> None:
    stub = await kit.driver()
    kit.put(claim("c1"))
    await kit.manager.prepare_resources(user("p", "c1"))
    await kit.restart(timeouts=Timeouts(claims=0.2))
    await kit.register(stub)
    stub.behaviours[UNPREPARE] = Gate(NOTHING)  # never opened
    text = "NodeUnprepareResources: rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    assert await unprepare_error(kit, user("p", "c1")) == text
    assert list(kit.stored()) == ["c1"]


@scenario(126)
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (NOTHING, "NodeUnprepareResources skipped 1 ResourceClaims"),
        (
            api.NodeUnprepareResourcesResponse(claims={"stranger": api.NodeUnprepareResourceResponse()}),
            "NodeUnprepareResources returned result for unknown claim UID stranger",
        ),
        (
            api.NodeUnprepareResourcesResponse(claims={"uid-c1": api.NodeUnprepareResourceResponse(error="busy")}),
            "NodeUnprepareResources failed for ResourceClaim c1: busy",
        ),
    ],
)
async def test_incomplete_or_failed_answer_keeps_claim(
    kit: Kit, answer: api.NodeUnprepareResourcesResponse, text: str
) -> None:
    stub = await kit.driver()
    kit.put(claim("c1"))
    await kit.manager.prepare_resources(user("p", "c1"))
    stub.behaviours[UNPREPARE] = answering(answer)
    assert await unprepare_error(kit, user("p", "c1")) == text
    assert list(kit.stored()) == ["c1"]
    del stub.behaviours[UNPREPARE]
    await kit.manager.unprepare_resources(user("p", "c1"))
    assert kit.stored() == {}


@scenario(129, 131)
async def test_pod_without_cached_claims_calls_no_driver(kit: Kit) -> None:
    stub = await kit.driver()
    await kit.manager.unprepare_resources(user("p", "c1"))
    assert stub.called(UNPREPARE) == []


@scenario(130)
@pytest.mark.parametrize("kubernetes", RELEASES)
async def test_unprepare_after_restart_needs_only_cache_since_1_37(kit: Kit, kubernetes: Version) -> None:
    """After a restart, without the pod's status and without the claim. Before 1.37 the status is needed."""
    stub = await kit.driver()
    kit.put(claim("c1", owner="p"))
    known = from_template("p", PodResourceClaimStatus(name="t", resource_claim_name="c1"))
    await kit.manager.prepare_resources(known)
    await kit.restart()
    kit.cluster.remove("c1")
    await kit.register(stub)
    if not RELEASES[kubernetes].unprepares_referenced_claims:
        assert await unprepare_error(kit, from_template("p")) == 'pod "default/p": ResourceClaim not created yet'
        await kit.manager.unprepare_resources(known)
    else:
        await kit.manager.unprepare_resources(from_template("p"))
    assert stub.claims(UNPREPARE) == [["c1"]]
    assert kit.stored() == {}


@pytest.mark.parametrize("kubernetes", RELEASES)
async def test_unprepare_fails_while_template_claim_was_not_created(kit: Kit, kubernetes: Version) -> None:
    """The cache does not contain the pod, so its claim names are resolved, also since 1.37."""
    await kit.driver()
    assert await unprepare_error(kit, from_template("p")) == 'pod "default/p": ResourceClaim not created yet'


@pytest.mark.parametrize("kubernetes", RELEASES)
async def test_refused_pod_unprepares_claim_of_others_before_1_37(kit: Kit, kubernetes: Version) -> None:
    """Before 1.37 the end of that pod unprepares the claim, although another pod uses it."""
    stub = await kit.driver()
    kit.put(claim("c1", pods=["p"]))
    await kit.manager.prepare_resources(user("p", "c1"))
    with pytest.raises(ClaimError, match="not allowed to use"):
        await kit.manager.prepare_resources(user("q", "c1"))
    await kit.manager.unprepare_resources(user("q", "c1"))
    is_kept = RELEASES[kubernetes].unprepares_referenced_claims
    assert stub.claims(UNPREPARE) == ([] if is_kept else [["c1"]])
    assert list(kit.stored()) == (["c1"] if is_kept else [])


@pytest.mark.parametrize("kubernetes", RELEASES)
async def test_pod_with_two_names_for_claim_unprepares_it_once_since_1_37(kit: Kit, kubernetes: Version) -> None:
    """Before 1.37 the driver gets the claim twice in one request, and answers once."""
    stub = await kit.driver()
    kit.put(claim("c1"))
    twice = pod("p", container("c", claims=["a", "b"]), uid="p", claims={"a": "c1", "b": "c1"})
    with pytest.raises(ClaimError, match="NodePrepareResources skipped 1 ResourceClaims"):
        await kit.manager.prepare_resources(twice)
    if RELEASES[kubernetes].unprepares_referenced_claims:
        await kit.manager.unprepare_resources(twice)
    else:
        assert await unprepare_error(kit, twice) == "NodeUnprepareResources skipped 1 ResourceClaims"
    assert list(kit.stored()) == ([] if RELEASES[kubernetes].unprepares_referenced_claims else ["c1"])
    assert len(stub.called(UNPREPARE)) == 1


async def test_claims_of_unknown_pods_are_unprepared_every_minute(kit: Kit) -> None:
    """Every minute the kubelet unprepares the claims of pods that it does not know."""
    stub = await kit.driver()
    kit.put(claim("c1"), claim("c2", pods=["q"]))
    kit.active = {"p"}
    await kit.manager.prepare_resources(user("p", "c1"))
    await kit.manager.prepare_resources(user("q", "c2"))
    stub.behaviours[UNPREPARE] = failing("not now")
    await kit.clock.advance(59)
    assert stub.called(UNPREPARE) == []
    await kit.clock.advance(1)
    await stub.until(lambda: len(stub.called(UNPREPARE)) == 1)
    del stub.behaviours[UNPREPARE]
    await kit.advance_until(60, lambda: ("unprepared", "q", "c2") in kit.events)
    assert stub.claims(UNPREPARE) == [["c2"], ["c2"]]
    assert list(kit.stored()) == ["c1"]


async def test_claim_without_devices_is_stored_without_driver_calls(kit: Kit) -> None:
    """A claim without devices is stored, but no driver is called."""
    stub = await kit.driver()
    usual = claim("c1")
    status = msgspec.structs.replace(usual.status, allocation=v1.AllocationResult())
    kit.put(msgspec.structs.replace(usual, status=status))
    asking = pod("p", container("c", claims=["c1"]), uid="p", claims={"c1": "c1"})
    await kit.manager.prepare_resources(asking)
    assert kit.stored()["c1"].driver_state == {}
    await kit.manager.unprepare_resources(asking)
    assert kit.stored() == {}
    assert [method for method, _ in stub.calls if "prepare" in method.lower()] == []
