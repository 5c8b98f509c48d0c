"""Durations and timestamps: their text forms (Go's, RFC 3339) and their parts."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from resourceapi.cel.declarations import Function, Overload, group
from resourceapi.cel.errors import CelEvalError
from resourceapi.cel.values import MAX_INT, MIN_INT, Duration, Timestamp, read_digits
from resourceapi.objects.errors import quoted_text

_NANOS = 10**9
_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": _NANOS,
    "m": 60 * _NANOS,
    "h": 3600 * _NANOS,
}
_TERM = re.compile(r"(\d*)(?:(\.)(\d*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
# RFC 3339 as Go parses it, which also accepts a decimal comma and an hour of one digit.
_TIMESTAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d?):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CYCLE = 146097 * 86400  # seconds: after 400 years the calendar repeats, weekdays included
_FAR = 4 * _CYCLE  # seconds from 1970: years before 370 and after 3570


def parse_duration(text: str) -> int | None:
    """Return the nanoseconds of a duration in Go's notation (`-1h30m`, `1.5s`), or None."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return 0
    total, position = 0, 0
    while position < len(rest):
        match = _TERM.match(rest, position)
        if match is None or not (match[1] or match[3]):
            return None
        unit = _UNITS[match[4]]
        total += read_digits(match[1]) * unit
        fraction = (match[3] or "")[:30]
        total += int(fraction or 0) * unit // 10 ** len(fraction)
        position = match.end()
    total *= sign
    return total if rest and MIN_INT <= total <= MAX_INT else None


def format_duration(value: Duration) -> str:
    """Return the seconds as a double with as many decimals as it needs, followed by `s`."""
    return f"{Decimal(repr(_in_units(value, _NANOS))):f}".removesuffix(".0") + "s"


def _in_units(value: Duration, unit: int) -> float:
    """Return a duration in units of `unit` nanoseconds as a double, computed and rounded like Go."""
    whole, rest = divmod(abs(value.nanos), unit)
    return (whole + rest / unit) * (-1 if value.nanos < 0 else 1)


def parse_timestamp(text: str) -> Timestamp | None:
    """Parse an RFC 3339 timestamp; None if it is invalid."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    offset = 0
    if match[8]:
        if int(match[9]) > 24 or int(match[10]) > 60:
            return None
        offset = (int(match[9]) * 3600 + int(match[10]) * 60) * (-1 if match[8] == "-" else 1)
    try:
        # Year 0 exists in RFC 3339 but not in Python; the calendar of year 400 is the same.
        moment = datetime(year or 400, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    seconds = (moment - _EPOCH) // timedelta(seconds=1) - offset - (0 if year else _CYCLE)
    nanos = int((match[7] or "0")[:9].ljust(9, "0"))
    return Timestamp(seconds * _NANOS + nanos, offset)


class _Moment(NamedTuple):
    """Date and time at an offset. `date` is shifted into the 400 years from 1970, as Python has no year 0 or 10000."""

    year: int
    date: datetime
    nanos: int


def _calendar(value: Timestamp, offset: int) -> _Moment:
    seconds, nanos = divmod(value.nanos, _NANOS)
    cycles, seconds = divmod(seconds + offset, _CYCLE)
    date = _EPOCH + timedelta(seconds=seconds)
    return _Moment(date.year + cycles * 400, date, nanos)


def format_timestamp(value: Timestamp) -> str:
    """Return RFC 3339 text with as many decimals as needed, in the timestamp's own zone."""
    moment = _calendar(value, value.offset)
    text = f"{moment.year:04d}-{moment.date.strftime('%m-%dT%H:%M:%S')}"
    if moment.nanos:
        text += f".{moment.nanos:09d}".rstrip("0")
    if value.offset == 0:
        return text + "Z"
    minutes = abs(value.offset) // 60
    return f"{text}{'-' if value.offset < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"


def _offset(value: Timestamp, zone: str) -> int:
    """Return the offset in seconds east of UTC of a zone name or `[+-]HH:MM` at an instant. Raises CelEvalError."""
    if ":" in zone:
        hours_text, _, minutes_text = zone.partition(":")
        hours, minutes = _atoi(hours_text), _atoi(minutes_text)
        return (hours * 60 - minutes if zone.startswith("-") else hours * 60 + minutes) * 60
    if zone in ("", "UTC", "Local"):
        return 0
    if ".." in zone or zone.startswith(("/", "\\")):
        raise CelEvalError("time: invalid location name")
    try:
        info = ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise CelEvalError(f"unknown time zone {zone}") from None
    seconds = value.nanos // _NANOS
    if abs(seconds) > _FAR:  # beyond Python's years; a zone's rules repeat after each cycle
        seconds = seconds % _CYCLE + (_FAR - _CYCLE if seconds > 0 else -_FAR)
    delta = (_EPOCH + timedelta(seconds=seconds)).astimezone(info).utcoffset()
    return int(delta.total_seconds()) if delta is not None else 0


def _atoi(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII):
        raise CelEvalError(f"strconv.Atoi: parsing {quoted_text(text)}: invalid syntax")
    return int(text)


def _whole(unit: int) -> Callable[[Any], int]:
    return lambda value: int(_in_units(value, unit))


def _milliseconds(value: Duration) -> int:
    millis = abs(value.nanos) // 10**6
    return -millis if value.nanos < 0 else millis


_PARTS: dict[str, tuple[str, Callable[[_Moment], int]]] = {
    "getFullYear": ("year", lambda moment: moment.year),
    "getMonth": ("month", lambda moment: moment.date.month - 1),
    "getDayOfYear": ("day_of_year", lambda moment: moment.date.timetuple().tm_yday - 1),
    "getDayOfMonth": ("day_of_month", lambda moment: moment.date.day - 1),
    "getDate": ("day_of_month_1_based", lambda moment: moment.date.day),
    "getDayOfWeek": ("day_of_week", lambda moment: moment.date.isoweekday() % 7),
    "getHours": ("hours", lambda moment: moment.date.hour),
    "getMinutes": ("minutes", lambda moment: moment.date.minute),
    "getSeconds": ("seconds", lambda moment: moment.date.second),
    "getMilliseconds": ("milliseconds", lambda moment: moment.nanos // 10**6),
}
_DURATION_PARTS = {
    "getHours": ("hours", _whole(3600 * _NANOS)),
    "getMinutes": ("minutes", _whole(60 * _NANOS)),
    "getSeconds": ("seconds", _whole(_NANOS)),
    "getMilliseconds": ("milliseconds", _milliseconds),
}


def _part(read: Callable[[_Moment], int]) -> Callable[..., int]:
    def run(value: Timestamp, zone: str = "UTC") -> int:
        return read(_calendar(value, _offset(value, zone)))

    return run


def functions() -> list[Function]:
    """The getters of timestamps and durations."""
    overloads: list[Overload] = []
    for function, (name, read) in _PARTS.items():
        run = _part(read)
        overloads.append(Overload(f"timestamp_to_{name}", f"timestamp.{function}() -> int", run))
        overloads.append(Overload(f"timestamp_to_{name}_with_tz", f"timestamp.{function}(string) -> int", run))
        if function in _DURATION_PARTS:
            name, read_duration = _DURATION_PARTS[function]
            overloads.append(Overload(f"duration_to_{name}", f"duration.{function}() -> int", read_duration))
    return group(overloads)
