"""The reserve's file: its blocks are allocated by any available method, and no other program's file is used for it."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpoint import LedgerUnavailable
from checkpoint.reserve import SIZE, Reserve
from tests.checkpoint.build import PLACED, lease, opened
from tests.faults.shim import Fault, environment, library
from tests.small_disk import fill, mounted

_MAKE = """
import ctypes, sys
from pathlib import Path
from checkpoint.reserve import SIZE, Reserve
ctypes.CDLL(sys.argv[2]).faults_begin()
Reserve(Path(sys.argv[1])).make(int(sys.argv[3]))
"""


@pytest.mark.skipif(library() is None, reason="no C compiler")
@pytest.mark.parametrize("error", [errno.EOPNOTSUPP, errno.EINVAL])
def test_blocks_are_written_when_fallocate_is_unsupported(tmp_path: Path, error: int) -> None:
    """musl answers so on ext2, ext3 and ramfs (1.2.3); glibc writes the blocks itself."""
    fault = Fault("allocate", f"{error}+", 1, "reserve")
    log = tmp_path.with_name("calls")
    subprocess.run(
        [sys.executable, "-c", _MAKE, str(tmp_path), str(library()), str(SIZE + 5)],
        env=os.environ
        | environment(tmp_path, log, tmp_path.with_name("synced"), fault)
        | {"LD_PRELOAD": str(library())},
        cwd=Path(__file__).parents[2],
        check=True,
    )
    calls = log.read_text().splitlines()
    assert "!allocate reserve" in calls
    assert calls[-1] == "sync reserve"  # NFS reports a full disk at this call
    stat = (tmp_path / "reserve").stat()
    assert (stat.st_size, stat.st_blocks * 512 > SIZE) == (SIZE + 5, True)


def test_reserve_that_cannot_grow_keeps_its_size(tmp_path: Path) -> None:
    with mounted(tmp_path, "size=3m") as disk:
        reserve = Reserve(disk)
        reserve.make(SIZE)
        with pytest.raises(OSError, match="No space left"):
            reserve.make(4 * SIZE)
        assert (disk / "reserve").stat().st_size == SIZE
        assert os.statvfs(disk).f_bavail * 4096 >= 2 * SIZE - 4096
        reserve.save(4 * SIZE)  # keeps as much as the disk has
        fill(disk)
        assert (disk / "rest").stat().st_size < SIZE


async def test_blocks_of_a_sparse_reserve_are_allocated(tmp_path: Path) -> None:
    reserve = tmp_path / "reserve"
    reserve.touch()
    os.truncate(reserve, 1 << 20)
    ledger = await opened(tmp_path)
    assert reserve.stat().st_blocks * 512 >= 1 << 20
    await ledger.close()


@pytest.mark.parametrize("place", PLACED.values(), ids=PLACED.keys())
async def test_other_file_in_place_of_the_reserve_is_replaced_or_named(
    tmp_path: Path, place: Callable[[Path], object]
) -> None:
    (tmp_path / "somebody").write_bytes(b"somebody's")
    reserve = tmp_path / "reserve"
    place(reserve)
    ledger = await opened(tmp_path)
    if reserve.is_dir() or reserve.is_symlink():
        with pytest.raises(LedgerUnavailable, match=str(reserve)):
            await ledger.grant([lease("a")])
        reserve.rmdir() if reserve.is_dir() else reserve.unlink()
    await ledger.grant([lease("a")])
    assert reserve.is_file()
    await ledger.close()
    assert (tmp_path / "somebody").read_bytes() == b"somebody's"
