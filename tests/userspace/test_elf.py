"""The soname of a library."""

import contextlib
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.userspace.driver_root import library
from userspace.elf import NotElf, soname


@pytest.mark.parametrize("name", ["libcuda.so.1", ""])
def test_soname_of_a_library_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "lib").write_bytes(library(name))
    assert soname(str(tmp_path / "lib")) == name


def test_soname_of_the_c_library_is_read() -> None:
    """The C library of this process, as the loader mapped it."""
    if sys.byteorder != "little" or sysconfig.get_config_var("SIZEOF_VOID_P") != 8:
        pytest.skip("other ELF files")
    maps = Path("/proc/self/maps").read_text()
    found = {line.split()[-1] for line in maps.splitlines() if "/libc.so.6" in line or "/libc-2" in line}
    assert {soname(path) for path in found} <= {"libc.so.6"}


@pytest.mark.parametrize("size", [0, 5, 63, 100, 180, 230, 237])
def test_truncated_library_is_refused(tmp_path: Path, size: int) -> None:
    (tmp_path / "lib").write_bytes(library("libcuda.so.1")[:size])
    with pytest.raises(NotElf, match=f"^{tmp_path}/lib: "):
        soname(str(tmp_path / "lib"))


def test_reader_survives_corruption_at_any_offset(tmp_path: Path) -> None:
    for at in range(238):
        data = bytearray(library("libcuda.so.1"))
        data[at : at + 2] = b"\xff\xff"
        (tmp_path / "lib").write_bytes(data)
        with contextlib.suppress(NotElf):
            assert "/" not in soname(str(tmp_path / "lib"))
