"""The last reported health of drivers' devices, stored in `dra_health_state`.

A report is valid for the timeout in it. After that, and for a device without a report, the health is Unknown.
Source: DRA specification, section 4.10; corrections 22 and 23.
"""

import asyncio
import logging
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from checkpoint import kubelet_json
from kubelet.clock import Clock
from kubelet.errors import ClaimError
from kubelet.release import LATEST, Release
from kubelet.state_file import StateFile

FILE_NAME = "dra_health_state"
HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
UNKNOWN = "Unknown"

MAX_DEVICES = 16_384  # the most devices of one driver, since 1.37

_DEFAULT_TIMEOUT = 30  # seconds; for files of a 1.34 kubelet, which has no other timeout
_SECOND = 1_000_000_000  # nanoseconds
_TIMESTAMP = re.compile(r"([^.Z+]+)(?:\.([0-9]+))?(Z|[+-][0-9]{2}:[0-9]{2})")

log = logging.getLogger(__name__)


class DeviceHealth(Struct, frozen=True):
    """A report about one device; `timeout` in seconds."""

    pool: str
    device: str
    health: str
    timeout: int = 30
    message: str = ""


class _Stored(Struct, frozen=True):
    report: DeviceHealth
    updated: int  # nanoseconds since 1970


class _FileDevice(Struct, rename="pascal"):
    pool_name: str = ""
    device_name: str = ""
    health: str = UNKNOWN
    last_updated: str = "0001-01-01T00:00:00Z"
    health_check_timeout: int = 0
    message: str = ""


class _FileDriver(Struct, rename="pascal"):
    devices: dict[str, _FileDevice] | None = None


class HealthCache:
    """Driver -> device -> its last report."""

    def __init__(self, folder: Path, clock: Clock, release: Release = LATEST) -> None:
        """The cache of a kubelet of `release` whose state files are in `folder`."""
        self._release = release
        self._file = StateFile(folder / FILE_NAME, ClaimError)
        self._clock = clock
        self._drivers: dict[str, dict[tuple[str, str], _Stored]] = {}

    async def load(self) -> None:
        """Read the file. If it is missing or invalid, start with an empty cache."""
        try:
            raw = await asyncio.to_thread(self._file.path.read_bytes)
            found = msgspec.json.decode(raw, type=dict[str, _FileDriver])
            self._drivers = {
                driver: {
                    (entry.pool_name, entry.device_name): _stored(entry) for entry in (each.devices or {}).values()
                }
                for driver, each in found.items()
            }
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            log.error("Failed to load health state, starting with an empty one: %s", error)

    def update(self, driver: str, reports: Iterable[DeviceHealth]) -> list[DeviceHealth]:
        """Store a driver's reports; return those that changed a device's health, message or timeout.

        Of several reports about a device the last one counts, but each can be a change. A device that is not reported
        again becomes Unknown when its last report expires; since 1.37 it is then removed.
        """
        now = self._clock.wall_ns()
        forgets = self._release.drops_unreported_health
        known = self._drivers.setdefault(driver, {})
        changed = []
        reported = set()
        for report in reports:
            key = report.pool, report.device
            reported.add(key)
            if forgets and key not in known and len(known) >= MAX_DEVICES:
                log.error("driver %s: more than %d devices; %s/%s is left out", driver, MAX_DEVICES, *key)
                continue
            if key not in known or known[key].report != report:
                changed.append(report)
            known[key] = _Stored(report, now)
        expired = [key for key, stored in known.items() if key not in reported and _is_expired(stored, now)]
        for key in expired:
            unknown = msgspec.structs.replace(known[key].report, health=UNKNOWN, message="")
            if known[key].report.health != UNKNOWN:
                changed.append(unknown)
                known[key] = _Stored(unknown, now)
            if forgets:
                del known[key]
        if changed or (forgets and expired):
            self._save()
        return changed

    def get(self, driver: str, pool: str, device: str) -> tuple[str, str]:
        """Return health and message of a device."""
        stored = self._drivers.get(driver, {}).get((pool, device))
        if stored is None or _is_expired(stored, self._clock.wall_ns()):
            return UNKNOWN, ""
        return stored.report.health, stored.report.message

    def clear_driver(self, driver: str) -> None:
        """Delete a driver's reports."""
        self._drivers.pop(driver, None)
        self._save()

    async def close(self, *, discard: bool = False) -> None:
        """Wait for the running write, and without `discard` for queued ones."""
        await self._file.close(discard=discard)

    def content(self) -> bytes:
        """Return the content of the file for the current cache."""
        text = kubelet_json.string
        drivers = []
        for driver in sorted(self._drivers, key=str.encode):
            devices = {f"{pool}/{device}": entry for (pool, device), entry in self._drivers[driver].items()}
            written = ",".join(f"{text(key)}:{_json(devices[key])}" for key in sorted(devices, key=str.encode))
            drivers.append(f'{text(driver)}:{{"Devices":{{{written}}}}}')
        return f"{{{','.join(drivers)}}}".encode()

    def _save(self) -> None:
        self._file.write_later(self.content())


def _is_expired(stored: _Stored, now: int) -> bool:
    return now - stored.updated > (stored.report.timeout or _DEFAULT_TIMEOUT) * _SECOND


def _stored(entry: _FileDevice) -> _Stored:
    timeout = entry.health_check_timeout // _SECOND
    report = DeviceHealth(entry.pool_name, entry.device_name, entry.health, timeout, entry.message)
    return _Stored(report, _nanoseconds(entry.last_updated))


def _json(stored: _Stored) -> str:
    entry, text = stored.report, kubelet_json.string
    return (
        f'{{"PoolName":{text(entry.pool)},"DeviceName":{text(entry.device)},"Health":{text(entry.health)},'
        f'"LastUpdated":"{_rfc3339(stored.updated)}","HealthCheckTimeout":{entry.timeout * _SECOND},'
        f'"Message":{text(entry.message)}}}'
    )


def _rfc3339(nanoseconds: int) -> str:
    """Return a time as Go writes it: with up to nine decimals, without trailing zeros."""
    seconds, fraction = divmod(nanoseconds, _SECOND)
    decimals = f".{fraction:09d}".rstrip("0").rstrip(".")
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}{decimals}Z"


def _nanoseconds(moment: str) -> int:
    """Parse a time of Go, which uses the machine's time zone, to nanoseconds since 1970. Raises ValueError."""
    read = _TIMESTAMP.fullmatch(moment)
    if read is None:
        raise ValueError(f"{moment!r} is no moment")
    seconds, fraction, zone = read.groups()
    whole = int(datetime.fromisoformat(f"{seconds}{'+00:00' if zone == 'Z' else zone}").timestamp())
    return whole * _SECOND + int((fraction or "").ljust(9, "0")[:9])
