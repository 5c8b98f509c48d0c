"""Recorded claim states of a real kubelet, compared with the stand-in's after the same stimulus."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from checkpoint.kubelet_claims import ClaimState, PreparedDevice, encode, load
from grpcunix import Client, connect
from kubelet import Pod, Timeouts, Version, container, decode_pod, pod
from kubelet.dramanager.health_cache import HealthCache
from kubelet.pods.worker import PREPARE_RETRY_PERIOD
from kubelet.stubs import Behaviour, DRAPluginStub, Gate, Prepare, answering, claimed, failing
from kubeletapi.dra.v1 import api_pb2 as dra
from kubeletapi.dra_health.v1alpha1 import api_pb2 as health
from kubeletapi.podresources.v1 import api_pb2 as api
from resourceapi.objects import read_object, to_dict, v1
from tests.cases import recorded_at
from tests.kubelet.dramanager.kit import POOL, Kit, Lab, claim, preparing, user

FOLDER = recorded_at("kubelet")
PREPARE = "NodePrepareResources"
_LISTER = api.DESCRIPTOR.services_by_name["PodResourcesLister"]

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no recorded cases at {FOLDER}")


@pytest.fixture
def kubernetes() -> Version:
    """The release of the recorded cases."""
    return "1.36"


def recorded(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text())


def checkpoint(name: str) -> list[ClaimState]:
    return list(load((FOLDER / f"{name}.json").read_bytes().strip()).claims or ())


def in_order(claims: list[ClaimState]) -> bytes:
    """The file with its claims sorted by name; a kubelet's order is random."""
    return encode(sorted(claims, key=lambda each: each.claim_name))


def shown(status: Any) -> Any:
    """The parts of a container status that are compared."""
    return {"state": status["state"], "health": status.get("allocatedResourcesStatus")}


def ours(lab: Lab, name: str) -> Any:
    """The same parts of the stand-in's first container."""
    first = lab.node.status(name).container_statuses[0]
    return shown(to_dict(first))


def unprepared(**answers: str) -> Behaviour:
    """A behaviour that answers with an error per claim."""
    claims = {uid: dra.NodePrepareResourceResponse(error=error) for uid, error in answers.items()}
    return answering(dra.NodePrepareResourcesResponse(claims=claims))


UNKNOWN_UID = "00000000-dead-beef-0000-000000000000"


@pytest.mark.parametrize(
    ("name", "behaviour"),
    [
        ("ok", None),
        ("claimerr", unprepared(u="no such gpu")),
        ("missing", unprepared()),
        ("nilentry", unprepared(u="")),
        ("nocdi", None),
        ("notregistered", None),
        ("rpcerr", failing("prepare broke")),
        ("slow", Gate(dra.NodePrepareResourcesResponse())),  # never opened
        ("unknown", unprepared(**{UNKNOWN_UID: ""})),
    ],
)
async def test_prepare_result_shows_in_pod_status_as_recorded(
    folder: Any, name: str, behaviour: Behaviour | None
) -> None:
    wanted = recorded(f"pod-status-dra-prepare-{name}")
    (status,) = wanted["status"]["containerStatuses"]
    (entry,) = status.get("allocatedResourcesStatus", [{"resources": [{"resourceID": ""}]}])
    cdi = entry["resources"][0]["resourceID"]
    ids = [cdi] if "=" in cdi else []
    claim_name = "pe-ok1" if name == "ok" else f"pe-{name}"
    timeouts = Timeouts(claims=0.2) if name == "slow" else Timeouts()
    async with Lab(folder, timeouts=timeouts) as lab:
        if name != "notregistered":
            stub = await lab.driver("pe.example.com", lambda _: [claimed(["r1"], POOL, "g0", *ids)])
            stub.behaviours |= {} if behaviour is None else {PREPARE: behaviour}
        lab.put(claim(claim_name, ("r1", "pe.example.com", "g0"), uid="u"))
        await lab.node.admit(pod("p", container("c", claims=["c"]), uid="p", claims={"c": claim_name}))
        assert lab.node.status("p").phase == wanted["status"]["phase"]
        events = [each["message"] for each in wanted["events"] if each["reason"] == "FailedPrepareDynamicResources"]
        assert await lab.failures(len(events)) == events
        found, expected = ours(lab, "p"), shown(status)
        if "running" in expected["state"]:
            expected["state"]["running"] = {}  # a real status contains the start time
        assert found == expected


async def test_event_for_old_claim_of_same_name_is_as_recorded(lab: Lab) -> None:
    (event,) = [each for each in recorded("events-dra-old-claim-same-name") if each["type"] == "Warning"]
    old = event["message"].partition("different UID ")[2].split()[0]
    stub = await lab.driver()
    lab.put(claim("fd", uid=old))
    await lab.node.admit(user("fd1", "fd", uid="p"))
    stub.behaviours["NodeUnprepareResources"] = failing("not now")
    await lab.node.remove("fd1", force=True)
    lab.put(claim("fd", uid="new", pods=["fd2"]))
    await lab.node.admit(user("fd2", "fd"))
    assert await lab.failures(1) == [event["message"]]


async def test_prepare_retry_period_is_as_recorded(lab: Lab) -> None:
    (event,) = [each for each in recorded("events-dra-prepare-retries-pr1") if each["type"] == "Warning"]
    minutes = [each.split(":")[1:] for each in (event["first"].rstrip("Z"), event["last"].rstrip("Z"))]
    first, last = (int(minute) * 60 + int(second) for minute, second in minutes)
    assert abs((last - first) / (event["count"] - 1) - PREPARE_RETRY_PERIOD) < 10
    stub = await lab.driver()
    stub.behaviours[PREPARE] = unprepared(**{"uid-pr1": "no such gpu"})
    lab.put(claim("pr1"))
    await lab.node.admit(user("p", "pr1"))
    for count in range(1, event["count"]):
        assert await lab.failures(count) == [event["message"]] * count
        await lab.clock.advance(PREPARE_RETRY_PERIOD)
    await lab.failures(event["count"])


def answers(claims: list[ClaimState], driver: str) -> Prepare:
    """A driver's answers according to the file, with each device once per claim."""

    def devices(state: ClaimState) -> list[PreparedDevice]:
        found = (state.driver_state or {})[driver].devices or ()
        return [device for index, device in enumerate(found) if device not in found[:index]]

    by_uid = {state.claim_uid: devices(state) for state in claims if driver in (state.driver_state or {})}
    return lambda asked: [
        claimed(device.request_names or (), device.pool_name, device.device_name, *(device.cdi_device_ids or ()))
        for device in by_uid[asked.uid]
    ]


class Replay:
    """The claims, pods and drivers of a recorded file."""

    def __init__(self, lab: Lab, claims: list[ClaimState]) -> None:
        self.lab = lab
        self.claims = claims
        self.stubs: dict[str, DRAPluginStub] = {}
        self.pods: dict[str, Pod] = {}
        for state in claims:
            wanted = [
                ((device.request_names or ("",))[0], driver, device.device_name)
                for driver, found in (state.driver_state or {}).items()
                for device in found.devices or ()
            ]
            lab.put(claim(state.claim_name, *wanted, uid=state.claim_uid, pods=state.pod_uids or ()))
            for uid in state.pod_uids or ():
                names = [each.claim_name for each in claims if uid in (each.pod_uids or ())]
                self.pods[uid] = user(f"pod-{uid}", *names, uid=uid)

    async def drivers(self) -> None:
        for driver in sorted({driver for state in self.claims for driver in state.driver_state or ()}):
            self.stubs[driver] = await self.lab.driver(driver, answers(self.claims, driver))

    async def run(self) -> None:
        await self.drivers()
        for each in self.pods.values():
            await self.lab.node.admit(each)

    def file(self) -> bytes:
        return in_order(list(load((self.lab.node.directory / "dra_manager_state").read_bytes()).claims or ()))


@pytest.mark.parametrize("name", ["before-restart", "one-claim", "shared-claim"])
async def test_checkpoint_is_as_recorded(lab: Lab, name: str) -> None:
    wanted = checkpoint(f"checkpoint-dra-{name}")
    replay = Replay(lab, wanted)
    await replay.run()
    assert {lab.node.status(uid).phase for uid in replay.pods} == {"Running"}
    assert replay.file() == in_order(wanted)


@pytest.mark.parametrize("name", ["after-restart", "after-restart-and-container-restart"])
async def test_checkpoint_after_restart_is_as_recorded(lab: Lab, name: str) -> None:
    wanted = checkpoint(f"checkpoint-dra-{name}")
    replay = Replay(lab, wanted)
    await replay.run()
    await lab.node.restart()
    for stub in replay.stubs.values():
        await lab.until_registered(stub)
    for uid in replay.pods:
        await lab.node.exit_container(uid, "c")
    assert replay.file() == in_order(wanted)


async def test_checkpoint_after_new_sandbox_is_as_recorded(lab: Lab) -> None:
    wanted = checkpoint("checkpoint-dra-prepared-again-after-restart")
    replay = Replay(lab, wanted)
    await replay.run()
    await lab.node.restart()
    for stub in replay.stubs.values():
        await lab.until_registered(stub)
    for uid in replay.pods:
        await lab.node.lose_sandbox(uid)
    assert replay.file() == in_order(wanted)


async def test_checkpoint_after_partial_failure_is_as_recorded(lab: Lab) -> None:
    wanted = checkpoint("checkpoint-dra-two-drivers-after-a-partial-failure")
    replay = Replay(lab, wanted)
    await replay.drivers()
    last = next(state for state in wanted if state.claim_name == "twd")
    stub = replay.stubs["tw.example.com"]
    stub.behaviours[PREPARE] = unprepared(**{last.claim_uid: "not now"})
    (asking,) = replay.pods.values()
    await lab.node.admit(asking)
    assert all(found.devices is None for state in stored(lab) for found in (state.driver_state or {}).values())
    assert replay.stubs["tx.example.com"].called(PREPARE) == []
    del stub.behaviours[PREPARE]
    await lab.node.sync(asking)
    assert [len(names) for names in stub.claims(PREPARE)] == [2, 2]
    assert replay.file() == in_order(wanted)


def stored(lab: Lab) -> list[ClaimState]:
    return list(load((lab.node.directory / "dra_manager_state").read_bytes()).claims or ())


async def test_health_in_pod_status_is_as_recorded(lab: Lab) -> None:
    uid = "b7cdebfb-5235-46b6-bc2e-5611290ad4da"
    services = ("v1.DRAPlugin", "v1alpha1.DRAResourceHealth")
    stub = await lab.driver("he.example.com", preparing("g0", kind="vendor.test/he"), services=services)
    await stub.until(lambda: stub.streams == 1)
    lab.put(claim("he", ("r1", "he.example.com", "g0"), uid=uid))
    await lab.node.admit(pod("p", container("c", claims=["c"]), container("other"), uid="p", claims={"c": "he"}))
    identifier = health.DeviceIdentifier(pool_name=POOL, device_name="g0")
    for name, value, message in (
        ("healthy", health.HealthStatus.HEALTHY, ""),
        ("unhealthy", health.HealthStatus.UNHEALTHY, "overheated"),
    ):
        wanted = [each.get("allocatedResourcesStatus") for each in recorded(f"pod-status-dra-health-{name}")]
        stub.report(health.DeviceHealth(device=identifier, health=value, message=message))

        def found() -> list[Any]:
            statuses = lab.node.status("p").container_statuses
            return [to_dict(each).get("allocatedResourcesStatus") for each in statuses]

        await lab.node.until(lambda: found() == wanted)  # noqa: B023 - it is awaited here


async def test_recorded_health_file_is_read_and_written_unchanged(kit: Kit) -> None:
    raw = (FOLDER / "dra_health_state.json").read_bytes().strip()
    (kit.folder / "dra_health_state").write_bytes(raw)
    cache = HealthCache(kit.folder, kit.clock)
    await cache.load()
    assert cache.content() == raw


def as_claim(state: Mapping[str, Any]) -> v1.ResourceClaim:
    found = read_object(state)
    assert isinstance(found, v1.ResourceClaim)
    return found


async def get_pod_resources(lab: Lab, name: str) -> Any:
    async with connect(lab.node.pod_resources_socket) as channel:
        request = api.GetPodResourcesRequest(pod_name=name, pod_namespace="default")
        response = await Client(channel, _LISTER).call("Get", request)
    return MessageToDict(response.pod_resources)


async def test_extended_resource_claim_is_as_recorded(lab: Lab) -> None:
    found = as_claim(recorded("resourceclaim-extended-resource"))
    status = recorded("pod-status-extended-resource")
    wanted = recorded("podresources-get-extended-resource")["podResources"]
    await lab.driver("mi.example.com", preparing("g0", "g1", requests=["container-0-request-0"], kind="vendor.test/mi"))
    lab.put(found)
    (owner,) = found.metadata.owner_references
    limits = {"limits": status["resources"]["limits"]}
    document = {
        "metadata": {"name": owner.name, "namespace": "default", "uid": owner.uid},
        "spec": {"containers": [{"name": "c", "resources": limits}, {"name": "n"}]},
        "status": status,
    }
    admitted = await lab.node.admit(decode_pod(document, "case"))
    assert admitted.phase == status["phase"]
    assert [each.allocated_resources_status for each in admitted.container_statuses] == [(), ()]
    ids = tuple(f"vendor.test/mi={found.metadata.uid}-{device}" for device in ("g0", "g1"))
    assert lab.node.claimed_devices("ext", "c") == ids
    assert lab.node.claimed_devices("ext", "n") == ()
    assert await get_pod_resources(lab, "ext") == wanted


@pytest.mark.parametrize("name", ["pod", "requests"])
async def test_pod_resources_of_claims_are_as_recorded(lab: Lab, name: str) -> None:
    wanted = recorded(f"podresources-get-dra-{name}")["podResources"]
    (resource,) = {
        json.dumps(each, sort_keys=True) for one in wanted["containers"] for each in one.get("dynamicResources", ())
    }
    dynamic_resource = json.loads(resource)
    devices = dynamic_resource["claimResources"]
    claim_name = dynamic_resource["claimName"]
    uid = devices[0]["cdiDevices"][0]["name"].partition("=")[2].rpartition("-")[0]
    results = [(f"r{number}", each["driverName"], each["deviceName"]) for number, each in enumerate(devices)]
    answer = [claimed([r], POOL, device, f"vendor.test/{driver[:2]}={uid}-{device}") for r, driver, device in results]
    await lab.driver(results[0][1], lambda _: answer)
    lab.put(claim(claim_name, *results, uid=uid))
    containers = [
        container(one["name"], claims=[f"c/{results[0][0]}"] if one.get("dynamicResources") else ())
        for one in wanted["containers"]
    ]
    await lab.node.admit(pod(wanted["name"], *containers, uid="p", claims={"c": claim_name}))
    assert await get_pod_resources(lab, wanted["name"]) == wanted
