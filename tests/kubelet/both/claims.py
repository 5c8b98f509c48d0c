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
from tests.kubelet.both.claims_stage import POOL, PREPARE, UNPREPARE, ClaimsStage, Listed
from tests.kubelet.both.scenario import both, both_with

SHARES = ("5f1e3a52-6d2c-4d0e-8b0a-0f5c2f0b8a01", "5f1e3a52-6d2c-4d0e-8b0a-0f5c2f0b8a02")

FROM_TEMPLATE = PodResourceClaim(name="a", resource_claim_template_name="template")


@both
@scenario(117, 128, 196)
async def one_claim(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    claim = await stage.claim()
    name, uid, id_ = stage.name, claim.metadata.uid, stage.cdi(claim, "g0")
    both_kinds = [container("c", claims=["a"]), container("d")]
    view = await stage.run(stage.user("", claim, containers=both_kinds))
    asked = dra.Claim(namespace="default", uid=uid, name=name)
    assert driver.called(PREPARE) == [dra.NodePrepareResourcesRequest(claims=[asked])]
    devices = [PreparedDevice(POOL, "g0", stage.no_share, ["r"], [id_])]
    state = ClaimState(uid, name, "default", {view.uid: {}}, {stage.driver_name: DriverState(devices)})
    assert stage.stored() == {name: state}
    assert await stage.listed(name) == {"c": [Listed(name, "g0", (id_,))], "d": []}
    assert [await stage.world.injected(name, each) for each in "cd"] == [[id_], []]
    await stage.world.remove(name)
    assert driver.called(UNPREPARE) == [dra.NodeUnprepareResourcesRequest(claims=[asked])]
    assert stage.stored() == {}


@both
@scenario(105)
async def devices_by_request(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    claim = await stage.claim("", "a/g0", "b/g1", "b/g2")
    ids = [stage.cdi(claim, device) for device in ("g0", "g1", "g2")]
    driver.prepare = lambda _: [
        claimed(["a"], POOL, "g0", ids[0]),
        claimed(["b"], POOL, "g1", ids[1]),
        claimed([], POOL, "g2", ids[2]),
    ]
    containers = [container(use, claims=[f"a/{use}"]) for use in "ab"]
    await stage.run(stage.user("", claim, containers=[*containers, container("all", claims=["a"])]))
    assert await stage.world.injected(stage.name, "a") == [ids[0], ids[2]]
    assert await stage.world.injected(stage.name, "b") == [ids[1], ids[2]]
    assert await stage.world.injected(stage.name, "all") == ids
    # pod resources does not filter, and each device also has the names of the devices before it
    every = [Listed(stage.name, f"g{number}", tuple(ids[: number + 1])) for number in range(3)]
    assert await stage.listed(stage.name) == dict.fromkeys(("a", "b", "all"), every)


@both
@scenario(121, 226)
async def overlapping_claims_of_two_pods(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    one, two, three = [await stage.claim(str(number), f"r/g{number}") for number in (1, 2, 3)]
    names = [each.metadata.name for each in (one, two, three)]
    await stage.run(stage.user("x", one, two))
    assert [sorted(each) for each in driver.claims(PREPARE)] == [names[:2]]
    await stage.run(stage.user("y", two, three))
    assert driver.claims(PREPARE)[1:] == [[names[2]]]
    injected = await stage.world.injected(f"{stage.name}y", "c")
    assert set(injected) == {stage.cdi(two, "g2"), stage.cdi(three, "g3")}  # their order is random
    await stage.world.remove(f"{stage.name}x")
    assert driver.claims(UNPREPARE) == [[names[0]]]
    await stage.world.remove(f"{stage.name}y")
    assert [sorted(each) for each in driver.claims(UNPREPARE)] == [[names[0]], names[1:]]


@both
@scenario(115, 124, 220)
async def claim_shared_by_two_pods(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    claim = await stage.claim()
    views = [await stage.run(stage.user(name, claim)) for name in "xy"]
    assert driver.claims(PREPARE) == [[stage.name]]
    assert set(stage.stored()[stage.name].pod_uids or ()) == {view.uid for view in views}
    await stage.world.remove(f"{stage.name}x")
    assert driver.called(UNPREPARE) == []
    assert list(stage.stored()[stage.name].pod_uids or ()) == [views[1].uid]
    await stage.world.remove(f"{stage.name}y")
    assert driver.claims(UNPREPARE) == [[stage.name]]


@both
@scenario(109)
async def claim_without_container(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    await stage.run(stage.user("", await stage.claim(), containers=[container("c")]))
    assert driver.claims(PREPARE) == [[stage.name]]
    assert await stage.listed(stage.name) == {"c": []}
    assert await stage.world.injected(stage.name, "c") == []


@both
@scenario(177, 178)
async def claim_of_two_drivers(stage: ClaimsStage) -> None:
    other = f"other.{stage.driver_name}"
    drivers = [await stage.driver(), await stage.driver(other)]
    claim = await stage.claim("", "a/g0", "b/h0", drivers={"h0": other})
    await stage.run(stage.user("", claim))
    assert [driver.claims(PREPARE) for driver in drivers] == [[[stage.name]]] * 2
    states = stage.stored()[stage.name].driver_state or {}
    found = {name: [device.device_name for device in state.devices or ()] for name, state in states.items()}
    assert found == {stage.driver_name: ["g0"], other: ["h0"]}
    assert await stage.claims_in_use() == {"<any>": 1, stage.driver_name: 1, other: 1}
    await stage.world.remove(stage.name)
    assert [driver.claims(UNPREPARE) for driver in drivers] == [[[stage.name]]] * 2
    assert await stage.claims_in_use() == {"<any>": 0}


@both_with("DRAConsumableCapacity")
@scenario(120, 194)
async def share_ids(stage: ClaimsStage) -> None:
    await stage.driver()
    claim = await stage.claim("", "r/g0", "r/g0", shares=SHARES)
    await stage.run(stage.user("", claim))
    state = (stage.stored()[stage.name].driver_state or {})[stage.driver_name]
    assert [device.share_id for device in state.devices or ()] == [*SHARES]
    assert [each.share_id for each in (await stage.listed(stage.name))["c"]] == [*SHARES]


@both
@scenario(111)
async def devices_without_cdi_ids(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    empty, nameless = await stage.claim("1"), await stage.claim("2", "r/g2")
    answers = {empty.metadata.uid: [], nameless.metadata.uid: [claimed(["r"], POOL, "g2")]}
    driver.prepare = lambda asked: answers[asked.uid]
    await stage.run(stage.user("", empty, nameless))
    found = {name: (state.driver_state or {})[stage.driver_name].devices for name, state in stage.stored().items()}
    assert found == {
        f"{stage.name}1": None,
        f"{stage.name}2": [PreparedDevice(POOL, "g2", stage.no_share, ["r"], None)],
    }
    assert await stage.listed(stage.name) == {"c": [Listed(f"{stage.name}2", "g2")]}
    assert await stage.listed_claims(stage.name) == {"c": [f"{stage.name}1", f"{stage.name}2"]}
    assert await stage.world.injected(stage.name, "c") == []


@both
@scenario(140)
async def claim_without_devices(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    claim = await stage.claim(is_empty=True)
    await stage.run(stage.user("", claim))
    assert stage.stored()[stage.name].driver_state == {}
    assert await stage.listed_claims(stage.name) == {"c": [stage.name]}
    await stage.world.remove(stage.name)
    assert stage.stored() == {}
    assert not driver.called(PREPARE)
    assert not driver.called(UNPREPARE)


@both_with("DRAExtendedResource")
@scenario(118, 127)
async def extended_resource_claim(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    claim = await stage.claim("", "r0/g0", "r1/g1")
    ids = [stage.cdi(claim, device) for device in ("g0", "g1")]
    mappings = tuple(
        ContainerExtendedResourceRequest(container_name=use, resource_name=stage.resource, request_name=f"r{number}")
        for number, use in enumerate("cd")
    )
    status = PodStatus(
        extended_resource_claim_status=PodExtendedResourceClaimStatus(
            request_mappings=mappings, resource_claim_name=stage.name
        )
    )
    containers = [container(use, {stage.resource: 1}) for use in "cd"]
    await stage.run(msgspec.structs.replace(stage.user("", containers=[*containers, container("e")]), status=status))
    assert driver.claims(PREPARE) == [[stage.name]]
    assert [await stage.world.injected(stage.name, each) for each in "cde"] == [[ids[0]], [ids[1]], []]
    every = [Listed(stage.name, "g0", (ids[0],)), Listed(stage.name, "g1", (*ids,))]
    assert await stage.listed(stage.name) == {"c": every, "d": every, "e": []}
    await stage.world.remove(stage.name)
    assert driver.claims(UNPREPARE) == [[stage.name]]


@both
@scenario(110, 129)
async def template_without_claim(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    asking = stage.user("", containers=[container("c", claims=["a"])])
    spec = msgspec.structs.replace(asking.spec, resource_claims=(FROM_TEMPLATE,))
    status = PodStatus(resource_claim_statuses=(PodResourceClaimStatus(name="a"),))
    await stage.run(msgspec.structs.replace(asking, spec=spec, status=status))
    await stage.world.remove(stage.name)
    assert not driver.called(PREPARE)
    assert not driver.called(UNPREPARE)


@both
async def claim_named_twice(stage: ClaimsStage) -> None:
    await stage.driver()
    claim = await stage.claim("", "a/g0", "b/g1")
    await stage.run(stage.user("", claim, containers=[container("c", claims=["a/a", "a/b"])]))
    times = 1 if stage.release.lists_claims_once else 2
    assert await stage.listed_claims(stage.name) == {"c": [stage.name] * times}
    assert await stage.world.injected(stage.name, "c") == [stage.cdi(claim, device) for device in ("g0", "g1")]


@both
async def init_containers_with_claims(stage: ClaimsStage) -> None:
    await stage.driver()
    claim = await stage.claim()
    init = (container("i", claims=["a"]), container("side", claims=["a"], sidecar=True))
    await stage.run(stage.user("", claim, containers=[container("c")], init=init))
    id_ = stage.cdi(claim, "g0")
    assert await stage.listed(stage.name) == {"side": [Listed(stage.name, "g0", (id_,))], "c": []}
    assert await stage.world.injected(stage.name, "side") == [id_]
    assert await stage.world.injected(stage.name, "c") == []


@both
@scenario(112, 122, 164)
async def failed_prepare_answers(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    claims = {name: await stage.claim(name) for name in ("broken", "failed", "skipped", "stranger", "bytes")}

    async def answer(request: dra.NodePrepareResourcesRequest) -> StubReply:
        (asked,) = request.claims
        match asked.name.removeprefix(stage.name):
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
    asking = {name: stage.user(name, claim) for name, claim in claims.items()}
    texts = await asyncio.gather(*map(stage.refused, asking.values()))
    errors = dict(zip(claims, texts, strict=True))
    head = "NodePrepareResources: rpc error: code = Internal desc = grpc: failed to unmarshal the received message"
    assert errors.pop("bytes").startswith(head)
    assert errors == {
        "broken": "NodePrepareResources: rpc error: code = Internal desc = prepare broke",
        "failed": f"NodePrepareResources failed for ResourceClaim {stage.name}failed: no such gpu",
        "skipped": "NodePrepareResources skipped 1 ResourceClaims",
        "stranger": "NodePrepareResources returned result for unknown claim UID stranger",
    }
    assert {name: state.driver_state for name, state in stage.stored().items()} == {
        f"{stage.name}{name}": {stage.driver_name: DriverState(None)} for name in claims
    }
    assert await stage.listed_claims(f"{stage.name}failed") == {"c": [f"{stage.name}failed"]}
    # the driver can have prepared a part of each
    await stage.remove_pods()
    assert sorted(driver.claims(UNPREPARE)) == sorted([f"{stage.name}{name}"] for name in claims)
    assert stage.stored() == {}


@both
async def claim_reserved_for_other_pod(stage: ClaimsStage) -> None:
    """Before 1.37, deleting a pod that is not allowed to use the claim unprepares it anyway."""
    driver = await stage.driver()
    claim = await stage.claim(room=1)
    await stage.run(stage.user("x", claim))
    assert "is not allowed to use ResourceClaim" in await stage.refused(stage.user("y", claim))
    await stage.world.remove(f"{stage.name}y")
    is_kept = stage.release.unprepares_referenced_claims
    assert driver.claims(UNPREPARE) == ([] if is_kept else [[stage.name]])
    assert list(stage.stored()) == ([stage.name] if is_kept else [])


@both_with("DRAExtendedResource")
async def plugin_and_claim_for_one_resource(stage: ClaimsStage) -> None:
    """The plugin allocates nothing, but the kubelet still calls its PreStartContainer step."""
    await stage.driver()
    plugin = await stage.offering([Device("a")], pre_start_required=True)
    claim = await stage.claim()
    mapping = ContainerExtendedResourceRequest(container_name="c", resource_name=stage.resource, request_name="r")
    status = PodStatus(
        extended_resource_claim_status=PodExtendedResourceClaimStatus(
            request_mappings=(mapping,), resource_claim_name=claim.metadata.name
        )
    )
    asking = stage.user("", containers=[container("c", {stage.resource: 1})])
    view = await stage.run(msgspec.structs.replace(asking, status=status), "CreateContainerConfigError")
    assert view.containers["c"].message == (
        f"no devices found allocated in local cache for pod {view.uid}, container c, resource {stage.resource}"
    )
    assert (plugin.called("Allocate"), plugin.called("PreStartContainer")) == ([], [])


@both
@scenario(106, 107, 113)
async def claims_that_cannot_be_prepared(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    missing = await stage.claim("missing")
    await stage.world.remove_claim(missing.metadata.name)
    full = await stage.claim("full", room=0)
    foreign = await stage.claim("foreign", drivers={"g0": f"other.{stage.driver_name}"})
    asking = [stage.user(name, claim) for name, claim in (("missing", missing), ("full", full), ("foreign", foreign))]
    made = stage.user("made", containers=[container("c", claims=["a"])], init=[container("i")])
    spec = msgspec.structs.replace(made.spec, resource_claims=(FROM_TEMPLATE,))
    name = full.metadata.name
    status = PodStatus(resource_claim_statuses=(PodResourceClaimStatus(name="a", resource_claim_name=name),))
    asking.append(msgspec.structs.replace(made, spec=spec, status=status))
    errors = await asyncio.gather(*map(stage.refused, asking))
    uid = (await stage.world.view(name)).uid
    word = stage.release.pod_word
    assert errors == [
        f'fetch ResourceClaim {stage.name}missing: resourceclaims.resource.k8s.io "{stage.name}missing" not found',
        f"pod {name} ({uid}) is not allowed to use ResourceClaim {name} ({full.metadata.uid})",
        f"DRA driver other.{stage.driver_name} is not registered",
        f"ResourceClaim default/{name} was not created for {word} default/{stage.name}made ({word} is not owner)",
    ]
    assert driver.called(PREPARE) == []
    assert stage.stored() == {}
    assert await stage.listed_claims(name) == {"c": []}
