"""The answers to the kubelet, claim by claim, in both versions of the API."""

from contextlib import closing

import pytest

from controlplane.apiserver import Server
from dra_plugin.driver import ClaimFailed, ClaimRef, PreparedDevice
from dra_plugin.serving.health import HealthPublisher
from dra_plugin.serving.kubelet_plugin import Folders, KubeletPlugin
from folderwatch import FolderWatcher
from grpcunix import RpcError, Status
from kubeletapi.dra.v1 import api_pb2 as v1
from kubeletapi.dra.v1beta1 import api_pb2 as v1beta1
from telemetry import Telemetry
from tests.dra_plugin.kubelet_end import (
    APIS,
    DRIVER,
    KubeletEnd,
    NoClaims,
    ScriptedDriver,
    device_of,
    kubelet_end,
    make_claim,
)
from tests.dra_scenarios import scenario
from tests.running import running

VERSIONS = pytest.mark.parametrize("version", APIS)


@VERSIONS
async def test_claim_is_prepared_and_unprepared(
    version: str, server: Server, kubelet: KubeletEnd, driver: ScriptedDriver
) -> None:
    claim = await make_claim(server, "one")
    answers = await kubelet.prepare(claim, version=version)
    device = APIS[version].Device(
        request_names=["r"],
        pool_name="worker-1",
        device_name=f"device-of-{claim.uid}",
        cdi_device_ids=[f"nodeplug.dev/claim={claim.uid}"],
    )
    assert answers == {claim.uid: APIS[version].NodePrepareResourceResponse(devices=[device])}
    assert await kubelet.unprepare(claim, version=version) == {claim.uid: ""}
    assert driver.journal == [f"{verb} {claim.uid}" for verb in ("prepare", "prepared", "unprepare", "unprepared")]


def test_v1beta1_is_v1_without_share_ids() -> None:
    def fields(api: object, message: str) -> list[tuple[str, int, int]]:
        described = api.DESCRIPTOR.message_types_by_name[message]  # type: ignore[attr-defined]  # both modules have it
        return [(field.name, field.number, field.type) for field in described.fields]

    assert set(v1.DESCRIPTOR.message_types_by_name) == set(v1beta1.DESCRIPTOR.message_types_by_name)
    for name in v1.DESCRIPTOR.message_types_by_name:
        without = [field for field in fields(v1, name) if field[0] != "share_id"]
        assert without == fields(v1beta1, name)


@scenario(194)
async def test_share_ids_are_sent_in_v1_only(server: Server, kubelet: KubeletEnd, driver: ScriptedDriver) -> None:
    claim = await make_claim(server, "one")
    driver.answers[claim.uid] = (
        PreparedDevice(("r",), "worker-1", "d", share_id="s1"),
        PreparedDevice(("r",), "worker-1", "d", share_id="s2"),
        PreparedDevice(("r",), "worker-1", "d"),
    )
    in_v1 = (await kubelet.prepare(claim))[claim.uid].devices
    assert [(d.HasField("share_id"), d.share_id) for d in in_v1] == [(True, "s1"), (True, "s2"), (False, "")]
    in_v1beta1 = (await kubelet.prepare(claim, version="v1beta1"))[claim.uid].devices
    bare = v1beta1.Device(request_names=["r"], pool_name="worker-1", device_name="d").SerializeToString()
    assert [device.SerializeToString() for device in in_v1beta1] == [bare] * 3


@scenario(56)
async def test_subrequests_are_reported_by_their_request_name(
    server: Server, kubelet: KubeletEnd, driver: ScriptedDriver
) -> None:
    claim = await make_claim(server, "one")
    driver.answers[claim.uid] = (
        PreparedDevice(("gpu/large", "gpu/small", "nic"), "worker-1", "d"),
        PreparedDevice((), "worker-1", "e"),
    )
    devices = (await kubelet.prepare(claim))[claim.uid].devices
    assert [list(device.request_names) for device in devices] == [["gpu", "nic"], []]


async def test_claim_without_devices_is_prepared(server: Server, kubelet: KubeletEnd, driver: ScriptedDriver) -> None:
    claim = await make_claim(server, "one")
    driver.answers[claim.uid] = ()
    assert await kubelet.prepare(claim) == {claim.uid: v1.NodePrepareResourceResponse()}


async def test_each_claim_of_a_call_has_its_own_outcome(
    server: Server, kubelet: KubeletEnd, driver: ScriptedDriver, caplog: pytest.LogCaptureFixture
) -> None:
    good, sick, forgotten = [await make_claim(server, name) for name in ("good", "sick", "forgotten")]
    pending = await make_claim(server, "pending", allocated=False)
    deleted = ClaimRef("default", "deleted", "uid-of-deleted")
    replaced = ClaimRef("default", "good", "uid-of-an-older-one")
    driver.answers[sick.uid] = ClaimFailed("device d is unhealthy: too hot")
    driver.unanswered.add(forgotten.uid)
    answers = await kubelet.prepare(good, sick, forgotten, pending, deleted, replaced)
    assert {uid: entry.error for uid, entry in answers.items()} == {
        good.uid: "",
        sick.uid: "device d is unhealthy: too hot",
        forgotten.uid: "the driver did not answer for this claim",
        pending.uid: "claim default/pending not allocated",
        deleted.uid: 'retrieve claim default/deleted: resourceclaims.resource.k8s.io "deleted" not found',
        replaced.uid: "claim default/good got replaced",
    }
    assert answers[good.uid].devices[0].device_name == device_of(good.uid).device
    assert driver.journal[0] == f"prepare {good.uid} {sick.uid} {forgotten.uid}"
    assert "claim is refused: claim default/pending not allocated" in caplog.messages


async def test_empty_call_does_not_reach_the_driver(kubelet: KubeletEnd, driver: ScriptedDriver) -> None:
    assert (await kubelet.prepare(), await kubelet.unprepare(), driver.journal) == ({}, {}, [])


async def test_unprepare_needs_no_api_server(folders: Folders, driver: ScriptedDriver) -> None:
    gone, stuck = ClaimRef("default", "gone", "uid-1"), ClaimRef("default", "stuck", "uid-2")
    driver.refusals[stuck.uid] = ClaimFailed("device d is still open")
    with closing(FolderWatcher()) as watcher:
        counted = Telemetry()
        plugin = KubeletPlugin(DRIVER, driver, NoClaims(), HealthPublisher(), folders, watcher, telemetry=counted)
        async with running(plugin.run()), kubelet_end(plugin.endpoint) as kubelet:
            assert await kubelet.unprepare(gone, stuck) == {"uid-1": "", "uid-2": "device d is still open"}
    assert (sum(counted.unprepare.counts), counted.refusals) == (1, {("dra", "not-ready"): 1})
    (refused,) = counted.events.since(0)
    assert (refused.message, refused.holder) == ("device d is still open", "claim/default/stuck/uid-2")


async def test_duplicate_claim_reference_is_one_claim(
    server: Server, kubelet: KubeletEnd, driver: ScriptedDriver
) -> None:
    claim = await make_claim(server, "one")
    assert list(await kubelet.prepare(claim, claim)) == [claim.uid]
    assert driver.journal[0] == f"prepare {claim.uid}"
    other = ClaimRef("default", "two", claim.uid)
    answers = await kubelet.prepare(claim, other, claim)
    assert answers[claim.uid].error == f"claim uid {claim.uid} is named twice, with different names"
    assert len(driver.journal) == 2


@pytest.mark.parametrize(
    ("ref", "reason"),
    [
        (ClaimRef("default", "c", ""), "claim uid ''"),
        (ClaimRef("default", "c", "../../x"), "claim uid '../../x'"),
        (ClaimRef("default", "c", "u" * 65_536), "claim uid 'uuuu"),
        (ClaimRef("default", "c", "\x1b\n" * 32_768), r"claim uid '\x1b\n\x1b"),
        (ClaimRef("default", "c", "uid\n"), r"claim uid 'uid\n'"),
        (ClaimRef("default", "../pods/p", "uid"), "claim name '../pods/p'"),
        (ClaimRef("default", "c?watch=1", "uid"), "claim name 'c?watch=1'"),
        (ClaimRef("default", "", "uid"), "claim name ''"),
        (ClaimRef("default", "n" * 5000, "uid"), "claim name 'nnnn"),
        (ClaimRef("a/b", "c", "uid"), "claim namespace 'a/b'"),
        (ClaimRef("", "c", "uid"), "claim namespace ''"),
    ],
)
async def test_malformed_claim_reference_is_refused_before_the_driver(
    ref: ClaimRef,
    reason: str,
    server: Server,
    kubelet: KubeletEnd,
    driver: ScriptedDriver,
    caplog: pytest.LogCaptureFixture,
) -> None:
    good = await make_claim(server, "good")
    answers = await kubelet.prepare(ref, good)
    assert answers[ref.uid].error.startswith(reason)
    assert len(answers[ref.uid].error) < 1_000
    assert answers[ref.uid].error.isprintable()
    assert answers[good.uid].error == ""
    assert (await kubelet.unprepare(ref, good))[ref.uid].startswith(reason)
    assert driver.journal[::2] == [f"prepare {good.uid}", f"unprepare {good.uid}"]
    refused = [record for record in caplog.records if record.getMessage().startswith("claim is refused")]
    assert len(refused) == 2
    for record in refused:
        text = f"{record.getMessage()} {record.__dict__['claim']}"
        assert text.isprintable()
        assert len(text) < 4_000


async def test_error_of_a_claim_is_one_short_line(server: Server, kubelet: KubeletEnd, driver: ScriptedDriver) -> None:
    claim = await make_claim(server, "one")
    failed = ClaimFailed("the API server said:\n" + "x" * 65_536)
    driver.answers[claim.uid] = failed
    driver.refusals[claim.uid] = failed
    for error in ((await kubelet.prepare(claim))[claim.uid].error, (await kubelet.unprepare(claim))[claim.uid]):
        assert error.startswith(r"the API server said:\nxxx")
        assert len(error) < 2_100


async def test_failed_call_logs_only_some_of_its_claims(
    kubelet: KubeletEnd, driver: ScriptedDriver, caplog: pytest.LogCaptureFixture
) -> None:
    driver.failure = OSError("disk is full")
    with pytest.raises(RpcError, match="disk is full"):
        await kubelet.unprepare(*(ClaimRef("default", f"claim-{index}", f"uid-{index}") for index in range(5000)))
    (text,) = [text for text in caplog.messages if text.startswith("cannot unprepare default/claim-0:uid-0, ")]
    assert text.endswith("default/claim-4:uid-4 and 4995 more: unprepare resource claims: disk is full")


async def test_huge_batch_is_answered_completely(kubelet: KubeletEnd, driver: ScriptedDriver) -> None:
    refs = [ClaimRef("default", f"claim-{index}", f"uid-{index}") for index in range(5000)]
    assert await kubelet.unprepare(*refs) == {ref.uid: "" for ref in refs}
    broken = [ClaimRef("default", "../x", f"uid-{index}") for index in range(2000)]
    assert {uid for uid, entry in (await kubelet.prepare(*broken)).items() if entry.error} == {r.uid for r in broken}


@pytest.mark.parametrize("verb", ["prepare", "unprepare"])
async def test_driver_failure_fails_the_call_with_its_message(
    verb: str, server: Server, kubelet: KubeletEnd, driver: ScriptedDriver, caplog: pytest.LogCaptureFixture
) -> None:
    claim = await make_claim(server, "one")
    driver.failure = OSError("disk is full")
    ask = {"prepare": kubelet.prepare, "unprepare": kubelet.unprepare}[verb]
    with pytest.raises(RpcError) as failed:
        await ask(claim)
    assert failed.value.code is Status.INTERNAL
    assert failed.value.details == f"{verb} resource claims: disk is full"
    assert "the driver failed" in caplog.messages
    driver.failure = None
    await ask(claim)


async def test_driver_answer_for_another_claim_is_dropped(
    server: Server, kubelet: KubeletEnd, driver: ScriptedDriver
) -> None:
    claim = await make_claim(server, "one")
    driver.extra_answers["uid-of-another"] = ()
    assert list(await kubelet.prepare(claim)) == [claim.uid]
