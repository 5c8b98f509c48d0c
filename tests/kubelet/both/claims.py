"""Claims: the calls to drivers, the devices of containers, what the node reports, and refusals."""

import asyncio

import msgspec

from checkpoint.kubelet_claims import ClaimState, DriverState, PreparedDevice
from kubelet.devicemanager import Device
from kubelet.pods import container
from kubelet.stubs import PluginFault, StubReply, claimed
from kubeletapi.dra.v1 import api_pb2 as dra
from resourceapi.objects.core import (
    ContainerExtendedResourceRequest,
    PodExtendedResourceClaimStatus,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodStatus,
)
from tests.dra_scenarios import scenario
from tests.kubelet.both.claims_fixture import POOL, PREPARE, UNPREPARE, ClaimsFixture, Listed
from tests.kubelet.both.scenario import both, both_with

SHARES = ("5f1e3a52-6d2c-4d0e-8b0a-0f5c2f0b8a01", "5f1e3a52-6d2c-4d0e-8b0a-0f5c2f0b8a02")

FROM_TEMPLATE = PodResourceClaim(name="a", resource_claim_template_name="template")


@both
@scenario(117, 128, 196)
async def one_claim(fixture: ClaimsFixture) -> None:
    driver = await fixture.driver()
    claim = await fixture.claim()
    name, uid, id_ = fixture.name, claim.metadata.uid, fixture.cdi(claim, "g0")
    both_kinds = [container("c", claims=["a"]), container("d")]
    view = await fixture.run(fixture.user("", claim, containers=both_kinds))
    asked = dra.Claim(namespace="default", uid=uid, name=name)
    assert driver.called(PREPARE) == [dra.NodePrepareResourcesRequest(claims=[asked])]
    devices = [PreparedDevice(POOL, "g0", fixture.no_share, ["r"], [id_])]
    state = ClaimState(uid, name, "default", {view.uid: {}}, {fixture.driver_name: DriverState(devices)})
    assert fixture.stored() == {name: state}
    assert await fixture.listed(name) == {"c": [Listed(name, "g0", (id_,))], "d": []}
    assert [await fixture.world.injected(name, each) for each in "cd"] == [[id_], []]
    await fixture.world.remove(name)
    assert driver.called(UNPREPARE) == [dra.NodeUnprepareResourcesRequest(claims=[asked])]
    assert fixture.stored() == {}


@both
@scenario(105)
async def devices_by_request(fixture: ClaimsFixture) -> None:
    driver = await fixture.driver()
    claim = await fixture.claim("", "a/g0", "b/g1", "b/g2")
    ids = [fixture.cdi(claim, device) for device in ("g0", "g1", "g2")]
    driver.prepare = lambda _: [
        claimed(["a"], POOL, "g0", ids[0]),
        claimed(["b"], POOL, "g1", ids[1]),
        claimed([], POOL, "g2", ids[2]),
    ]
    containers = [container(use, claims=[f"a/{use}"]) for use in "ab"]
    await fixture.run(fixture.user("", claim, containers=[*containers, container("all", claims=["a"])]))
    assert await fixture.world.injected(fixture.name, "a") == [ids[0], ids[2]]
    assert await fixture.world.injected(fixture.name, "b") == [ids[1], ids[2]]
    assert await fixture.world.injected(fixture.name, "all") == ids
    # pod resources does not filter, and each device also has the names of the devices before it
    every = [Listed(fixture.name, f"g{number}", tuple(ids[: number + 1])) for number in range(3)]
    assert await fixture.listed(fixture.name) == dict.fromkeys(("a", "b", "all"), every)


@both
@scenario(121, 226)
async def overlapping_claims_of_two_pods(fixture: ClaimsFixture) -> None:
    driver = await fixture.driver()
    one, two, three = [await fixture.claim(str(number), f"r/g{number}") for number in (1, 2, 3)]
    names = [each.metadata.name for each in (one, two, three)]
    await fixture.run(fixture.user("x", one, two))
    assert [sorted(each) for each in driver.claims(PREPARE)] == [names[:2]]
    await fixture.run(fixture.user("y", two, three))
    assert driver.claims(PREPARE)[1:] == [[names[2]]]
    injected = await fixture.world.injected(f"{fixture.name}y", "c")
    assert set(injected) == {fixture.cdi(two, "g2"), fixture.cdi(three, "g3")}  # their order is random
    await fixture.world.remove(f"{fixture.name}x")
    assert driver.claims(UNPREPARE) == [[names[0]]]
    await fixture.world.remove(f"{fixture.name}y")
    assert [sorted(each) for each in driver.claims(UNPREPARE)] == [[names[0]], names[1:]]


@both
@scenario(115, 124, 220)
async def claim_shared_by_two_pods(fixture: ClaimsFixture) -> None:
    driver = await fixture.driver()
    claim = await fixture.claim()
    views = [await fixture.run(fixture.user(name, claim)) for name in "xy"]
    assert driver.claims(PREPARE) == [[fixture.name]]
    assert set(fixture.stored()[fixture.name].pod_uids or ()) == {view.uid for view in views}
    await fixture.world.remove(f"{fixture.name}x")
    assert driver.called(UNPREPARE) == []
    assert list(fixture.stored()[fixture.name].pod_uids or ()) == [views[1].uid]
    await fixture.world.remove(f"{fixture.name}y")
    assert driver.claims(UNPREPARE) == [[fixture.name]]


@both
@scenario(109)
async def claim_without_container(fixture: ClaimsFixture) -> None:
    driver = await fixture.driver()
    await fixture.run(fixture.user("", await fixture.claim(), containers=[container("c")]))
    assert driver.claims(PREPARE) == [[fixture.name]]
    assert await fixture.listed(fixture.name) == {"c": []}
    assert await fixture.world.injected(fixture.name, "c") == []


@both
@scenario(177, 178)
async def claim_of_two_drivers(fixture: ClaimsFixture) -> None:
    other = f"other.{fixture.driver_name}"
    drivers = [await fixture.driver(), await fixture.driver(other)]
    claim = await fixture.claim("", "a/g0", "b/h0", drivers={"h0": other})
    await fixture.run(fixture.user("", claim))
    assert [driver.claims(PREPARE) for driver in drivers] == [[[fixture.name]]] * 2
    states = fixture.stored()[fixture.name].driver_state or {}
    found = {name: [device.device_name for device in state.devices or ()] for name, state in states.items()}
    assert found == {fixture.driver_name: ["g0"], other: ["h0"]}
    assert await fixture.claims_in_use() == {"<any>": 1, fixture.driver_name: 1, other: 1}
    await fixture.world.remove(fixture.name)
    assert [driver.claims(UNPREPARE) for driver in drivers] == [[[fixture.name]]] * 2
    assert await fixture.claims_in_use() == {"<any>": 0}


@both_with("DRAConsumableCapacity")
@scenario(120, 194)
async def share_ids(fixture: ClaimsFixture) -> None:
    await fixture.driver()
    claim = await fixture.claim("", "r/g0", "r/g0", shares=SHARES)
    await fixture.run(fixture.user("", claim))
    state = (fixture.stored()[fixture.name].driver_state or {})[fixture.driver_name]
    assert [device.share_id for device in state.devices or ()] == [*SHARES]
    assert [each.share_id for each in (await fixture.listed(fixture.name))["c"]] == [*SHARES]


@both
@scenario(111)
async def devices_without_cdi_ids(fixture: ClaimsFixture) -> None:
    driver = await fixture.driver()
    empty, nameless = await fixture.claim("1"), await fixture.claim("2", "r/g2")
    answers = {empty.metadata.uid: [], nameless.metadata.uid: [claimed(["r"], POOL, "g2")]}
    driver.prepare = lambda asked: answers[asked.uid]
    await fixture.run(fixture.user("", empty, nameless))
    found = {name: (state.driver_state or {})[fixture.driver_name].devices for name, state in fixture.stored().items()}
    assert found == {
        f"{fixture.name}1": None,
        f"{fixture.name}2": [PreparedDevice(POOL, "g2", fixture.no_share, ["r"], None)],
    }
    assert await fixture.listed(fixture.name) == {"c": [Listed(f"{fixture.name}2", "g2")]}
    assert await fixture.listed_claims(fixture.name) == {"c": [f"{fixture.name}1", f"{fixture.name}2"]}
    assert await fixture.world.injected(fixture.name, "c") == []


@both
@scenario(140)
async def claim_without_devices(fixture: ClaimsFixture) -> None:
    driver = await fixture.driver()
    claim = await fixture.claim(is_empty=True)
    await fixture.run(fixture.user("", claim))
    assert fixture.stored()[fixture.name].driver_state == {}
    assert await fixture.listed_claims(fixture.name) == {"c": [fixture.name]}
    await fixture.world.remove(fixture.name)
    assert fixture.stored() == {}
    assert not driver.called(PREPARE)
    assert not driver.called(UNPREPARE)


@both_with("DRAExtendedResource")
@scenario(118, 127)
async def extended_resource_claim(fixture: ClaimsFixture) -> None:
    driver = await fixture.driver()
    claim = await fixture.claim("", "r0/g0", "r1/g1")
    ids = [fixture.cdi(claim, device) for device in ("g0", "g1")]
    mappings = tuple(
        ContainerExtendedResourceRequest(container_name=use, resource_name=fixture.resource, request_name=f"r{number}")
        for number, use in enumerate("cd")
    )
    status = PodStatus(
        extended_resource_claim_status=PodExtendedResourceClaimStatus(
            request_mappings=mappings, resource_claim_name=fixture.name
        )
    )
    containers = [container(use, {fixture.resource: 1}) for use in "cd"]
    await fixture.run(
        msgspec.structs.replace(fixture.user("", containers=[*containers, container("e")]), status=status)
    )
    assert driver.claims(PREPARE) == [[fixture.name]]
    assert [await fixture.world.injected(fixture.name, each) for each in "cde"] == [[ids[0]], [ids[1]], []]
    every = [Listed(fixture.name, "g0", (ids[0],)), Listed(fixture.name, "g1", (*ids,))]
    assert await fixture.listed(fixture.name) == {"c": every, "d": every, "e": []}
    await fixture.world.remove(fixture.name)
    assert driver.claims(UNPREPARE) == [[fixture.name]]


@both
@scenario(110, 129)
async def template_without_claim(fixture: ClaimsFixture) -> None:
    driver = await fixture.driver()
    asking = fixture.user("", containers=[container("c", claims=["a"])])
    spec = msgspec.structs.replace(asking.spec, resource_claims=(FROM_TEMPLATE,))
    status = PodStatus(resource_claim_statuses=(PodResourceClaimStatus(name="a"),))
    await fixture.run(msgspec.structs.replace(asking, spec=spec, status=status))
    await fixture.world.remove(fixture.name)
    assert not driver.called(PREPARE)
    assert not driver.called(UNPREPARE)


@both
async def claim_named_twice(fixture: ClaimsFixture) -> None:
    await fixture.driver()
    claim = await fixture.claim("", "a/g0", "b/g1")
    await fixture.run(fixture.user("", claim, containers=[container("c", claims=["a/a", "a/b"])]))
    times = 1 if fixture.release.lists_claims_once else 2
    assert await fixture.listed_claims(fixture.name) == {"c": [fixture.name] * times}
    assert await fixture.world.injected(fixture.name, "c") == [fixture.cdi(claim, device) for device in ("g0", "g1")]


@both
async def init_containers_with_claims(fixture: ClaimsFixture) -> None:
    await fixture.driver()
    claim = await fixture.claim()
    init = (container("i", claims=["a"]), container("side", claims=["a"], sidecar=True))
    await fixture.run(fixture.user("", claim, containers=[container("c")], init=init))
    id_ = fixture.cdi(claim, "g0")
    assert await fixture.listed(fixture.name) == {"side": [Listed(fixture.name, "g0", (id_,))], "c": []}
    assert await fixture.world.injected(fixture.name, "side") == [id_]
    assert await fixture.world.injected(fixture.name, "c") == []


@both
@scenario(112, 122, 164)
async def failed_prepare_answers(fixture: ClaimsFixture) -> None:
    driver = await fixture.driver()
    claims = {name: await fixture.claim(name) for name in ("broken", "failed", "skipped", "stranger", "bytes")}

    async def answer(request: dra.NodePrepareResourcesRequest) -> StubReply:
        (asked,) = request.claims
        match asked.name.removeprefix(fixture.name):
            case "broken":
                raise PluginFault("prepare broke")
            case "failed":
                failed = dra.NodePrepareResourceResponse(error="no such gpu")
                return dra.NodePrepareResourcesResponse(claims={asked.uid: failed})
            case "skipped":
                return dra.NodePrepareResourcesResponse()
            case "stranger":
                return dra.NodePrepareResourcesResponse(claims={"stranger": dra.NodePrepareResourceResponse()})
            case _:
                return b"\xff"

    driver.behaviours[PREPARE] = answer
    asking = {name: fixture.user(name, claim) for name, claim in claims.items()}
    texts = await asyncio.gather(*map(fixture.refused, asking.values()))
    errors = dict(zip(claims, texts, strict=True))
    head = "NodePrepareResources: rpc error: code = Internal desc = grpc: failed to unmarshal the received message"
    assert errors.pop("bytes").startswith(head)
    assert errors == {
        "broken": "NodePrepareResources: rpc error: code = Internal desc = prepare broke",
        "failed": f"NodePrepareResources failed for ResourceClaim {fixture.name}failed: no such gpu",
        "skipped": "NodePrepareResources skipped 1 ResourceClaims",
        "stranger": "NodePrepareResources returned result for unknown claim UID stranger",
    }
    assert {name: state.driver_state for name, state in fixture.stored().items()} == {
        f"{fixture.name}{name}": {fixture.driver_name: DriverState(None)} for name in claims
    }
    assert await fixture.listed_claims(f"{fixture.name}failed") == {"c": [f"{fixture.name}failed"]}
    # the driver can have prepared a part of each
    await fixture.remove_pods()
    assert sorted(driver.claims(UNPREPARE)) == sorted([f"{fixture.name}{name}"] for name in claims)
    assert fixture.stored() == {}


@both
async def claim_reserved_for_other_pod(fixture: ClaimsFixture) -> None:
    """Before 1.37, deleting a pod that is not allowed to use the claim unprepares it anyway."""
    driver = await fixture.driver()
    claim = await fixture.claim(room=1)
    await fixture.run(fixture.user("x", claim))
    assert "is not allowed to use ResourceClaim" in await fixture.refused(fixture.user("y", claim))
    await fixture.world.remove(f"{fixture.name}y")
    is_kept = fixture.release.unprepares_referenced_claims
    assert driver.claims(UNPREPARE) == ([] if is_kept else [[fixture.name]])
    assert list(fixture.stored()) == ([fixture.name] if is_kept else [])


@both_with("DRAExtendedResource")
async def plugin_and_claim_for_one_resource(fixture: ClaimsFixture) -> None:
    """The plugin allocates nothing, but the kubelet still calls its PreStartContainer step."""
    await fixture.driver()
    plugin = await fixture.offering([Device("a")], pre_start_required=True)
    claim = await fixture.claim()
    mapping = ContainerExtendedResourceRequest(container_name="c", resource_name=fixture.resource, request_name="r")
    status = PodStatus(
        extended_resource_claim_status=PodExtendedResourceClaimStatus(
            request_mappings=(mapping,), resource_claim_name=claim.metadata.name
        )
    )
    asking = fixture.user("", containers=[container("c", {fixture.resource: 1})])
    view = await fixture.run(msgspec.structs.replace(asking, status=status), "CreateContainerConfigError")
    assert view.containers["c"].message == (
        f"no devices found allocated in local cache for pod {view.uid}, container c, resource {fixture.resource}"
    )
    assert (plugin.called("Allocate"), plugin.called("PreStartContainer")) == ([], [])


@both
@scenario(106, 107, 113)
async def claims_that_cannot_be_prepared(fixture: ClaimsFixture) -> None:
    driver = await fixture.driver()
    missing = await fixture.claim("missing")
    await fixture.world.remove_claim(missing.metadata.name)
    full = await fixture.claim("full", room=0)
    foreign = await fixture.claim("foreign", drivers={"g0": f"other.{fixture.driver_name}"})
    asking = [fixture.user(name, claim) for name, claim in (("missing", missing), ("full", full), ("foreign", foreign))]
    made = fixture.user("made", containers=[container("c", claims=["a"])], init=[container("i")])
    spec = msgspec.structs.replace(made.spec, resource_claims=(FROM_TEMPLATE,))
    name = full.metadata.name
    status = PodStatus(resource_claim_statuses=(PodResourceClaimStatus(name="a", resource_claim_name=name),))
    asking.append(msgspec.structs.replace(made, spec=spec, status=status))
    errors = await asyncio.gather(*map(fixture.refused, asking))
    uid = (await fixture.world.view(name)).uid
    word = fixture.release.pod_word
    assert errors == [
        f'fetch ResourceClaim {fixture.name}missing: resourceclaims.resource.k8s.io "{fixture.name}missing" not found',
        f"pod {name} ({uid}) is not allowed to use ResourceClaim {name} ({full.metadata.uid})",
        f"DRA driver other.{fixture.driver_name} is not registered",
        f"ResourceClaim default/{name} was not created for {word} default/{fixture.name}made ({word} is not owner)",
    ]
    assert driver.called(PREPARE) == []
    assert fixture.stored() == {}
    assert await fixture.listed_claims(name) == {"c": []}
