"""The process that asks NVML: `python -m nvml.child SECONDS [LIBRARY]` writes report.py's lines while they are read.

A report at once and every so many seconds, in between the events of the driver. LIBRARY is the path of
libnvidia-ml.so.1 where the loader does not find it. Ends with a problem where the library says that it cannot go on:
whoever started it starts it again.

Source: NVML API reference (device queries, event handling, multi-instance GPU management).
"""

import ctypes
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from nvml.report import Gpu, Instance, Line, Problem, Report, Xid, encode

T = TypeVar("T")
_EVERYTHING = 0xFFFFFFFF  # the instance of an event that is of the whole GPU


def main() -> None:
    """Ask until stdout is closed or the library fails."""
    seconds, library = float(sys.argv[1]), (sys.argv[2:] or [""])[0]
    try:
        import pynvml
    except ImportError as error:
        _write(Problem(f"the package nvidia-ml-py cannot be imported ({error}): pip install 'nodeplug[nvidia]'"))
        return
    try:
        if library:
            ctypes.CDLL(library, ctypes.RTLD_GLOBAL)  # known by its soname from now on
        pynvml.nvmlInit()
        _Library(pynvml).follow(seconds)
    except OSError as error:
        _write(Problem(f"{library} cannot be loaded: {error}"))
    except pynvml.NVMLError as error:
        where = library or "libnvidia-ml.so.1"
        _write(Problem(f"NVIDIA's library {where} says: {error}"))
    except BrokenPipeError:
        pass


class _Library:
    """The library, which is initialised; `nvml` is the module pynvml."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._events = nvml.nvmlEventSetCreate()
        self._registered: set[str] = set()  # addresses

    def follow(self, seconds: float) -> None:
        """Write a report and wait for events, again and again."""
        while True:
            handles = list(self._handles())
            _write(Report(tuple(self._gpu(address, handle) for address, handle in handles)))
            for address, handle in handles:
                self._register(address, handle)
            until = time.monotonic() + seconds
            while (left := until - time.monotonic()) > 0:
                if (event := self._event(left)) is not None:
                    _write(event)

    def _handles(self) -> Iterator[tuple[str, Any]]:
        nvml = self._nvml
        for index in range(nvml.nvmlDeviceGetCount()):
            if (handle := self._maybe(nvml.nvmlDeviceGetHandleByIndex, index)) is not None:
                yield _address(nvml.nvmlDeviceGetPciInfo(handle).busId), handle

    def _gpu(self, address: str, handle: Any) -> Gpu:
        nvml = self._nvml
        faults: list[str] = []
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(handle).total
        except nvml.NVMLError_GpuIsLost:
            return Gpu(address, faults=("it has fallen off the bus, or cannot be reached",))
        except nvml.NVMLError:
            memory = 0
        if self._maybe(nvml.nvmlDeviceGetRetiredPagesPendingStatus, handle):
            faults.append("memory pages are to be retired: reset the GPU")
        if rows := self._maybe(nvml.nvmlDeviceGetRemappedRows, handle):
            _, _, is_pending, has_failed = rows
            if has_failed:
                faults.append("rows of its memory could not be remapped: replace the GPU")
            elif is_pending:
                faults.append("rows of its memory are to be remapped: reset the GPU")
        errors = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        return Gpu(
            address,
            _text(self._maybe(nvml.nvmlDeviceGetUUID, handle)),
            int(memory),
            self._maybe(nvml.nvmlDeviceGetTotalEccErrors, handle, *errors),
            tuple(faults),
            tuple(self._instances(handle)),
        )

    def _instances(self, gpu: Any) -> Iterator[Instance]:
        nvml = self._nvml
        mode = self._maybe(nvml.nvmlDeviceGetMigMode, gpu)
        if mode is None or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return
        for index in range(self._maybe(nvml.nvmlDeviceGetMaxMigDeviceCount, gpu) or 0):
            handle = self._maybe(nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, index)
            if handle is None:
                continue  # there could be one
            number = self._maybe(nvml.nvmlDeviceGetGpuInstanceId, handle)
            compute = self._maybe(nvml.nvmlDeviceGetComputeInstanceId, handle)
            if number is None or compute is None:
                continue
            memory = self._maybe(nvml.nvmlDeviceGetMemoryInfo, handle)
            instance = self._maybe(nvml.nvmlDeviceGetGpuInstanceById, gpu, number)
            info = self._maybe(nvml.nvmlGpuInstanceGetInfo, instance) if instance is not None else None
            yield Instance(
                number,
                compute,
                _text(self._maybe(nvml.nvmlDeviceGetUUID, handle)),
                _text(self._maybe(nvml.nvmlDeviceGetName, handle)).partition(" MIG ")[2],  # "NVIDIA A100 MIG 1g.5gb"
                int(memory.total) if memory is not None else 0,
                (int(info.placement.start), int(info.placement.size)) if info is not None else None,
            )

    def _register(self, address: str, handle: Any) -> None:
        """Have the driver tell of the GPU's errors, where it can."""
        nvml = self._nvml
        supported = self._maybe(nvml.nvmlDeviceGetSupportedEventTypes, handle) or 0
        if address not in self._registered and supported & nvml.nvmlEventTypeXidCriticalError:
            self._maybe(nvml.nvmlDeviceRegisterEvents, handle, nvml.nvmlEventTypeXidCriticalError, self._events)
            self._registered.add(address)

    def _event(self, seconds: float) -> Xid | None:
        """Wait for the next error, for so long."""
        nvml = self._nvml
        if not self._registered:
            time.sleep(seconds)
            return None
        try:
            event = nvml.nvmlEventSetWait_v2(self._events, max(1, int(seconds * 1000)))
        except nvml.NVMLError_Timeout:
            return None
        if event.eventType != nvml.nvmlEventTypeXidCriticalError:
            return None
        address = _address(nvml.nvmlDeviceGetPciInfo(event.device).busId)
        instance, compute = (None if x == _EVERYTHING else x for x in (event.gpuInstanceId, event.computeInstanceId))
        return Xid(address, int(event.eventData), instance, compute)

    def _maybe(self, ask: Callable[..., T], *arguments: Any) -> T | None:
        """Return what the library says; None where this GPU or driver does not say it."""
        try:
            return ask(*arguments)
        except self._nvml.NVMLError:
            return None


def _address(bus_id: str | bytes) -> str:
    """Write an address as sysfs does: 0000:81:00.0 of 00000000:81:00.0."""
    domain, _, rest = _text(bus_id).lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _text(value: str | bytes | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""


def _write(line: Line) -> None:
    sys.stdout.buffer.write(encode(line) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
