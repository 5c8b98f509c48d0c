"""What a process has, as the kernel says."""

import os
from pathlib import Path


def resident(pid: int | None = None, what: str = "VmRSS") -> float:
    """Return the MiB that a process has resident, or had at the most (`VmHWM`); None: this one."""
    status = Path(f"/proc/{pid or 'self'}/status").read_text()
    return int(status.partition(f"{what}:")[2].split()[0]) / 1024


def processor_time(pid: int) -> float:
    """Return the milliseconds of processor time that a process has spent."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")
