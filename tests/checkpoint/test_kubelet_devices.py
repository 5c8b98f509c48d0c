"""The device manager's file: written byte for byte like the kubelet's; errors in invalid files are named."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint import kubelet_devices
from checkpoint.kubelet_devices import PodDevices, decode, encode, load
from checkpoint.kubelet_json import CheckpointCorrupted, KubeletFileError
from tests.cases import Case, recorded, recorded_at

ENTRY = PodDevices(
    "pod1", "con1", "domain1.com/resource1", {-1: ["dev5"], 0: ["dev1", "dev2"], 10: ["dev9"], 2: ["dev2"]}
)
RESPONSE = b"\x12\n\n\x02/c\x12\x02/h\x18\x01"

# written by kubelets in the field, and published with bug reports
TEGRA = (
    b'{"Data":{"PodDeviceEntries":[{"PodUID":"bf52b2cd-b611-4e79-86b1-280b283185c3","ContainerName":"check",'
    b'"ResourceName":"nvidia.com/gpu","DeviceIDs":{"-1":["tegra"]},'
    b'"AllocResp":"Ch8KFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSBXRlZ3Jh"}],'
    b'"RegisteredDevices":{"nvidia.com/gpu":["tegra"]}},"Checksum":3660592824}'
)
UNUSED = (
    b'{"Data":{"PodDeviceEntries":null,"RegisteredDevices":'
    b'{"nvidia.com/gpu":["GPU-0650a168-e770-3ea8-8ac3-8a1d419763e0"]}},"Checksum":3952659280}'
)
BEFORE_1_20 = (
    b'{"Data":{"PodDeviceEntries":[{"PodUID":"pod1","ContainerName":"con1","ResourceName":"domain1.com/resource1",'
    b'"DeviceIDs":["dev1","dev2"],"AllocResp":""}],"RegisteredDevices":{"domain1.com/resource1":["dev1","dev2"]}},'
    b'"Checksum":2622669051}'
)


@recorded("checkpoint/kubelet-files.json")
def test_recorded_file_is_decoded_and_encoded_as_recorded(case: Case) -> None:
    case.run()


def test_files_of_a_real_kubelet_are_encoded_identically() -> None:
    paths = sorted(recorded_at("kubelet").glob("checkpoint-device-*.json"))
    assert paths
    for path in paths:
        raw = path.read_bytes().rstrip()
        found = load(raw)
        assert encode(found.entries, found.registered) == raw


@pytest.mark.parametrize("raw", [TEGRA, UNUSED], ids=["tegra", "unused"])
def test_published_file_is_encoded_identically(raw: bytes) -> None:
    found = load(raw)
    assert encode(found.entries, found.registered) == raw


@pytest.mark.parametrize(
    ("entries", "registered", "checksum"),
    [
        (None, {}, 3467439661),
        ([], {}, 2932075448),
        (
            [PodDevices(ENTRY.pod_uid, ENTRY.container, ENTRY.resource, ENTRY.by_node, RESPONSE)],
            {"domain1.com/resource1": ["dev1", "dev2"], "domain2.com/resource2": []},
            2218539863,
        ),
    ],
)
def test_null_and_empty_entries_have_different_checksums(
    entries: list[PodDevices] | None, registered: dict[str, list[str]], checksum: int
) -> None:
    assert json.loads(encode(entries, registered))["Checksum"] == checksum


def test_keys_are_sorted_as_text_in_the_file_and_as_numbers_in_the_dump() -> None:
    part = kubelet_devices.entry_part(ENTRY)
    assert '"DeviceIDs":{"-1":["dev5"],"0":["dev1","dev2"],"10":["dev9"],"2":["dev2"]}' in part.json
    assert b"map[-1:[dev5] 0:[dev1 dev2] 2:[dev2] 10:[dev9]]" in part.dump.data


def test_strings_are_escaped_as_in_go() -> None:
    raw = encode([PodDevices('<a>&"\\', "\n\t\b\x01\x7f", "\u2028é日")], {})
    assert b'"PodUID":"\\u003ca\\u003e\\u0026\\"\\\\"' in raw
    assert b'"ContainerName":"\\n\\t\\b\\u0001\x7f"' in raw
    assert '"ResourceName":"\\u2028é日"'.encode() in raw


def test_missing_fields_are_empty_and_not_null() -> None:
    found = decode(b'{"Data":{},"Checksum":1}')
    assert (found.entries, found.registered) == ([], {})
    assert decode(b'{"Data":{"PodDeviceEntries":null,"RegisteredDevices":null}}').entries is None


@pytest.mark.parametrize(
    ("original", "variant"),
    [
        ('"Data"', '"data"'),
        ('"PodUID"', '"podUid"'),
        ('"ContainerName"', '"Container\\u004eame"'),
        ('"RegisteredDevices"', '"regi\u017fteredDevices"'),
        ('"DeviceIDs"', '"Since":1.40,"DeviceIDs"'),
        ('"PodUID":', '"PodUID":null,"PodUID":'),
        ('"ResourceName":', '"resourcename":"other","ResourceName":'),
        ('"Checksum":', '"Data":null,"checksum":'),
    ],
)
def test_field_names_are_matched_as_in_go(original: str, variant: str) -> None:
    text = TEGRA.decode().replace(original, variant, 1)
    if '"Data":null' in variant:
        text = text.replace('"Data":', '"DATA":', 1)
    found = load(text.encode())
    assert encode(found.entries, found.registered) == TEGRA


def test_null_values_are_read_as_zero_values() -> None:
    found = decode(
        b'{"Data":{"PodDeviceEntries":[null,{"PodUID":null,"DeviceIDs":{"0":[null]}}],"RegisteredDevices":{"a":null}}}'
    )
    assert found.entries == [PodDevices("", "", ""), PodDevices("", "", "", {0: [""]})]
    assert found.registered == {"a": None}
    assert decode(b"null").entries == []


def test_format_before_1_20_is_decoded_but_not_loaded() -> None:
    found = decode(BEFORE_1_20)
    kubelet_devices.verify(found)
    assert found.is_legacy
    assert found.entries is not None
    assert found.entries[0].device_ids == ["dev1", "dev2"]
    assert encode(found.entries, found.registered) == BEFORE_1_20
    with pytest.raises(KubeletFileError, match="cannot unmarshal array into Go struct field PodDevicesEntry"):
        load(BEFORE_1_20)


def test_wrong_checksum_is_reported_with_the_computed_one() -> None:
    with pytest.raises(CheckpointCorrupted, match=r"^checkpoint is corrupted$") as error:
        load(TEGRA.replace(b'"tegra"', b'"tegrb"'))
    assert error.value.stored == 3660592824
    assert error.value.computed != error.value.stored


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b'{"Data":{"PodDeviceEntries":[{"PodUID":1}]}}', b'{"data":{"podDeviceEntries":1}}', b"\xff"],
)
def test_malformed_file_is_refused(raw: bytes) -> None:
    with pytest.raises(KubeletFileError):
        load(raw)


@pytest.mark.parametrize("kept", [0, 1, 40, -1])
def test_truncated_file_has_the_error_text_of_the_kubelet(kept: int) -> None:
    with pytest.raises(KubeletFileError, match=r"^unexpected end of JSON input$"):
        load(TEGRA.strip()[:kept])


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
lists = st.none() | st.lists(texts, max_size=3)


@given(
    st.none()
    | st.lists(
        st.builds(
            PodDevices,
            texts,
            texts,
            texts,
            st.none() | st.dictionaries(st.integers(-1, 12), lists),
            st.none() | st.binary(max_size=8),
        ),
        max_size=3,
    ),
    st.none() | st.dictionaries(texts, lists, max_size=3),
)
def test_encoded_file_is_decoded_to_the_same_entries(
    entries: list[PodDevices] | None, registered: dict[str, list[str] | None] | None
) -> None:
    raw = encode(entries, registered)
    found = load(raw)
    assert (found.entries, found.registered) == (entries, registered)
    assert encode(found.entries, found.registered) == raw
