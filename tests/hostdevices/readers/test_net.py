"""Network interfaces: attributes, identity, and which of them carry the node's traffic."""

import subprocess
import sys
from pathlib import Path

import pytest

from hostdevices import Device, scan
from hostdevices.readers.net import read
from hostdevices.readers.uplinks import uplinks
from resources.assignment import assign
from resources.danger import danger_reason
from resources.presets import preset
from resources.resource import Resource
from tests.dra_scenarios import scenario
from tests.hostdevices.machine import interface
from tests.hostdevices.tree import Tree
from tests.network import needs_root

MAC = "b8:ce:f6:00:00:01"


def interfaces(tree: Tree) -> dict[str, Device]:
    return {device.name: device for device in read(tree.host) if isinstance(device, Device)}


def virtual(tree: Tree, name: str) -> str:
    return tree.device(f"/sys/devices/virtual/net/{name}", group="class/net", type=1)


def test_interface_has_expected_attributes(tree: Tree) -> None:
    physical = tree.pci("0000:3b:00.0", vendor="15b3", device="101d", driver="mlx5_core", numa_node=0, sriov_totalvfs=8)
    interface(tree, physical, "ens1f0np0", mac=MAC, speed=100000, phys_port_name="p0", phys_switch_id="b8cef6000001")
    function = tree.virtual_function(physical, "0000:3b:00.2", 0, vendor="15b3", device="101e", driver="mlx5_core")
    interface(tree, function, "ens1f0v0", mac="00:00:00:00:00:00")
    found = interfaces(tree)
    assert found["ens1f0np0"].attributes == {
        "name": "ens1f0np0",
        "bus": "pci",
        "driver": "mlx5_core",
        "vendor": "15b3",
        "device": "101d",
        "sriov": "pf",
        "resource.kubernetes.io/pciBusID": "0000:3b:00.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:00",
        "resource.kubernetes.io/numaNode": 0,
        "mac": MAC,
        "mtu": 1500,
        "operstate": "up",
        "carrier": True,
        "linkType": "ethernet",
        "virtual": False,
        "uplink": False,
        "speed": 100000,
        "devPort": 0,
        "physPort": "p0",
        "physSwitch": "b8cef6000001",
    }
    assert found["ens1f0np0"].parents == ("pci-0000-3b-00-0",)
    of_virtual_function = found["ens1f0v0"].attributes
    assert (
        of_virtual_function.items()
        >= {"sriov": "vf", "pf": "0000:3b:00.0", "vfIndex": 0, "pfName": "ens1f0np0"}.items()
    )
    assert "speed" not in of_virtual_function  # the kernel reports -1 without a link


def test_renamed_interface_keeps_its_id(tree: Tree) -> None:
    parent = tree.pci("0000:00:03.0")
    before = interface(tree, f"{parent}/virtio2", "eth0", mac=MAC)
    (old,) = interfaces(tree).values()
    tree.path("/sys/class/net/eth0").unlink()
    tree.path(before).rename(tree.path(f"{parent}/virtio2/net/was-eth0"))
    interface(tree, f"{parent}/virtio7", "enp0s3", mac=MAC)
    assert interfaces(tree)["enp0s3"].id == old.id == "nic-0000-00-03-0"


def test_ports_of_one_function_have_different_ids(tree: Tree) -> None:
    parent = tree.pci("0000:05:00.0")
    interface(tree, parent, "eth4", mac=MAC, dev_port=1)
    interface(tree, parent, "eth5", mac=MAC, dev_port=0)
    interface(tree, parent, "eth6", mac=MAC, phys_port_name="pf0vf3")
    assert {name: device.id for name, device in interfaces(tree).items()} == {
        "eth5": "nic-0000-05-00-0",
        "eth4": "nic-0000-05-00-0-p1",
        "eth6": "nic-0000-05-00-0-pf0vf3",
    }


def test_representor_is_not_selected_by_nic_preset(tree: Tree) -> None:
    parent = tree.pci("0000:05:00.0")
    for name, port in (("enp5s0f0np0", "p0"), ("enp5s0f0npf0vf0", "pf0vf0"), ("enp5s0f0npf0sf88", "pf0sf88")):
        interface(tree, parent, name, mac=MAC, phys_port_name=port)
    (device,) = assign(scan(tree.host), [Resource("x/y", preset("nic"))]).devices["x/y"]
    assert device.name == "enp5s0f0np0"
    found = interfaces(tree)
    assert found["enp5s0f0npf0vf0"].attributes["physPort"] == "pf0vf0"
    assert found["enp5s0f0npf0vf0"].attributes["representor"] is True


def test_subfunction_id_contains_its_number(tree: Tree) -> None:
    parent = tree.pci("0000:05:00.0")
    tree.file(f"{parent}/mlx5_core.sf.4/sfnum", 88)
    interface(tree, f"{parent}/mlx5_core.sf.4", "enp5s0f0s88", mac=MAC)
    assert interfaces(tree)["enp5s0f0s88"].id == "nic-0000-05-00-0-sf88"


@pytest.mark.parametrize(("carrier", "expected"), [("1", True), ("0", False), (None, False)])
def test_carrier_is_false_unless_file_says_1(carrier: str | None, expected: bool, tree: Tree) -> None:
    syspath = interface(tree, tree.pci("0000:00:03.0"), "eth0", mac=MAC)
    tree.path(f"{syspath}/carrier").unlink()
    if carrier is not None:
        tree.file(f"{syspath}/carrier", carrier)
    assert interfaces(tree)["eth0"].attributes["carrier"] is expected


def test_virtual_interface_has_virtual_attribute(tree: Tree) -> None:
    virtual(tree, "veth3a")
    tree.device("/sys/devices/virtual/net/lo", group="class/net", type=772)
    tree.device("/sys/devices/virtual/net/bond0", group="class/net", type=1, uevent={"DEVTYPE": "bond"})
    tree.path("/sys/class/net/bonding_masters").write_text("bond0\n")
    found = interfaces(tree)
    assert set(found) == {"veth3a", "lo", "bond0"}
    assert all(device.attributes["virtual"] is True for device in found.values())
    assert found["lo"].attributes["linkType"] == "loopback"
    assert found["bond0"].attributes["devType"] == "bond"


@scenario(293)
def test_all_interfaces_below_default_route_are_uplinks(tree: Tree) -> None:
    slaves = [interface(tree, tree.pci(f"0000:00:0{n}.0"), f"eth{n}", mac=MAC) for n in (3, 4, 5)]
    bond = virtual(tree, "bond0")
    vlan = virtual(tree, "bond0.100")
    tree.link(f"{vlan}/lower_bond0", bond)
    for slave in slaves[:2]:
        tree.link(f"{bond}/lower_{slave.rpartition('/')[2]}", slave)
        tree.link(f"{slave}/master", bond)
    tree.file("/proc/net/route", "Iface Destination\nbond0.100 00000000 0100A8C0 0003 0 0 0 00000000 0 0 0")
    marked = {name for name, device in interfaces(tree).items() if device.attributes["uplink"]}
    assert marked == {"bond0.100", "bond0", "eth3", "eth4"}


@scenario(293)
def test_only_usable_default_routes_mark_uplinks(tree: Tree) -> None:
    tree.file(
        "/proc/net/route",
        "Iface Destination\n"
        "eth1 0000A8C0 00000000 0001 0 0 0 00FFFFFF 0 0 0\n"
        "eth2 00000000 00000000 0203 0 0 0 00000000 0 0 0\n"
        "nonsense",
    )
    anywhere = "0" * 32
    tree.file(
        "/proc/net/ipv6_route",
        f"{anywhere} 00 {anywhere} 00 fd{'0' * 29}1 00000400 00000002 00000000 00000003     eth3\n"
        f"fe80{'0' * 28} 40 {anywhere} 00 {anywhere} 00000100 00000002 00000000 00000001     eth4\n"
        f"{anywhere} 00 {anywhere} 00 {anywhere} ffffffff 00000001 00000000 00200200       lo",
    )
    assert uplinks(tree.host).carrying == {"eth3"}


def test_long_route_table_is_read_completely(tree: Tree) -> None:
    others = "".join(f"eth1 {n:08X} 00000000 0001 0 0 0 FFFFFFFF 0 0 0\n" for n in range(1, 2000))
    tree.file("/proc/net/route", f"Iface Destination\n{others}eth0 00000000 0100A8C0 0003 0 0 0 00000000 0 0 0")
    assert uplinks(tree.host).carrying == {"eth0"}


DEFAULT_BY_ETH0 = "Iface Destination\neth0 00000000 0100A8C0 0003 0 0 0 00000000 0 0 0"


def proc_net_dev(*names: str) -> str:
    """Return the content of /proc/net/dev for these interfaces."""
    return "\n".join(["Inter-| Receive", " face |bytes", *(f"{name:>6}: 0 0 0" for name in names)])


@pytest.fixture
def node(tree: Tree) -> Tree:
    """A node's /sys as mounted into a pod: a NIC with virtual functions, a bridge on it, other cards."""
    physical = tree.pci("0000:03:00.0", pci_class="020000", driver="ice", sriov_totalvfs=8)
    eno1 = interface(tree, physical, "eno1", mac=MAC)
    bridge = virtual(tree, "br0")
    tree.link(f"{eno1}/upper_br0", bridge)
    for index, flags in enumerate(("0x1002", "0x1003")):
        function = tree.virtual_function(physical, f"0000:03:00.{index + 1}", index, pci_class="020000", driver="iavf")
        syspath = interface(tree, function, f"eno1v{index}", mac=MAC)
        tree.file(f"{syspath}/flags", flags)
    for number, driver in enumerate(("vfio-pci", "", "mlx5_core")):
        tree.pci(f"0000:04:00.{number}", pci_class="020000", driver=driver)
    tree.pci("0000:05:00.0", pci_class="010802", driver="nvme")
    virtual(tree, "veth7")
    tree.file("/proc/net/route", DEFAULT_BY_ETH0)
    return tree


INTERFACES = ("br0", "eno1", "eno1v0", "eno1v1", "veth7")


def possible_uplinks(tree: Tree) -> set[str]:
    return {device.name for device in scan(tree.host).devices.values() if device.attributes.get("uplinkUnknown")}


def test_uplinks_are_unknown_in_another_network_namespace(node: Tree) -> None:
    node.file("/proc/net/dev", proc_net_dev("eth0", "lo"))
    inventory = scan(node.host)
    # without the virtual function that is down, functions without a kernel driver, and virtual interfaces
    expected = {"br0", "eno1", "eno1v1", "0000:03:00.0", "0000:03:00.2", "0000:04:00.2"}
    assert possible_uplinks(node) == expected
    for device in inventory.devices.values():
        assert ("may be the node's uplink" in danger_reason(device)) == (device.name in expected)
    (problem,) = inventory.problems
    assert "known only with hostNetwork or hostPID" in problem.reason


def test_routes_of_pid_1_are_read_with_host_pid(node: Tree) -> None:
    node.file("/proc/net/dev", proc_net_dev("eth0", "lo"))
    node.file("/proc/1/net/dev", proc_net_dev(*INTERFACES))
    node.file("/proc/1/net/route", "Iface Destination\neno1 00000000 0100A8C0 0003 0 0 0 00000000 0 0 0")
    assert possible_uplinks(node) == set()
    assert scan(node.host).devices["nic-0000-03-00-0"].attributes["uplink"] is True
    assert scan(node.host).devices["pci-0000-03-00-0"].attributes["uplink"] is True
    assert scan(node.host).problems == ()


def test_routes_of_pid_1_in_a_third_namespace_are_ignored(node: Tree) -> None:
    node.file("/proc/net/dev", proc_net_dev("eth0", "lo"))
    node.file("/proc/1/net/dev", proc_net_dev("eth1", "lo"))
    assert "eno1" in possible_uplinks(node)


def test_uplinks_are_unknown_if_default_route_leads_to_no_hardware(node: Tree) -> None:
    node.file("/proc/net/dev", proc_net_dev(*INTERFACES))
    node.file("/proc/net/route", "Iface Destination\nveth7 00000000 0100A8C0 0003 0 0 0 00000000 0 0 0")
    assert "eno1" in possible_uplinks(node)
    assert "lead to no hardware" in scan(node.host).problems[0].reason
    node.file("/proc/net/route", "Iface Destination")  # a node without a default route has no uplink
    assert possible_uplinks(node) == set()


def test_interfaces_with_other_routes_are_uplinks_without_default_route(node: Tree) -> None:
    """During a lease renewal, or in an isolated network: the card must not be offered."""
    node.file("/proc/net/dev", proc_net_dev(*INTERFACES))
    by = "br0 0000A8C0 00000000 0001 0 0 0 00FFFFFF 0 0 0\nveth7 0000A80A 00000000 0001 0 0 0 00FFFFFF 0 0 0"
    node.link("/sys/devices/virtual/net/br0/lower_eno1", node.host.resolve("/sys/class/net/eno1") or "")
    node.file("/proc/net/route", f"Iface Destination\n{by}")
    assert uplinks(node.host).carrying == {"br0", "eno1"}  # without veth7, which leads to no hardware
    assert scan(node.host).devices["pci-0000-03-00-0"].attributes["uplink"] is True
    node.file("/proc/net/route", "Iface Destination")
    anywhere, own = "0" * 32, "fd" + "0" * 30
    routes = [
        f"{own} 40 {anywhere} 00 {anywhere} 00000100 00000002 00000000 00000001     eno1v1",
        f"fd{'0' * 29}1 80 {anywhere} 00 {anywhere} 00000000 00000002 00000000 80200001     eno1v0",
        f"ff{'0' * 30} 08 {anywhere} 00 {anywhere} 00000100 00000002 00000000 00000001     eno1v0",
        f"fe80{'0' * 28} 40 {anywhere} 00 {anywhere} 00000100 00000002 00000000 00000001     eno1v0",
    ]
    node.file("/proc/net/ipv6_route", "\n".join(routes))
    assert uplinks(node.host).carrying == {"eno1v1"}
    routes.append(f"{anywhere} 00 {anywhere} 00 fd{'0' * 29}1 00000400 00000002 00000000 00000003     eno1")
    node.file("/proc/net/ipv6_route", "\n".join(routes))
    assert uplinks(node.host).carrying == {"eno1"}  # the node uses only IPv6


def test_members_of_a_vrf_are_uplinks(node: Tree) -> None:
    """A VRF's routing table is not in /proc, so that its members must not be offered."""
    node.file("/proc/net/dev", proc_net_dev(*INTERFACES, "mgmt"))
    vrf = virtual(node, "mgmt")
    eno1 = node.host.resolve("/sys/class/net/eno1") or ""
    node.link(f"{eno1}/master", vrf)
    node.file("/proc/net/route", "Iface Destination")
    assert uplinks(node.host).carrying == {"eno1", "mgmt"}


_PRINT_UPLINKS = """
import sys
from hostdevices import Host
from hostdevices.readers.uplinks import uplinks
found = uplinks(Host("/"))
print(*sorted(found.carrying))
"""


@pytest.mark.parametrize(
    ("commands", "carrying"),
    [
        ("ip route add default via 192.0.2.1 dev up0", "up0"),
        ("ip addr flush dev up0; ip -6 addr add fd00::2/64 dev up0 nodad; ip -6 route add default via fd00::1", "up0"),
        (
            "ip addr flush dev up0; ip link add br0 type bridge; ip link set up0 master br0; ip link set br0 up;"
            " ip addr add 192.0.2.3/24 dev br0; ip route add default via 192.0.2.1",
            "br0 up0",
        ),
        (
            "ip link add mv0 link up0 type macvlan; ip addr flush dev up0; ip addr add 192.0.2.3/24 dev mv0;"
            " ip link set mv0 up; ip route add default via 192.0.2.1",
            "mv0 up0",
        ),
    ],
    ids=["plain", "ipv6-alone", "bridge", "macvlan"],
)
@needs_root
def test_uplinks_follow_the_kernels_route_tables(commands: str, carrying: str) -> None:
    setup = "ip link add up0 type veth peer name other0; ip addr add 192.0.2.2/24 dev up0; ip link set up0 up"
    script = f'set -e; mount -t sysfs none /sys; {setup}; ip link set other0 up; {commands}; exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-c", script, sys.executable, _PRINT_UPLINKS],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert (done.returncode, done.stdout.strip()) == (0, carrying), done.stderr


def test_interface_names_with_unicode_spaces_hide_no_route(tree: Tree) -> None:
    for number, name in enumerate(("a\u2028b", "c\u00a0d", "eth0")):
        interface(tree, tree.pci(f"0000:00:0{number}.0"), name, mac=MAC)
    odd = "a\u2028b 0000A8C0 0 0001 0 0 0 00FFFFFF 0 0 0\nc\u00a0d 00000000 0100A8C0 0003 0 0 0 00000000 0 0 0"
    tree.file("/proc/net/route", f"Iface Destination\n{odd}\neth0 00000000 0100A8C0 0003 0 0 0 00000000 0 0 0")
    tree.file("/proc/net/dev", proc_net_dev("a\u2028b", "c\u00a0d", "eth0"))
    assert uplinks(tree.host).carrying == {"c\u00a0d", "eth0"}
