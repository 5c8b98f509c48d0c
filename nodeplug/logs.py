"""Logs: text on a terminal, one JSON object a line elsewhere.

Every record can have `resource`, `device`, `claim` and `holder` (logging's `extra`). Much of it comes from outside (see
`hostdevices/printable.py`). A record without a traceback is always one line of less than 7,000 characters, and a
traceback has at most 100 additional lines.
"""

import contextlib
import io
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Literal, TextIO

import msgspec
from msgspec import Struct

from hostdevices.printable import printable
from nodeplug.log_handler import NonBlockingHandler

_FIELDS = ("resource", "device", "claim", "holder")
_MAX_MESSAGE_LENGTH, _MAX_FIELD_LENGTH = 4_000, 500  # characters
_TRACEBACK_LINES = 100
_MAX_RECENT = 20  # the most warnings and errors that are kept
LogFormat = Literal["auto", "text", "json"]
LASTING: Final[Mapping[str, object]] = {"is_current": lambda: True}
"""`extra` of a warning about a state that lasts as long as the daemon, with this configuration (`forget_states`)."""


def setup(level: str = "info", form: LogFormat = "auto", stream: TextIO | None = None) -> None:
    """Send the logs of the whole process to `stream`, replacing the earlier set-up.

    Default: standard error, without waiting for its reader; no output if that is closed.
    """
    root = logging.getLogger()
    handlers: list[logging.Handler] = [_recent_handler() or _Recent(logging.WARNING)]
    if (handler := _handler(stream)) is not None:
        text = form == "text" or (form == "auto" and (stream or sys.stderr).isatty())
        handler.setFormatter(_Text() if text else _Json())
        handlers.append(handler)
    root.handlers[:] = handlers
    root.setLevel(level.upper())
    for library in ("grpc", "urllib3", "watchdog"):  # their debug lines concern the libraries only
        logging.getLogger(library).setLevel(logging.WARNING)


def _handler(stream: TextIO | None) -> logging.Handler | None:
    if stream is not None:
        return logging.StreamHandler(stream)
    if sys.stderr is None:  # the process was started with it closed
        return None
    try:
        descriptor = sys.stderr.fileno()
    except io.UnsupportedOperation:  # other code in this process reads it
        return logging.StreamHandler(sys.stderr)
    # an existing one can have begun a line, and has the count of lost ones
    before = (
        x for x in logging.getLogger().handlers if isinstance(x, NonBlockingHandler) and x.descriptor == descriptor
    )
    return next(before, None) or NonBlockingHandler(descriptor)


class LogEntry(Struct, frozen=True, omit_defaults=True):
    """An earlier log event: its time, in seconds since the epoch, and its text."""

    time: float
    level: str
    message: str
    fields: dict[str, str] = {}


def recent() -> tuple[LogEntry, ...]:
    """Return the latest warnings and errors, the oldest first; none if `setup` was not called.

    Those whose cause is gone are left out, see `_Recent`.
    """
    handler = _recent_handler()
    return handler.recent() if handler is not None else ()


def forget_states() -> None:
    """Drop the warnings about states, see `_Recent`: the daemon whose parts had them has ended."""
    if (handler := _recent_handler()) is not None:
        handler.forget_states()


class _Recent(logging.Handler):
    """Keeps the latest warnings and errors, for the daemon's status.

    A record about a state that can end, such as a missing kubelet, has an attribute `is_current` (logging's `extra`): a
    function that returns whether the state lasts. The record is dropped once it does not.
    """

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._events: deque[tuple[LogEntry, Callable[[], bool]]] = deque(maxlen=_MAX_RECENT)

    def emit(self, record: logging.LogRecord) -> None:
        text = printable(record.getMessage(), _MAX_FIELD_LENGTH)
        event = LogEntry(record.created, record.levelname.lower(), text, dict(_extra(record)))
        is_current: Callable[[], bool] = getattr(record, "is_current", _always)
        self._events.append((event, is_current))

    def recent(self) -> tuple[LogEntry, ...]:
        """Return the events whose state lasts, and forget the others."""
        with self.lock or contextlib.nullcontext():
            for entry in tuple(self._events):
                if not entry[1]():
                    self._events.remove(entry)
            return tuple(event for event, _ in self._events)

    def forget_states(self) -> None:
        """Forget the events about states, and with them the functions, which keep parts of the daemon alive."""
        with self.lock or contextlib.nullcontext():
            for entry in tuple(self._events):
                if entry[1] is not _always:
                    self._events.remove(entry)


def _always() -> bool:
    return True


def _recent_handler() -> _Recent | None:
    return next((x for x in logging.getLogger().handlers if isinstance(x, _Recent)), None)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        fields = "".join(f" {key}={value}" for key, value in _extra(record))
        line = f"{clock}.{int(record.msecs):03} {record.levelname.lower():7} {_message(record)}{fields}"
        return f"{line}\n{_traceback(self, record)}" if record.exc_info else line


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry = {
            "time": f"{clock}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "message": _message(record),
            **dict(_extra(record)),
        }
        if record.exc_info:
            entry["traceback"] = _traceback(self, record)
        return msgspec.json.encode(entry).decode()


def _message(record: logging.LogRecord) -> str:
    return printable(record.getMessage(), _MAX_MESSAGE_LENGTH)


def _extra(record: logging.LogRecord) -> list[tuple[str, str]]:
    return [
        (field, printable(str(value), _MAX_FIELD_LENGTH)) for field in _FIELDS if (value := getattr(record, field, ""))
    ]


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """Return both ends of the traceback: where it began, and the error."""
    assert record.exc_info
    lines = formatter.formatException(record.exc_info).split("\n")
    del lines[_TRACEBACK_LINES // 2 : -_TRACEBACK_LINES // 2]
    return "\n".join(printable(line, _MAX_FIELD_LENGTH) for line in lines)
