"""What programs need of a GPU's driver beside its nodes: its libraries and tools, for containers.

A driver's libraries belong to its kernel module of the same version, so they cannot come with an image.
"""

from userspace.gpus import NvidiaUserspace

__all__ = ["NvidiaUserspace"]
