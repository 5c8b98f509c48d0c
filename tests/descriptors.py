"""A process that has no file descriptor left."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    """Have the kernel refuse this process any other file descriptor, an inotify instance included."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open("/", os.O_PATH)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
