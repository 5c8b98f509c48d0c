"""A GPU driver's libraries and tools, which containers need besides its device nodes.

A driver's libraries must have the version of its kernel module, so an image cannot contain them. Programs that share a
GPU through NVIDIA's Multi-Process Service also need its control daemon.
"""

from userspace.gpus import NvidiaUserspace
from userspace.mps import with_mps

__all__ = ["NvidiaUserspace", "with_mps"]
