"""The claims in memory and on disk."""

from pathlib import Path

import msgspec
import pytest

from checkpoint.kubelet_claims import ClaimState, DriverState, PreparedDevice, encode, load
from kubelet import RELEASES, ClaimError, Version
from kubelet.dramanager.claim_info import ClaimInfo, ClaimInfoCache
from kubelet.release import LATEST
from resourceapi.objects import v1
from tests.dra_scenarios import scenario
from tests.kubelet.dramanager.kit import DRIVER, POOL, Kit, claim, user

OTHER = "other.example.com"
DEVICE = PreparedDevice(POOL, "g0", None, ["r1"], ["x.test/y=g0"])
EMPTY_STATE_FILE = (
    b'{"Data":"{\\"kind\\":\\"DRACheckpoint\\",\\"apiVersion\\":\\"checkpoint.dra.kubelet.k8s.io/v1\\",'
    b'\\"ClaimInfoStateList\\":null}","Checksum":4010664294}'
)


@scenario(140)
def test_claim_info_is_created_from_allocated_claim() -> None:
    info = ClaimInfo.from_claim(claim("c1"))
    assert (info.namespace, info.name, info.uid) == ("default", "c1", "uid-c1")
    assert (info.devices, info.pods, info.is_prepared) == ({DRIVER: None}, set(), False)
    two = ClaimInfo.from_claim(claim("c1", ("a", DRIVER, "g0"), ("b", OTHER, "g0"), ("c", DRIVER, "g1")))
    assert list(two.devices) == [DRIVER, OTHER]
    usual = claim("c1")
    status = msgspec.structs.replace(usual.status, allocation=v1.AllocationResult())
    assert ClaimInfo.from_claim(msgspec.structs.replace(usual, status=status)).devices == {}
    with pytest.raises(ClaimError, match="ResourceClaim c1: not allocated"):
        ClaimInfo.from_claim(claim("c1", allocated=False))


@scenario(141)
def test_claim_info_is_restored_from_state_of_any_release() -> None:
    drivers = {DRIVER: DriverState([DEVICE]), OTHER: DriverState()}
    state = ClaimState("u", "c1", "default", {"p": {}, "q": {}}, drivers)
    info = ClaimInfo.from_state(state, LATEST)
    assert (info.pods, info.devices, info.is_prepared) == ({"p", "q"}, {DRIVER: [DEVICE], OTHER: None}, False)
    assert encode([info.state()]) == encode([state])
    older = ClaimInfo.from_state(state, RELEASES["1.34"])
    assert b"ShareID" not in encode([older.state()])
    assert b"ShareID" in encode([ClaimInfo.from_state(state, RELEASES["1.35"]).state()])
    assert encode([ClaimInfo.from_state(older.state(), LATEST).state()]) == encode([state])


@scenario(142)
def test_prepared_devices_are_appended_or_replaced() -> None:
    info = ClaimInfo("default", "c1", "u", [DRIVER, OTHER])
    info.add_devices(DRIVER, [DEVICE], replace=False)
    info.add_devices(DRIVER, [DEVICE], replace=False)
    info.add_devices("third", [DEVICE], replace=True)
    assert info.devices == {DRIVER: [DEVICE, DEVICE], OTHER: None, "third": [DEVICE]}
    assert list(info.prepared_devices()) == [(DRIVER, DEVICE), (DRIVER, DEVICE), ("third", DEVICE)]
    info.add_devices(DRIVER, [DEVICE], replace=True)
    info.add_devices("third", [], replace=True)
    assert info.devices == {DRIVER: [DEVICE], OTHER: None, "third": None}


def test_claim_with_skipped_operations_is_refused_since_1_37() -> None:
    """The feature is alpha. A kubelet of 1.37 knows it and refuses such claims; an older one ignores the field."""

    def skipping(*operations: tuple[str, ...]) -> v1.ResourceClaim:
        made = claim("c1", *(("r", DRIVER, f"g{number}") for number in range(len(operations))))
        assert made.status.allocation is not None
        results = tuple(
            msgspec.structs.replace(result, skip_node_operations=each)
            for result, each in zip(made.status.allocation.devices.results, operations, strict=True)
        )
        allocation = v1.AllocationResult(devices=v1.DeviceAllocationResult(results=results))
        return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, allocation=allocation))

    text = "^ResourceClaim c1: DRAOptionalNodeOperations feature gate is disabled on kubelet$"
    for operations in ((("*",),), (("*",), ("NodeUnprepareResources",))):
        with pytest.raises(ClaimError, match=text):
            ClaimInfo.from_claim(skipping(*operations))
        ClaimInfo.from_claim(skipping(*operations), RELEASES["1.36"])
    ClaimInfo.from_claim(skipping(("*",), ()))


@scenario(142, 143)
async def test_cache_finds_saves_and_deletes_claims(folder: Path) -> None:
    """The kubelet needs locks here. This cache does not, because no other task runs between two awaits."""
    cache = ClaimInfoCache(folder)
    await cache.load()
    info = ClaimInfo("default", "c1", "u1", [DRIVER])
    info.pods.add("p")
    assert cache.add(info) is info
    cache.add(ClaimInfo("elsewhere", "c1", "u2"))
    assert cache.get("default", "c1") is info
    assert cache.get("default", "c2") is None
    assert (cache.of_pod("p"), cache.of_pod("q"), cache.pods()) == ([info], [], {"p"})
    info.pods.discard("p")
    assert cache.of_pod("p") == []
    info.pods.add("p")
    await cache.save()
    another = ClaimInfoCache(folder)
    await another.load()
    assert [each.state() for each in another.claims()] == [each.state() for each in cache.claims()]
    another.delete(info)
    assert len(another.claims()) == 2, "that one is of another cache"
    for each in another.of_pod("p"):
        another.delete(each)
    assert [each.namespace for each in another.claims()] == ["elsewhere"]


@scenario(104, 149)
async def test_new_folder_gets_an_empty_state_file(folder: Path) -> None:
    await ClaimInfoCache(folder).load()
    path = folder / "dra_manager_state"
    assert path.read_bytes() == EMPTY_STATE_FILE
    assert path.stat().st_mode & 0o777 == 0o600
    cache = ClaimInfoCache(folder)
    await cache.load()
    await cache.save()
    assert load(path.read_bytes()).checksum == 2361995144
    assert b":[]}" in path.read_bytes()


@scenario(104)
async def test_missing_folder_is_an_error(folder: Path) -> None:
    failed = "failed to store checkpoint dra_manager_state: could not save checkpoint dra_manager_state: "
    with pytest.raises(ClaimError, match=failed):
        await ClaimInfoCache(folder / "nowhere").load()


@scenario(149)
@pytest.mark.parametrize(
    ("content", "text"),
    [
        (EMPTY_STATE_FILE.replace(b"4010664294", b"4010664295"), "checkpoint is corrupted"),
        (b"{", "unexpected end of JSON input"),
        (b"", "unexpected end of JSON input"),
    ],
)
async def test_corrupt_state_file_is_refused_and_kept(folder: Path, content: bytes, text: str) -> None:
    path = folder / "dra_manager_state"
    path.write_bytes(content)
    with pytest.raises(ClaimError) as error:
        await ClaimInfoCache(folder).load()
    assert str(error.value) == (
        "create ResourceClaim cache: GetOrCreate() on checkpoint state: failed to get checkpoint dra_manager_state:"
        f" {text}"
    )
    assert path.read_bytes() == content


@pytest.mark.parametrize("kubernetes", ["1.36", "1.37"])
async def test_claim_is_restored_and_prepared_again_after_restart(kit: Kit, kubernetes: Version) -> None:
    """Before 1.37 the list then contains the device twice, as in a real kubelet."""
    stub = await kit.driver()
    kit.put(claim("c1"))
    asking = user("p", "c1")
    await kit.manager.prepare_resources(asking)
    await kit.restart()
    ids = kit.manager.get_resources(asking, asking.container("c"))
    assert ids == ("vendor.test/up=uid-c1-g0",)
    await kit.register(stub)
    await kit.manager.prepare_resources(asking)
    assert stub.claims("NodePrepareResources") == [["c1"], ["c1"]]
    devices = (kit.stored()["c1"].driver_state or {})[DRIVER].devices or ()
    assert [device.device_name for device in devices] == (["g0", "g0"] if kubernetes == "1.36" else ["g0"])
    await kit.manager.unprepare_resources(asking)
    assert load((kit.folder / "dra_manager_state").read_bytes()).claims == []


@scenario(178)
async def test_claims_in_use_counts_prepared_claims_per_driver(kit: Kit) -> None:
    stubs = [await kit.driver(), await kit.driver(OTHER)]
    kit.put(claim("c1", ("a", DRIVER, "g0"), ("b", OTHER, "g0")))
    asking = user("p", "c1")
    assert kit.manager.claims_in_use() == {"<any>": 0}
    await kit.manager.prepare_resources(asking)
    assert kit.manager.claims_in_use() == {"<any>": 1, DRIVER: 1, OTHER: 1}
    await kit.restart()
    assert kit.manager.claims_in_use() == {"<any>": 0}, "those that are prepared, as far as the kubelet knows"
    for stub in stubs:
        await kit.register(stub)
    await kit.manager.prepare_resources(asking)
    assert kit.manager.claims_in_use() == {"<any>": 1, DRIVER: 1, OTHER: 1}
    await kit.manager.unprepare_resources(asking)
    assert kit.manager.claims_in_use() == {"<any>": 0}
