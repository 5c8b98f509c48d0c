"""Questions where "nothing is there" decides something: the answer must not be for want of a file descriptor."""

from collections.abc import Callable
from typing import TypeVar

from hostdevices.errors import HostExhausted
from hostdevices.tree import exhausted

T = TypeVar("T")


def certainly(question: Callable[[], T]) -> T:
    """Return what `question` returns, which asks a host in this thread.

    Raises `HostExhausted` where something was not found because no file descriptor was left.
    """
    answer, error = exhausted(question)
    if error is not None:
        raise HostExhausted(f"the host cannot be read: {error.strerror} ({error.filename})")
    return answer
