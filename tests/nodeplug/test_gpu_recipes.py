"""The recipes for NVIDIA's GPUs on the pages, run by a daemon on a made-up machine."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubelet.node import Node
from tests.deviceplugin.host import MadeUpHost
from tests.deviceplugin.node import pod
from tests.hostdevices.machine import GPU_UUID, build_machine
from tests.nodeplug.conftest import StartDaemon
from tests.nvml.library import LibraryControl, build_library
from tests.running import until
from tests.userspace.driver_root import install, remove

DOCS = Path(__file__).parents[2] / "docs"
OLD, NEW = "535.104.05", "550.54.14"


@pytest.fixture
def made_up(tmp_path: Path) -> MadeUpHost:
    """A machine with a GPU of two MIG instances."""
    host = MadeUpHost(tmp_path / "host", "fuse")
    build_machine(host.root)
    return host


def recipe(heading: str, page: str = "nvidia-gpus.md") -> Any:
    """The resources of a section of a page."""
    section = (DOCS / page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = re.search(r"```yaml\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return yaml.safe_load(found[1])["resources"]


def described(folder: Path) -> list[dict[str, str]]:
    """The mounts in the CDI specs: the host's path by the container's, for each device."""
    specs = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    edits = [device["containerEdits"] for spec in specs for device in spec["devices"]]
    return [{x["containerPath"]: x["hostPath"] for x in each.get("mounts", ())} for each in edits]


async def test_mig_instances_get_host_libraries_and_follow_driver_upgrades(
    start: StartDaemon, made_up: MadeUpHost, socket_dir: Path, tmp_path: Path
) -> None:
    """From the host's libraries to two containers, with an upgrade of the driver while they run."""
    install(made_up.root, OLD)
    async with Node(socket_dir) as node:
        await start(recipe("The driver's files without the toolkit"), rescanSeconds=1)
        await node.until(lambda: node.allocatable().get("example.com/mig") == 2, 30)
        assert (await node.admit(pod("a", "example.com/mig"))).phase == "Running"

        def libraries(version: str) -> bool:
            folders = [Path(x.get("/usr/local/nvidia", "")) for x in described(tmp_path / "cdi")]
            return len(folders) == 2 and all((x / f"lib64/libcuda.so.{version}").is_file() for x in folders)

        assert libraries(OLD)
        remove(made_up.root, OLD)
        made_up.root.joinpath("proc/driver/nvidia/version").write_text(f"Kernel Module  {NEW}  x")
        await node.until(lambda: node.allocatable().get("example.com/mig") == 1, 30)  # the other belongs to a pod
        install(made_up.root, NEW)
        await node.until(lambda: node.allocatable().get("example.com/mig") == 2, 30)
        await until(lambda: libraries(NEW))
        folders = tmp_path / "state/userspace"
        assert len(list(folders.iterdir())) == 2, "a pod has the old one"
        await node.remove("a")
        await until(lambda: [x.name.split("-")[1] for x in folders.iterdir()] == [NEW])


async def test_mig_profiles_uuids_and_errors_come_from_nvml(
    start: StartDaemon, made_up: MadeUpHost, socket_dir: Path, tmp_path: Path
) -> None:
    """MIG instances by their profile, ids that the kernel does not know, and an error that makes one unhealthy."""
    library = LibraryControl(tmp_path / "commands")
    build_library(made_up.root / "usr/lib64/libnvidia-ml.so.1")
    async with Node(socket_dir) as node:
        await start(recipe("Health, memory and profiles from NVML"), {"FAKE_NVML": str(library.path)}, nvml=True)
        await node.until(lambda: node.allocatable().get("example.com/mig-1g.10gb") == 1, 30)
        assert (await node.admit(pod("a", "example.com/mig-1g.10gb"))).phase == "Running"
        assert node.allocations("a", "c") == {"example.com/mig-1g.10gb": ["MIG-1"]}
        library.set_commands("xid 79")
        await node.until(lambda: node.allocatable().get("example.com/mig-1g.10gb") == 0, 30)


async def test_gpu_shares_follow_memory_and_end_in_mig_mode(
    start: StartDaemon, made_up: MadeUpHost, socket_dir: Path, tmp_path: Path
) -> None:
    shutil.rmtree(made_up.root / "proc/driver/nvidia/capabilities/gpu3/mig")
    library = LibraryControl(tmp_path / "commands")
    library.set_commands("whole")
    build_library(made_up.root / "usr/lib64/libnvidia-ml.so.1")
    async with Node(socket_dir) as node:
        await start(recipe("Health, memory and profiles from NVML"), {"FAKE_NVML": str(library.path)}, nvml=True)
        await node.until(lambda: node.allocatable().get("example.com/gpu") == 4, 30)  # of 80 GiB
        library.set_commands()  # a GPU in MIG mode is unusable as a whole, even without instances
        await node.until(lambda: node.allocatable().get("example.com/gpu") == 0, 30)


async def test_cdi_device_of_the_toolkit_is_used(start: StartDaemon, made_up: MadeUpHost, socket_dir: Path) -> None:
    shutil.rmtree(made_up.root / "proc/driver/nvidia/capabilities/gpu3/mig")
    async with Node(socket_dir) as node:
        await start(recipe("CDI devices of others", "configuration.md"))
        await node.until(lambda: node.allocatable().get("example.com/gpu") == 1, 30)
        gpu = pod("a", "example.com/gpu")
        assert (await node.admit(gpu)).phase == "Running"
        options = await node.run_container_options(gpu, "c")
        assert f"nvidia.com/gpu={GPU_UUID}" in [each.name for each in options.cdi_devices]


async def test_mps_shares_are_healthy_while_the_control_daemon_runs(
    start: StartDaemon, made_up: MadeUpHost, socket_dir: Path
) -> None:
    """The recipe, and its effect in a container; a pod keeps its share when the service stops."""
    shutil.rmtree(made_up.root / "proc/driver/nvidia/capabilities/gpu3/mig")
    install(made_up.root, OLD)
    section = (DOCS / "recipes.md").read_text().partition("## A GPU shared through MPS")[2]
    (text, *_) = re.findall(r"(?s)```yaml\n(.*?)```", section)
    control = made_up.root / "run/nvidia-mps/pipe/control"
    async with Node(socket_dir) as node:
        await start(yaml.safe_load(text)["resources"], allowedMounts=["/run/nvidia-mps"], rescanSeconds=1)
        await node.until(lambda: node.capacity().get("example.com/gpu") == 4, 30)
        assert node.allocatable()["example.com/gpu"] == 0
        control.parent.mkdir(parents=True)
        control.touch()
        await node.until(lambda: node.allocatable().get("example.com/gpu") == 4, 30)
        gpu = pod("a", "example.com/gpu")
        assert (await node.admit(gpu)).phase == "Running"
        options = await node.run_container_options(gpu, "c")
        env = {x.name: x.value for x in options.envs}
        assert env["CUDA_MPS_PIPE_DIRECTORY"] == "/run/nvidia-mps/pipe"
        assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
        mounts = {x.container_path: (x.host_path, x.read_only) for x in options.mounts}
        assert mounts["/run/nvidia-mps/pipe"] == ("/run/nvidia-mps/pipe", False)
        assert mounts["/dev/shm"] == ("/run/nvidia-mps/shm", False)
        control.unlink()
        await node.until(lambda: node.allocatable().get("example.com/gpu") == 0, 30)
        assert node.allocations("a", "c"), "the pod keeps its share"
