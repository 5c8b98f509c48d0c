"""Programs that get data from the daemon: a trace collector, node-feature-discovery."""

import importlib.util
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from folderwatch import is_folder
from nodeplug.config import Settings
from nodeplug.doctor.finding import Finding

_DEFAULT = "http://localhost:4318"
_TIMEOUT = 3.0  # seconds


def examine(settings: Settings, environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Check the services that the settings name; the collector is the one of `environment`."""
    if settings.tracing:
        yield _collector(environment)
    if settings.features_directory:
        yield _features(Path(settings.features_directory))


def _collector(environment: Mapping[str, str]) -> Finding:
    if not _has_libraries():
        words = "settings.tracing: OpenTelemetry's libraries are not installed, so no traces are sent"
        return Finding("wrong", "traces", words, "pip install 'nodeplug[tracing]'")
    names = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    url = next((environment[name] for name in names if environment.get(name)), _DEFAULT)
    do = "set OTEL_EXPORTER_OTLP_ENDPOINT in the daemon's environment to the collector's address"
    try:
        parts = urlsplit(url)
        where = (parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
        socket.create_connection(where, _TIMEOUT).close()
    except (OSError, ValueError) as error:
        return Finding(
            "note", "traces", f"the collector at {_without_password(url)} cannot be reached from here: {error}", do
        )
    return Finding("ok", "traces", f"a program listens at {_without_password(url)}")


def _has_libraries() -> bool:
    try:
        found = [importlib.util.find_spec(f"opentelemetry.{name}") for name in ("sdk", "exporter.otlp.proto.http")]
    except ModuleNotFoundError:
        return False
    return None not in found


def _without_password(url: str) -> str:
    return url.rpartition("@")[2]


def _features(directory: Path) -> Finding:
    if is_folder(directory):
        return Finding("ok", "node features", f"{directory} is there")
    words = f"there is no {directory}; nodeplug creates it, and perhaps no program reads it"
    return Finding("note", "node features", words, "node-feature-discovery has to run, and mount that folder")
