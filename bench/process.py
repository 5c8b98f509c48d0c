"""Memory and processor time of a process, from /proc."""

import os
from pathlib import Path


def resident(pid: int | None = None, what: str = "VmRSS") -> float:
    """Return the resident memory of a process in MiB, or its peak (`VmHWM`). None: this process."""
    status = Path(f"/proc/{pid or 'self'}/status").read_text()
    return int(status.partition(f"{what}:")[2].split()[0]) / 1024


def processor_time(pid: int) -> float:
    """Return the processor time of a process in milliseconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")
