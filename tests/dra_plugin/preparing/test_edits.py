"""The content of a claim's CDI spec, without a ledger."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import cdi
from dra_plugin.preparing.claim_record import AllocatedDevice, Record
from dra_plugin.preparing.device_config import Settings
from dra_plugin.preparing.edits import ClaimDevice, claim_spec, device_names, variable
from dra_plugin.preparing.metadata_files import POD_CLAIM_NAME, pod_claim_name
from hostdevices import AttributeValue, Device, Devnode, Host
from hostdevices.presence import Presence, Seen
from resources.resource import Mount, NodeAccess
from tests.cdi.schema import CASES, validator
from tests.dra_plugin.preparing.world import DRIVER, UID, Container, claim, ref
from tests.dra_scenarios import scenario

PLAIN = Settings()
MINE = ref(claim())


def device(name: str, *paths: str, kind: str = "gpu", attributes: Mapping[str, AttributeValue] | None = None) -> Device:
    nodes = tuple(Devnode(path, "c", 226, n) for n, path in enumerate(paths or (f"/dev/{name}",)))
    return Device(id=name, kind=kind, name=name, attributes=attributes or {}, devnodes=nodes)


def allocated(what: Device, request: str = "gpu", settings: Settings = PLAIN, **options: Any) -> ClaimDevice:
    """A device of a claim, unchanged since its allocation."""
    seen = Seen(replace(what, attributes={}), ())
    resource = f"example.com/{what.kind}"
    return ClaimDevice(AllocatedDevice(request, what.id, resource, seen, "rw", settings, **options), what)


def described(*devices: ClaimDevice) -> cdi.Spec:
    """The CDI spec of a claim with these devices."""
    presence = Presence(Host("/"))
    presence.update({x.device.id: x.device for x in devices if x.device is not None}, ())
    record = Record(claim=MINE, results=(), allocated_at="", devices=(), allocated=tuple(x.allocated for x in devices))
    spec = claim_spec(DRIVER, record, presence)
    assert spec is not None
    return spec


def edits(*devices: ClaimDevice) -> list[cdi.ContainerEdits]:
    return [x.container_edits for x in described(*devices).devices]


def test_nodes_have_the_configured_owner_and_paths() -> None:
    link = Device("a", "tty", "a", devnodes=(Devnode("/dev/by-id/a", "c", 4, 64, target="/dev/ttyUSB0"),))
    moved = Device("b", "tty", "b", devnodes=(Devnode("/dev/ttyS0", "c", 4, 65, container_path="/dev/gps"),))
    settings = Settings(access=NodeAccess(uid=1000, mode=0o600))
    nodes = Container(edits(allocated(link, settings=settings), allocated(moved))).nodes
    assert nodes == {
        "/dev/by-id/a": cdi.DeviceNode(
            path="/dev/by-id/a", host_path="/dev/ttyUSB0", permissions="rw", uid=1000, file_mode=0o600
        ),
        "/dev/gps": cdi.DeviceNode(path="/dev/gps", host_path="/dev/ttyS0", permissions="rw"),
    }


@pytest.mark.parametrize(
    ("access", "gids", "version"),
    [
        (NodeAccess(), set(), "0.5.0"),
        (NodeAccess(gid=44, mode=0o660), set(), "0.5.0"),  # the process owns the node, whatever its group is
        (NodeAccess(uid=0, gid=44, mode=0o660), {44}, "0.7.0"),
        (NodeAccess(uid=0, gid=44), {44}, "0.7.0"),
        (NodeAccess(uid=0, gid=44, mode=0o606), set(), "0.5.0"),
        (NodeAccess(uid=0, gid=0), set(), "0.5.0"),
    ],
)
def test_process_gets_the_group_of_the_nodes_only_when_needed(access: NodeAccess, gids: set[int], version: str) -> None:
    spec = described(allocated(device("a"), settings=Settings(access=access)))
    assert spec.cdi_version == version
    assert Container([spec.devices[0].container_edits]).gids == gids


def test_variables_of_a_request_cover_all_its_devices_once() -> None:
    env = {"MODELS": "{model}", "IDS": "{ids}", "NODES": "{devnodes}"}
    settings = Settings(env=env, mounts=(Mount("/opt/lib", "/usr/lib/vendor"), Mount("/opt/tmp", "/x", False)))
    first, second, third = edits(
        allocated(device("a", attributes={"model": "M1"}), settings=settings),
        allocated(device("b", attributes={"model": "M2"}), settings=settings),
        allocated(device("c"), "other"),
    )
    assert Container([first]).env == {
        "MODELS": "M1,M2",
        "IDS": "a,b",
        "NODES": "/dev/a,/dev/b",
        "NODEPLUG_MINE__GPU": "a,b",
    }
    assert first.mounts == (
        cdi.Mount(host_path="/opt/lib", container_path="/usr/lib/vendor", options=("ro", "bind")),
        cdi.Mount(host_path="/opt/tmp", container_path="/x", options=("rw", "bind")),
    )
    assert (second.env, second.mounts) == ((), ())
    assert Container([third]).env == {"NODEPLUG_MINE__OTHER": "c"}


@scenario(56)
def test_variable_of_a_subrequest_is_named_after_its_request() -> None:
    (found,) = described(allocated(device("a"), "gpu/large")).devices
    assert found.name == f"{UID}_gpu.large_a"
    assert list(Container([found.container_edits]).env) == ["NODEPLUG_MINE__GPU"]


@pytest.mark.parametrize(
    ("name", "annotation", "wanted"),
    [
        ("my-gpu.x", "", "NODEPLUG_MY_GPU_X__BIG_ONE"),
        ("pod-gpu-x7k2p", "gpu", "NODEPLUG_GPU__BIG_ONE"),
        ("mine", "../../etc", "NODEPLUG_MINE__BIG_ONE"),
        ("mine", "A=B", "NODEPLUG_MINE__BIG_ONE"),
    ],
)
def test_variable_is_named_after_the_pod_claim_name(name: str, annotation: str, wanted: str) -> None:
    named = claim(name=name, annotations={POD_CLAIM_NAME: annotation})
    assert variable(pod_claim_name(named) or name, "big-one") == wanted


def test_interface_is_not_moved_by_default() -> None:
    nic = Device("nic-1", "nic", "eth1", attributes={"mac": "02:00:00:00:00:01"})
    assert edits(allocated(nic)) == [cdi.ContainerEdits(env=("NODEPLUG_MINE__GPU=nic-1",))]


def test_cdi_device_name_does_not_depend_on_node_paths() -> None:
    """The kubelet repeats the names of an old answer; the device can be at another node by then."""
    here, there = allocated(device("a")), allocated(device("a", "/dev/other"))
    assert device_names(DRIVER, MINE, [here]) == device_names(DRIVER, MINE, [there])
    assert edits(here) != edits(there)


def test_gone_device_is_omitted_from_the_spec() -> None:
    there, gone = allocated(device("a")), replace(allocated(device("b")), device=None)
    spec = described(there, gone)
    assert [x.name for x in spec.devices] == [f"{UID}_gpu_a"]
    assert Container([spec.devices[0].container_edits]).env == {"NODEPLUG_MINE__GPU": "a,b"}


def test_control_characters_are_removed_from_variables() -> None:
    stick = device("a", attributes={"serial": "x\nLD_PRELOAD=/evil\0"})
    env = Container(edits(allocated(stick, settings=Settings(env={"SERIAL": "{serial}"})))).env
    assert env["SERIAL"] == "xLD_PRELOAD=/evil"


labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
some_access = st.builds(
    NodeAccess,
    uid=st.none() | st.integers(0, 2**32 - 2),
    gid=st.none() | st.integers(0, 2**32 - 2),
    mode=st.none() | st.integers(0, 0o777),
)
some_settings = st.builds(
    Settings,
    env=st.dictionaries(st.sampled_from(["A", "B"]), st.sampled_from(["{ids}", "{model}", "é\t=", ""])),
    access=some_access,
    mounts=st.sampled_from([(), (Mount("/opt/a", "/a"),)]),
)
some_devices = st.builds(
    allocated,
    st.builds(device, labels, attributes=st.dictionaries(st.just("model"), st.text(max_size=5))),
    st.builds(lambda a, b: f"{a}/{b}" if b else a, labels, labels | st.just("")),
    some_settings,
    share_id=st.none() | st.uuids().map(str),
    is_admin=st.booleans(),
)


@given(devices=st.lists(some_devices, min_size=1, max_size=5))
def test_any_claim_has_a_valid_spec_of_the_lowest_version(devices: list[ClaimDevice]) -> None:
    spec = described(*devices)
    assert cdi.validate(spec) == []
    assert spec.cdi_version == cdi.required_version(spec)
    names = {cdi.qualified_name(spec.kind, x.name) for x in spec.devices}
    assert set(device_names(DRIVER, MINE, devices)) == names
    if CASES.is_dir():
        validator().validate(json.loads(cdi.encode(spec)))
