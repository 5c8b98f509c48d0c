"""A GPU driver's libraries and tools, which containers need beside its device nodes.

A driver's libraries belong to its kernel module of the same version, so they cannot come with an image. Programs that
share a GPU through NVIDIA's Multi-Process Service also need its control daemon.
"""

from userspace.gpus import NvidiaUserspace
from userspace.mps import with_mps

__all__ = ["NvidiaUserspace", "with_mps"]
