"""The protobuf codec: upstream's own bytes for each kind, and bytes that are none."""

import base64
import gzip
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.apiserver import Server
from controlplane.apiserver.protobuf import ProtobufError, decode, encode, watch_frame
from controlplane.apiserver.protobuf.messages import message_of
from controlplane.apiserver.protobuf.wire import LENGTH, sized, tag
from resourceapi.objects import DecodeError

ROOT = Path(__file__).parents[4]
SAMPLES = Path(__file__).parents[1] / "data/protobuf.jsonl.gz"  # made by proto/kubernetes
MAGIC = b"k8s\x00"
_TEMPLATES = ("daemonsets", "deployments", "replicasets", "replicationcontrollers", "statefulsets")
"""What makes pods has a sample, its lists have none: one is as long as all others together."""


def samples() -> list[tuple[dict[str, Any], bytes]]:
    """Upstream's JSON and bytes: objects without a value, with a value everywhere, and with everything but empty."""
    lines = [json.loads(line) for line in gzip.decompress(SAMPLES.read_bytes()).splitlines()]
    return [(line["json"], base64.b64decode(line["protobuf"])) for line in lines]


OBJECTS = [sample for sample in samples() if "kind" in sample[0]]
EVENTS = [sample for sample in samples() if "kind" not in sample[0]]


def in_order(value: Any) -> Any:
    """A value in which the order of members counts."""
    if isinstance(value, dict):
        return [(name, in_order(item)) for name, item in value.items()]
    return [in_order(item) for item in value] if isinstance(value, list) else value


def name_of(sample: tuple[dict[str, Any], bytes]) -> str:
    return f"{sample[0].get('apiVersion')}.{sample[0].get('kind')}"


@pytest.mark.parametrize("sample", OBJECTS, ids=name_of)
def test_upstreams_bytes_and_upstreams_json(sample: tuple[dict[str, Any], bytes]) -> None:
    value, data = sample
    assert encode(value) == data
    assert in_order(decode(data, "", "")) == in_order(value)


def test_upstreams_frames() -> None:
    assert len(EVENTS) == 12
    assert all(watch_frame(event) == data for event, data in EVENTS)


def test_every_served_kind_is_among_the_samples() -> None:
    kinds = {name_of(sample) for sample in OBJECTS}
    for kind in Server().registry:
        for version in kind.versions:
            assert f"{kind.api_version(version.name)}.{kind.kind}" in kinds
            listed = f"{kind.api_version(version.name)}.{kind.name_of_list}"
            assert listed in kinds or (kind.plural in _TEMPLATES and message_of(*listed.rsplit(".", 1)))


@pytest.mark.skipif("NODEPLUG_GO" not in os.environ, reason="set NODEPLUG_GO to make upstream's table and bytes again")
def test_what_go_says_is_what_is_here() -> None:
    def go(what: str) -> bytes:
        return subprocess.run(
            ["go", "run", ".", what], cwd=ROOT / "proto/kubernetes", stdout=subprocess.PIPE, check=True
        ).stdout

    assert go("messages") == (ROOT / "controlplane/apiserver/protobuf/messages.txt").read_bytes()
    assert go("samples") == gzip.decompress(SAMPLES.read_bytes())


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty data"),
        (MAGIC, "empty body"),
        (b"{}", r"does not appear to be a protobuf message, expected prefix \[107 56 115 0\]"),
        (MAGIC + b"\x0a", "unexpected EOF"),
        (MAGIC + b"\x0a\x05ab", "unexpected EOF"),
        (MAGIC + b"\x12\x02\x0a\x05", "unexpected EOF"),
        (MAGIC + b"\x12\x02\x08\x05", "proto: wrong wireType = 0 for field Metadata"),
        (MAGIC + b"\x0c", "proto: unexpected end of group"),
        (MAGIC + b"\x0f", "proto: illegal wireType 7"),
        (MAGIC + b"\x02\x00", r"proto: illegal tag 0 \(wire type 2\)"),
        (MAGIC + b"\xff" * 11, "proto: integer overflow"),
    ],
)
def test_damage_is_named(data: bytes, reason: str) -> None:
    with pytest.raises(ProtobufError, match=reason):
        decode(data, "v1", "ConfigMap")


def test_unknown_fields_are_skipped_whatever_they_are() -> None:
    """Numbers, fixed sizes, bytes and groups in groups."""
    unknown = b"\xf8\x07\x01" + b"\xf9\x07" + b"8" * 8 + b"\xfd\x07" + b"4" * 4 + b"\xfa\x07\x02ab"
    unknown += b"\xfb\x07\xf3\x07\x08\x01\xf4\x07\xfc\x07"
    found = decode(MAGIC + b"\x12" + bytes((len(unknown) + 2,)) + unknown + b"\x20\x01", "v1", "ConfigMap")
    assert found == {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {}, "immutable": True}


def test_what_comes_twice() -> None:
    """Messages are merged, of plain values the last one counts, packed numbers are numbers."""
    names = b"\x0a\x03\x0a\x01a\x0a\x03\x1a\x01n\x20\x00\x20\x01"
    found = decode(MAGIC + b"\x12" + bytes((len(names),)) + names, "v1", "ConfigMap")
    assert (found["metadata"], found["immutable"]) == ({"name": "a", "namespace": "n"}, True)
    groups = b"\x12\x06\x72\x04\x22\x02\x05\x07"
    found = decode(MAGIC + b"\x12" + bytes((len(groups),)) + groups, "v1", "Pod")
    assert found["spec"]["securityContext"] == {"supplementalGroups": [5, 7]}


def test_a_kind_without_a_message_is_its_name() -> None:
    assert decode(MAGIC + b"\x0a\x09\x12\x07Gadgets\x12\x02\x0a\x00", "example.com/v1", "") == {
        "kind": "Gadgets",
        "apiVersion": "example.com/v1",
    }


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"priority": "x"}, "cannot unmarshal string into Go struct field PodSpec.spec.priority of type int32"),
        ({"priority": 2**31}, "number 2147483648 into Go struct field PodSpec.spec.priority of type int32"),
        ({"priority": True}, "cannot unmarshal bool into Go struct field PodSpec.spec.priority of type int32"),
        ({"hostNetwork": 1}, "cannot unmarshal number into Go struct field PodSpec.spec.hostNetwork of type bool"),
        ({"containers": {}}, r"cannot unmarshal object into Go struct field PodSpec.spec.containers of type \[\]v1.C"),
        ({"containers": ["x"]}, "cannot unmarshal string into Go struct field .* of type v1.Container"),
        ({"nodeSelector": {"a": 1}}, "cannot unmarshal number into Go struct field .* of type string"),
        ({"overhead": {"cpu": "1x"}}, "quantities must match the regular expression"),
    ],
)
def test_what_a_type_does_not_hold(spec: dict[str, Any], reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        encode({"apiVersion": "v1", "kind": "Pod", "spec": spec})


@pytest.mark.parametrize(
    ("item", "expected"),
    [({"b": 1}, "object"), (300, "number 300"), (1.5, "number 1.5"), ("x", "string"), ([1], "array"), (True, "bool")],
)
def test_bytes_may_come_one_by_one(item: Any, expected: str) -> None:
    """Go's decoder takes a list of numbers for bytes, too."""
    secret = {"apiVersion": "v1", "kind": "Secret"}
    assert encode(secret | {"data": {"a": [1, None, 255]}}) == encode(secret | {"data": {"a": "AQD/"}})
    with pytest.raises(
        DecodeError, match=rf"cannot unmarshal {expected} into Go struct field Secret\.data of type uint8$"
    ):
        encode(secret | {"data": {"a": [item]}})


def test_what_is_no_base64_and_what_is_nested_without_end() -> None:
    faults = {"!": 0, "eA": 0, "eA=": 3, "eHh4=": 4, "=": 0, "eA==x": 4, "eA=\nx": 3, "eHh4e": 4, "\u00e4": 0}
    for text, at in faults.items():
        with pytest.raises(DecodeError, match=f"illegal base64 data at input byte {at}$"):
            encode({"apiVersion": "v1", "kind": "Secret", "data": {"a": text}})
    assert encode({"apiVersion": "v1", "kind": "Secret", "data": {"a": "e\nA=\n="}})
    with pytest.raises(DecodeError, match="cannot unmarshal number"):  # the first in the order of the body
        encode({"apiVersion": "v1", "kind": "Secret", "data": {"b": 1, "a": {}}})
    schema: dict[str, Any] = {}
    for _ in range(2000):
        schema = {"not": schema}
    definition = {"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}}
    named = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    with pytest.raises(DecodeError, match="exceeded max depth"):
        encode(named | definition)
    data = b""
    for number in (28,) * 2000 + (1, 4, 7, 2, 2):  # not, openAPIV3Schema, schema, versions, spec, raw
        data = tag(number, LENGTH) + sized(data)
    with pytest.raises(ProtobufError, match="exceeded max depth"):
        decode(MAGIC + data, named["apiVersion"], named["kind"])


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_whatever_comes_is_an_object_or_refused(data: st.DataObject) -> None:
    """Bytes of an object with some of them changed, and bytes at random."""
    value, whole = data.draw(st.sampled_from([sample for sample in OBJECTS if len(sample[1]) < 8000]))
    changed = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(len(MAGIC), len(changed) - 1))
        changed[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    try:
        found = decode(bytes(changed), value["apiVersion"], value["kind"])
    except ProtobufError:
        return
    if "metadata" in found:
        decode(encode(found), "", "")
