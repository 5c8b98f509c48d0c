import json

import pytest
import yaml

from cdi import (
    ContainerEdits,
    Device,
    DeviceNode,
    IntelRdt,
    InvalidSpec,
    Mount,
    NetDevice,
    Spec,
    decode,
    encode,
    required_version,
)

NODE = ContainerEdits(device_nodes=(DeviceNode(path="/dev/fuse"),))


def spec(kind: str = "example.com/fuse", name: str = "misc-fuse", edits: ContainerEdits = NODE) -> Spec:
    return Spec.of(kind, [Device(name=name, container_edits=edits)])


@pytest.mark.parametrize(
    ("version", "made"),
    [
        ("0.3.0", spec()),
        ("0.4.0", spec(edits=ContainerEdits(mounts=(Mount(host_path="/a", container_path="/a", type="tmpfs"),)))),
        ("0.5.0", spec(name="0000-01-00-0")),
        ("0.5.0", spec(edits=ContainerEdits(device_nodes=(DeviceNode(path="/dev/a", host_path="/dev/b"),)))),
        ("0.6.0", spec(kind="example.com/mig-1g.5gb")),
        ("0.6.0", Spec.of("ab/cd", [Device(name="d", container_edits=NODE)], annotations={"a": "b"})),
        ("0.6.0", Spec.of("ab/cd", [Device(name="d", annotations={"a": "b"}, container_edits=NODE)])),
        ("0.7.0", spec(edits=ContainerEdits(additional_gids=(44,)))),
        ("0.7.0", Spec.of("ab/cd", [Device(name="d", container_edits=NODE)], ContainerEdits(additional_gids=(44,)))),
        ("0.7.0", spec(edits=ContainerEdits(intel_rdt=IntelRdt(clos_id="guaranteed")))),
        ("1.1.0", spec(edits=ContainerEdits(intel_rdt=IntelRdt(schemata=("L3:0=f",))))),
        ("1.1.0", spec(edits=ContainerEdits(intel_rdt=IntelRdt(enable_monitoring=True)))),
        ("1.1.0", spec(edits=ContainerEdits(net_devices=(NetDevice(host_interface_name="eth1", name="net0"),)))),
    ],
)
def test_spec_declares_the_lowest_sufficient_version(version: str, made: Spec) -> None:
    assert made.cdi_version == required_version(made) == version


def test_dot_in_the_vendor_needs_no_newer_version() -> None:
    assert spec(kind="a.b.example.com/fuse").cdi_version == "0.3.0"


def test_encoded_spec_has_the_specified_members_and_no_absent_ones() -> None:
    node = DeviceNode(
        path="/dev/a",
        host_path="/dev/b",
        type="c",
        major=10,
        minor=229,
        file_mode=0o660,
        permissions="rw",
        uid=0,
        gid=7,
    )
    edits = ContainerEdits(
        env=("A=1",),
        device_nodes=(node,),
        mounts=(Mount(host_path="/h", container_path="/c", options=("ro", "bind")),),
        intel_rdt=IntelRdt(clos_id="/", l3_cache_schema="L3:0=f", mem_bw_schema="MB:0=10"),
        additional_gids=(7,),
        net_devices=(NetDevice(host_interface_name="eth1", name="net0"),),
    )
    assert json.loads(encode(spec(edits=edits))) == {
        "cdiVersion": "1.1.0",
        "kind": "example.com/fuse",
        "devices": [
            {
                "name": "misc-fuse",
                "containerEdits": {
                    "env": ["A=1"],
                    "deviceNodes": [
                        {
                            "path": "/dev/a",
                            "hostPath": "/dev/b",
                            "type": "c",
                            "major": 10,
                            "minor": 229,
                            "fileMode": 432,
                            "permissions": "rw",
                            "uid": 0,
                            "gid": 7,
                        }
                    ],
                    "netDevices": [{"hostInterfaceName": "eth1", "name": "net0"}],
                    "mounts": [{"hostPath": "/h", "containerPath": "/c", "options": ["ro", "bind"]}],
                    "intelRdt": {"closID": "/", "l3CacheSchema": "L3:0=f", "memBwSchema": "MB:0=10"},
                    "additionalGids": [7],
                },
            }
        ],
    }


def test_decoded_spec_equals_the_encoded_one() -> None:
    made = spec(edits=ContainerEdits(env=("A=ü\n",), additional_gids=(1, 2)))
    assert decode(encode(made)) == made


@pytest.mark.parametrize(
    "character", ["\x7f", "\x80", "\x85", "\u2028", "\ufeff", "\ufffe", "\uffff", "\U0001f600", "\t"]
)
def test_encoded_spec_reads_the_same_as_yaml(character: str) -> None:
    """Runtimes refuse a file with a control character, and read a line break as a space."""
    made = spec(edits=ContainerEdits(env=(f"A={character}b",)))
    assert decode(encode(made)) == made
    assert yaml.safe_load(encode(made)) == json.loads(encode(made))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "truncated"),
        (b"{}", "cdiVersion"),
        (b'{"cdiVersion":"0.3.0","kind":"ab/cd","devices":null}', "devices"),
        (b'{"cdiVersion":"0.3.0","kind":"ab/cd","devices":[],"extra":1}', "extra"),
        (b'{"cdiVersion":"0.3.0","kind":"ab/cd","devices":[{"name":"d"}]}', "containerEdits"),
        (b'{"cdiVersion":"0.3.0","kind":"a1/b","devices":[],"containerEdits":{"additionalGids":[4294967296]}}', "Gids"),
        (b"\xff\xfe", "malformed"),
    ],
)
def test_invalid_content_is_refused_with_the_reason(text: bytes, reason: str) -> None:
    with pytest.raises(InvalidSpec, match=reason):
        decode(text)


def test_device_name_does_not_depend_on_node_paths() -> None:
    moved = ContainerEdits(device_nodes=(DeviceNode(path="/dev/fuse1"),))
    assert Device.of("misc-fuse", NODE).name == Device.of("misc-fuse", moved).name == "misc-fuse"
    assert Device.of("misc-fuse", moved).container_edits == moved
