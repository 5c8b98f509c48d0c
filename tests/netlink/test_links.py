"""rtnetlink with the kernel, in the test's own network namespace."""

import asyncio
import errno
from collections.abc import Iterator

import pytest

from netlink import (
    RECREATABLE_KINDS,
    Connection,
    Link,
    LinkChange,
    LinkEvents,
    NetlinkError,
    add_address,
    add_link,
    addresses,
    change_link,
    link,
    links,
    namespaces,
    remove_address,
)
from tests.network import PodNetwork, ip, needs_root, own_network

pytestmark = needs_root


@pytest.fixture
def home() -> Iterator[str]:
    with own_network() as file:
        ip("link", "add", "np0", "address", "02:00:00:00:00:11", "mtu", "1400", "type", "veth", "peer", "name", "np1")
        yield file


@pytest.fixture
def kernel(home: str) -> Iterator[Connection]:
    with Connection() as connection:
        yield connection


def found(kernel: Connection, name: str) -> Link:
    there = link(kernel, name)
    assert there is not None
    return there


def test_interface_is_read_and_changed(kernel: Connection) -> None:
    before = found(kernel, "np0")
    assert (before.mtu, before.mac, before.kind, before.is_up) == (1400, "02:00:00:00:00:11", "veth", False)
    assert (before.alias, before.min_mtu, before.max_mtu, before.parent) == ("", 68, 65535, "")
    change = LinkChange(name="data0", mtu=9000, mac="02:00:00:00:00:22", alias="nodeplug:x", is_up=True)
    change_link(kernel, before.index, change)
    after = found(kernel, "data0")
    assert (after.index, after.mtu, after.mac, after.alias, after.is_up) == (
        before.index, 9000, "02:00:00:00:00:22", "nodeplug:x", True
    )  # fmt: skip
    assert link(kernel, "np0") is None
    assert {each.name for each in links(kernel)} == {"lo", "data0", "np1"}
    change_link(kernel, after.index, LinkChange(alias=""))
    assert found(kernel, "data0").alias == ""


def test_only_permanent_global_addresses_are_listed(kernel: Connection) -> None:
    index = found(kernel, "np0").index
    for text in ("198.51.100.7/24", "198.51.100.7/24", "2001:db8::7/64"):
        add_address(kernel, index, text)
    ip("addr", "add", "169.254.1.1/16", "dev", "np0", "scope", "link")
    ip("addr", "add", "198.51.100.8/24", "dev", "np0", "valid_lft", "1000", "preferred_lft", "1000")
    assert addresses(kernel) == {index: {"198.51.100.7/24": b"", "2001:db8::7/64": b""}}
    remove_address(kernel, index, "198.51.100.7/24")
    remove_address(kernel, index, "198.51.100.7/24")
    assert addresses(kernel) == {index: {"2001:db8::7/64": b""}}


def test_address_is_restored_with_all_its_properties(kernel: Connection) -> None:
    index = found(kernel, "np0").index
    for address in ("192.0.2.1/24 broadcast + label np0:a noprefixroute", "203.0.113.1 peer 203.0.113.9/32 metric 7",
                  "2001:db8::1 peer 2001:db8::9/128 nodad"):  # fmt: skip
        ip("addr", "add", *address.split(), "dev", "np0")
    before, has = ip("-o", "addr", "show", "dev", "np0"), addresses(kernel)[index]
    for text, details in has.items():
        remove_address(kernel, index, text, details)
    assert addresses(kernel) == {}
    for text, details in has.items():
        add_address(kernel, index, text, details)
    assert ip("-o", "addr", "show", "dev", "np0") == before


class ChangingDuringDump(Connection):
    """An interface is added between the first two parts of the answer."""

    has_changed = False

    def _receive(self) -> bytes:
        part = super()._receive()
        if not self.has_changed:
            self.has_changed = True
            ip("link", "add", "late0", "type", "veth", "peer", "name", "late1")
        return part


def test_interrupted_dump_is_repeated(home: str) -> None:
    for i in range(40):  # too many for one part
        ip("link", "add", f"a{i}", "type", "veth", "peer", "name", f"b{i}")
    with ChangingDuringDump() as connection:
        names = [each.name for each in links(connection)]
    assert len(names) == len(set(names)) == 85  # lo, np0 and np1, the eighty, late0 and late1
    assert "late0" in names


def test_truncated_dump_is_an_error(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netlink.connection._MAX_DATAGRAM", 1024)
    with Connection() as connection, pytest.raises(NetlinkError, match="more than 1024 bytes at once"):
        links(connection)


def test_refused_change_raises_the_kernel_error(kernel: Connection) -> None:
    with pytest.raises(NetlinkError) as refused:
        change_link(kernel, found(kernel, "np0").index, LinkChange(mtu=70000))
    assert refused.value.errno == errno.EINVAL
    assert found(kernel, "np0").mtu == 1400  # answers still match their requests


def test_moved_interface_is_found_in_its_namespace(kernel: Connection, home: str) -> None:
    pod = PodNetwork(home)
    change_link(kernel, found(kernel, "np0").index, LinkChange(alias="nodeplug:x"))
    pod.take("np0", "data0")
    places = {(n, x.index): x for n in namespaces(kernel) for x in links(kernel, n) if x.alias == "nodeplug:x"}
    (((namespace, index), there),) = places.items()
    assert (there.name, there.mac) == ("data0", "02:00:00:00:00:11")
    assert link(kernel, index, namespace) == there
    pod.end()
    assert link(kernel, index, 4000) is None  # no such namespace


def test_virtual_interface_is_recreated_with_its_properties(kernel: Connection) -> None:
    ip("link", "add", "mv0", "link", "np0", "type", "macvlan", "mode", "private")
    before = found(kernel, "mv0")
    assert before.kind in RECREATABLE_KINDS
    ip("link", "del", "mv0")
    again = LinkChange(name="mv0", mtu=before.mtu, mac=before.mac)
    add_link(kernel, again, before.kind, before.data, before.lower)
    assert "macvlan mode private" in ip("-d", "link", "show", "mv0")
    after = found(kernel, "mv0")
    assert (after.mac, after.mtu, after.lower, after.data) == (before.mac, before.mtu, before.lower, before.data)


async def test_link_events_report_a_returning_interface(home: str) -> None:
    changes: asyncio.Queue[Link | None] = asyncio.Queue()
    events = LinkEvents(changes.put_nowait)
    pod = PodNetwork(home)
    pod.take("np0", "data0")
    pod.back("data0")
    async with asyncio.timeout(10):
        while (each := await changes.get()) is None or each.name != "data0":
            pass
    events.close()
    pod.end()
