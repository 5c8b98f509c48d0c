"""`vhostNet` without its nodes: devices are withheld, and the kubelet counts none as allocatable."""

from pathlib import Path

from click.testing import CliRunner

from hostdevices import Host, Inventory, scan
from nodeplug.cli import main
from resources.assignment import assign
from resources.groups import SameAttribute
from resources.resource import Resource
from resources.selector import Kinds
from resources.vhost_net import with_vhost_net
from tests.deviceplugin.host import MadeUpHost

MISC = Kinds(("misc",))
WITH, WITHOUT = Resource("x/dpdk", MISC, vhost_net=True), Resource("x/plain", MISC)


def reasons(host: Host, *resources: Resource) -> set[str]:
    """Return why the devices of the first resource are unavailable."""
    inventory: Inventory = with_vhost_net(host, scan(host), resources)
    return {x.unavailable for x in assign(inventory, resources).devices[resources[0].name]}


def test_missing_node_makes_devices_unavailable(tmp_path: Path) -> None:
    host = MadeUpHost(tmp_path, "fuse").host
    for path in ("vhost-net", "net/tun"):
        missing = f"`vhostNet` of x/dpdk needs /dev/{path}, which does not exist; load its kernel module"
        assert reasons(host, WITH) == {missing}
        (tmp_path / "dev" / path).parent.mkdir(exist_ok=True)
        (tmp_path / "dev" / path).write_text("c 10:238\n")  # exists before the module is loaded
    assert reasons(host, WITH) == {""}


def test_resource_without_the_option_is_not_affected(tmp_path: Path) -> None:
    host = MadeUpHost(tmp_path, "fuse").host
    assert reasons(host, WITHOUT) == {""}
    assert reasons(host, WITHOUT, WITH) == {""}


def test_missing_node_makes_groups_unavailable(tmp_path: Path) -> None:
    host = MadeUpHost(tmp_path, "fuse", "kvm").host
    (reason,) = reasons(host, Resource("x/dpdk", MISC, group=SameAttribute("name"), vhost_net=True))
    assert "/dev/vhost-net" in reason


def test_capture_records_the_nodes(tmp_path: Path) -> None:
    host, file = MadeUpHost(tmp_path, "fuse").host, tmp_path / "node.gz"
    (tmp_path / "dev/net").mkdir()
    for path in ("vhost-net", "net/tun"):
        (tmp_path / "dev" / path).write_text("c 10:238\n")
    assert CliRunner().invoke(main, ["capture", str(file), "--root", str(host.root)]).exit_code == 0
    assert reasons(Host(file), WITH) == {""}
