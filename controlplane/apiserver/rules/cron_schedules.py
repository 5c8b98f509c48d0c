"""The schedules and time zones of CronJobs, with the error texts of the reference's parser.

Source: github.com/robfig/cron v3 parser.go, k8s.io/kubernetes pkg/apis/batch/validation (validateTimeZone).
"""

import re
from collections.abc import Mapping
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from resourceapi.cel.library.times import parse_duration
from resourceapi.objects import quoted_text


class _Bounds(NamedTuple):
    least: int
    most: int
    names: Mapping[str, int] = {}


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (
    _Bounds(0, 59),
    _Bounds(0, 23),
    _Bounds(1, 31),
    _Bounds(1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _Bounds(0, 6, {name: number for number, name in enumerate(_DAYS)}),
)
_NAMED = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_EVERY = "@every "
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)", re.ASCII)
_ZONE_PART = re.compile(r"[A-Za-z.\-_0-9+]{1,14}")


def schedule_fault(schedule: str) -> str:
    """Return why a non-empty schedule cannot be read; empty if it can."""
    if schedule.startswith(("TZ=", "CRON_TZ=")):
        zone, blank, schedule = schedule.partition("=")[2].partition(" ")
        if not blank:
            return "invalid schedule format: runtime error: slice bounds out of range [:-1]"
        if not _is_zone(zone):
            return f"provided bad location {zone}: unknown time zone {zone}"
        schedule = schedule.strip()
    if schedule.startswith("@"):
        return _name_fault(schedule)
    fields = schedule.split()
    if len(fields) != len(_FIELDS):
        return f"expected exactly {len(_FIELDS)} fields, found {len(fields)}: [{' '.join(fields)}]"
    try:
        for field, bounds in zip(fields, _FIELDS, strict=True):
            for each in filter(None, field.split(",")):
                _read_range(each, bounds)
    except ValueError as error:
        return str(error)
    return ""


def zone_fault(zone: str) -> list[str]:
    """Return the faults in the name of a time zone."""
    if not zone:
        return ["timeZone must be nil or non-empty string"]
    unknown = f"unknown time zone {zone}"
    if any(part in (".", "..") or part[:1] == "-" or not _ZONE_PART.fullmatch(part) for part in zone.split("/")):
        return [unknown]
    if zone.lower() == "local":
        found = ["timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"]
        return found if zone == "Local" else [*found, unknown]
    return [] if _is_zone(zone) else [unknown]


_MAX_STEPS = 2  # slashes in the name of a zone, such as America/Argentina/Salta


def _is_zone(zone: str) -> bool:
    if zone in ("", "UTC", "Local"):
        return True
    if zone.count("/") > _MAX_STEPS:  # ZoneInfo would import each part as a package
        return False
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _name_fault(schedule: str) -> str:
    if schedule in _NAMED:
        return ""
    if not schedule.startswith(_EVERY):
        return f"unrecognized descriptor: {schedule}"
    duration = schedule.removeprefix(_EVERY)
    if parse_duration(duration) is not None:
        return ""
    what = "missing unit in" if _NUMBER.fullmatch(duration) else "invalid"
    return f"failed to parse duration {schedule}: time: {what} duration {quoted_text(duration)}"


def _read_range(text: str, bounds: _Bounds) -> None:
    """Check a part of a field, such as `1`, `1-5`, `*/2`. Raises ValueError."""
    span, *steps = text.split("/")
    first, *rest = span.split("-")
    if first in ("*", "?"):
        start, end = bounds.least, bounds.most
    else:
        start = _read(first, bounds)
        if len(rest) > 1:
            raise ValueError(f"too many hyphens: {text}")
        end = _read(rest[0], bounds) if rest else start
    step = 1
    if len(steps) > 1:
        raise ValueError(f"too many slashes: {text}")
    if steps:
        step = _read(steps[0], _Bounds(0, 0))
        end = end if rest else bounds.most
    if start < bounds.least:
        raise ValueError(f"beginning of range ({start}) below minimum ({bounds.least}): {text}")
    if end > bounds.most:
        raise ValueError(f"end of range ({end}) above maximum ({bounds.most}): {text}")
    if start > end:
        raise ValueError(f"beginning of range ({start}) beyond end of range ({end}): {text}")
    if step == 0:
        raise ValueError(f"step of range should be a positive number: {text}")


def _read(text: str, bounds: _Bounds) -> int:
    if text.lower() in bounds.names:
        return bounds.names[text.lower()]
    why = "invalid syntax" if not _INTEGER.fullmatch(text) else "value out of range" if len(text) > 18 else ""
    if why:
        raise ValueError(f"failed to parse int from {text}: strconv.Atoi: parsing {quoted_text(text)}: {why}")
    number = int(text)
    if number < 0:
        raise ValueError(f"negative number ({number}) not allowed: {text}")
    return number
