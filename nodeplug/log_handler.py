"""The log's output: a pipe or socket whose reader may hang (a runtime, journald), and for which nothing waits.

A write to a full pipe blocks, and the loop logs: Allocate, probes and SIGTERM would wait for the reader of the log. So
only writes that cannot block are made. A line for which there is no space within `WRITE_TIMEOUT` is dropped, and so is
each later one until there is space; then a line contains the number of lost lines. An incomplete line is completed
first.

If another process writes to the same pipe, free space can be used up at any moment. So the kernel is asked to refuse a
blocking write (RWF_NOWAIT, pwritev2(2)), which it does for pipes since Linux 6.4, and for sockets. O_NONBLOCK is not
used, because it would also apply to the other process.
"""

import errno
import logging
import os
import select
import stat
from typing import Final

WRITE_TIMEOUT: Final = 0.1
"""Seconds to wait for a slow reader, once in each hold-up."""
_WRITABLE_BYTES = 4096  # bytes that a pipe or socket takes without blocking when poll() reports it writable
_UNSUPPORTED: Final = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
"""Errors of a kernel that cannot refuse a write to this file."""


class NonBlockingHandler(logging.Handler):
    """Writes lines to a descriptor without waiting for its reader."""

    def __init__(self, descriptor: int) -> None:
        """Write to `descriptor`, whose flags stay unchanged: other processes can write to the same file."""
        super().__init__()
        self.descriptor = descriptor
        self._writable = select.poll()
        self._writable.register(descriptor, select.POLLOUT)
        self._is_blocked = False
        self._uses_nowait = _can_block(descriptor)
        self._rest = b""  # the unwritten rest of a line that was begun
        self._lost = 0  # lines lost since the last one that was written

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, or drop it, also if the descriptor takes nothing (closed, a full disk)."""
        try:
            line = self._line(record)
        except Exception:  # a defect in the logging call, reported in the same way as by every handler
            self.handleError(record)
            return
        if self._lost and self._begin_line(self._loss_line()):
            self._lost = 0
        if self._lost or not self._begin_line(line):
            self._lost += 1

    def _line(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode(errors="backslashreplace")

    def _loss_line(self) -> bytes:
        text = "%d lines of the log were lost here: they could not be written"
        return self._line(logging.LogRecord("nodeplug", logging.WARNING, __file__, 0, text, (self._lost,), None))

    def _begin_line(self, line: bytes) -> bool:
        """Write as much of a line as there is room for; return whether any of it was written."""
        if not self._finish_line():
            return False
        self._rest = line
        self._finish_line()
        is_begun = len(self._rest) < len(line)
        if not is_begun:
            self._rest = b""
        return is_begun

    def _finish_line(self) -> bool:
        """Write the rest of the line that was begun; return whether all of it is written."""
        while self._rest and self._has_room():
            try:
                self._rest = self._rest[self._write(self._rest[:_WRITABLE_BYTES]) :]
            except OSError:  # another process writes there too, or the disk is full; the line is completed later
                return False
        return not self._rest

    def _write(self, piece: bytes) -> int:
        if self._uses_nowait:
            try:
                return os.pwritev(self.descriptor, [piece], -1, os.RWF_NOWAIT)
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
                self._uses_nowait = False
        return os.write(self.descriptor, piece)

    def _has_room(self) -> bool:
        self._is_blocked = not self._writable.poll(0 if self._is_blocked else WRITE_TIMEOUT * 1000)
        return not self._is_blocked


def _can_block(descriptor: int) -> bool:
    """Return whether a write waits for a reader.

    A write to a file waits for the disk, and must not be refused for that.
    """
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:  # closed
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
