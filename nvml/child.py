"""The process that calls NVML: `python -m nvml.child SECONDS LIBRARY ADDRESS...` writes report.py's lines.

It writes a report at once and every SECONDS, and the events of the driver in between. LIBRARY is the path of
libnvidia-ml.so.1; if it is empty, the loader finds it. GPUs are identified by their PCI addresses, because the library
has no number for a lost GPU. The process ends with a problem if the library cannot continue; its parent starts it
again.

Source: NVML API reference (device queries, event handling, NvLink methods, multi-instance GPU management).
"""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from ctypes import byref, c_int, c_uint, c_ulonglong, c_void_p
from typing import Any

from nvml.library import (
    Event,
    GpuInstance,
    GpuIsLostError,
    GpuNeedsResetError,
    Library,
    Memory,
    NoEventError,
    NvmlError,
    Pci,
)
from nvml.report import SONAME, SWITCH, Gpu, Instance, Line, Problem, Report, Xid, encode

_WHOLE_GPU = 0xFFFFFFFF  # the instance of an event that concerns the whole GPU
XID = 8  # nvmlEventTypeXidCriticalError
UNCORRECTED_SINCE_LOADED = c_int(1), c_int(0)  # the kind of memory errors, and their counter
MAX_LINKS = 36  # of any existing GPU
REMOTE_IS_SWITCH = 2  # a type of remote device of a link
_LOST = (GpuIsLostError, GpuNeedsResetError)
_FAULTS: dict[type[NvmlError], str] = {
    GpuIsLostError: "it has fallen off the bus, or cannot be reached",
    GpuNeedsResetError: "it has to be reset before it can be used again",
}
_LOST_GPU_PAUSE = 1.0  # seconds; while a GPU is lost the library might return at once instead of waiting


def main() -> None:
    """Report until stdout is closed or the library fails."""
    seconds, path, *addresses = sys.argv[1:]
    try:
        _Gpus(Library(path), addresses).report_forever(float(seconds))
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            _write(Problem(f"{path or SONAME} cannot be loaded: {error}"))
    except NvmlError as error:
        _write(Problem(f"NVIDIA's library {path or SONAME} says: {error}"))


class _Gpus:
    """The GPUs as the library reports them."""

    def __init__(self, library: Library, addresses: Sequence[str]) -> None:
        self._library = library
        self._addresses = addresses
        (self._events,) = library.ask("nvmlEventSetCreate", (), c_void_p)
        self._registered: dict[int, str] = {}  # addresses, by handle

    def report_forever(self, seconds: float) -> None:
        """Write reports, and events between them, for ever."""
        while True:
            handles: dict[str, Any] = {}
            _write(Report(tuple(self._gpus(handles))))
            for address, handle in handles.items():
                self._register(address, handle)
            until = time.monotonic() + seconds
            while (left := until - time.monotonic()) > 0:
                if (event := self._event(left)) is not None:
                    _write(event)

    def _gpus(self, handles: dict[str, Any]) -> Iterator[Gpu]:
        """Yield each GPU that the library has or has lost; store the `handles` of those that it has."""
        for address in self._addresses:
            try:
                (handle,) = self._library.ask("nvmlDeviceGetHandleByPciBusId_v2", (_nvml_address(address),), c_void_p)
                gpu = self._gpu(address, handle)
                handles[address] = handle
            except _LOST as error:
                gpu = Gpu(address, faults=(_FAULTS[type(error)],), is_lost=True)
            except NvmlError:
                continue  # the library never had it, or access is denied
            yield gpu

    def _gpu(self, address: str, handle: Any) -> Gpu:
        """Return the data of a GPU. Raises `GpuIsLostError` and `GpuNeedsResetError`."""
        faults: list[str] = []
        memory = self._ask_one("nvmlDeviceGetMemoryInfo", (handle,), Memory)
        pending = self._ask_one("nvmlDeviceGetRetiredPagesPendingStatus", (handle,), c_int)
        if pending is not None and pending.value:
            faults.append("memory pages are to be retired: reset the GPU")
        if rows := self._ask("nvmlDeviceGetRemappedRows", (handle,), *[c_uint] * 4):
            _, _, is_pending, has_failed = (x.value for x in rows)
            if has_failed:
                faults.append("rows of its memory could not be remapped: replace the GPU")
            elif is_pending:
                faults.append("rows of its memory are to be remapped: reset the GPU")
        mode = self._ask("nvmlDeviceGetMigMode", (handle,), c_uint, c_uint)
        is_mig = bool(mode and mode[0].value)
        errors = self._ask_one("nvmlDeviceGetTotalEccErrors", (handle, *UNCORRECTED_SINCE_LOADED), c_ulonglong)
        return Gpu(
            address,
            self._text("nvmlDeviceGetUUID", handle),
            int(memory.total) if memory is not None else 0,  # it may have none of its own
            errors.value if errors is not None else None,
            tuple(faults),
            tuple(self._instances(handle)) if is_mig else (),
            Counter(self._link_ends(handle)),
            is_mig=is_mig,
        )

    def _link_ends(self, gpu: Any) -> Iterator[str]:
        """Yield the other end of each active NVLink link: another GPU's address, or a switch."""
        for link in map(c_uint, range(MAX_LINKS)):
            active = self._ask_one("nvmlDeviceGetNvLinkState", (gpu, link), c_uint)
            if active is None or not active.value:
                continue
            kind = self._ask_one("nvmlDeviceGetNvLinkRemoteDeviceType", (gpu, link), c_int)
            if kind is not None and kind.value == REMOTE_IS_SWITCH:
                yield SWITCH
                continue
            other = self._ask_one("nvmlDeviceGetNvLinkRemotePciInfo_v2", (gpu, link), Pci)
            if other is not None and other.bus_id:
                yield _sysfs_address(other)

    def _instances(self, gpu: Any) -> Iterator[Instance]:
        max_count = self._ask_one("nvmlDeviceGetMaxMigDeviceCount", (gpu,), c_uint)
        for index in range(max_count.value if max_count is not None else 0):
            handle = self._ask_one("nvmlDeviceGetMigDeviceHandleByIndex", (gpu, c_uint(index)), c_void_p)
            if handle is None:
                continue  # there is no instance with this index now
            number = self._ask_one("nvmlDeviceGetGpuInstanceId", (handle,), c_uint)
            compute = self._ask_one("nvmlDeviceGetComputeInstanceId", (handle,), c_uint)
            if number is None or compute is None:
                continue
            memory = self._ask_one("nvmlDeviceGetMemoryInfo", (handle,), Memory)
            instance = self._ask_one("nvmlDeviceGetGpuInstanceById", (gpu, number), c_void_p)
            info = self._ask_one("nvmlGpuInstanceGetInfo", (instance,), GpuInstance) if instance is not None else None
            yield Instance(
                number.value,
                compute.value,
                self._text("nvmlDeviceGetUUID", handle),
                self._text("nvmlDeviceGetName", handle).partition(" MIG ")[2],  # "NVIDIA A100 MIG 1g.5gb"
                int(memory.total) if memory is not None else 0,
                (int(info.start), int(info.size)) if info is not None else None,
            )

    def _register(self, address: str, handle: Any) -> None:
        """Subscribe to the GPU's errors, if the driver supports that."""
        if address in self._registered.values():
            return
        try:
            (supported,) = self._library.ask("nvmlDeviceGetSupportedEventTypes", (handle,), c_ulonglong)
            if not supported.value & XID:
                return
            self._library.call("nvmlDeviceRegisterEvents", handle, c_ulonglong(XID), self._events)
        except NvmlError:
            return  # retried after the next report
        self._registered[handle.value] = address

    def _event(self, seconds: float) -> Xid | None:
        """Wait at most so many seconds for the next error."""
        if not self._registered:
            time.sleep(seconds)
            return None
        event = Event()
        milliseconds = c_uint(max(1, int(seconds * 1000)))
        try:
            self._library.call("nvmlEventSetWait_v2", self._events, byref(event), milliseconds)
        except NoEventError:
            return None
        except _LOST:  # the next report shows which GPU it is
            time.sleep(min(seconds, _LOST_GPU_PAUSE))
            return None
        if event.type != XID or not (address := self._registered.get(event.device) or self._address(event)):
            return None
        instance, compute = (None if x == _WHOLE_GPU else x for x in (event.gpu_instance, event.compute_instance))
        return Xid(address, int(event.data), instance, compute)

    def _address(self, event: Event) -> str:
        """Return the GPU of an event that came with an unknown handle; empty if it cannot be determined."""
        try:
            return _sysfs_address(self._library.ask("nvmlDeviceGetPciInfo_v3", (c_void_p(event.device),), Pci)[0])
        except NvmlError:
            return ""

    def _text(self, function: str, handle: Any) -> str:
        """Return a text; empty if this GPU or driver does not provide it. Raises like `_ask`."""
        try:
            return self._library.text(function, handle)
        except _LOST:
            raise
        except NvmlError:
            return ""

    def _ask_one(self, function: str, arguments: tuple[Any, ...], kind: Any) -> Any | None:
        """Return a single result; None if this GPU or driver does not provide it. Raises like `_ask`."""
        answers = self._ask(function, arguments, kind)
        return answers[0] if answers else None

    def _ask(self, function: str, arguments: tuple[Any, ...], *kinds: Any) -> list[Any]:
        """Return the results; empty if this GPU or driver does not provide them.

        Raises `GpuIsLostError` and `GpuNeedsResetError`: a lost GPU still has what it cannot report.
        """
        try:
            return self._library.ask(function, arguments, *kinds)
        except _LOST:
            raise
        except NvmlError:
            return []


def _sysfs_address(pci: Pci) -> str:
    """Return an address in sysfs' form: 0000:81:00.0 for 00000000:81:00.0."""
    domain, _, rest = pci.bus_id.decode(errors="replace").lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _nvml_address(address: str) -> bytes:
    """Return an address in the library's form: 00000000:81:00.0 for 0000:81:00.0."""
    domain, _, rest = address.partition(":")
    return f"{domain:0>8}:{rest}".upper().encode()


def _write(line: Line) -> None:
    sys.stdout.buffer.write(encode(line) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
