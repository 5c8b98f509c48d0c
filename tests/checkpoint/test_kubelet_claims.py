"""The DRA manager's file: written byte for byte like the kubelet's; errors in invalid files are named."""

import json
import zlib

import pytest

from checkpoint.kubelet_claims import ClaimState, DriverState, PreparedDevice, decode, encode, load, verify
from checkpoint.kubelet_json import CheckpointCorrupted, KubeletFileError
from tests.cases import recorded_at

POD = {"139cdb46-f989-4f17-9561-ca10cfb509a6": object()}


def claim(
    *devices: PreparedDevice, name: str = "example", uid: str = "067798be-454e-4be4-9047-1aa06aea63f7"
) -> ClaimState:
    return ClaimState(uid, name, "default", POD, {"test-driver.cdi.k8s.io": DriverState(devices)})


def device(name: str) -> PreparedDevice:
    return PreparedDevice(
        "worker-1", name, request_names=["test request"], cdi_device_ids=["example.com/example=cdi-example"]
    )


@pytest.mark.parametrize(
    ("claims", "checksum"),
    [
        ([claim(device("dev-1"))], 1656016162),
        ([claim(device("dev-1"), device("dev-2"))], 3369508096),
        (
            [
                claim(device("dev-1"), name="example-1"),
                claim(
                    PreparedDevice("worker-1", "dev-2"), name="example-2", uid="4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"
                ),
            ],
            1582256999,
        ),
        (None, 4010664294),
        ([], 2361995144),
    ],
)
def test_checksums_are_the_published_ones(claims: list[ClaimState] | None, checksum: int) -> None:
    raw = encode(claims)
    assert json.loads(raw)["Checksum"] == checksum
    found = load(raw)
    verify(found)
    assert encode(found.claims) == raw


def test_null_share_id_stays_null() -> None:
    raw = encode([claim(PreparedDevice("p", "d", share_id=None))])
    assert rb"\"ShareID\":null" in raw
    assert encode(load(raw).claims) == raw


def test_skipped_node_operations_are_kept() -> None:
    state = DriverState([PreparedDevice("p", "d")], skip_node_operations=["NodePrepareResources", "*"])
    raw = encode([ClaimState("u", "n", "default", POD, {"a": state, "b": DriverState(skip_node_operations=[])})])
    assert rb"\"skipNodeOperations\":[\"NodePrepareResources\",\"*\"]},\"b\":{\"Devices\":null}}" in raw
    assert encode(load(raw).claims) == raw


def test_field_names_match_in_any_case() -> None:
    raw = encode([claim(PreparedDevice("p", "d", share_id="s", request_names=["r"]))])
    data = json.loads(raw)["Data"]
    other = data.replace("ClaimUID", "claimuid").replace("ShareID", "shareId").replace("Devices", "devices")
    text = json.dumps({"data": other, "checksum": zlib.crc32(other.encode()), "Since": 1.4})
    assert encode(load(text.encode()).claims) == raw


def test_files_of_a_real_kubelet_are_encoded_identically() -> None:
    paths = sorted(recorded_at("kubelet").glob("checkpoint-dra-*.json"))
    assert paths
    for path in paths:
        raw = path.read_bytes().rstrip()
        assert encode(load(raw).claims) == raw


def test_damaged_file_has_the_error_text_of_the_kubelet() -> None:
    data = "{}"
    with pytest.raises(CheckpointCorrupted, match=r"^checkpoint is corrupted$"):
        load(json.dumps({"Data": data, "Checksum": 1}).encode())
    with pytest.raises(KubeletFileError, match=r"^unexpected end of JSON input$"):
        load(b"{")
    with pytest.raises(KubeletFileError, match=r"^unexpected end of JSON input$"):
        load(json.dumps({"Data": "{", "Checksum": zlib.crc32(b"{")}).encode())
    with pytest.raises(CheckpointCorrupted):
        verify(decode(json.dumps({"Data": data, "Checksum": 1}).encode()))
