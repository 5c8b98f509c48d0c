"""A process that gets no thread any more."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_TOO_LARGE = 1 << 46  # bytes; more than the kernel maps for a process, be it root's


@contextmanager
def no_more_threads() -> Iterator[None]:
    """Have the kernel refuse this process any other thread, as where a node or a cgroup has its most."""
    before = threading.stack_size(_TOO_LARGE)
    try:
        yield
    finally:
        threading.stack_size(before)
