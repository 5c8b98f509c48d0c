"""NVML: what NVIDIA's management library says of GPUs, from a process of its own: a driver that hangs hangs nothing.

Needs the driver's libnvidia-ml.so.1, in that process alone, and nothing else.
"""

from nvml.monitor import NvmlMonitor, Timings, read_once

__all__ = ["NvmlMonitor", "Timings", "read_once"]
