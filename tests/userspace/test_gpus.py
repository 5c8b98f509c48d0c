"""The driver's files for GPUs, from a made-up driver root to a container's mounts."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from hostdevices import DriverFiles, Inventory, scan
from hostdevices.readers import READERS
from hostdevices.tree import Folder
from tests.descriptors import no_more_descriptors
from tests.hostdevices.tree import Tree
from tests.userspace.driver_root import ETC, SHARE, install, library, put, remove
from userspace import NvidiaUserspace

OLD, NEW = "550.54.14", "560.35.03"
INSIDE = "usr/local/nvidia/lib64"


class Machine:
    """A machine with one GPU and a driver root."""

    def __init__(self, folder: Path) -> None:
        self.tree = Tree(folder / "root")
        self.root = folder / "root"
        self.state = folder / "state/userspace"
        self.tree.pci("0000:81:00.0", vendor="10de", device="20b5", pci_class="030200", driver="nvidia")
        self.tree.file("/proc/driver/nvidia/gpus/0000:81:00.0/information", "Device Minor: 0")
        for name, numbers in (("nvidia0", "195:0"), ("nvidiactl", "195:255"), ("nvidia-uvm", "511:0")):
            self.tree.node(f"/dev/{name}", numbers)
        self.load(OLD)
        self.userspace = NvidiaUserspace(self.tree.host, "/", self.state)

    def load(self, version: str) -> None:
        """Load this version's kernel module."""
        text = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build"
        self.tree.file("/proc/driver/nvidia/version", text)

    def found(self) -> DriverFiles:
        """The GPU's driver files."""
        inventory: Inventory = self.userspace.enrich(scan(self.tree.host, READERS))
        (gpu,) = [x for x in inventory.devices.values() if x.kind == "gpu"]
        assert all(x.driver_files is None for x in inventory.devices.values() if x is not gpu)
        assert gpu.driver_files is not None
        return gpu.driver_files

    def folders(self) -> list[str]:
        return sorted(path.name.rpartition("-")[0] for path in self.state.iterdir())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_missing_uvm_node_is_a_problem_of_the_gpu(machine: Machine) -> None:
    """NVIDIA's toolkit creates the nodes when a container starts; nvidia-uvm is not loaded at boot."""
    install(machine.root, OLD)
    machine.tree.path("/dev/nvidia-uvm").unlink()
    assert (
        "no /dev/nvidia-uvm, without which CUDA finds no GPU; run `nvidia-modprobe -u -c 0`" in machine.found().problem
    )
    machine.tree.node("/dev/nvidia-uvm", "511:0")
    assert machine.found().problem == ""


def test_missing_minor_number_is_a_problem_of_the_gpu(machine: Machine) -> None:
    install(machine.root, OLD)
    machine.tree.file("/proc/driver/nvidia/gpus/0000:81:00.0/information", "Model: made up")
    assert machine.found().problem.startswith("NVIDIA's driver does not report its number")


def test_missing_capability_nodes_are_a_problem_of_the_mig_instance(machine: Machine) -> None:
    install(machine.root, OLD)
    for folder, minor in (("gi1", 12), ("gi1/ci0", 13)):
        path = f"/proc/driver/nvidia/capabilities/gpu0/mig/{folder}/access"
        machine.tree.file(path, f"DeviceFileMinor: {minor}\nDeviceFileMode: 256\nDeviceFileModify: 1")
    problems = []
    for minor in (12, 13):
        found = machine.userspace.enrich(scan(machine.tree.host, READERS)).devices.values()
        problems += [x.driver_files.problem for x in found if x.attributes.get("type") == "mig" and x.driver_files]
        machine.tree.node(f"/dev/nvidia-caps/nvidia-cap{minor}", f"509:{minor}")
    assert [x.partition(";")[0] for x in problems] == ["its nodes in /dev/nvidia-caps/ are missing"] * 2
    found = machine.userspace.enrich(scan(machine.tree.host, READERS)).devices.values()
    assert [x.driver_files.problem for x in found if x.driver_files] == ["", ""]


def test_driver_service_socket_is_mounted_while_it_exists(machine: Machine) -> None:
    install(machine.root, OLD)
    assert not any("run" in x.container_path for x in machine.found().mounts)
    path = machine.root / "run/nvidia-persistenced/socket"
    path.parent.mkdir(parents=True)
    path.touch()
    mounts = {x.container_path: x.host_path for x in machine.found().mounts}
    assert mounts["/run/nvidia-persistenced/socket"] == str(path)
    path.unlink()
    os.utime(path.parent, ns=(1, 1))  # the folder's mtime would change
    assert "/run/nvidia-persistenced/socket" not in {x.container_path for x in machine.found().mounts}


def test_socket_mount_has_the_host_path_inside_a_daemonset_pod(machine: Machine) -> None:
    """A DaemonSet's pod sees the host's root at /host; the runtime does not."""
    install(machine.root / "host", OLD)
    machine.tree.file("/host/run/nvidia-persistenced/socket", "")
    machine.userspace = NvidiaUserspace(machine.tree.host, "/host", machine.state, "/")
    mounts = {x.container_path: x.host_path for x in machine.found().mounts}
    assert mounts["/run/nvidia-persistenced/socket"] == "/run/nvidia-persistenced/socket"
    assert mounts["/usr/local/nvidia"].startswith(str(machine.state))


def test_container_gets_the_driver_files_in_usr_local_nvidia(machine: Machine) -> None:
    """Files of the driver's version, links by sonames, tools but those for root; nothing else of the host."""
    install(machine.root, OLD)
    mounts = {x.container_path: Path(x.host_path) for x in machine.found().mounts}
    whole = mounts.pop("/usr/local/nvidia")
    assert {*mounts} == {ETC, SHARE, f"/lib/firmware/nvidia/{OLD}/gsp_ga10x.bin"}
    files = {str(x.relative_to(whole)) for x in whole.rglob("*") if x.is_file() and not x.is_symlink()}
    assert files == {
        "bin/nvidia-smi",
        "lib64/libnvidia-egl-gbm.so.1.1.1",
        *(
            f"lib64/lib{x}.so.{OLD}"
            for x in (
                "cuda", "nvidia-ml", "nvidia-ptxjitcompiler", "nvidia-glcore", "GLX_nvidia", "vdpau_nvidia"
            )
        ),
    }  # fmt: skip
    links = {x.name: os.readlink(x) for x in whole.rglob("*") if x.is_symlink()}
    assert links == {
        "libcuda.so.1": f"libcuda.so.{OLD}",
        "libcuda.so": "libcuda.so.1",
        "libnvidia-ml.so.1": f"libnvidia-ml.so.{OLD}",
        "libnvidia-ptxjitcompiler.so.1": f"libnvidia-ptxjitcompiler.so.{OLD}",
        "libGLX_nvidia.so.0": f"libGLX_nvidia.so.{OLD}",
        "libGLX_indirect.so.0": f"libGLX_nvidia.so.{OLD}",
        "libvdpau_nvidia.so.1": f"libvdpau_nvidia.so.{OLD}",
        "libnvidia-egl-gbm.so.1": "libnvidia-egl-gbm.so.1.1.1",
    }
    assert (whole / "lib64/libcuda.so").read_bytes() == (
        machine.root / "usr/lib/x86_64-linux-gnu/libcuda.so.1"
    ).read_bytes()


def test_links_without_a_matching_soname_are_created(machine: Machine) -> None:
    """GBM's backend is a second name of a library; Vulkan's producer is searched without a version."""
    install(machine.root, OLD)
    folder = machine.root / "usr/lib/x86_64-linux-gnu"
    put(folder / f"libnvidia-allocator.so.{OLD}", library("libnvidia-allocator.so.1"))
    put(folder / f"libnvidia-vulkan-producer.so.{OLD}", library(f"libnvidia-vulkan-producer.so.{OLD}"))
    (mount,) = (x for x in machine.found().mounts if x.container_path == "/usr/local/nvidia")
    inside = Path(mount.host_path) / "lib64"
    for link, name in (("gbm/nvidia-drm_gbm.so", "allocator"), ("libnvidia-vulkan-producer.so", "vulkan-producer")):
        assert (inside / link).resolve().name == f"libnvidia-{name}.so.{OLD}"
        assert not Path(os.readlink(inside / link)).is_absolute()


@pytest.mark.parametrize("folder", ["usr/lib64", "lib64", "usr/lib/aarch64-linux-gnu/nvidia/current"])
def test_driver_is_found_below_a_containerized_driver_root(machine: Machine, folder: str) -> None:
    install(machine.root / "run/nvidia/driver", OLD, folder)
    machine.userspace = NvidiaUserspace(machine.tree.host, "/run/nvidia/driver", machine.state)
    found = machine.found()
    assert [os.path.lexists(f"{found.mounts[0].host_path}/{x}") for x in ("lib64/libcuda.so.1", "bin/nvidia-smi")] == [
        True,
        True,
    ]


def test_missing_or_mismatched_libraries_are_explained(machine: Machine) -> None:
    assert machine.found().problem == (f"NVIDIA's driver {OLD} has no libraries below /; set settings.driverRoot")
    install(machine.root, NEW)
    assert machine.found().problem == (
        f"NVIDIA's kernel module is {OLD}, its libraries below / are {NEW}; load the matching module, or reboot"
        " the node"
    )
    machine.load(NEW)
    assert machine.found().problem == ""


def test_dangling_library_link_does_not_count_as_a_driver(machine: Machine) -> None:
    install(machine.root, OLD)
    library = machine.root / f"usr/lib/x86_64-linux-gnu/libcuda.so.{OLD}"
    library.rename(library.with_name("libcuda.kept"))
    library.symlink_to("/opt/nvidia/libcuda.so")
    assert "has no libraries below /" in machine.found().problem
    library.unlink()
    library.symlink_to("libcuda.kept")
    assert machine.found().problem == ""


def test_old_driver_is_used_until_the_new_module_is_loaded(machine: Machine) -> None:
    """The loaded module's version counts: until it changes, containers get the old files, from any daemon."""
    install(machine.root, OLD)
    before = machine.found()
    remove(machine.root, OLD)
    install(machine.root, NEW)
    assert machine.found() == before
    machine.userspace = NvidiaUserspace(machine.tree.host, "/", machine.state)
    assert machine.found() == before
    machine.load(NEW)
    after = machine.found()
    assert NEW in after.mounts[0].host_path
    assert (Path(before.mounts[0].host_path) / f"lib64/libcuda.so.{OLD}").is_file()


@pytest.mark.parametrize("removed_library", ["libnvidia-ml", "libcuda"])
def test_partly_removed_driver_is_served_from_its_complete_copy(machine: Machine, removed_library: str) -> None:
    """Packages are upgraded one by one, and a scan can run in between."""
    install(machine.root, OLD)
    before = machine.found()
    (machine.root / f"usr/lib/x86_64-linux-gnu/{removed_library}.so.{OLD}").unlink()
    assert machine.found() == before
    machine.userspace.prune([])
    remove(machine.root, OLD)
    assert machine.found() == before
    assert (Path(before.mounts[0].host_path) / f"lib64/{removed_library}.so.{OLD}").is_file()


def test_driver_folder_is_not_built_without_a_file_descriptor(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that cannot be listed must not count as empty: containers would get half a driver."""
    install(machine.root, OLD)
    plain = Folder.names

    def names(tree: Folder, path: str) -> list[str]:
        with no_more_descriptors() if path.endswith("/vdpau") else nullcontext():
            return plain(tree, path)

    monkeypatch.setattr(Folder, "names", names)
    assert "Too many open files" in machine.found().problem
    assert not machine.state.exists()


def test_old_driver_folder_is_removed_with_its_last_lease(machine: Machine) -> None:
    """Later leases use the new folder. After a restart, any lease can use the old one."""
    install(machine.root, OLD)
    machine.found()
    machine.userspace.prune(["a", "b"])
    install(machine.root, NEW)
    machine.load(NEW)
    machine.found()
    (machine.state / ".new-crashed").mkdir()
    machine.userspace.prune(["a", "b"])
    machine.userspace.prune(["b", "c"])
    assert machine.folders() == [f"nvidia-{OLD}", f"nvidia-{NEW}"]
    machine.userspace.prune(["c"])
    assert machine.folders() == [f"nvidia-{NEW}"]
    machine.userspace.prune([])
    assert machine.folders() == [f"nvidia-{NEW}"]


def test_partly_removed_driver_folder_is_rebuilt(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, after a power cut; then the old driver is installed again, and its files have their old times."""

    def install_package(version: str) -> None:
        install(machine.root, version)
        for path in machine.root.rglob("*"):
            os.utime(path, (1e9, 1e9), follow_symlinks=False)
        machine.load(version)

    def rmtree(folder: Path, **_: object) -> None:
        next(Path(folder).rglob("libcuda.so.*")).unlink()

    install_package(OLD)
    before = machine.found()
    remove(machine.root, OLD)
    install_package(NEW)
    machine.found()
    with monkeypatch.context() as fault:
        fault.setattr("shutil.rmtree", rmtree)
        machine.userspace.prune([])
    install_package(OLD)
    after = machine.found()
    assert [x.container_path for x in after.mounts] == [x.container_path for x in before.mounts]
    assert sorted(x.name for x in Path(after.mounts[0].host_path).glob("lib64/libcuda*")) == [
        "libcuda.so", "libcuda.so.1", f"libcuda.so.{OLD}"
    ]  # fmt: skip


def test_prune_keeps_a_folder_that_another_daemon_is_building(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During an update, two daemons run for a moment."""
    install(machine.root, OLD)
    link, other = os.link, NvidiaUserspace(machine.tree.host, "/", machine.state)

    def link_and_prune(*arguments: Any, **options: Any) -> None:
        link(*arguments, **options)
        other.prune([])

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr("os.link", link_and_prune)
        (folder, *_) = machine.found().mounts
    assert (Path(folder.host_path) / "lib64/libcuda.so.1").is_file()
    assert machine.folders() == [f"nvidia-{OLD}"]
    (machine.state / ".new-of-a-crash").mkdir()
    other.prune(["a"])
    assert machine.folders() == [f"nvidia-{OLD}"]


def test_reinstalled_package_of_the_same_version_gets_a_new_folder(machine: Machine) -> None:
    install(machine.root, OLD)
    for folder, _, _ in os.walk(machine.root):
        os.utime(folder, (0, 0))
    before = machine.found()
    assert machine.found() is before, "nothing is read again"
    install(machine.root, OLD)
    assert machine.found() != before
    for path in machine.state.rglob("*"):
        if path.name == "lib64":
            assert (path / f"libcuda.so.{OLD}").is_file()


def test_files_are_copied_when_they_cannot_be_linked(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, on another disk, or in a sandbox that mounts the host's folders separately."""

    def refused(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refused)
    install(machine.root, OLD)
    found = machine.found()
    copy = Path(found.mounts[0].host_path) / f"lib64/libcuda.so.{OLD}"
    assert (copy.stat().st_nlink, copy.stat().st_mode & 0o222) == (1, 0o200)


def test_removed_driver_folder_is_rebuilt(machine: Machine) -> None:
    install(machine.root, OLD)
    (first, *_) = machine.found().mounts
    for path in sorted(machine.state.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    assert machine.found().mounts[0] == first
    assert Path(first.host_path, "lib64/libcuda.so.1").exists()
