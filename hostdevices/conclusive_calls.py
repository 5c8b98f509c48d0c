"""Reads whose empty result decides something: it must not be empty because no file descriptor was left."""

import errno
from collections.abc import Callable
from typing import TypeVar

from hostdevices.errors import HostExhausted
from hostdevices.tree import exhausted

T = TypeVar("T")
_NOT_NOW = (errno.EAGAIN, errno.EINTR, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ETIMEDOUT)


def call_conclusively(lookup: Callable[[], T]) -> T:
    """Return what `lookup` returns, which reads a host in this thread.

    Raises `HostExhausted` if something was not found because no file descriptor was left, or if the kernel or a program
    could not answer at that moment; OSError for any other.
    """
    try:
        answer, error = exhausted(lookup)
    except OSError as refusal:
        if refusal.errno not in _NOT_NOW:
            raise
        raise HostExhausted(f"the host does not answer now: {refusal}") from refusal
    if error is not None:
        raise HostExhausted(f"the host cannot be read: {error.strerror} ({error.filename})")
    return answer
