"""NVML: NVIDIA's management library, in a separate process, so that a hanging driver does not block the daemon.

Needs only the driver's libnvidia-ml.so.1, in that process.
"""

from nvml.monitor import NvmlMonitor, Timings, read_once

__all__ = ["NvmlMonitor", "Timings", "read_once"]
