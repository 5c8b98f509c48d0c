"""NVML: what NVIDIA's management library says of GPUs, from a process of its own: a driver that hangs hangs nothing.

Needs the package nvidia-ml-py (extra `nvidia`) and the driver's libnvidia-ml.so.1, both in that process alone.
"""

from nvml.monitor import NvmlMonitor, Timings, look_once

__all__ = ["NvmlMonitor", "Timings", "look_once"]
