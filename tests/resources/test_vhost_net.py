"""`vhostNet` where its nodes are missing: nobody new is given a device, and the kubelet counts none as free."""

from pathlib import Path

from hostdevices import Inventory, scan
from resources.assignment import assign
from resources.groups import SameAttribute
from resources.resource import Resource
from resources.selector import Kinds
from resources.vhost_net import with_vhost_net
from tests.deviceplugin.host import MadeUpHost

MISC = Kinds(("misc",))
WITH, WITHOUT = Resource("x/dpdk", MISC, vhost_net=True), Resource("x/plain", MISC)


def reasons(host: MadeUpHost, *resources: Resource) -> set[str]:
    """Return why the devices of the first resource cannot be had."""
    inventory: Inventory = with_vhost_net(host.host, scan(host.host), resources)
    return {x.unavailable for x in assign(inventory, resources).devices[resources[0].name]}


def test_each_node_is_needed_and_named(tmp_path: Path) -> None:
    host = MadeUpHost(tmp_path, "fuse")
    for path in ("vhost-net", "net/tun"):
        missing = f"`vhostNet` of x/dpdk needs /dev/{path}, which is not here; load its kernel module"
        assert reasons(host, WITH) == {missing}
        (tmp_path / "dev" / path).parent.mkdir(exist_ok=True)
        (tmp_path / "dev" / path).write_text("c 10:238\n")  # as the kernel has it before the module is loaded
    assert reasons(host, WITH) == {""}


def test_resources_that_do_not_ask_for_them_are_not_concerned(tmp_path: Path) -> None:
    host = MadeUpHost(tmp_path, "fuse")
    assert reasons(host, WITHOUT) == {""}
    assert reasons(host, WITHOUT, WITH) == {""}


def test_a_group_lacks_what_its_members_lack(tmp_path: Path) -> None:
    host = MadeUpHost(tmp_path, "fuse", "kvm")
    (reason,) = reasons(host, Resource("x/dpdk", MISC, group=SameAttribute("name"), vhost_net=True))
    assert "/dev/vhost-net" in reason
