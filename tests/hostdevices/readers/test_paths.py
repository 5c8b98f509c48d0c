"""Configured globs below /dev."""

import pytest

from hostdevices import Device, Host, Problem, Scanner
from hostdevices.device_folders import DeviceFolders
from hostdevices.readers import READERS, paths, paths_reader, read_paths
from hostdevices.tree import Folder
from tests.hostdevices.tree import Tree


@pytest.fixture(autouse=True)
def nodes(tree: Tree) -> None:
    """Some device nodes and links."""
    for name, numbers in (
        ("ttyUSB0", "188:0"),
        ("ttyUSB1", "188:1"),
        ("custom/a/one", "240:1"),
        ("custom/b/one", "240:2"),
    ):
        tree.node(f"/dev/{name}", numbers)
    tree.link("/dev/serial/by-id/usb-FTDI-if00", "/dev/ttyUSB1")


def devices(host: Host, *globs: str) -> list[Device]:
    return [device for device in read_paths(host, globs) if isinstance(device, Device)]


def found(tree: Tree, *globs: str) -> dict[str, Device]:
    return {device.name: device for device in devices(tree.host, *globs)}


class Live(Folder):
    """A folder that is treated as the running machine."""

    def is_live(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("glob", "names"),
    [
        ("/dev/ttyUSB*", ["ttyUSB0", "ttyUSB1"]),
        ("/dev/ttyUSB[1-9]", ["ttyUSB1"]),
        ("/dev/ttyUSB0", ["ttyUSB0"]),
        ("/dev/custom/*/one", ["custom/a/one", "custom/b/one"]),
        ("/dev/custom/**/*", ["custom/a/one", "custom/b/one"]),
        ("/dev/custom/a/**", ["custom/a/one"]),
        ("/dev/*", ["ttyUSB0", "ttyUSB1"]),
        ("/dev/**/one", ["custom/a/one", "custom/b/one"]),
        ("/dev/nothing*", []),
        ("/sys/*", []),
        ("ttyUSB0", []),
        ("/dev/../etc/*", []),
        ("/dev/./ttyUSB0", []),
    ],
)
def test_glob_finds_device_nodes(glob: str, names: list[str], tree: Tree) -> None:
    assert sorted(found(tree, glob)) == names


def test_id_of_link_is_kept_when_its_target_changes(tree: Tree) -> None:
    (before,) = found(tree, "/dev/serial/by-id/*").values()
    tree.path("/dev/serial/by-id/usb-FTDI-if00").unlink()
    tree.link("/dev/serial/by-id/usb-FTDI-if00", "/dev/ttyUSB0")
    (after,) = found(tree, "/dev/serial/by-id/*").values()
    assert before.id == after.id
    assert (before.devnodes[0].minor, after.devnodes[0].minor) == (1, 0)
    assert (after.devnodes[0].path, after.devnodes[0].target) == ("/dev/serial/by-id/usb-FTDI-if00", "/dev/ttyUSB0")
    assert after.attributes["path"] == "/dev/serial/by-id/usb-FTDI-if00"


def test_links_that_lead_to_no_node_below_dev_are_omitted(tree: Tree) -> None:
    tree.node("/secret", "1:1")
    tree.link("/dev/ttyUSB9", "/secret")
    tree.link("/dev/ttyUSB8", "/dev/ttyUSB8")
    tree.link("/dev/ttyUSB7", "/dev/gone")
    assert sorted(found(tree, "/dev/ttyUSB*")) == ["ttyUSB0", "ttyUSB1"]


def test_files_and_folders_are_omitted(tree: Tree) -> None:
    tree.file("/dev/ttyUSB5", "just text")
    tree.file("/dev/ttyUSB6/folder", "")
    assert sorted(found(tree, "/dev/ttyUSB*")) == ["ttyUSB0", "ttyUSB1"]


def test_folder_loop_is_searched_once(tree: Tree) -> None:
    tree.link("/dev/custom/a/again", "/dev/custom")
    assert sorted(found(tree, "/dev/custom/**/one")) == ["custom/a/one", "custom/b/one"]


@pytest.mark.parametrize(
    ("glob", "names"),
    [
        ("/dev/**/one", ["custom/a/one", "custom/b/one", "dri/one"]),
        ("/dev/*/one", ["dri/one"]),
        ("/dev/shm/one", ["shm/one"]),  # named explicitly
        ("/dev/nfs/*", ["nfs/one"]),
    ],
)
def test_wildcard_does_not_enter_other_file_systems(glob: str, names: list[str], tree: Tree) -> None:
    tree.node("/dev/shm/one", "240:3")  # any user can create it
    tree.node("/dev/nfs/one", "240:4")
    tree.node("/dev/dri/one", "240:5")
    mounts = (
        "dev /dev devtmpfs rw",
        "dev /dev/dri devtmpfs rw",
        "server:/x /dev/nfs nfs4 rw",
        "none /devices tmpfs rw",
    )
    tree.file("/proc/self/mounts", "\n".join(f"{mount} 0 0" for mount in mounts))
    live = Host(tree.root, Live(str(tree.root.resolve())))
    assert [device.name for device in devices(live, glob)] == names


def test_double_star_searches_eight_levels_and_each_folder_once(tree: Tree) -> None:
    tree.node(f"/dev/{'/'.join('abcdefg')}/one", "240:8")
    tree.node(f"/dev/{'/'.join('abcdefgh')}/one", "240:9")
    assert [name for name in found(tree, "/dev/a/**/one") if name.startswith("a/b")] == ["a/b/c/d/e/f/g/one"]
    listed = [(x.folder, x.names, x.is_last) for x in DeviceFolders(tree.host).listed("/dev/a/**/**/**/**/one")]
    assert len(listed) == len(set(listed)) + 3 * len({folder for folder, _, is_last in listed if is_last})


def test_too_many_folders_are_a_problem(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "_MAX_FOLDERS", 3)
    (problem,) = (x for x in read_paths(tree.host, ["/dev/**/one"]) if isinstance(x, Problem))
    assert problem == Problem("/dev/**/one", "leads to more than 3 folders; files in the others are not found")


def test_path_has_device_of_its_node_as_parent(tree: Tree) -> None:
    adapter = tree.usb(tree.pci("0000:00:14.0"), "1-2", serial="ft5rx9k2", interfaces=("ff",))
    tree.path("/dev/ttyUSB0").unlink()
    tree.child(f"{adapter}/1-2:1.0/ttyUSB0", "tty/ttyUSB0", group="class/tty", node="ttyUSB0", numbers="188:0")
    inventory = Scanner(tree.host, (*READERS, paths_reader(("/dev/ttyUSB*",)))).scan()
    assert inventory.devices["path-ttyusb0-" + _digest(inventory.devices, "ttyUSB0")].parents[:2] == (
        "tty-1a86-7523-ft5rx9k2-if0",
        "usb-1a86-7523-ft5rx9k2",
    )
    assert inventory.devices["path-ttyusb1-" + _digest(inventory.devices, "ttyUSB1")].parents == ()


def _digest(devices: object, name: str) -> str:
    assert isinstance(devices, dict)
    (identity,) = (x.id for x in devices.values() if x.kind == "path" and x.name == name)
    return str(identity).rpartition("-")[2]


def test_first_path_of_a_node_is_parent_of_the_second(tree: Tree) -> None:
    tree.link("/dev/serial/by-path/usb-0:2:1.0", "/dev/ttyUSB1")
    tree.link("/dev/serial/by-path/usb-0:3:1.0", "/dev/ttyUSB0")
    inventory = Scanner(tree.host, (paths_reader(("/dev/serial/*/*",)),)).scan()
    first, second, other = inventory.devices.values()
    assert {first.name, second.name} == {"serial/by-id/usb-FTDI-if00", "serial/by-path/usb-0:2:1.0"}
    assert (first.parents, second.parents, other.parents) == ((), (first.id,), ())


def test_path_of_shared_node_has_no_parent(tree: Tree) -> None:
    for index in (0, 1):
        tree.iommu_group(index, tree.pci(f"0000:0{index}:00.0", driver="vfio-pci"))
        tree.device(f"/sys/devices/virtual/vfio/{index}", group="class/vfio", node=f"vfio/{index}")
    tree.node("/dev/vfio/vfio", "10:196")
    inventory = Scanner(tree.host, (*READERS, paths_reader(("/dev/vfio/*",)))).scan()
    assert inventory.devices["path-vfio-vfio"].parents == ()
    assert inventory.devices["path-vfio-1"].parents == ("vfio-0000-01-00-0", "pci-0000-01-00-0")


def test_path_of_node_in_whole_and_parts_has_whole_as_parent(machine: Tree) -> None:
    inventory = Scanner(machine.host, (*READERS, paths_reader(("/dev/nvidia[0-9]*",)))).scan()
    assert inventory.devices["path-nvidia3"].parents == ("gpu-0000-81-00-0", "pci-0000-81-00-0")
