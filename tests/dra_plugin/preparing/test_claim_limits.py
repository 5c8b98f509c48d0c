"""Limits of claims, which any user can write: large specs, groups for processes, files that would stay forever."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dra_plugin.driver import ClaimRef
from dra_plugin.preparing.claim_record import AllocatedDevice, Record, encode
from dra_plugin.preparing.device_config import InvalidConfig, Settings, read, read_configs
from dra_plugin.preparing.edits import MAX_ENV_BYTES, TooManyVariables, claim_spec
from dra_plugin.preparing.metadata import DeviceMetadata
from dra_plugin.preparing.metadata_files import MetadataFolder, RequestMetadata
from hostdevices import Device, Devnode, Host
from hostdevices.presence import Presence
from resourceapi.objects import ObjectMeta, to_dict, v1
from resources.resource import NodeAccess, Resource
from resources.selector import Kinds
from resources.template import ValueTooLong

DRIVER = "nodeplug.dev"
CLAIM = ClaimRef("default", "mine", "68de2e67-8ba5-41b2-b4a6-0d9b3c9d2a3c")
COUNT = 32  # the maximum number of devices of a claim


@pytest.fixture
def devices(tmp_path: Path) -> tuple[Presence, list[Device]]:
    """The maximum number of devices of a claim, with long names."""
    (tmp_path / "sys").mkdir()
    presence = Presence(Host(tmp_path))
    name = "gadget-with-a-rather-long-name-of-fifty-charact-{:02}"
    found = [
        Device(name.format(i), "misc", "x", devnodes=(Devnode(f"/dev/{name.format(i)}", "c", 240, i),))
        for i in range(COUNT)
    ]
    presence.update({each.id: each for each in found}, found)
    return presence, found


def result(device: str, request: str = "r") -> v1.DeviceRequestAllocationResult:
    return v1.DeviceRequestAllocationResult(request=request, driver=DRIVER, pool="n", device=device)


def config(source: str = "FromClaim", **fields: Any) -> v1.DeviceAllocationConfiguration:
    parameters = {"apiVersion": "nodeplug.dev/v1", "kind": "DeviceConfig", **fields}
    opaque = v1.OpaqueDeviceConfiguration(driver=DRIVER, parameters=parameters)
    return v1.DeviceAllocationConfiguration(source=source, opaque=opaque)


def settings(*configs: v1.DeviceAllocationConfiguration, access: NodeAccess | None = None) -> Settings:
    """The settings for a device of a claim with these configurations."""
    allocation = v1.DeviceAllocationResult(results=(result("d"),), config=configs)
    resource = Resource("example.com/misc", Kinds(("misc",)), access=access)
    return read_configs(allocation, DRIVER, ()).settings(resource, allocation.results[0])


def record(presence: Presence, devices: list[Device], *held: Settings) -> Record:
    """A claim's record with a request for each of `held`, each with all devices."""
    allocated = tuple(
        AllocatedDevice(f"r{i}", device.id, "example.com/misc", presence.seen(device), "rw", each)
        for i, each in enumerate(held)
        for device in devices
    )
    return Record(claim=CLAIM, results=(), allocated_at="", devices=(), allocated=allocated)


def test_too_long_variable_is_refused_by_name(devices: tuple[Presence, list[Device]]) -> None:
    """Such a configuration created 2.4 MB of CDI, 32 of them 76 MB; a container has room for at most 2 MiB."""
    found = settings(config(env={"MODEL": "{model}", "A0": "{devnodes}{ids}" * 660}))
    written = record(*devices, found)
    tracemalloc.start()
    try:
        words = r"^variable A0 of request r0: more than 32768 bytes with the attributes of 32 device\(s\)"
        with pytest.raises(ValueTooLong, match=words):
            claim_spec(DRIVER, written, devices[0])
        assert tracemalloc.get_traced_memory()[1] < 2 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_too_many_configured_variables_are_refused() -> None:
    configs = [config(env={f"A{i}": "{devnodes}{ids}" * 640}) for i in range(32)]
    with pytest.raises(InvalidConfig, match=r"^request r: \d+ bytes of variables, the limit is 32768; shorten A\d"):
        settings(*configs)
    assert settings(*configs[:3]).env.keys() == {"A0", "A1", "A2"}


def test_total_size_of_variables_is_limited(devices: tuple[Presence, list[Device]]) -> None:
    found = settings(config(env={f"A{i}": "{devnodes}" * 10 for i in range(20)}))
    assert claim_spec(DRIVER, record(devices[0], devices[1][:1], found), devices[0]) is not None
    with pytest.raises(
        TooManyVariables, match=rf"^claim default/mine.* bytes of variables, the limit is {MAX_ENV_BYTES}"
    ):
        claim_spec(DRIVER, record(*devices, found), devices[0])


def test_largest_claim_has_a_small_record_and_spec(devices: tuple[Presence, list[Device]]) -> None:
    most = settings(*(config(env={f"A{i}": "x" * 10_000}) for i in range(3)))
    written = record(*devices, most)
    spec = claim_spec(DRIVER, written, devices[0])
    assert spec is not None
    assert len(encode(written)) < 1_200_000  # of which a device's share is the same text each time
    assert sum(len(text) for each in spec.devices for text in each.container_edits.env) < MAX_ENV_BYTES


@pytest.mark.parametrize(
    ("by_class", "by_claim", "groups"),
    [
        ({}, {"uid": 1000, "gid": 6, "mode": "0777"}, ()),
        ({}, {"gid": 6}, ()),
        ({"uid": 0, "gid": 44}, {}, (44,)),
        ({"uid": 0, "gid": 44}, {"gid": 6}, ()),
        ({"uid": 0, "gid": 44}, {"mode": "0660"}, (44,)),
        ({"uid": 0, "gid": 44}, {"mode": "0600"}, ()),
        ({"uid": 0, "gid": 44}, {"uid": 1000}, (44,)),
        ({"gid": 44}, {"uid": 1000}, ()),  # the class sets the group of its nodes, but adds it to no process
        ({"uid": 0, "gid": 44, "mode": "0600"}, {"mode": "0660"}, ()),
    ],
)
def test_claim_cannot_add_a_group_to_a_process(
    by_class: dict[str, Any], by_claim: dict[str, Any], groups: tuple[int, ...], devices: tuple[Presence, list[Device]]
) -> None:
    """Policies can restrict the groups of a pod; a claim must not bypass them."""
    found = settings(config(access=by_claim), config("FromClass", access=by_class))
    spec = claim_spec(DRIVER, record(devices[0], devices[1][:1], found), devices[0])
    assert spec is not None
    (device,) = spec.devices
    assert device.container_edits.additional_gids == groups
    (node,) = device.container_edits.device_nodes  # the container's own node
    assert (node.uid, node.gid) == tuple((by_class | by_claim).get(name) for name in ("uid", "gid"))


def test_group_of_the_resource_is_granted_unless_the_claim_sets_one(devices: tuple[Presence, list[Device]]) -> None:
    found = settings(config(env={"A": "x"}), access=NodeAccess(uid=0, gid=44))
    assert found.grants_group
    assert not settings(config(access={"gid": 6}), access=NodeAccess(uid=0, gid=44)).grants_group


@pytest.mark.parametrize(
    "name",
    [
        *("LD_PRELOAD", "PATH", "GLIBC_TUNABLES", "GCONV_PATH", "BASH_ENV", "ENV", "PYTHONPATH", "PYTHONSTARTUP"),
        *("PERL5LIB", "PERL5OPT", "NODE_OPTIONS", "RUBYOPT", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS"),
        *("NVIDIA_VISIBLE_DEVICES", "https_proxy", "HTTPS_PROXY"),
    ],
)
def test_variable_reserved_from_claims_is_refused(name: str) -> None:
    parameters = {"apiVersion": "nodeplug.dev/v1", "kind": "DeviceConfig", "env": {name: "x"}}
    with pytest.raises(InvalidConfig, match=rf"^parameters\.env\.{name}: cannot be set by a "):
        read(json.dumps(parameters), from_class=False)
    if name not in ("LD_PRELOAD", "PATH", "GLIBC_TUNABLES"):
        assert read(json.dumps(parameters), from_class=True).env == {name: "x"}


def metadata(claim: ClaimRef) -> RequestMetadata:
    meta = ObjectMeta(name=claim.name, namespace=claim.namespace, uid=claim.uid, generation=1)
    return RequestMetadata("gpu", to_dict(DeviceMetadata(metadata=meta)))


def test_files_with_the_longest_names_are_written_and_removed(tmp_path: Path) -> None:
    """Without the limit, writing failed after the grant, undoing failed as well, and the device was lost."""
    folder = MetadataFolder(tmp_path, DRIVER)
    claim, other = (ClaimRef("n" * 63, "a" * 253, uid * 128) for uid in "uv")
    request = "r" * 63
    for each in (claim, other):
        folder.write(each.uid, replace(metadata(each), request=request))
        found = folder.read(each.uid, request)
        assert found is not None
        assert to_dict(found) == metadata(each).content
    spec = folder.cdi_spec(claim, [RequestMetadata(request, {})])
    (mount,) = spec.devices[0].container_edits.mounts
    assert mount.host_path == folder.file(claim.uid, request)
    assert f"/resourceclaims/{claim.name}/{request}/" in mount.container_path
    folder.remove_others([claim.uid])
    assert folder.read(other.uid, request) is None
    assert folder.read(claim.uid, request) is not None
    folder.remove(claim.uid)
    folder.remove(claim.uid)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("uid", ["../../pwn", "", "a/b", "\0"])
def test_removal_of_an_invalid_uid_changes_nothing(tmp_path: Path, uid: str) -> None:
    folder = MetadataFolder(tmp_path, DRIVER)
    kept = ClaimRef("default", "kept", "k")
    folder.write(kept.uid, metadata(kept))
    folder.remove(uid)
    folder.remove_others([uid, kept.uid])
    assert folder.read(kept.uid, "gpu") is not None


def test_folder_with_a_too_long_path_has_no_files(tmp_path: Path) -> None:
    for path in (tmp_path / ("x" * 255) / ("y" * 255), Path(f"{tmp_path}/{'z' * 300}")):
        folder = MetadataFolder(path, DRIVER)
        folder.remove("u")
        folder.remove_others([])
        assert folder.read("u", "r" * 300) is None
