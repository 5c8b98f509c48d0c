"""The control daemon of NVIDIA's Multi-Process Service: whether it runs, and which devices need it."""

from pathlib import Path

from hostdevices import scan
from hostdevices.readers import READERS
from resources.container_view import ContainerView
from resources.resource import Resource
from resources.selector import Kinds
from tests.hostdevices.machine import build_machine
from userspace import with_mps

PIPES = "/run/mps/pipe"


def test_only_nvidia_gpus_need_the_mps_control_daemon(tmp_path: Path) -> None:
    tree = build_machine(tmp_path / "root")
    inventory = scan(tree.host, READERS)

    def drivers_without_mps() -> set[str]:
        found = with_mps(tree.host, inventory, [PIPES, PIPES]).devices.values()
        assert {x.absent_services for x in found} <= {(), (PIPES,)}
        return {str(x.attributes.get("driver")) for x in found if x.absent_services}

    assert drivers_without_mps() == {"nvidia"}
    tree.file(f"{PIPES}/log", "")
    assert drivers_without_mps() == {"nvidia"}, "a folder is no service"
    tree.file(f"{PIPES}/control", "")
    assert drivers_without_mps() == set()


def test_mps_socket_is_found_below_a_mounted_host_root(tmp_path: Path) -> None:
    tree = build_machine(tmp_path / "root")
    tree.file(f"/host{PIPES}/control", "")
    found = with_mps(tree.host, scan(tree.host, READERS), [PIPES], "/host").devices.values()
    assert {x.absent_services for x in found} == {()}


def test_gpu_is_unavailable_without_the_mps_control_daemon(tmp_path: Path) -> None:
    tree = build_machine(tmp_path / "root")
    found = with_mps(tree.host, scan(tree.host, READERS), [PIPES]).devices.values()
    gpu = next(x for x in found if x.absent_services)
    shared, plain = (Resource("x/gpu", Kinds(("gpu",)), mps=mps) for mps in (PIPES, ""))
    assert (
        ContainerView(shared)
        .of(gpu)
        .unavailable.startswith(f"no MPS control daemon is at {PIPES}, which `mps` of x/gpu")
    )
    assert ContainerView(plain).of(gpu).unavailable == ""
