"""What drivers are asked to prepare, what containers get, what the node tells of it, and what is refused."""

from checkpoint.kubelet_claims import ClaimState, DriverState, PreparedDevice
from kubelet.dra_stub import claimed
from kubelet.plugin import answering, failing
from kubelet.pods import container
from kubeletapi.dra.v1 import api_pb2 as dra
from tests.dra_scenarios import scenario
from tests.kubelet.both.claims_stage import POOL, PREPARE, UNPREPARE, ClaimsStage, Listed
from tests.kubelet.both.scenario import both

SHARES = ("5f1e3a52-6d2c-4d0e-8b0a-0f5c2f0b8a01", "5f1e3a52-6d2c-4d0e-8b0a-0f5c2f0b8a02")


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
    devices = [PreparedDevice(POOL, "g0", None, ["r"], [id_])]
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
    # pod resources filters nothing, and each device carries the names of those before it
    every = [Listed(stage.name, f"g{number}", tuple(ids[: number + 1])) for number in range(3)]
    assert await stage.listed(stage.name) == dict.fromkeys(("a", "b", "all"), every)


@both
@scenario(121, 226)
async def two_claims_and_a_third(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    one, two, three = [await stage.claim(str(number), f"r/g{number}") for number in (1, 2, 3)]
    names = [each.metadata.name for each in (one, two, three)]
    await stage.run(stage.user("x", one, two))
    assert [sorted(each) for each in driver.claims(PREPARE)] == [names[:2]]
    await stage.run(stage.user("y", two, three))
    assert driver.claims(PREPARE)[1:] == [[names[2]]]
    assert await stage.world.injected(f"{stage.name}y", "c") == [stage.cdi(two, "g2"), stage.cdi(three, "g3")]
    await stage.world.remove(f"{stage.name}x")
    assert driver.claims(UNPREPARE) == [[names[0]]]
    await stage.world.remove(f"{stage.name}y")
    assert [sorted(each) for each in driver.claims(UNPREPARE)] == [[names[0]], names[1:]]


@both
@scenario(115, 124, 220)
async def a_claim_of_two_pods(stage: ClaimsStage) -> None:
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
async def a_claim_that_no_container_uses(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    await stage.run(stage.user("", await stage.claim(), containers=[container("c")]))
    assert driver.claims(PREPARE) == [[stage.name]]
    assert await stage.listed(stage.name) == {"c": []}
    assert await stage.world.injected(stage.name, "c") == []


@both
@scenario(177)
async def two_drivers(stage: ClaimsStage) -> None:
    other = f"other.{stage.driver_name}"
    drivers = [await stage.driver(), await stage.driver(other)]
    claim = await stage.claim("", "a/g0", "b/h0", drivers={"h0": other})
    await stage.run(stage.user("", claim))
    assert [driver.claims(PREPARE) for driver in drivers] == [[[stage.name]]] * 2
    states = stage.stored()[stage.name].driver_state or {}
    found = {name: [device.device_name for device in state.devices or ()] for name, state in states.items()}
    assert found == {stage.driver_name: ["g0"], other: ["h0"]}
    await stage.world.remove(stage.name)
    assert [driver.claims(UNPREPARE) for driver in drivers] == [[[stage.name]]] * 2


@both
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
async def nothing_to_inject(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    empty, nameless = await stage.claim("1"), await stage.claim("2", "r/g2")
    answers = {empty.metadata.uid: [], nameless.metadata.uid: [claimed(["r"], POOL, "g2")]}
    driver.prepare = lambda asked: answers[asked.uid]
    await stage.run(stage.user("", empty, nameless))
    found = {name: (state.driver_state or {})[stage.driver_name].devices for name, state in stage.stored().items()}
    assert found == {f"{stage.name}1": None, f"{stage.name}2": [PreparedDevice(POOL, "g2", None, ["r"], None)]}
    assert await stage.listed(stage.name) == {"c": [Listed(f"{stage.name}2", "g2")]}
    assert await stage.world.injected(stage.name, "c") == []


@both
@scenario(122)
async def a_claims_own_error(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    claim = await stage.claim()
    failed = dra.NodePrepareResourceResponse(error="no such gpu")
    driver.behaviours[PREPARE] = answering(dra.NodePrepareResourcesResponse(claims={claim.metadata.uid: failed}))
    text = await stage.refused(stage.user("", claim))
    assert text == f"NodePrepareResources failed for ResourceClaim {stage.name}: no such gpu"
    assert stage.stored()[stage.name].driver_state == {stage.driver_name: DriverState(None)}
    # it may have been half prepared
    await stage.world.remove(stage.name)
    assert driver.claims(UNPREPARE) == [[stage.name]]
    assert stage.stored() == {}


@both
@scenario(164)
async def prepare_fails(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    driver.behaviours[PREPARE] = failing("prepare broke")
    text = await stage.refused(stage.user("", await stage.claim()))
    assert text == "NodePrepareResources: rpc error: code = Internal desc = prepare broke"
    assert len(driver.called(PREPARE)) == 1


@both
@scenario(112)
async def a_claim_is_skipped(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    one, two = await stage.claim("1"), await stage.claim("2", "r/g2")
    done = dra.NodePrepareResourceResponse(devices=stage.allocated(one.metadata.uid, stage.driver_name))
    driver.behaviours[PREPARE] = answering(dra.NodePrepareResourcesResponse(claims={one.metadata.uid: done}))
    assert await stage.refused(stage.user("", one, two)) == "NodePrepareResources skipped 1 ResourceClaims"


@both
@scenario(122)
async def an_answer_for_another_claim(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    stranger = dra.NodePrepareResourcesResponse(claims={"stranger": dra.NodePrepareResourceResponse()})
    driver.behaviours[PREPARE] = answering(stranger)
    text = await stage.refused(stage.user("", await stage.claim()))
    assert text == "NodePrepareResources returned result for unknown claim UID stranger"


@both
@scenario(107)
async def no_driver(stage: ClaimsStage) -> None:
    text = await stage.refused(stage.user("", await stage.claim()))
    assert text == f"DRA driver {stage.driver_name} is not registered"
    assert stage.stored() == {}


@both
@scenario(113)
async def a_claim_of_others(stage: ClaimsStage) -> None:
    driver = await stage.driver()
    claim = await stage.claim(is_full=True)
    text = await stage.refused(stage.user("", claim))
    uid = (await stage.world.view(stage.name)).uid
    assert text == (f"pod {stage.name} ({uid}) is not allowed to use ResourceClaim {stage.name} ({claim.metadata.uid})")
    assert driver.called(PREPARE) == []


@both
@scenario(106)
async def a_claim_that_is_missing(stage: ClaimsStage) -> None:
    claim = await stage.claim()
    await stage.world.remove_claim(stage.name)
    text = await stage.refused(stage.user("", claim))
    assert text == (f'fetch ResourceClaim {stage.name}: resourceclaims.resource.k8s.io "{stage.name}" not found')
