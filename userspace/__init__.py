"""What programs need of a GPU's driver beside its nodes: its libraries and tools, for containers.

A driver's libraries belong to its kernel module of the same version, so they cannot come with an image. Programs that
share a GPU through NVIDIA's Multi-Process Service need that to be there.
"""

from userspace.gpus import NvidiaUserspace
from userspace.mps import with_mps

__all__ = ["NvidiaUserspace", "with_mps"]
