"""Interfaces of claims in the kernel: found, configured for their pod, and restored. Blocking: use a thread.

The container runtime moves them (CDI's `netDevices`). The kernel moves hardware back, under the name that it had in the
pod, when the last process and mount of the pod's network namespace are gone. A virtual interface ends with that
namespace.

    home, as it was --apply--> home, as the pod gets it --runtime--> away
          ^                                                            |
          +-- restore -- home, under some name <-- kernel (hardware) --+--> gone (virtual): made again, if possible

Rules:
1. Level, not edge: the next step follows from where an interface is now and from the record, at any moment and after
   any crash. A step that is already done is skipped.
2. A reboot undoes everything: records from before a reboot do not apply to today's interfaces.
3. A value that the kernel refuses to restore, such as an MTU that the interface below no longer has, does not delay the
   claim: it stays, with an error in the log.
4. An interface that is not found anywhere is neither retrieved nor given up while its hardware is present: its
   namespace ends some time after its pod.
"""

import errno
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from msgspec import structs

from dra_plugin.preparing.claim_record import Record
from dra_plugin.preparing.interface_config import InterfaceRefused
from dra_plugin.preparing.interface_plan import Links
from dra_plugin.preparing.interface_record import Interface, LinkState, Location
from dra_plugin.preparing.oci_runtime import OciRuntime
from hostdevices import Device, Host
from hostdevices.readers.uplinks import uplinks
from hostdevices.usage import connected_addresses
from netlink import (
    RECREATABLE_KINDS,
    Connection,
    Link,
    LinkChange,
    NetlinkError,
    add_address,
    add_link,
    addresses,
    change_link,
    default_route_interfaces,
    link,
    links,
    namespaces,
    remove_address,
)

RETURN_TIMEOUT = 3.0  # seconds for an interface to come back; the kubelet repeats the call
_POLL_INTERVAL = 0.05
_NO_LINK = LinkChange()
_TRANSIENT_ERRORS = (
    errno.EAGAIN,
    errno.EBUSY,
    errno.EINTR,
    errno.ENOBUFS,
    errno.ENODEV,  # it is going right now: the next attempt finds where it went
    errno.ENOMEM,
    errno.ETIMEDOUT,
)
_LOOPBACK = 1  # its index, in every network namespace
log = logging.getLogger("nodeplug.dra")


class Interfaces:
    """The interfaces of all claims. `location` is thread-safe; blocking methods are for one thread per claim."""

    def __init__(self, host: Host, runtime: OciRuntime, timeout: float = RETURN_TIMEOUT) -> None:
        """Prepare; the kernel is not asked yet. `timeout` is the time for an interface to come back, in seconds."""
        self._timeout = timeout
        self._host = host
        self._runtime = runtime
        self._last_seen: dict[str, tuple[int, int]] = {}  # by device: network namespace and index where it was last
        self._locations: dict[str, Location] = {}

    def location(self, interface: Interface) -> Location:
        """Return where an interface was when last searched; before that, at home, so that a container waits for it."""
        return self._locations.get(interface.device.id, Location.HOME)

    def read_links(self, nics: Iterable[Device]) -> Links:
        """Return all interfaces, and what /sys shows of `nics`.

        Raises `InterfaceRefused` if no interface can be moved, or changed and brought back.
        """
        if why := self._runtime.problem():
            raise InterfaceRefused(why)
        with Connection() as kernel:
            try:
                change_link(kernel, _LOOPBACK, _NO_LINK)
            except NetlinkError as error:
                raise InterfaceRefused(
                    f"the daemon may not change interfaces ({error.strerror}): it needs CAP_NET_ADMIN in the node's"
                    " network namespace"
                ) from error
            found = {each.name: each for each in links(kernel)}
            sysfs_indices = {nic.name: self._host.read(f"{nic.syspath}/ifindex") or "" for nic in nics}
            connected, all_addresses = connected_addresses(self._host), addresses(kernel, include_all=True)
            plain_addresses = {index: tuple(x.partition("/")[0] for x in each) for index, each in all_addresses.items()}
            connected_by_index = {
                index: tuple(x for x in each if x in connected) for index, each in plain_addresses.items()
            }
            default_routes = frozenset[int]().union(*default_route_interfaces(kernel))
            return Links(
                found,
                addresses(kernel),
                sysfs_indices,
                uplinks(self._host),
                plain_addresses,
                connected_by_index,
                default_routes,
            )

    def apply(self, record: Record) -> None:
        """Configure the interfaces at home for their pod. Raises `InterfaceRefused`."""
        with Connection() as kernel:
            for each in _interfaces_of(record):
                found = self._find(kernel, each)
                if found is None and self.location(each) is Location.LOST and _can_recreate(kernel, each):
                    found = _recreate(kernel, each)
                if found is not None:
                    desired = structs.replace(each.inside, name=each.home.name)
                    try:
                        _configure(kernel, found, desired)
                    except InterfaceRefused:  # runtimes must not use it until it has the pod's configuration
                        self._locations[each.device.id] = Location.LOST
                        raise
                    # runtimes find it by name: another interface with that name must not be moved instead
                    has_its_name = found.name == desired.name or _has_name(kernel, found, desired.name)
                    self._locations[each.device.id] = Location.HOME if has_its_name else Location.LOST

    def restore(self, record: Record) -> None:
        """Restore all interfaces of a claim. Raises `InterfaceRefused` while one is still away."""
        with Connection() as kernel:
            deadline = time.monotonic() + self._timeout
            for each in _interfaces_of(record):
                while why := self._try_restore(kernel, each):
                    if time.monotonic() > deadline:
                        raise InterfaceRefused(why)
                    time.sleep(_POLL_INTERVAL)
                self._locations.pop(each.device.id, None)
                self._last_seen.pop(each.device.id, None)

    def _try_restore(self, kernel: Connection, each: Interface) -> str:
        """Restore an interface; return why that is not possible yet."""
        found = self._find(kernel, each)
        if self.location(each) is Location.IN_POD:
            return f"the interface {each.home.name} is still in the network namespace of its pod"
        if found is None and _can_recreate(kernel, each):
            found = _recreate(kernel, each)
        elif found is None and (
            each.kind or not self._has_driver(each) or is_replaced(each, links(kernel), self._host)
        ):
            log.warning(
                "an interface of a claim is gone: it was virtual, and ended with its pod, or it was unplugged",
                extra={"device": each.device.id},
            )
            return ""
        if found is None:
            return f"the interface {each.home.name} is not back from the network namespace of its pod"
        _restore_state(kernel, found, each.home)
        return ""

    def _has_driver(self, each: Interface) -> bool:
        """Return whether an interface's hardware has a driver, so that it has an interface somewhere."""
        hardware = each.device.syspath.partition("/net/")[0]
        return self._host.exists(f"{hardware}/driver")

    def _find(self, kernel: Connection, each: Interface) -> Link | None:
        """Return an interface if it is at home; record where it is."""
        for name in (each.home.name, each.inside.name):
            if (found := link(kernel, name)) is not None and each.matches(found):
                self._locations[each.device.id] = Location.HOME
                return found
        if (last_seen := self._last_seen.get(each.device.id)) is not None:
            found = link(kernel, last_seen[1], last_seen[0])
            if found is not None and each.matches(found):
                self._locations[each.device.id] = Location.IN_POD
                return None
        found, location = self._search(kernel, each)
        if location is Location.LOST:
            # or between two namespaces: an empty change waits in the kernel for the move to end
            change_link(kernel, _LOOPBACK, _NO_LINK)
            found, location = self._search(kernel, each)
        self._locations[each.device.id] = location
        return found

    def _search(self, kernel: Connection, each: Interface) -> tuple[Link | None, Location]:
        if found := next((x for x in links(kernel) if each.matches(x)), None):
            return found, Location.HOME
        for namespace in namespaces(kernel):
            try:
                visible = links(kernel, namespace)
            except NetlinkError as error:
                if error.errno != errno.EINVAL:  # EINVAL: the namespace has ended meanwhile
                    raise
                continue
            found = next((x for x in visible if each.matches(x)), None)
            if found is not None:
                self._last_seen[each.device.id] = (namespace, found.index)
                return None, Location.IN_POD
        return None, Location.LOST


def is_replaced(each: Interface, here: Iterable[Link], host: Host) -> bool:
    """Return whether one of those `here` has taken an interface's place at its hardware: it is gone for good then.

    Virtual functions that were created again, or bound again, can have other addresses than before.
    """
    port = [str(each.device.attributes.get(x, "")) for x in ("devPort", "physPort")]

    def is_at_its_port(link: Link) -> bool:  # some functions have several interfaces
        found = [host.read(f"/sys/class/net/{link.name}/{x}") or "" for x in ("dev_port", "phys_port_name")]
        return found == port

    others = (x for x in here if x.parent == each.parent and each.permanent and x.permanent not in ("", each.permanent))
    return bool(each.parent) and any(map(is_at_its_port, others))


def _interfaces_of(record: Record) -> list[Interface]:
    return [x.interface for x in record.allocated if x.interface is not None]


def _can_recreate(kernel: Connection, each: Interface) -> bool:
    """Return whether an interface is of a virtual kind that can be made again, and what it is made on is present."""
    has_lower = link(kernel, each.lower) is not None if each.lower else not each.data  # a dummy is made on nothing
    return each.kind in RECREATABLE_KINDS and has_lower


def _recreate(kernel: Connection, each: Interface) -> Link | None:
    """Return a virtual interface that ended with its pod, made again; None if that is not possible yet."""
    lower = link(kernel, each.lower) if each.lower else None
    try:
        change = LinkChange(name=each.home.name, mtu=each.home.mtu, mac=each.home.mac or None)
        add_link(kernel, change, each.kind, each.data, lower.index if lower else 0)
    except NetlinkError as error:
        log.warning("cannot create an interface again: %s", error.strerror, extra={"device": each.device.id})
        return None
    return link(kernel, each.home.name)


def _configure(kernel: Connection, found: Link, state: LinkState) -> None:
    """Change an interface at home to `state`. Raises `InterfaceRefused`."""
    try:
        for _, change in _changes(kernel, found, state):
            change()
    except NetlinkError as error:
        raise InterfaceRefused(f"the kernel refused the settings of {state.name}: {error.strerror}") from error


def _restore_state(kernel: Connection, found: Link, home: LinkState) -> None:
    """Restore an interface as far as the kernel allows. Raises `InterfaceRefused` if a retry can succeed."""
    try:
        # fails without permission for any change: then no error below would mean a refusal
        change_link(kernel, _LOOPBACK, _NO_LINK)
        for what, change in _changes(kernel, found, home, is_up=home.is_up):
            try:
                change()
            except NetlinkError as error:
                if error.errno in _TRANSIENT_ERRORS:
                    raise
                log.error("the interface %s does not get back its %s: %s", home.name, what, error.strerror)
    except NetlinkError as error:
        raise InterfaceRefused(f"the kernel refused the previous settings of {home.name}: {error.strerror}") from error


def _changes(
    kernel: Connection, found: Link, state: LinkState, *, is_up: bool = False
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the changes that bring an interface to `state`, with descriptions, in an order that the kernel accepts."""
    desired = {
        f"MTU {state.mtu}": (found.mtu == state.mtu, LinkChange(mtu=state.mtu)),
        f"hardware address {state.mac}": (found.mac == state.mac, LinkChange(mac=state.mac)),
        "alias": (found.alias == state.alias, LinkChange(alias=state.alias)),
    }
    changes = {what: change for what, (is_current, change) in desired.items() if not is_current}
    if changes or found.name != state.name:
        yield "rest (down)", partial(change_link, kernel, found.index, LinkChange(is_up=False))
        yield "name", partial(_rename, kernel, found, state.name)
    for what, change in changes.items():
        yield what, partial(change_link, kernel, found.index, change)
    has = addresses(kernel).get(found.index, {})
    for address in set(has) - set(state.addresses):
        yield (
            f"addresses alone, it keeps {address}",
            partial(remove_address, kernel, found.index, address, has[address]),
        )
    has = addresses(kernel).get(found.index, {})  # removing a network's first address can remove its others
    for address in state.addresses:  # in this order: programs use the first one
        if address not in has:
            details = state.details.get(address, b"")
            yield f"address {address}", partial(add_address, kernel, found.index, address, details)
    if is_up:
        yield "link up", partial(change_link, kernel, found.index, LinkChange(is_up=True))


def _has_name(kernel: Connection, found: Link, name: str) -> bool:
    now = link(kernel, name)
    return now is not None and now.index == found.index


def _rename(kernel: Connection, found: Link, name: str) -> None:
    if found.name == name:
        return
    try:
        change_link(kernel, found.index, LinkChange(name=name))
    except NetlinkError as error:
        if error.errno != errno.EEXIST:
            raise
        log.warning("the interface %s keeps the name %s: another interface has its name now", name, found.name)
