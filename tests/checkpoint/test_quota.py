"""An exceeded quota (XFS, ZFS, btrfs, NFS) is treated as a full disk, although SQLite knows only ENOSPC."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_name("quota.c")
_FULL_DISK_TESTS = (
    "test_full_disk_refuses_grants_and_recovers",
    "test_leases_end_on_a_full_disk_after_a_large_grant",
)


@pytest.mark.usefixtures("small_disk")  # without it, the other tests would be skipped as well
def test_full_disk_tests_pass_with_an_exceeded_quota(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("a C compiler is needed: install gcc")
    library = tmp_path / "quota.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE), "-ldl"], check=True)
    tests = [f"{_SOURCE.with_name('test_full_disk.py')}::{name}" for name in _FULL_DISK_TESTS]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-q", "--basetemp", str(tmp_path / "t"), *tests],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout
