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


def test_only_nvidias_gpus_wait_for_it(tmp_path: Path) -> None:
    tree = build_machine(tmp_path / "root")
    inventory = scan(tree.host, READERS)

    def waiting() -> set[str]:
        found = with_mps(tree.host, inventory, [PIPES, PIPES]).devices.values()
        assert {x.absent_services for x in found} <= {(), (PIPES,)}
        return {str(x.attributes.get("driver")) for x in found if x.absent_services}

    assert waiting() == {"nvidia"}
    tree.file(f"{PIPES}/log", "")
    assert waiting() == {"nvidia"}, "a folder is no service"
    tree.file(f"{PIPES}/control", "")
    assert waiting() == set()


def test_it_may_be_where_a_pod_has_the_hosts_root(tmp_path: Path) -> None:
    tree = build_machine(tmp_path / "root")
    tree.file(f"/host{PIPES}/control", "")
    found = with_mps(tree.host, scan(tree.host, READERS), [PIPES], "/host").devices.values()
    assert {x.absent_services for x in found} == {()}


def test_nobody_new_is_given_a_gpu_without_it(tmp_path: Path) -> None:
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
