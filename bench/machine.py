"""Describes the machine of a measurement."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path


def describe() -> dict[str, str | int | float | None]:
    """Return the machine and the relevant versions."""
    cpu = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = next(int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal"))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "cpu": cpu[0] if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / (1 << 20), 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "grpcio": version("grpcio"),
        "protobuf": version("protobuf"),
        "commit": commit.stdout.strip(),
        "load": round(os.getloadavg()[0], 1),
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()
