"""Information on virtual functions for Multus, CNI plugins and containers, in addition to the address."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from checkpoint import Ledger
from deviceplugin import DevicePlugins, Paths
from deviceplugin.device_info import file_content, file_name, variable
from deviceplugin.device_info_files import DeviceInfoFiles
from folderwatch import FolderWatcher
from hostdevices import Device, Devnode
from hostdevices.presence import Presence
from kubelet.node import Node
from resources.resource import Resource
from resources.selector import Kinds
from resources.template import ValueTooLong
from tests.checkpoint.build import claimed
from tests.deviceplugin.conftest import Side, StartPlugins
from tests.deviceplugin.host import MadeUpHost
from tests.deviceplugin.node import GRACE, node_of, offered, pod, until_ended
from tests.running import running, until
from tests.small_disk import mounted
from tests.threads import no_more_threads

ADDRESS, PF = "0000:3b:00.2", "0000:3b:00.0"
PCI_BUS_ID = "resource.kubernetes.io/pciBusID"
NAME, VARIABLE = "intel.com/sriov_net", "PCIDEVICE_INTEL_COM_SRIOV_NET_INFO"
RDMA = Device("rdma-0000-3b-00-2", "rdma", "mlx5_2")
NODES = {f"/dev/infiniband/{name}": Devnode(f"/dev/infiniband/{name}", "c", 231, i) for i, name in enumerate(
    ("issm2", "rdma_cm", "umad2", "uverbs2")
)}  # fmt: skip


def function(*paths: str, **attributes: Any) -> Device:
    """A virtual function with nodes, and with an RDMA device as its child."""
    nodes = tuple(NODES.get(path, Devnode(path, "c", 1, 1)) for path in paths)
    facts = {PCI_BUS_ID: ADDRESS, "pf": PF, **attributes}
    return Device("pci-0000-3b-00-2", "pci", "vf", attributes=facts, devnodes=nodes, children=(RDMA.id,))


def part(identity: str) -> Device | None:
    return RDMA if identity == RDMA.id else None


def test_device_info_file_has_the_fields_of_the_specification() -> None:
    assert file_name(NAME, ADDRESS) == "intel.com-sriov_net-0000:3b:00.2-device.json"
    assert json.loads(file_content(function(), part, vhost_net=True)) == {
        "type": "pci",
        "version": "1.1.0",
        "pci": {"pci-address": ADDRESS, "pf-pci-address": PF, "rdma-device": "mlx5_2", "vhost-net": "/dev/vhost-net"},
    }
    plain = Device("pci-0000-3b-00-0", "pci", "pf", attributes={PCI_BUS_ID: PF})
    assert json.loads(file_content(plain, part))["pci"] == {"pci-address": PF}
    assert file_content(Device("misc-fuse", "misc", "fuse"), part) == b""


def test_function_has_vdpa_info_when_its_vhost_node_is_allocated() -> None:
    vdpa = Device("vdpa-0000-3b-00-2", "vdpa", "vdpa0")
    parts = {x.id: x for x in (RDMA, vdpa)}
    bare = structs.replace(function(), children=tuple(parts))
    handed_out = structs.replace(bare, devnodes=(Devnode("/dev/vhost-vdpa-0", "c", 1, 1),))
    places = {"pci-address": ADDRESS, "pf-pci-address": PF}
    assert json.loads(file_content(handed_out, parts.get)) == {
        "type": "vdpa",
        "version": "1.1.0",
        "vdpa": {"parent-device": "vdpa0", "driver": "vhost", "path": "/dev/vhost-vdpa-0", **places},
    }
    assert json.loads(file_content(bare, parts.get))["pci"] == {**places, "rdma-device": "mlx5_2"}
    info = json.loads(variable([handed_out], parts.get, of=VARIABLE))
    assert info[ADDRESS]["vdpa"] == {"mount": "/dev/vhost-vdpa-0"}


def test_virtio_vdpa_function_has_vdpa_info_without_a_path() -> None:
    """sriov-network-device-plugin 3.11, pkg/netdevice: `StoreDeviceInfoFile`."""
    device = function(vdpa="blue", vdpaType="virtio")
    assert json.loads(file_content(device, part)) == {
        "type": "vdpa",
        "version": "1.1.0",
        "vdpa": {"parent-device": "blue", "driver": "virtio", "pci-address": ADDRESS, "pf-pci-address": PF},
    }
    assert "vdpa" not in json.loads(variable([device], part, of=VARIABLE))[ADDRESS]  # there is no node to open


def test_variable_has_the_paths_of_rdma_nodes() -> None:
    info = json.loads(variable([function(*NODES)], part, of=VARIABLE))
    rdma = {
        "rdma_dev": "mlx5_2",
        "uverbs": "/dev/infiniband/uverbs2",
        "umad": "/dev/infiniband/umad2",
        "issm": "/dev/infiniband/issm2",
        "rdma_cm": "/dev/infiniband/rdma_cm",
    }
    assert info == {ADDRESS: {"generic": {"deviceID": ADDRESS}, "rdma": rdma}}


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (["vfio/42", "vfio/vfio"], {"vfio": {"mount": "/dev/vfio/vfio", "dev-mount": "/dev/vfio/42"}}),
        (["vfio/noiommu-3", "vfio/vfio"], {"vfio": {"mount": "/dev/vfio/vfio", "dev-mount": "/dev/vfio/noiommu-3"}}),
        (["vfio/devices/vfio0", "iommu"], {"vfio": {"dev-mount": "/dev/vfio/devices/vfio0"}}),
        (["uio2"], {"uio": {"mount": "/dev/uio2"}}),
    ],
)
def test_variable_has_the_user_space_driver_nodes_of_a_function(
    nodes: list[str], expected: dict[str, dict[str, str]]
) -> None:
    """sriov-network-device-plugin 3.11, pkg/infoprovider: `GetEnvVal` of vfioInfoProvider and uioInfoProvider."""
    device = structs.replace(function(*(f"/dev/{node}" for node in nodes)), children=())
    assert json.loads(variable([device], part, of=VARIABLE)) == {
        ADDRESS: {"generic": {"deviceID": ADDRESS}, **expected}
    }


def test_too_long_variable_is_refused_by_name() -> None:
    many = [function(*NODES, **{PCI_BUS_ID: f"0000:{i:02x}:00.0"}) for i in range(256)]
    with pytest.raises(ValueTooLong, match=VARIABLE):
        variable(many, part, of=VARIABLE)


@pytest.fixture
async def node(made_up: MadeUpHost, socket_dir: Path) -> AsyncIterator[Node]:
    async with node_of(made_up, socket_dir) as found:
        yield found


def sriov(**options: Any) -> Resource:
    return Resource(NAME, Kinds(("misc",)), ids="pciBusID", device_info=VARIABLE, **options)


def functions(made_up: MadeUpHost) -> tuple[Device, ...]:
    """The host's devices, as if they were virtual functions."""
    found = made_up.devices().values()
    return tuple(replace(x, attributes={**x.attributes, PCI_BUS_ID: f"0000:3b:00.{i}"}) for i, x in enumerate(found))


def offer(side: Side, *devices: Device, **options: Any) -> None:
    side.resources = [sriov(**options)]
    side.plugins.configure(side.resources)
    side.update({NAME: devices})


async def test_vhost_net_nodes_are_allocated_with_a_function(
    start: StartPlugins, node: Node, made_up: MadeUpHost, paths: Paths, ledger: Ledger
) -> None:
    (made_up.root / "dev/net").mkdir()
    nodes = ["/dev/vhost-net", "/dev/net/tun"]
    for path, number in zip(nodes, ("10:238", "10:200"), strict=True):
        (made_up.root / path[1:]).write_text(f"c {number}\n")
    side = await start([], grace=GRACE)
    offer(side, *functions(made_up), vhost_net=True)
    await offered(node, NAME, 2)
    await node.admit(pod("first", NAME))
    options = await node.run_container_options("first", "c")
    assert {*nodes} < {each.path_in_container for each in options.devices}
    (info,) = json.loads(next(x.value for x in options.envs if x.name == VARIABLE)).values()
    assert info["vhost"] == {"net-mount": nodes[0], "tun-mount": nodes[1]}
    again = await node.exit_container("first", "c", 1)
    assert again.container_statuses[0].restart_count == 1  # the allocation is unchanged
    (made_up.root / "dev/vhost-net").unlink()
    status = await node.admit(pod("second", NAME))
    assert "needs /dev/vhost-net, which does not exist" in status.message


async def test_device_info_file_exists_while_its_device_is_offered_or_held(
    start: StartPlugins, node: Node, made_up: MadeUpHost, paths: Paths, ledger: Ledger
) -> None:
    folder = paths.device_info
    others = "intel.com-sriov_net_b-0000:3b:00.9-device.json"
    folder.mkdir(parents=True)
    left = [f"intel.com-sriov_net-{address}-device.json" for address in ("0000:3b:00.7", "10000:e1:00.7")]
    for stale in (others, *left):
        (folder / stale).write_text("{}")

    def files() -> set[str]:
        return {path.name for path in folder.iterdir()} - {others}

    side = await start([], grace=GRACE)
    offer(side, *functions(made_up))
    await until(lambda: files() == {file_name(NAME, f"0000:3b:00.{i}") for i in range(2)})
    await offered(node, NAME, 2)
    await node.admit(pod("holder", NAME))
    options = await node.run_container_options("holder", "c")
    env = {x.name: x.value for x in options.envs}
    address = env["NODEPLUG_INTEL_COM_SRIOV_NET"]
    assert json.loads(env[VARIABLE]) == {address: {"generic": {"deviceID": address}}}
    offer(side)  # both devices are gone
    await until(lambda: files() == {file_name(NAME, address)})
    await node.remove("holder")
    await until_ended(side, ledger, address)
    await until(lambda: not files())
    assert (folder / others).exists()


async def test_devices_of_claims_have_device_info_files(start: StartPlugins, made_up: MadeUpHost, paths: Paths) -> None:
    """The same holds while a resource moves from one API to the other."""
    of_claims = (sriov(api="dra"), functions(made_up)[:1])
    file = paths.device_info / file_name(NAME, "0000:3b:00.0")
    side = await start([], grace=GRACE)
    side.plugins.update({}, claimed=[of_claims])
    await until(file.exists)
    file.write_text("of another time")
    offer(side, *functions(made_up))
    await until(lambda: len([*paths.device_info.iterdir()]) == 2 and file.read_text().startswith("{"))
    assert json.loads(file.read_text())["pci"] == {"pci-address": "0000:3b:00.0"}
    side.plugins.configure([])
    side.plugins.update({}, claimed=[of_claims])
    await until(lambda: [*paths.device_info.iterdir()] == [file])
    side.plugins.update({})
    await until(lambda: not file.exists())


async def test_unreadable_folder_is_logged_only_when_a_claim_needs_a_file(
    made_up: MadeUpHost, paths: Paths, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    """It is reported only if a claim needs a file there: the folder can contain a claim's file, to be removed later."""
    name, host, presence = "x" * 300, made_up.host, Presence(made_up.host)
    paths = replace(paths, device_info=paths.device_info.with_name(name))
    with contextlib.closing(FolderWatcher()) as watcher:
        plugins = DevicePlugins([], host, presence, ledger, paths, watcher)
        async with running(plugins.run()):
            plugins.update({})
            assert name not in caplog.text
            (fuse, *_) = functions(made_up)
            presence.update({fuse.id: fuse}, [fuse])
            await ledger.grant([claimed("fuse", "uid", NAME, exclusive=fuse.id)])
            plugins.update({})
            await until(lambda: f"{name}: File name too long; nodeplug tries again" in caplog.text)


async def test_device_info_files_are_written_once_a_thread_is_free(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = DeviceInfoFiles(tmp_path, retry=0.01)
    files.set_desired([NAME], {file_name(NAME, ADDRESS): b"{}"}, ())
    async with running(files.run()):
        with no_more_threads():
            await until(lambda: "can't start new thread" in caplog.text)
        await until((tmp_path / file_name(NAME, ADDRESS)).exists)


async def test_full_disk_is_logged_with_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with mounted(tmp_path, "size=4k") as folder:
        files = DeviceInfoFiles(folder, 0.01)
        async with running(files.run()):
            files.set_desired([NAME], {"a-device.json": bytes(10_000)}, ())
            await until(lambda: "cannot write device-info files" in caplog.text)
    assert f"cannot write device-info files: {tmp_path}/a-device.json: No space left on device" in caplog.text


async def test_too_long_file_name_does_not_prevent_other_writes_and_removals(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stale, name = tmp_path / file_name(NAME, "0000:3b:00.7"), file_name(NAME, ADDRESS)
    stale.write_text("{}")
    files = DeviceInfoFiles(tmp_path)
    async with running(files.run()):
        files.set_desired([NAME], {file_name(f"{'a' * 250}.com/x", ADDRESS): b"{}", name: b"{}"}, ())
        await until(lambda: not stale.exists())
        await until(lambda: "File name too long; nodeplug tries again" in caplog.text)
    assert (tmp_path / name).read_bytes() == b"{}"
