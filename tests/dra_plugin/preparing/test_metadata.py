"""Reading metadata as in a container, with the rules of the consumer library."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_plugin.preparing.metadata import (
    DeviceEntry,
    DeviceMetadata,
    MetadataError,
    RequestEntry,
    encode,
    read_file,
    read_request_folder,
    read_stream,
)
from resourceapi.objects import ObjectMeta, to_dict, v1
from tests.dra_scenarios import scenario

V1ALPHA1 = {"apiVersion": "metadata.resource.k8s.io/v1alpha1", "kind": "DeviceMetadata"}
V1BETA1 = V1ALPHA1 | {"apiVersion": "metadata.resource.k8s.io/v1beta1"}


def entry(*devices: str, driver: str = "gpu.example.com") -> dict[str, Any]:
    return {"name": "gpu-0", "devices": [{"driver": driver, "pool": "node-1", "name": name} for name in devices]}


def stream(*objects: Any) -> str:
    return "".join(x if isinstance(x, str) else json.dumps(x) + "\n" for x in objects)


def refusal(*objects: Any) -> str:
    with pytest.raises(MetadataError) as error:
        read_stream(stream(*objects))
    return str(error.value)


@scenario(36)
@pytest.mark.parametrize("head", [V1ALPHA1, V1BETA1])
def test_both_versions_are_read(head: dict[str, str]) -> None:
    found = read_stream(stream(head | {"podClaimName": "mine", "requests": [entry("gpu-a")]}))
    assert found == DeviceMetadata(
        pod_claim_name="mine",
        requests=(
            RequestEntry(name="gpu-0", devices=(DeviceEntry(driver="gpu.example.com", pool="node-1", name="gpu-a"),)),
        ),
    )


@scenario(37, 38, 39, 40, 41, 42)
@pytest.mark.parametrize(
    ("objects", "words"),
    [
        ((), "no metadata objects found in stream"),
        (("{not-json",), "read metadata object from stream"),
        (('{"apiVersion":',), "read metadata object from stream"),
        (('{"a": NaN}',), "read metadata object from stream"),
        (({"apiVersion": V1ALPHA1["apiVersion"]},), "decode metadata.resource.k8s.io/v1alpha1"),
        (({"kind": "DeviceMetadata"},), "decode metadata object"),
        (({},), "decode metadata object"),
        ((7,), "decode metadata object"),
        ((V1ALPHA1 | {"requests": "all"},), "decode metadata.resource.k8s.io/v1alpha1"),
        ((V1ALPHA1 | {"kind": "Other"},), "decode metadata.resource.k8s.io/v1alpha1"),
        (
            ({"apiVersion": "metadata.k8s.io/v99", "kind": "DeviceMetadata"},),
            "no compatible metadata version found in stream (unknown versions: metadata.k8s.io/v99)",
        ),
        (
            tuple({"apiVersion": f"metadata.k8s.io/v{n}", "kind": "DeviceMetadata"} for n in (99, 100)),
            "(unknown versions: metadata.k8s.io/v99, metadata.k8s.io/v100)",
        ),
        (({"apiVersion": "metadata.k8s.io/v99"},), "decode metadata.k8s.io/v99"),
    ],
)
def test_unreadable_stream_is_refused(objects: tuple[Any, ...], words: str) -> None:
    assert words in refusal(*objects)


@scenario(43, 44)
def test_first_supported_object_is_used() -> None:
    unknown = {"apiVersion": "metadata.k8s.io/v99", "kind": "DeviceMetadata"}
    assert read_stream(stream(V1ALPHA1, "{broken")) == DeviceMetadata()
    assert read_stream(stream(unknown, V1BETA1 | {"podClaimName": "a"}, V1ALPHA1)).pod_claim_name == "a"


@scenario(45, 46)
def test_malformed_object_is_refused_even_before_a_valid_one() -> None:
    unknown = {"apiVersion": "metadata.k8s.io/v99", "kind": "DeviceMetadata"}
    assert "decode metadata.resource.k8s.io/v1alpha1" in refusal(V1ALPHA1 | {"requests": 1}, V1ALPHA1)
    assert "decode metadata.resource.k8s.io/v1alpha1" in refusal({"apiVersion": V1ALPHA1["apiVersion"]}, V1ALPHA1)
    assert "decode metadata object" in refusal({"kind": "DeviceMetadata"}, V1ALPHA1)
    assert "decode metadata.k8s.io/v1" in refusal(unknown, {"apiVersion": "metadata.k8s.io/v1"}, V1ALPHA1)


@scenario(47)
def test_unreadable_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "gpu.example.com-metadata.json"
    with pytest.raises(MetadataError, match=f"open metadata file {path}"):
        read_file(path)
    path.write_text("{}")
    with pytest.raises(MetadataError, match=str(path)):
        read_file(path)
    path.write_text(stream(V1BETA1))
    assert read_file(path) == DeviceMetadata()


@scenario(48)
def test_request_folder_combines_the_files_of_all_drivers(tmp_path: Path) -> None:
    def write(driver: str, *requests: dict[str, Any], **extra: str) -> None:
        (tmp_path / f"{driver}-metadata.json").write_text(stream(V1BETA1 | {"requests": list(requests)} | extra))

    for missing in (tmp_path, tmp_path / "none"):
        with pytest.raises(MetadataError, match="no metadata files found in"):
            read_request_folder(missing)
    (tmp_path / "other.json").write_text("{")
    write("a.example.com", entry("gpu-0"), entry("gpu-1") | {"name": "single"})
    assert [x.name for x in read_request_folder(tmp_path).requests] == ["gpu-0", "single"]
    write("b.example.com", entry("gpu-x", driver="b.example.com"), entry() | {"name": "more"}, podClaimName="mine")
    found = read_request_folder(tmp_path)
    assert [(x.name, [y.name for y in x.devices]) for x in found.requests] == [
        ("gpu-0", ["gpu-0", "gpu-x"]),
        ("single", ["gpu-1"]),
        ("more", []),
    ]
    assert (found.pod_claim_name, found.metadata) == ("mine", ObjectMeta())
    (tmp_path / "b.example.com-metadata.json").write_text("{}")
    with pytest.raises(MetadataError, match=r"b\.example\.com-metadata\.json: decode metadata object"):
        read_request_folder(tmp_path)


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ({"driver": "A_B"}, "requests[0].devices[0].driver"),
        ({"driver": "a" * 64}, "requests[0].devices[0].driver"),
        ({"pool": "a//b"}, "requests[0].devices[0].pool"),
        ({"name": "a.b"}, "requests[0].devices[0].name"),
        ({"attributes": {f"a{n}": {"int": n} for n in range(33)}}, "requests[0].devices[0].attributes: 33"),
    ],
)
def test_invalid_device_is_refused_unless_validation_is_off(device: dict[str, Any], words: str) -> None:
    sound = {"driver": "gpu.example.com", "pool": "a/b", "name": "gpu-0"}
    value = V1BETA1 | {"requests": [{"name": "gpu", "devices": [sound | device]}]}
    assert words in refusal(value)
    read_stream(stream(value), validate=False)


texts = st.text(st.characters(codec="utf-8"), max_size=8)
attributes = st.one_of(
    st.builds(v1.DeviceAttribute, int_value=st.integers(-(2**63), 2**63 - 1)),
    st.builds(v1.DeviceAttribute, bool_value=st.booleans()),
    st.builds(v1.DeviceAttribute, string_value=texts),
    st.builds(v1.DeviceAttribute, version_values=st.lists(texts, min_size=1).map(tuple)),
)
networks = st.builds(v1.NetworkDeviceData, interface_name=texts, ips=st.lists(texts, min_size=1, max_size=2).map(tuple))
some_metadata = st.builds(
    DeviceMetadata,
    metadata=st.builds(ObjectMeta, name=texts, namespace=texts, uid=texts, generation=st.integers(0, 2**60)),
    pod_claim_name=texts,
    requests=st.lists(
        st.builds(
            RequestEntry,
            name=texts,
            devices=st.lists(
                st.builds(
                    DeviceEntry,
                    driver=texts,
                    pool=texts,
                    name=texts,
                    attributes=st.dictionaries(texts, attributes, max_size=3),
                    network_data=st.none() | networks,
                ),
                min_size=1,
                max_size=2,
            ).map(tuple),
        ),
        min_size=1,
        max_size=2,
    ).map(tuple),
)


@scenario(49)
@given(metadata=some_metadata)
def test_encoded_metadata_is_read_back_in_both_versions(metadata: DeviceMetadata) -> None:
    text = encode(to_dict(metadata)).decode()
    assert read_stream(text, validate=False) == metadata
    _, length = json.JSONDecoder().raw_decode(text)
    assert read_stream(text[length:], validate=False) == metadata  # v1alpha1 has the same content


@given(text=st.text(max_size=60))
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(MetadataError):
        read_stream(text)
