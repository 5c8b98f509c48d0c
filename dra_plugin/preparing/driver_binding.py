"""Drivers of PCI functions: bound for a claim, and restored. Blocking: use a thread.

    as it was --bind--> driver_override -> unbind -> drivers_probe --> bound
        ^                                                                |
        +--- bind <- driver_override <- unbind <------------- restore ---+

Rules:
1. Level, not edge: the next step follows from /sys and from the record, after any crash between any two steps. A step
   that is already done is skipped, and a driver that another program bound meanwhile stays. A function that the node
   uses by then is not taken from it.
2. A reboot undoes everything: records from before a reboot do not apply to today's functions.
3. A write blocks in the kernel while the function is in use (a virtual machine that has not released its vfio device).
   After `WRITE_TIMEOUT` the write is reported as an error, and the function is left alone until the write has returned.
4. A driver that is no longer loaded, or does not take its function back, does not delay the claim: the function stays
   without a driver, with an error in the log.
"""

import contextlib
import errno
import logging
import threading
from collections.abc import Iterator

from dra_plugin.preparing.binding_record import Binding, BindRefused, BoundFunction
from hostdevices import Host
from hostdevices.device import Devnode
from hostdevices.errors import HostExhausted
from hostdevices.readers.pci import is_on
from hostdevices.readers.sysfs import devnodes, hexadecimal, shared_node
from hostdevices.usage import in_use_reason

WRITE_TIMEOUT = 5.0  # seconds that a write may take; the kubelet repeats the call
_BUS = "/sys/bus/pci"
_PERMISSION_ERRORS = (errno.EROFS, errno.EACCES, errno.EPERM)
_TRANSIENT_ERRORS = (errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_MODEL_IDS = ("vendor", "device")
_UNSET = "(null)"  # what the kernel shows for no driver_override
log = logging.getLogger("nodeplug.dra")


def driver_of(host: Host, address: str) -> str | None:
    """Return the driver of a function; None for none."""
    return host.link(f"{_BUS}/devices/{address}/driver")


def override_of(host: Host, address: str) -> str:
    """Return the only driver that can bind to a function; empty if there is no such restriction."""
    text = host.read(f"{_BUS}/devices/{address}/driver_override") or ""
    return "" if text == _UNSET else text


class Drivers:
    """Binds and restores. One thread per claim at a time."""

    def __init__(self, host: Host, timeout: float = WRITE_TIMEOUT) -> None:
        """Prepare; nothing is read yet. `timeout` is in seconds, see `WRITE_TIMEOUT`."""
        self._host = host
        self._timeout = timeout
        self._blocked: dict[str, threading.Thread] = {}  # by address: a write that has not returned

    def bind(self, binding: Binding) -> None:
        """Bind all functions to the driver. Raises `BindRefused` if one is not bound, and `HostExhausted`."""
        for each in binding.functions:
            with self._translating_errors(each.address):
                self._bind_function(each, binding)
        if binding.iommufd and not bound_nodes(self._host, binding):
            raise BindRefused(
                f"{binding.functions[0].address} has no node for iommufd: this kernel was built without"
                " VFIO_DEVICE_CDEV; leave `iommufd` out"
            )

    def restore(self, binding: Binding) -> None:
        """Restore all functions. Raises `BindRefused` while one is still used, and `HostExhausted`."""
        for each in binding.functions:
            with self._translating_errors(each.address):
                self._restore_function(each, binding.driver)

    def _bind_function(self, recorded: BoundFunction, binding: Binding) -> None:
        address, driver = recorded.address, binding.driver
        current = driver_of(self._host, address)
        if current == driver == recorded.driver:
            return  # it had this driver before
        self._check_exists(address)
        if current not in (None, driver):
            self._check_unused(address, binding)
        if override_of(self._host, address) != driver:
            self._write(address, f"devices/{address}/driver_override", driver)
        if current == driver:
            return
        if current is not None:
            self._write(address, f"drivers/{current}/unbind", address)
        self._write(address, "drivers_probe", address)
        if (current := driver_of(self._host, address)) != driver:
            raise BindRefused(
                f"driver {driver} did not bind to {address}, whose driver is {current or 'none'}; see the kernel's log"
            )

    def _restore_function(self, recorded: BoundFunction, driver: str) -> None:
        host, address = self._host, recorded.address
        if recorded.driver == driver:
            return  # it had this driver before
        if not host.exists(f"{_BUS}/devices/{address}"):
            log.warning("a function of a claim is gone: its driver is not restored", extra={"device": address})
            return
        if override_of(host, address) == driver != recorded.override:
            self._write(address, f"devices/{address}/driver_override", recorded.override or "\n")
        current = driver_of(host, address)
        if current == driver:
            self._write(address, f"drivers/{driver}/unbind", address)
            current = driver_of(host, address)
        if current is not None or not recorded.driver:
            self._check_unblocked(address)
            return
        try:
            self._write(address, f"drivers/{recorded.driver}/bind", address)
        except OSError as error:
            if error.errno in (*_PERMISSION_ERRORS, *_TRANSIENT_ERRORS):
                raise
            text = "the function does not get back its driver %s: %s"
            log.error(text, recorded.driver, error.strerror, extra={"device": address})

    def _check_exists(self, address: str) -> None:
        if not self._host.exists(f"{_BUS}/devices/{address}"):
            raise BindRefused(f"the function {address} is gone; delete the pod")

    def _check_unused(self, address: str, binding: Binding) -> None:
        """Raise `BindRefused` if the node uses a function by now, or another card is there.

        Since the planning the daemon might have crashed, or the card might have been exchanged.
        """
        function = self._host.resolve(f"{_BUS}/devices/{address}") or ""
        planned = next((x.attributes for x in binding.devices if x.kind == "pci" and x.name == address), {})
        if any(
            name in planned and hexadecimal(self._host, f"{function}/{name}", 4) != planned[name] for name in _MODEL_IDS
        ):
            raise BindRefused(f"{address} is now another device than the claim was allocated; delete the pod")
        parts = [x for x in binding.devices if is_on(x, function)]
        if why := in_use_reason(self._host, function, parts):
            raise BindRefused(f"{address} is in use: {why}")

    def _check_unblocked(self, address: str) -> None:
        """Raise `BindRefused` while a write to a function has not returned: its result is unknown."""
        if (blocked := self._blocked.get(address)) is None:
            return
        if blocked.is_alive():
            raise BindRefused(
                f"the kernel is unbinding the driver of {address} and waits for the program that uses it; end that"
                " program"
            )
        del self._blocked[address]

    def _write(self, address: str, file: str, text: str) -> None:
        """Write to a file of the bus, waiting at most `timeout` seconds.

        Raises `BindRefused`, `HostExhausted` and OSError.
        """
        self._check_unblocked(address)
        refusals: list[OSError] = []

        def write() -> None:
            try:
                self._host.write(f"{_BUS}/{file}", text)
            except OSError as error:
                refusals.append(error)

        thread = threading.Thread(target=write, name=f"driver of {address}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the process, its cgroup or the node has reached its limit of threads
            raise HostExhausted(f"the driver of {address} cannot be changed: {error}") from error
        thread.join(self._timeout)
        if thread.is_alive():
            self._blocked[address] = thread
            self._check_unblocked(address)
        if refusals:
            raise refusals[0]

    @contextlib.contextmanager
    def _translating_errors(self, address: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            read_only = "; /sys must be writable" if error.errno in _PERMISSION_ERRORS else ""
            raise BindRefused(f"the driver of {address} cannot be changed: {error.strerror}{read_only}") from error


def bound_nodes(host: Host, binding: Binding) -> tuple[Devnode, ...]:
    """Return the nodes that containers get, as they are now; none while a function is not bound."""
    folders = [f"{_BUS}/devices/{each.address}" for each in binding.functions]
    if any(driver_of(host, each.address) != binding.driver for each in binding.functions):
        return ()
    if binding.iommufd:
        cdevs = [f"{folder}/vfio-dev/{name}" for folder in folders for name in host.list(f"{folder}/vfio-dev")]
        found = tuple(node for cdev in cdevs for node in devnodes(host, host.resolve(cdev) or cdev))
        return found + shared_node(host, "/dev/iommu") if len(found) == len(folders) else ()
    found = shared_node(host, f"/dev/vfio/{host.link(f'{folders[0]}/iommu_group')}")
    return found + shared_node(host, "/dev/vfio/vfio") if found else ()
