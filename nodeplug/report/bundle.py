"""An archive for a report about a node, with what an administrator on the node would see.

Rules:
1. Everything that is not available is a line in `missing.txt`; a daemon that does not answer is no error.
2. Credentials stay on the node, and so do values of the configuration (redaction.py).
3. A file has at most `MAX_BYTES` bytes; of a log, the latest.
"""

import importlib.metadata
import io
import os
import platform
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from msgspec import Struct

from hostdevices import Host, HostDevicesError
from nodeplug.config import ConfigError, read
from nodeplug.config.tree import Unreadable, parse
from nodeplug.control import client, events, metrics, status
from nodeplug.control.client import NotRunning
from nodeplug.control.protocol import Refusal
from nodeplug.doctor import configuration
from nodeplug.doctor.examination import findings
from nodeplug.report.redaction import without_credentials, without_values
from nodeplug.version import VERSION

MAX_BYTES: Final = 4 << 20
LOG_LINES: Final = 2000
_LOG_SECONDS = 15.0
_LIBRARIES = ("grpcio", "inotify-simple", "msgspec", "protobuf", "PyYAML")


class Member(Struct, frozen=True):
    """A file of the archive: its text, or why there is none."""

    name: str
    text: str = ""
    missing: str = ""


def collect(path: Path, host: Host, state: Path | None = None) -> Iterator[Member]:
    """Yield all members; `path` is the daemon's configuration. Raises nothing for members that cannot be collected.

    `state` is the daemon's state directory, if it differs from the configuration's.
    """
    yield _member("versions.json", lambda: _json(_versions(host)))
    yield _configuration(path)
    yield _member("doctor.json", lambda: _json({"findings": list(findings(path, host, state))}))
    config, _ = configuration.examine(path)
    asked = Path(configuration.settings_of(config, state).state_directory)
    yield _member("status.json", lambda: _json(client.ask(asked, status.Question(), status.Answer)))
    yield _member("events.json", lambda: _json(client.ask(asked, events.Question(), events.Answer)))
    yield _member("metrics.txt", lambda: client.ask(asked, metrics.Question(), metrics.Answer).text)
    yield _log()


def pack(members: Iterator[Member]) -> tuple[bytes, list[str]]:
    """Return the compressed archive, and the list of what is missing in it."""
    packed = io.BytesIO()
    missing: list[str] = []
    folder = f"nodeplug-bundle-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for member in members:
            if member.missing:
                missing.append(f"{member.name}: {without_credentials(member.missing)}")
            else:
                if _add(archive, f"{folder}/{member.name}", without_credentials(member.text)):
                    missing.append(f"{member.name}: all but its last {MAX_BYTES >> 20} MiB")
        _add(archive, f"{folder}/missing.txt", "".join(f"{line}\n" for line in missing))
    return packed.getvalue(), missing


def _add(archive: tarfile.TarFile, name: str, text: str) -> bool:
    """Add a file; return whether it was cut."""
    whole = text.encode(errors="replace")
    content = whole[-MAX_BYTES:]
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
    archive.addfile(entry, io.BytesIO(content))
    return len(content) < len(whole)


def _member(name: str, make: Callable[[], str]) -> Member:
    try:
        return Member(name, make())
    except (NotRunning, Refusal, OSError) as error:
        return Member(name, missing=str(error))
    except Exception as error:  # a defect of ours must not remove the other members from the archive
        return Member(name, missing=f"nodeplug failed: {error!r}")


def _configuration(path: Path) -> Member:
    """The content of the file, without comments and without values that users wrote."""
    try:
        content = read(path)
        parse(content)  # refuses a document that expands without end
        plain = yaml.safe_load(content)
    except ConfigError as error:
        return Member("configuration.yaml", missing="; ".join(error.lines()))
    except (Unreadable, yaml.YAMLError, ValueError):
        return Member("configuration.yaml", missing=f"{path} cannot be used; see doctor.json")
    return Member("configuration.yaml", yaml.safe_dump(without_values(plain), sort_keys=False, allow_unicode=True))


def _log() -> Member:
    journalctl = shutil.which("journalctl")
    if journalctl is None:
        return Member("log.txt", missing="there is no journal here; in a cluster use kubectl logs")
    command = [journalctl, "-u", "nodeplug.service", "-n", str(LOG_LINES), "--no-pager", "-q", "-o", "short-iso"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_LOG_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Member("log.txt", missing=f"journalctl: {error}")
    text = done.stdout.decode(errors="replace")
    if done.returncode or not text:
        why = done.stderr.decode(errors="replace").strip()[:500] or "it has nothing of nodeplug.service"
        return Member("log.txt", missing=f"journalctl: {why}; in a cluster use kubectl logs")
    return Member("log.txt", text)


def _versions(host: Host) -> dict[str, Any]:
    try:
        lines = (host.read("/etc/os-release") or "").splitlines()
    except HostDevicesError:
        lines = []
    system = next((x for x in lines if x.startswith("PRETTY_NAME=")), "")
    return {
        "nodeplug": VERSION,
        "python": platform.python_version(),
        "libraries": {name: _version(name) for name in _LIBRARIES},
        "kernel": os.uname().release,
        "machine": os.uname().machine,
        "system": system.partition("=")[2].strip('"'),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _version(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
