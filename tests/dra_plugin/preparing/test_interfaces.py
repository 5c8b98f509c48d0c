"""Interfaces of claims that move into pods and back: real ones, in the test's own network namespaces."""

import errno
import os
import shutil
import socket
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import cdi
from dra_plugin.preparing.claim_record import record_of
from dra_plugin.preparing.interface_config import InterfaceRefused
from dra_plugin.preparing.interface_moves import Interfaces
from dra_plugin.preparing.oci_runtime import UNCHECKED, OciRuntime
from hostdevices import Device
from hostdevices.errors import HostExhausted
from netlink import Connection, Link, NetlinkError, addresses, link, links
from resourceapi.objects import v1
from resources.resource import DraOptions, InterfaceMoves, Resource
from resources.selector import Ids
from tests.descriptors import no_more_descriptors
from tests.dra_plugin.preparing.world import World, claim, config, ref, result, uid
from tests.network import PodNetwork, ip, needs_root, own_network, show_in_sysfs
from tests.running import until
from tests.threads import no_more_threads

pytestmark = needs_root
MAC = "02:00:00:00:00:11"
ALL = InterfaceMoves(name=True, mtu=True, mac=True, addresses=("198.51.100.0/24", "2001:db8::/64"))
WANTED: dict[str, Any] = {
    "name": "data0",
    "mtu": 1300,
    "mac": "02:00:00:00:00:99",
    "addresses": ["198.51.100.7/24", "2001:DB8:0::7/64"],
}


def nic(name: str, moves: InterfaceMoves | None = ALL) -> Resource:
    return Resource(f"example.com/{name}", Ids((f"nic-{name}",)), api="dra", dra=DraOptions(interface=moves))


class Network(World):
    """A node with the interfaces np0, its peer np1, and mv0, a macvlan on np1."""

    def __init__(self, folder: Path, home: str) -> None:
        super().__init__(folder)
        self.home = home
        self.runtime = UNCHECKED
        self.resources = [nic("np0"), nic("mv0"), nic("np1")]
        for name in ("np0", "np1", "mv0"):
            self.show(name)

    def found(self) -> dict[str, Device]:
        """What the host has, with what is in pods, as the daemon has it."""
        return dict(self.preparer.hardware.with_original_devices(super().found()))

    def show(self, name: str) -> None:
        """Add an interface of this namespace to the made-up /sys."""
        show_in_sysfs(self.made_up.root, name)

    def hide(self, name: str) -> None:
        """Remove an interface that moved away from the made-up /sys."""
        shutil.rmtree(self.made_up.root / "sys/devices/virtual/net" / name)
        (self.made_up.root / "sys/class/net" / name).unlink()

    def move_into_pod(self, name: str = "np0", inside: str = "data0") -> PodNetwork:
        """Move an interface as the runtime does according to the CDI files."""
        assert cdi.NetDevice(host_interface_name=name, name=inside) in self.requested_moves()
        pod = PodNetwork(self.home)
        pod.take(name, inside)
        self.hide(name)
        self.scan()
        return pod

    def requested_moves(self) -> list[cdi.NetDevice]:
        """The interfaces that the CDI files ask a runtime to move."""
        return [x for edits in self.devices().values() for x in edits.net_devices]


@pytest.fixture
def home() -> Iterator[str]:
    with own_network() as file:
        ip("link", "add", "np0", "address", MAC, "mtu", "1400", "type", "veth", "peer", "name", "np1")
        ip("link", "add", "mv0", "link", "np1", "address", "02:00:00:00:00:33", "type", "macvlan", "mode", "bridge")
        yield file


@pytest.fixture
async def network(tmp_path: Path, home: str) -> AsyncIterator[Network]:
    made = Network(tmp_path, home)
    async with made:
        yield made


def find_link(name: str) -> Link | None:
    with Connection() as kernel:
        return link(kernel, name)


def state(name: str) -> tuple[Any, ...] | None:
    """State of an interface of this namespace: MTU, MAC, alias, addresses, whether it is up. None if there is none."""
    with Connection() as kernel:
        found = link(kernel, name)
        if found is None:
            return None
        return found.mtu, found.mac, found.alias, tuple(addresses(kernel).get(found.index, ())), found.is_up


def wanted(device: str = "nic-np0", *requests: str, number: int = 1, **interface: Any) -> v1.ResourceClaim:
    configs = [config(interface=interface)] if interface else []
    results = [result(device, request) for request in requests or ("net",)]
    return claim(*results, configs=configs, uid=uid(number), name=f"claim-{number}")


def reserved_for_pods(of: v1.ResourceClaim, *pods: v1.ResourceClaimConsumerReference) -> v1.ResourceClaim:
    return structs.replace(of, status=structs.replace(of.status, reserved_for=pods))


async def test_interface_moves_into_a_pod_and_is_restored(network: Network) -> None:
    ip("addr", "add", "192.0.2.1/24", "dev", "np0")
    ip("link", "set", "np0", "up", "alias", "of the operator's")
    before = state("np0")
    mine = wanted(**WANTED)
    prepared = await network.prepare(mine)
    assert network.requested_moves() == [cdi.NetDevice(host_interface_name="np0", name="data0")]
    (spec,) = (x for name, x in network.specs().items() if "/claim " in name)
    assert spec.cdi_version == "1.1.0"
    mtu, mac, alias, has, is_up = state("np0") or ()
    assert (mtu, mac, has, is_up) == (1300, WANTED["mac"], ("198.51.100.7/24", "2001:db8::7/64"), False)
    assert alias == f"nodeplug:np0,1400,{MAC},{uid(1)}"
    pod = network.move_into_pod()
    inside = pod.ip("addr", "show", "dev", "data0")
    assert all(text in inside for text in ("mtu 1300", WANTED["mac"], "198.51.100.7/24", "2001:db8::7/64", "UP"))
    await until(lambda: not network.requested_moves())  # otherwise no further container of the pod could start
    assert network.container(prepared).env["NODEPLUG_CLAIM_1__NET__INTERFACES"] == "data0"
    pod.back("data0")
    pod.end()
    await until(network.requested_moves)  # a new sandbox of the pod needs it
    await network.unprepare(mine)
    assert state("np0") == before
    assert network.units() == network.files() == []


@pytest.mark.parametrize("interface", [WANTED, {"name": "data0"}])
async def test_addresses_are_restored_with_all_their_properties(network: Network, interface: dict[str, Any]) -> None:
    """An address that returned with its own route would receive the node's traffic to that network."""
    for words in (
        "192.0.2.1/24 broadcast 192.0.2.255 label np0:first noprefixroute",
        "192.0.2.129/25 metric 200",
        "203.0.113.1 peer 203.0.113.9/32",
        "2001:db8:1::1/64 nodad noprefixroute",
        "2001:db8:2::1 peer 2001:db8:2::9/128 nodad metric 300",
    ):
        ip("addr", "add", *words.split(), "dev", "np0")
    for name in ("np0", "np1"):
        ip("link", "set", name, "up")
    before, routes = ip("-o", "addr", "show", "dev", "np0", "scope", "global"), ip("route", "show", "dev", "np0")
    mine = wanted(**interface)
    await network.prepare(mine)
    pod = network.move_into_pod()
    pod.back("data0")
    pod.end()
    await network.unprepare(mine)
    after = ip("-o", "addr", "show", "dev", "np0", "scope", "global")
    assert sorted(after.splitlines()) == sorted(before.splitlines())
    assert ip("route", "show", "dev", "np0") == routes


async def test_secondary_address_survives_the_removal_of_the_primary(network: Network) -> None:
    for last in (1, 7):
        ip("addr", "add", f"198.51.100.{last}/24", "dev", "np0")
    mine = wanted(addresses=["198.51.100.7/24"])
    await network.prepare(mine)
    assert (state("np0") or ())[3] == ("198.51.100.7/24",)
    await network.unprepare(mine)
    assert sorted((state("np0") or ())[3]) == ["198.51.100.1/24", "198.51.100.7/24"]


async def test_network_data_is_in_status_and_metadata(network: Network) -> None:
    await network.prepare(wanted(**WANTED))
    (lease,) = network.ledger.leases()
    record = record_of(lease)
    assert record is not None
    network_data = {
        "interfaceName": "data0",
        "hardwareAddress": WANTED["mac"],
        "ips": ["198.51.100.7/24", "2001:db8::7/64"],
    }
    assert record.status[0]["networkData"] == network_data
    (entry,) = record.metadata[0].content["requests"][0]["devices"]
    assert entry["networkData"] == network_data


async def test_unset_properties_stay_and_two_interfaces_move_together(network: Network) -> None:
    ip("addr", "add", "192.0.2.1/24", "dev", "np0")
    ip("link", "del", "mv0")
    mine = claim(result("nic-np0", "a"), result("nic-np1", "b"), configs=[config("b", interface={"name": "other"})])
    await network.prepare(mine)
    moved = [cdi.NetDevice(host_interface_name=x, name=y) for x, y in (("np0", "np0"), ("np1", "other"))]
    assert network.requested_moves() == moved
    assert (state("np0") or ())[:2] + (state("np0") or ())[3:] == (1400, MAC, ("192.0.2.1/24",), False)


async def test_moved_interface_is_found_by_a_repeated_call_and_a_restart(network: Network) -> None:
    mine = wanted(name="data0")
    prepared = await network.prepare(mine)
    pod = network.move_into_pod()
    await until(lambda: not network.requested_moves())
    assert await network.prepare(mine) == prepared
    await network.restart()
    assert await network.prepare(mine) == prepared
    assert network.requested_moves() == []
    assert [x.name for x in network.offers] == ["nic-mv0", "nic-np0", "nic-np1"]  # still offered, and healthy
    offered = network.offers.find("nic-np0")
    assert offered is not None
    assert offered.device.health.healthy
    pod.back("data0")
    pod.end()
    await network.unprepare(mine)
    assert state("np0") == (1400, MAC, "", (), False)


async def test_interface_returned_under_another_name_is_found_after_a_restart(network: Network) -> None:
    mine = wanted(**WANTED)
    await network.prepare(mine)
    pod = network.move_into_pod()
    await network.end()
    pod.back("data0")
    pod.end()
    await network.begin()
    assert network.requested_moves() == [cdi.NetDevice(host_interface_name="np0", name="data0")]
    assert (state("np0") or ())[3] == ("198.51.100.7/24", "2001:db8::7/64")
    await network.unprepare(mine)
    assert state("np0") == (1400, MAC, "", (), False)


@pytest.mark.parametrize("progress", ["nothing", "half", "all"])
@pytest.mark.parametrize("then", ["prepared again", "unprepared"])
async def test_interface_is_recovered_after_a_crash_while_preparing(network: Network, progress: str, then: str) -> None:
    mine = wanted(**WANTED)
    prepared = await network.prepare(mine)
    await network.end()
    if progress == "nothing":
        ip("link", "set", "np0", "alias", "", "mtu", "1400", "address", MAC)
    if progress != "all":
        ip("addr", "flush", "dev", "np0")
        shutil.rmtree(network.cdi)
    await network.begin()
    if then == "prepared again":
        assert await network.prepare(mine) == prepared
        assert (state("np0") or ())[:2] == (1300, WANTED["mac"])
        assert network.requested_moves() == [cdi.NetDevice(host_interface_name="np0", name="data0")]
    await network.unprepare(mine)
    assert state("np0") == (1400, MAC, "", (), False)
    assert network.units() == network.files() == []


async def test_original_state_is_read_from_the_alias_after_a_lost_ledger(network: Network) -> None:
    await network.prepare(wanted(**WANTED))
    await network.end()
    shutil.rmtree(network.state)
    ip("link", "set", "np0", "name", "data0")  # the kernel returns hardware from a pod with its name there
    network.hide("np0")
    network.show("data0")
    network.resources = [nic("data0")]
    await network.begin()
    mine = wanted("nic-data0", number=2)
    await network.prepare(mine)
    assert network.requested_moves() == [cdi.NetDevice(host_interface_name="np0", name="np0")]
    await network.unprepare(mine)
    assert state("np0") == (1400, MAC, "", (), False)


async def test_new_interface_with_the_old_name_is_not_moved(network: Network) -> None:
    """Hardware returns with its name in the pod; another interface can have its old name by then."""
    mine = wanted(**WANTED)
    await network.prepare(mine)
    pod = network.move_into_pod()
    ip("link", "add", "np0", "address", "02:00:00:00:00:77", "type", "bridge")
    pod.back("data0")
    pod.end()
    await until(lambda: not any("/claim=" in x for x in network.devices()))  # a runtime refuses names without a spec
    ip("link", "del", "np0")
    network.scan()
    await until(network.requested_moves)  # it has its name again
    await network.unprepare(mine)
    assert state("np0") == (1400, MAC, "", (), False)


@pytest.mark.parametrize("interface", [WANTED, {}])
@pytest.mark.parametrize(
    "mark",
    [
        "np0,99999999999,,x",
        f"np0,1400,{MAC}0,x",
        f"np0,1,{MAC},x",
        f"np0,999999999,{MAC},x",
        "np0,1400,01:00:5e:00:00:01,x",
        "np0,1400,02:00,x",
        "np0,1400,,x",
        f"{'a' * 16},1400,{MAC},x",
        f"a/b,1400,{MAC},x",
        f"..,1400,{MAC},x",
    ],
)
async def test_invalid_alias_written_by_a_pod_is_ignored(
    network: Network, mark: str, interface: dict[str, Any]
) -> None:
    """A process that can change interfaces in a pod can write impossible values."""
    ip("link", "set", "np0", "alias", f"nodeplug:{mark}")
    before = state("np0")
    mine = wanted(**interface)
    await network.prepare(mine)
    await network.unprepare(mine)
    assert state("np0") == before


async def test_left_behind_interface_keeps_its_name_when_the_old_one_is_taken(network: Network) -> None:
    await network.prepare(wanted(**WANTED))
    await network.end()
    shutil.rmtree(network.state)
    ip("link", "set", "np0", "name", "data0")
    network.hide("np0")
    network.show("data0")
    ip("link", "add", "np0", "address", "02:00:00:00:00:77", "type", "bridge")
    network.resources = [nic("data0")]
    await network.begin()
    mine = wanted("nic-data0", number=2)
    await network.prepare(mine)
    assert network.requested_moves() == [cdi.NetDevice(host_interface_name="data0", name="data0")]
    await network.unprepare(mine)
    assert state("data0") == (1400, MAC, "", (), False)


async def test_claim_ends_when_a_property_cannot_be_restored(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    """Some settings depend on another interface: here the MTU depends on the lower interface, which was changed."""
    mine = wanted("nic-mv0", **WANTED)
    before = state("mv0")
    assert before is not None
    await network.prepare(mine)
    pod = network.move_into_pod("mv0")
    await until(lambda: not network.requested_moves())
    ip("link", "set", "np1", "mtu", "1280")
    pod.back("data0")
    pod.end()
    # no new sandbox of the pod starts without it
    await until(lambda: not any("/claim=" in x for x in network.devices()))
    await network.unprepare(mine)
    assert "mv0 does not get back its MTU 1500" in caplog.text
    assert state("mv0") == (1280, *before[1:])
    assert network.units() == network.files() == []


async def test_macvlan_deleted_with_its_pod_is_recreated(network: Network) -> None:
    before = ip("-d", "-o", "link", "show", "mv0").split(maxsplit=2)[2]
    mine = wanted("nic-mv0", name="data0")
    await network.prepare(mine)
    pod = network.move_into_pod("mv0")
    pod.end()
    await network.unprepare(mine)
    assert ip("-d", "-o", "link", "show", "mv0").split(maxsplit=2)[2] == before
    assert network.units() == []


async def test_veth_deleted_with_its_pod_is_not_recreated(network: Network, caplog: pytest.LogCaptureFixture) -> None:
    mine = wanted(name="data0")
    await network.prepare(mine)
    network.move_into_pod().end()
    await until(lambda: find_link("np1") is None)
    await network.unprepare(mine)
    assert "it was virtual" in caplog.text
    assert network.units() == []


async def test_new_interface_with_the_name_of_a_gone_one_is_left_alone(network: Network) -> None:
    """It was unplugged in its pod, and a new interface has its name. No restarted container gets the new one."""
    mine = wanted(**WANTED)
    await network.prepare(mine)
    network.move_into_pod().end()
    await until(lambda: find_link("np1") is None)
    ip("link", "add", "np0", "address", "02:00:00:00:00:77", "type", "veth", "peer", "name", "np1")
    network.show("np0")
    network.scan()
    other = state("np0")
    await until(lambda: not any("/claim=" in x for x in network.devices()))  # a runtime refuses names without a spec
    await network.unprepare(mine)
    assert state("np0") == other
    assert network.units() == network.files() == []


async def test_interface_is_not_recreated_after_a_reboot(network: Network) -> None:
    mine = wanted("nic-mv0", name="data0")
    await network.prepare(mine)
    await network.end()
    ip("link", "del", "mv0")
    await network.begin("next-boot")
    await network.unprepare(mine)
    assert find_link("mv0") is None
    assert network.units() == []


async def test_missing_interface_is_not_offered_after_a_reboot(network: Network) -> None:
    await network.prepare(wanted("nic-mv0", name="data0"))
    await network.end()
    ip("link", "del", "mv0")
    network.hide("mv0")
    await network.begin("next-boot")
    assert [x.name for x in network.offers] == ["nic-np0", "nic-np1"]


async def test_current_state_is_recorded_before_a_change_after_a_reboot(network: Network) -> None:
    mine = wanted(**WANTED)
    await network.prepare(mine)
    await network.end()
    ip("addr", "flush", "dev", "np0")
    ip("link", "set", "np0", "alias", "since the boot", "mtu", "1350", "address", MAC)
    ip("addr", "add", "192.0.2.1/24", "dev", "np0")
    before = state("np0")
    await network.begin("next-boot")
    shutil.rmtree(network.cdi)
    network.cdi.touch()  # the work after the interface's change fails
    assert "File exists" in await network.refusal(mine)
    network.cdi.unlink()
    await network.unprepare(mine)
    assert state("np0") == before
    assert network.units() == []


async def test_claim_is_repaired_after_a_thread_shortage(network: Network, caplog: pytest.LogCaptureFixture) -> None:
    """The thread limit of the node or of a cgroup must not end the daemon."""
    mine = wanted(**WANTED)
    await network.prepare(mine)
    work = network.preparer._work
    threads = work._threads
    with no_more_threads():
        work._threads = ThreadPoolExecutor(1)  # it has not started its first thread
        network.preparer.update()
        await until(lambda: "no thread is left: can't start new thread" in caplog.text)
        assert "can't start new thread" in await network.refusal(wanted("nic-mv0", number=2))
        assert not await network.preparer.repair()
        work._threads = threads
    assert await network.preparer.repair()
    await network.unprepare(mine)
    assert state("np0") == (1400, MAC, "", (), False)


async def test_restore_is_refused_while_the_interface_is_in_its_pod(network: Network) -> None:
    await network.prepare(wanted(name="data0"))
    pod = network.move_into_pod()
    record = record_of(network.ledger.leases()[0])
    assert record is not None
    with pytest.raises(InterfaceRefused, match="np0 is still in the network namespace of its pod"):
        Interfaces(network.made_up.host, OciRuntime(), timeout=0.0).restore(record)
    pod.end()


async def test_interface_is_not_gone_when_its_namespace_cannot_be_listed(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the kernel has no memory to list a namespace's interfaces, the namespace still exists."""
    mine = wanted("nic-mv0", name="data0")
    await network.prepare(mine)
    pod = network.move_into_pod("mv0")
    await until(lambda: not network.requested_moves())
    await network.end()

    def no_memory(kernel: Connection, namespace: int | None = None) -> list[Link]:
        if namespace is None:
            return links(kernel)
        raise NetlinkError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))

    with monkeypatch.context() as fault:
        fault.setattr("dra_plugin.preparing.interface_moves.links", no_memory)
        await network.begin()
        (failure,) = (await network.failures(ref(mine))).values()
        assert failure is not None
        assert "No buffer space available" in failure.reason
    assert find_link("mv0") is None  # a second macvlan would have the same MAC
    pod.back("data0")
    pod.end()
    await network.unprepare(mine)
    assert network.units() == []


async def test_refused_change_leaves_the_interface_unchanged(network: Network) -> None:
    ip("link", "set", "np1", "mtu", "1200")
    before = state("mv0")
    mine = wanted("nic-mv0", mtu=1300, name="data0")  # more than the lower interface allows
    assert "mv0" in await network.refusal(mine)
    assert state("mv0") == before
    assert network.units() == network.files() == []


@pytest.mark.parametrize(
    ("moves", "interface", "words"),
    [
        (None, {"name": "data0"}, "does not move into pods"),
        (InterfaceMoves(), {"name": "data0"}, "a claim cannot set interface.name here"),
        (InterfaceMoves(), {"mtu": 1300}, "a claim cannot set interface.mtu"),
        (InterfaceMoves(), {"mac": MAC}, "a claim cannot set interface.mac"),
        (InterfaceMoves(), {"addresses": ["198.51.100.7/24"]}, "198.51.100.7/24 is not one of .*: none"),
        (ALL, {"addresses": ["192.0.2.7/24"]}, "192.0.2.7/24 is not one of .* 198.51.100.0/24, 2001:db8::/64"),
        (ALL, {"addresses": ["198.51.100.200/24"]}, "the node itself has the address 198.51.100.200/24, at np1"),
    ],
)
async def test_setting_outside_the_node_policy_is_refused(
    network: Network, moves: InterfaceMoves | None, interface: dict[str, Any], words: str
) -> None:
    ip("addr", "add", "198.51.100.200/24", "dev", "np1")
    network.resources = [nic("np0", moves)]
    await network.restart()
    before = state("np0")
    with pytest.raises(AssertionError, match=words):
        await network.prepare(wanted(**interface))
    assert state("np0") == before
    assert network.units() == network.files() == []


@pytest.mark.parametrize("address", ["198.51.100.201/24", "2001:db8::201/64"])
async def test_dhcp_address_of_the_node_is_refused(network: Network, address: str) -> None:
    ip("addr", "add", address, "dev", "np1", "valid_lft", "3600", "preferred_lft", "3600")
    assert f"the node itself has the address {address}, at np1" in await network.refusal(wanted(addresses=[address]))


async def test_interface_needed_by_the_node_is_not_moved(network: Network) -> None:
    assert "np1 carries mv0 of the node" in await network.refusal(wanted("nic-np1"))
    ip("link", "add", "br0", "type", "bridge")
    ip("link", "set", "np0", "master", "br0")
    assert "np0 is a part of br0" in await network.refusal(wanted())
    ip("link", "set", "np0", "nomaster")
    route = network.made_up.root / "proc/net/route"
    route.parent.mkdir()
    route.write_text("Iface\tDestination\nnp0\t00000000\t01020304\t0003\t0\t0\t0\t00000000\n")
    assert "carries the node's own traffic" in await network.refusal(wanted())  # already before the next scan


async def test_wlan_interface_is_refused(network: Network) -> None:
    (network.made_up.root / "sys/class/net/np0/uevent").write_text("DEVTYPE=wlan\n")
    network.scan()
    assert "np0 is a wlan interface, which leaves no network namespace" in await network.refusal(wanted())


async def test_lower_interface_of_a_moved_one_is_not_moved(network: Network) -> None:
    first = wanted("nic-mv0", name="data0")
    await network.prepare(first)
    pod = network.move_into_pod("mv0")
    assert "np1 carries mv0, which a claim has" in await network.refusal(wanted("nic-np1", number=2))
    pod.end()
    await network.unprepare(first)
    ip("link", "del", "mv0")
    await network.prepare(wanted("nic-np1", number=2))


@pytest.mark.parametrize("table", ["main", "100"])
async def test_interfaces_of_default_routes_in_any_table_are_not_moved(network: Network, table: str) -> None:
    """/proc lists only the first hop of a multipath route, and no other tables."""
    ip("link", "del", "mv0")
    for name, address in (("np0", "192.0.2.1/30"), ("np1", "192.0.2.5/30")):
        ip("address", "add", address, "dev", name)
        ip("link", "set", name, "up")
    ways = [x for y in ("192.0.2.2", "192.0.2.6") for x in ("nexthop", "via", y)]
    ip("route", "add", "default", "table", table, *ways)
    for name in ("np0", "np1"):
        assert f"{name} carries the node's own traffic" in await network.refusal(wanted(f"nic-{name}"))
    ip("route", "del", "default", "table", table)
    await network.prepare(wanted("nic-np1"))


@pytest.mark.parametrize("address", ["192.0.2.7/24", "2001:db8::7/64"])
async def test_interface_with_connections_of_the_node_is_not_moved(network: Network, address: str) -> None:
    """For example, the kubelet uses its node's address, which can differ from that of the default route."""
    ip("address", "add", address, "dev", "np0", *(["nodad"] if ":" in address else []))
    for name in ("lo", "np0", "np1"):
        ip("link", "set", name, "up")
    here = address.partition("/")[0]
    family, version = (socket.AF_INET6, "-6") if ":" in here else (socket.AF_INET, "-4")
    await until(lambda: here in ip(version, "route", "show", "table", "local"))  # the kernel adds it a moment later
    with socket.create_server((here, 0), family=family) as server, socket.create_connection(server.getsockname()[:2]):
        for table in ("tcp", "tcp6"):
            content = Path(f"/proc/thread-self/net/{table}").read_bytes()
            path = network.made_up.root / f"proc/net/{table}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        assert f"the node has connections over {here}, an address of np0" in await network.refusal(wanted())
    for table in ("tcp", "tcp6"):
        (network.made_up.root / f"proc/net/{table}").write_bytes(b"  sl  local_address\n")
    await network.prepare(wanted())


async def test_interface_names_are_unique_in_a_pod(network: Network) -> None:
    ip("link", "del", "mv0")
    both = claim(result("nic-np0", "a"), result("nic-np1", "a"), configs=[config(interface={"name": "data0"})])
    assert "two interfaces named data0" in await network.refusal(both)
    pod = v1.ResourceClaimConsumerReference(resource="pods", name="p", uid="of-the-pod")
    first, second = wanted(name="data0"), wanted("nic-np1", number=2, name="data0")
    await network.prepare(reserved_for_pods(first, pod))
    assert "of the claim default/claim-1" in await network.refusal(reserved_for_pods(second, pod))


async def test_interface_is_not_moved_for_a_claim_of_several_pods(network: Network) -> None:
    pods = tuple(v1.ResourceClaimConsumerReference(resource="pods", name=x, uid=x) for x in "ab")
    assert "several pods use the claim" in await network.refusal(reserved_for_pods(wanted(), *pods))


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ('{"linux": {"netDevices": {"enabled": true}}}', ""),
        ('{"linux": {"netDevices": {"enabled": false}}}', "cannot move interfaces"),
        ('{"linux": {}}', "cannot move interfaces"),
        ("unknown command", "cannot move interfaces"),
        ("", "is not known"),
    ],
)
async def test_oci_runtime_must_support_moving_interfaces(
    network: Network, tmp_path: Path, features: str, words: str
) -> None:
    runtime = tmp_path / "runc"
    runtime.write_text(f"#!/bin/sh\necho -n '{features}'\n")
    runtime.chmod(0o755)
    network.runtime = str(runtime)
    await network.restart()
    if not words:
        await network.prepare(wanted())
        return
    assert words in await network.refusal(wanted())
    assert state("np0") == (1400, MAC, "", (), False)


async def test_all_installed_runtimes_must_support_moving_interfaces(tmp_path: Path) -> None:
    """Only the container runtime knows which one it uses; for example, Docker's runtime can be installed as well."""
    able, other = tmp_path / "sbin/runc", tmp_path / "bin/runc"
    for path, enabled in ((able, "true"), (other, "false")):
        path.parent.mkdir()
        path.write_text(f'#!/bin/sh\necho \'{{"linux": {{"netDevices": {{"enabled": {enabled}}}}}}}\'\n')
        path.chmod(0o755)
    folders = [str(able.parent), str(other.parent)]
    words = OciRuntime(folders=folders).problem()
    assert words.startswith(f"the runtime {other} cannot move interfaces")
    assert words.endswith(f"set settings.ociRuntime to the one that runs the containers ({able}, {other})")
    assert OciRuntime(str(able), folders).problem() == ""
    other.unlink()
    other.symlink_to(able)
    assert OciRuntime(folders=folders).problem() == ""


async def test_lost_lease_is_restored_only_with_its_record(network: Network) -> None:
    mine = wanted(**WANTED)
    await network.prepare(mine)
    await network.end()
    shutil.rmtree(network.state)
    await network.begin()
    with no_more_descriptors(), pytest.raises(HostExhausted):
        await network.preparer.lost.restore(mine)
    assert network.units() == []  # without a record, the interface would never be restored
    await network.preparer.lost.restore(mine)
    await network.unprepare(mine)
    assert state("np0") == (1400, MAC, "", (), False)


async def test_link_events_are_not_watched_without_moved_interfaces(network: Network) -> None:
    assert await network.failures(ref(wanted())) == {uid(1): None}
    assert network.preparer.hardware.interfaces._events is None
