"""Logs: text on a terminal, one JSON object a line elsewhere.

Every event may carry `resource`, `device`, `claim` and `holder` (logging's `extra`). Device names and serial numbers
are what somebody's hardware says: whatever a terminal or a log reader could take for its own is escaped.
"""

import logging
import sys
import time
from typing import Literal, TextIO

import msgspec

_FIELDS = ("resource", "device", "claim", "holder")
LogFormat = Literal["auto", "text", "json"]


def setup(level: str = "info", form: LogFormat = "auto", stream: TextIO | None = None) -> None:
    """Send the logs of the whole process to `stream` (standard error by default), replacing what was set up before."""
    stream = stream or sys.stderr
    text = form == "text" or (form == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Text() if text else _Json())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for library in ("grpc", "watchdog"):  # their debug lines are about themselves
        logging.getLogger(library).setLevel(logging.WARNING)


def escaped(text: str) -> str:
    """Replace characters that are not printable by their escapes (`\\x1b`, `\\n`)."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        fields = "".join(f" {key}={escaped(str(value))}" for key, value in _extra(record))
        line = f"{clock}.{int(record.msecs):03} {record.levelname.lower():7} {escaped(record.getMessage())}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry = {
            "time": f"{clock}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "message": escaped(record.getMessage()),
            **{key: escaped(str(value)) for key, value in _extra(record)},
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry).decode()


def _extra(record: logging.LogRecord) -> list[tuple[str, object]]:
    return [(field, value) for field in _FIELDS if (value := getattr(record, field, ""))]
