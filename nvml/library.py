"""libnvidia-ml.so.1 for child.py, through ctypes, so that nothing must be installed besides the driver.

Functions have the library's own names, and return results through their last arguments. Structures are those of the
versions in the names, which never change: a driver with another structure has another name for it.

Source: NVML API reference (device queries, event handling, NvLink methods, multi-instance GPU management).
"""

import ctypes
from ctypes import Structure, c_char, c_char_p, c_uint, c_ulonglong, c_void_p
from typing import Any

from nvml.report import SONAME

TIMEOUT, FUNCTION_NOT_FOUND, GPU_IS_LOST, RESET_REQUIRED = 10, 13, 15, 16
_TEXT = 96  # bytes: the longest of names and UUIDs


class NvmlError(Exception):
    """An error of the library, or of this GPU."""


class GpuIsLostError(NvmlError):
    """The GPU has fallen off the bus, or cannot be reached."""


class GpuNeedsResetError(NvmlError):
    """The GPU does not answer before it is reset."""


class NoEventError(NvmlError):
    """No event came during the wait."""


class Pci(Structure):
    """nvmlPciInfo_t of the functions `_v3` and, for NvLink, `_v2`."""

    _fields_ = (
        ("bus_id_of_before", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("ids", c_uint),
        ("subsystem_ids", c_uint),
        ("bus_id", c_char * 32),
    )


class Memory(Structure):
    """nvmlMemory_t, in bytes."""

    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class Event(Structure):
    """nvmlEventData_t; the instances are 0xFFFFFFFF if the event concerns the whole GPU."""

    _fields_ = (
        ("device", c_void_p),
        ("type", c_ulonglong),
        ("data", c_ulonglong),
        ("gpu_instance", c_uint),
        ("compute_instance", c_uint),
    )


class GpuInstance(Structure):
    """nvmlGpuInstanceInfo_t, with its placement inlined."""

    _fields_ = (("device", c_void_p), ("id", c_uint), ("profile", c_uint), ("start", c_uint), ("size", c_uint))


class Library:
    """The library, initialised."""

    def __init__(self, path: str) -> None:
        """Load it from `path`; empty: the loader finds it. Raises OSError; NvmlError if there is no driver."""
        self._library = ctypes.CDLL(path or SONAME)
        self.call("nvmlInitWithFlags", c_uint(0))

    def ask(self, function: str, arguments: tuple[Any, ...], *kinds: Any) -> list[Any]:
        """Return the results of a function, one value of each of the ctypes `kinds`. Raises NvmlError."""
        results = [kind() for kind in kinds]
        self.call(function, *arguments, *map(ctypes.byref, results))
        return results

    def text(self, function: str, handle: Any) -> str:
        """Return the text that a function writes for a device. Raises NvmlError."""
        buffer = ctypes.create_string_buffer(_TEXT)
        self.call(function, handle, buffer, c_uint(_TEXT))
        return buffer.value.decode(errors="replace")

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function. Raises NvmlError, also if this driver does not have it."""
        entry = getattr(self._library, function, None)
        code = FUNCTION_NOT_FOUND if entry is None else entry(*arguments)
        if code != 0:
            kinds = {TIMEOUT: NoEventError, GPU_IS_LOST: GpuIsLostError, RESET_REQUIRED: GpuNeedsResetError}
            raise kinds.get(code, NvmlError)(self._error_text(code))

    def _error_text(self, code: int) -> str:
        describe = getattr(self._library, "nvmlErrorString", None)
        if describe is None:
            return f"error {code}"
        describe.restype = c_char_p
        return (describe(code) or b"").decode(errors="replace")
