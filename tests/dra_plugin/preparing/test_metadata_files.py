"""Metadata files: how preparing writes them, how they are updated, and that they are removed."""

import json
from pathlib import Path

import pytest

from dra_plugin.driver import ClaimRef
from dra_plugin.preparing.metadata import DeviceEntry, MetadataError
from dra_plugin.preparing.metadata_files import POD_CLAIM_NAME, MetadataFolder, describe
from hostdevices import Device
from resourceapi.objects import v1
from tests.dra_plugin.preparing.world import DRIVER, NODE, UID, World, claim, resource, result
from tests.dra_scenarios import scenario

INSIDE = "/var/run/kubernetes.io/dra-device-attributes"


def entry(name: str = "misc-fuse", **attributes: str) -> DeviceEntry:
    return DeviceEntry(
        driver=DRIVER,
        pool=NODE,
        name=name,
        attributes={key: v1.DeviceAttribute(string_value=value) for key, value in attributes.items()},
    )


@pytest.fixture
def folder(tmp_path: Path) -> MetadataFolder:
    return MetadataFolder(tmp_path / "dra-device-metadata", DRIVER)


def write(folder: MetadataFolder, *requests: str, devices: tuple[DeviceEntry, ...] = (entry(),)) -> None:
    for each in describe(claim(), [(request, device) for request in requests for device in devices]):
        folder.write(UID, each)


@scenario(21)
async def test_prepare_writes_a_metadata_file_and_its_mount(world: World) -> None:
    devices = await world.prepare(claim(result("misc-fuse")))
    path = f"{INSIDE}/resourceclaims/mine/gpu/{DRIVER}-metadata.json"
    inside = world.container(devices, "gpu")
    mount = inside.mounts[path]
    assert mount.host_path == str(world.metadata / f"{UID}~gpu.json")
    assert mount.options == ("ro", "bind")
    first, second = inside.metadata(path)
    assert first == {
        "kind": "DeviceMetadata",
        "apiVersion": "metadata.resource.k8s.io/v1beta1",
        "metadata": {"name": "mine", "namespace": "default", "uid": UID, "generation": 1},
        "requests": [
            {
                "name": "gpu",
                "devices": [
                    {
                        "driver": DRIVER,
                        "pool": NODE,
                        "name": "misc-fuse",
                        "attributes": {
                            "bus": {"string": "virtual"},
                            "kind": {"string": "misc"},
                            "name": {"string": "fuse"},
                            "resource": {"string": "example.com/fuse"},
                        },
                    }
                ],
            }
        ],
    }
    assert second == first | {"apiVersion": "metadata.resource.k8s.io/v1alpha1"}
    specs = {spec.kind: spec for spec in world.specs().values()}
    (device,) = specs[f"{DRIVER}/metadata"].devices
    assert (device.name, specs[f"{DRIVER}/metadata"].cdi_version) == (f"{UID}_gpu", "0.5.0")
    assert Path(mount.host_path).stat().st_mode & 0o777 == 0o644


@scenario(22)
def test_device_without_attributes_is_listed(folder: MetadataFolder) -> None:
    write(folder, "gpu")
    text = Path(folder.file(UID, "gpu")).read_text()
    first = json.JSONDecoder().raw_decode(text)[0]
    assert first["requests"][0]["devices"] == [{"driver": DRIVER, "pool": NODE, "name": "misc-fuse"}]


@scenario(23)
async def test_nic_has_network_data(world: World) -> None:
    world.resources = [resource("fuse")]
    await world.restart()
    nic = Device("misc-fuse", "nic", "eth0", attributes={"mac": "02:00:00:00:00:01"})
    world.scan(fuse=nic)
    devices = await world.prepare(claim(result("misc-fuse", "nic")))
    inside = world.container(devices)
    (stream,) = (inside.metadata(path) for path in inside.mounts)
    assert stream[0]["requests"][0]["devices"][0]["networkData"] == {
        "interfaceName": "eth0",
        "hardwareAddress": "02:00:00:00:00:01",
    }


@scenario(24)
async def test_each_request_has_one_file_mounted_by_its_first_device(world: World) -> None:
    results = (
        result("misc-fuse", "gpu-request"),
        result("misc-kvm", "gpu-request"),
        result("misc-fuse", "nic-request"),
    )
    devices = await world.prepare(claim(*results))
    mounting = [[x for x in device.cdi_device_ids if "/metadata=" in x] for device in devices]
    assert mounting == [[f"{DRIVER}/metadata={UID}_gpu-request"], [], [f"{DRIVER}/metadata={UID}_nic-request"]]
    paths = [
        f"{INSIDE}/resourceclaims/mine/{request}/{DRIVER}-metadata.json" for request in ("gpu-request", "nic-request")
    ]
    assert list(world.container(devices, "nic-request").mounts) == [paths[1]]
    first = world.container(devices, "gpu-request").metadata(paths[0])[0]["requests"]
    assert [(x["name"], [y["name"] for y in x["devices"]]) for x in first] == [
        ("gpu-request", ["misc-fuse", "misc-kvm"])
    ]


@scenario(25)
async def test_subrequest_has_the_path_of_its_request(world: World) -> None:
    devices = await world.prepare(claim(result("misc-fuse", "req/sub")))
    assert devices[0].cdi_device_ids[1] == f"{DRIVER}/metadata={UID}_req"
    inside = world.container(devices, "req")
    stream = inside.metadata(f"{INSIDE}/resourceclaims/mine/req/{DRIVER}-metadata.json")
    assert stream[0]["requests"][0]["name"] == "req/sub"


@scenario(26)
async def test_claim_from_a_template_has_the_path_of_its_pod_claim_name(world: World) -> None:
    wanted = claim(result("misc-fuse"), name="pod-my-gpu-x7k2p", annotations={POD_CLAIM_NAME: "my-gpu"})
    inside = world.container(await world.prepare(wanted))
    (path,) = inside.mounts
    assert path == f"{INSIDE}/resourceclaimtemplates/my-gpu/gpu/{DRIVER}-metadata.json"
    assert inside.metadata(path)[0]["podClaimName"] == "my-gpu"


async def test_malicious_annotation_does_not_change_the_path(world: World) -> None:
    wanted = claim(result("misc-fuse"), annotations={POD_CLAIM_NAME: "../../../etc"})
    (path,) = world.container(await world.prepare(wanted)).mounts
    assert path == f"{INSIDE}/resourceclaims/mine/gpu/{DRIVER}-metadata.json"


@scenario(27, 28, 29, 30)
async def test_unprepare_removes_all_files_and_can_be_repeated(world: World) -> None:
    await world.prepare(claim(result("misc-fuse", "a"), result("misc-kvm", "b/c")))
    assert len(world.files()) == 4
    for _ in range(2):
        await world.unprepare(claim())
        assert world.files() == []
        assert list(world.metadata.iterdir()) == []
    await world.preparer.unprepare([ClaimRef("default", "unknown", "u")])


@pytest.mark.parametrize("name", ["", "..", "a/b", "a\0b", ".hidden"])
def test_uid_or_request_outside_the_folder_is_refused(folder: MetadataFolder, name: str) -> None:
    for uid, request in ((name, "gpu"), (UID, name)):
        with pytest.raises(MetadataError, match="cannot be a part of a path"):
            folder.file(uid, request)


def test_foreign_files_and_links_are_removed_but_folders_are_kept(folder: MetadataFolder, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (kept / "inside").mkdir(parents=True)
    write(folder, "gpu")
    place = Path(folder.file(UID, "gpu")).parent
    (place / "somebodys/folder").mkdir(parents=True)
    (place / "file").touch()
    for name in ("link", f"{UID}~link.json"):
        (place / name).symlink_to(kept)
    folder.remove(UID)
    assert sorted(x.name for x in place.iterdir()) == ["file", "link", "somebodys"]
    folder.remove_others([UID])
    assert [x.name for x in place.iterdir()] == ["somebodys"]
    assert (kept / "inside").is_dir()


def test_claim_with_a_common_uid_prefix_keeps_its_files(folder: MetadataFolder) -> None:
    for uid in ("u", "u.2", "u_gpu"):
        folder.write(uid, describe(claim(), [("gpu", entry())])[0])
    folder.remove("u")
    assert [folder.read(uid, "gpu") is None for uid in ("u", "u.2", "u_gpu")] == [True, False, False]
