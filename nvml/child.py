"""The process that asks NVML: `python -m nvml.child SECONDS LIBRARY ADDRESS...` writes report.py's lines while they are
read.

A report at once and every so many seconds, in between the events of the driver. LIBRARY is the path of
libnvidia-ml.so.1, empty where the loader finds it. GPUs are asked for by their PCI addresses: of one that is lost the
library has no number any more. Ends with a problem where the library says that it cannot go on: whoever started it
starts it again.

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

_EVERYTHING = 0xFFFFFFFF  # the instance of an event that is of the whole GPU
XID = 8  # nvmlEventTypeXidCriticalError
UNCORRECTED_SINCE_LOADED = c_int(1), c_int(0)  # kind of memory errors, and which counter of them
MOST_LINKS = 36  # of a GPU that there is
TO_SWITCH = 2  # what is at the other end of a link
_LOST = (GpuIsLostError, GpuNeedsResetError)
_FAULTS: dict[type[NvmlError], str] = {
    GpuIsLostError: "it has fallen off the bus, or cannot be reached",
    GpuNeedsResetError: "it has to be reset before it can be used again",
}
_PAUSE = 1.0  # seconds; while a GPU is lost the library may wait for no event


def main() -> None:
    """Ask until stdout is closed or the library fails."""
    seconds, path, *addresses = sys.argv[1:]
    try:
        _Gpus(Library(path), addresses).follow(float(seconds))
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            _write(Problem(f"{path or SONAME} cannot be loaded: {error}"))
    except NvmlError as error:
        _write(Problem(f"NVIDIA's library {path or SONAME} says: {error}"))


class _Gpus:
    """What the library says of GPUs."""

    def __init__(self, library: Library, addresses: Sequence[str]) -> None:
        self._library = library
        self._addresses = addresses
        (self._events,) = library.ask("nvmlEventSetCreate", (), c_void_p)
        self._registered: dict[int, str] = {}  # addresses, by handles

    def follow(self, seconds: float) -> None:
        """Write a report and wait for events, again and again."""
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
        """Yield what is said of each GPU that the library has, or has lost; note the `handles` of those that it has."""
        for address in self._addresses:
            try:
                (handle,) = self._library.ask("nvmlDeviceGetHandleByPciBusId_v2", (_as_nvml(address),), c_void_p)
                gpu = self._gpu(address, handle)
                handles[address] = handle
            except _LOST as error:
                gpu = Gpu(address, faults=(_FAULTS[type(error)],), is_lost=True)
            except NvmlError:
                continue  # it was never the library's, or is not for us to see
            yield gpu

    def _gpu(self, address: str, handle: Any) -> Gpu:
        """Return what is said of a GPU. Raises `GpuIsLostError` and `GpuNeedsResetError`."""
        faults: list[str] = []
        memory = self._maybe("nvmlDeviceGetMemoryInfo", (handle,), Memory)
        pending = self._maybe("nvmlDeviceGetRetiredPagesPendingStatus", (handle,), c_int)
        if pending is not None and pending.value:
            faults.append("memory pages are to be retired: reset the GPU")
        if rows := self._all("nvmlDeviceGetRemappedRows", (handle,), *[c_uint] * 4):
            _, _, is_pending, has_failed = (x.value for x in rows)
            if has_failed:
                faults.append("rows of its memory could not be remapped: replace the GPU")
            elif is_pending:
                faults.append("rows of its memory are to be remapped: reset the GPU")
        mode = self._all("nvmlDeviceGetMigMode", (handle,), c_uint, c_uint)
        is_mig = bool(mode and mode[0].value)
        errors = self._maybe("nvmlDeviceGetTotalEccErrors", (handle, *UNCORRECTED_SINCE_LOADED), c_ulonglong)
        return Gpu(
            address,
            self._text("nvmlDeviceGetUUID", handle),
            int(memory.total) if memory is not None else 0,  # it may have none of its own
            errors.value if errors is not None else None,
            tuple(faults),
            tuple(self._instances(handle)) if is_mig else (),
            Counter(self._ends_of_links(handle)),
            is_mig=is_mig,
        )

    def _ends_of_links(self, gpu: Any) -> Iterator[str]:
        """Yield of each active link of NVLink where it leads: another GPU's address, or a switch."""
        for link in map(c_uint, range(MOST_LINKS)):
            active = self._maybe("nvmlDeviceGetNvLinkState", (gpu, link), c_uint)
            if active is None or not active.value:
                continue
            kind = self._maybe("nvmlDeviceGetNvLinkRemoteDeviceType", (gpu, link), c_int)
            if kind is not None and kind.value == TO_SWITCH:
                yield SWITCH
                continue
            other = self._maybe("nvmlDeviceGetNvLinkRemotePciInfo_v2", (gpu, link), Pci)
            if other is not None and other.bus_id:
                yield _written(other)

    def _instances(self, gpu: Any) -> Iterator[Instance]:
        most = self._maybe("nvmlDeviceGetMaxMigDeviceCount", (gpu,), c_uint)
        for index in range(most.value if most is not None else 0):
            handle = self._maybe("nvmlDeviceGetMigDeviceHandleByIndex", (gpu, c_uint(index)), c_void_p)
            if handle is None:
                continue  # there could be one
            number = self._maybe("nvmlDeviceGetGpuInstanceId", (handle,), c_uint)
            compute = self._maybe("nvmlDeviceGetComputeInstanceId", (handle,), c_uint)
            if number is None or compute is None:
                continue
            memory = self._maybe("nvmlDeviceGetMemoryInfo", (handle,), Memory)
            instance = self._maybe("nvmlDeviceGetGpuInstanceById", (gpu, number), c_void_p)
            info = self._maybe("nvmlGpuInstanceGetInfo", (instance,), GpuInstance) if instance is not None else None
            yield Instance(
                number.value,
                compute.value,
                self._text("nvmlDeviceGetUUID", handle),
                self._text("nvmlDeviceGetName", handle).partition(" MIG ")[2],  # "NVIDIA A100 MIG 1g.5gb"
                int(memory.total) if memory is not None else 0,
                (int(info.start), int(info.size)) if info is not None else None,
            )

    def _register(self, address: str, handle: Any) -> None:
        """Have the driver tell of the GPU's errors, where it can."""
        if address in self._registered.values():
            return
        try:
            (supported,) = self._library.ask("nvmlDeviceGetSupportedEventTypes", (handle,), c_ulonglong)
            if not supported.value & XID:
                return
            self._library.call("nvmlDeviceRegisterEvents", handle, c_ulonglong(XID), self._events)
        except NvmlError:
            return  # it is tried again after the next report
        self._registered[handle.value] = address

    def _event(self, seconds: float) -> Xid | None:
        """Wait for the next error, for so long."""
        if not self._registered:
            time.sleep(seconds)
            return None
        event = Event()
        milliseconds = c_uint(max(1, int(seconds * 1000)))
        try:
            self._library.call("nvmlEventSetWait_v2", self._events, byref(event), milliseconds)
        except NoEventError:
            return None
        except _LOST:  # which one it is the next report says
            time.sleep(min(seconds, _PAUSE))
            return None
        if event.type != XID or not (address := self._registered.get(event.device) or self._address(event)):
            return None
        instance, compute = (None if x == _EVERYTHING else x for x in (event.gpu_instance, event.compute_instance))
        return Xid(address, int(event.data), instance, compute)

    def _address(self, event: Event) -> str:
        """Return of which GPU an event is that came with another handle than ours; empty where nobody knows."""
        try:
            return _written(self._library.ask("nvmlDeviceGetPciInfo_v3", (c_void_p(event.device),), Pci)[0])
        except NvmlError:
            return ""

    def _text(self, function: str, handle: Any) -> str:
        """Return a text; empty where this GPU or driver does not say it. Raises as `_all`."""
        try:
            return self._library.text(function, handle)
        except _LOST:
            raise
        except NvmlError:
            return ""

    def _maybe(self, function: str, arguments: tuple[Any, ...], kind: Any) -> Any | None:
        """Return the one answer of the library; None where this GPU or driver does not say it. Raises as `_all`."""
        answers = self._all(function, arguments, kind)
        return answers[0] if answers else None

    def _all(self, function: str, arguments: tuple[Any, ...], *kinds: Any) -> list[Any]:
        """Return the library's answers; none where this GPU or driver does not say them.

        Raises `GpuIsLostError` and `GpuNeedsResetError`: what a GPU lacks because it is lost, it has not lost.
        """
        try:
            return self._library.ask(function, arguments, *kinds)
        except _LOST:
            raise
        except NvmlError:
            return []


def _written(pci: Pci) -> str:
    """Write an address as sysfs does: 0000:81:00.0 of 00000000:81:00.0."""
    domain, _, rest = pci.bus_id.decode(errors="replace").lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _as_nvml(address: str) -> bytes:
    """Write an address as the library does: 00000000:81:00.0 of 0000:81:00.0."""
    domain, _, rest = address.partition(":")
    return f"{domain:0>8}:{rest}".upper().encode()


def _write(line: Line) -> None:
    sys.stdout.buffer.write(encode(line) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
