"""What a claim's CDI spec says, without a ledger or a host."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cdi
from dra_plugin.device_config import Settings
from dra_plugin.edits import Given, claim_edits, variable
from dra_plugin.metadata_files import POD_CLAIM_NAME
from dra_plugin.offers import Offered
from hostdevices import AttributeValue, Device, Devnode
from hostdevices.resource import Mount, NodeAccess, Resource
from hostdevices.selector import Kinds
from resourceapi.objects import v1
from tests.cdi.schema import CASES, validator
from tests.dra_plugin.preparing.world import DRIVER, UID, Container, claim, result
from tests.dra_scenarios import scenario

PLAIN = Settings()


def device(name: str, *paths: str, kind: str = "gpu", attributes: Mapping[str, AttributeValue] | None = None) -> Device:
    nodes = tuple(Devnode(path, "c", 226, n) for n, path in enumerate(paths or (f"/dev/{name}",)))
    return Device(id=name, kind=kind, name=name, attributes=attributes or {}, devnodes=nodes)


def given_device(what: Device, request: str = "gpu", settings: Settings = PLAIN, **options: Any) -> Given:
    resource = Resource(f"example.com/{what.kind}", Kinds((what.kind,)), permissions="rw")
    return Given(result(what.id, request, **options), Offered(what.id, resource, what), settings)


def containers(*devices: Given, of: v1.ResourceClaim | None = None) -> Container:
    edits = claim_edits(DRIVER, of or claim(), devices)
    assert edits.spec is not None
    return Container([x.container_edits for x in edits.spec.devices])


def test_nodes_belong_to_whom_the_configuration_says() -> None:
    link = Device("a", "tty", "a", devnodes=(Devnode("/dev/by-id/a", "c", 4, 64, target="/dev/ttyUSB0"),))
    moved = Device("b", "tty", "b", devnodes=(Devnode("/dev/ttyS0", "c", 4, 65, container_path="/dev/gps"),))
    settings = Settings(access=NodeAccess(uid=1000, mode=0o600))
    nodes = containers(given_device(link, settings=settings), given_device(moved)).nodes
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
        (NodeAccess(gid=44, mode=0o660), set(), "0.5.0"),  # the process owns the node, whatever its group
        (NodeAccess(uid=0, gid=44, mode=0o660), {44}, "0.7.0"),
        (NodeAccess(uid=0, gid=44), {44}, "0.7.0"),
        (NodeAccess(uid=0, gid=44, mode=0o606), set(), "0.5.0"),
        (NodeAccess(uid=0, gid=0), set(), "0.5.0"),
    ],
)
def test_a_process_gets_the_nodes_group_where_only_that_opens_them(
    access: NodeAccess, gids: set[int], version: str
) -> None:
    edits = claim_edits(DRIVER, claim(), [given_device(device("a"), settings=Settings(access=access))])
    assert edits.spec is not None
    assert edits.spec.cdi_version == version
    assert Container([edits.spec.devices[0].container_edits]).gids == gids


def test_a_request_speaks_of_all_of_its_devices_once() -> None:
    env = {"MODELS": "{model}", "IDS": "{ids}", "NODES": "{devnodes}"}
    settings = Settings(env=env, mounts=(Mount("/opt/lib", "/usr/lib/vendor"), Mount("/opt/tmp", "/x", False)))
    devices = [
        given_device(device("a", attributes={"model": "M1"}), settings=settings),
        given_device(device("b", attributes={"model": "M2"}), settings=settings),
        given_device(device("c"), "other"),
    ]
    edits = claim_edits(DRIVER, claim(), devices)
    assert edits.spec is not None
    first, second, third = (x.container_edits for x in edits.spec.devices)
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
def test_a_subrequest_is_known_by_its_request() -> None:
    edits = claim_edits(DRIVER, claim(), [given_device(device("a"), "gpu/large")])
    assert edits.spec is not None
    assert edits.spec.devices[0].name.startswith(f"{UID}_gpu.large_a_")
    assert list(Container([edits.spec.devices[0].container_edits]).env) == ["NODEPLUG_MINE__GPU"]


@pytest.mark.parametrize(
    ("name", "annotation", "wanted"),
    [
        ("my-gpu.x", "", "NODEPLUG_MY_GPU_X__BIG_ONE"),
        ("pod-gpu-x7k2p", "gpu", "NODEPLUG_GPU__BIG_ONE"),
        ("mine", "../../etc", "NODEPLUG_MINE__BIG_ONE"),
        ("mine", "A=B", "NODEPLUG_MINE__BIG_ONE"),
    ],
)
def test_variables_are_named_after_what_the_pod_calls_the_claim(name: str, annotation: str, wanted: str) -> None:
    assert variable(claim(name=name, annotations={POD_CLAIM_NAME: annotation}), "big-one") == wanted


def test_an_interface_stays_on_the_host() -> None:
    nic = Device("nic-1", "nic", "eth1", attributes={"mac": "02:00:00:00:00:01"})
    edits = claim_edits(DRIVER, claim(), [given_device(nic)])
    assert edits.spec is not None
    assert edits.spec.devices[0].container_edits == cdi.ContainerEdits(env=("NODEPLUG_MINE__GPU=nic-1",))


def test_a_name_never_stands_for_two_contents() -> None:
    def name(of: Device) -> str:
        return claim_edits(DRIVER, claim(), [given_device(of)]).device_ids[0]

    assert name(device("a")) == name(device("a"))
    assert name(device("a")) != name(device("a", "/dev/other"))


def test_control_characters_of_devices_do_not_reach_the_environment() -> None:
    stick = device("a", attributes={"serial": "x\nLD_PRELOAD=/evil\0"})
    env = containers(given_device(stick, settings=Settings(env={"SERIAL": "{serial}"}))).env
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
    given_device,
    st.builds(device, labels, attributes=st.dictionaries(st.just("model"), st.text(max_size=5))),
    st.builds(lambda a, b: f"{a}/{b}" if b else a, labels, labels | st.just("")),
    some_settings,
    share_id=st.none() | st.uuids().map(str),
    admin_access=st.none() | st.booleans(),
)


@given(devices=st.lists(some_devices, min_size=1, max_size=5))
def test_every_claim_has_a_sound_spec_of_the_lowest_version(devices: list[Given]) -> None:
    edits = claim_edits(DRIVER, claim(), devices)
    assert edits.spec is not None
    assert cdi.validate(edits.spec) == []
    assert edits.spec.cdi_version == cdi.required_version(edits.spec)
    names = {cdi.qualified_name(edits.spec.kind, x.name) for x in edits.spec.devices}
    assert {name for name in edits.device_ids if name} == names
    if CASES.is_dir():
        validator().validate(json.loads(cdi.encode(edits.spec)))
