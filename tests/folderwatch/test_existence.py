"""Whether a path exists: yes, no, or unknown."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from folderwatch import is_folder, is_missing, path_exists


def test_existing_file_folder_and_link_exist(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    assert [path_exists(tmp_path / x) for x in ("", "file", "link")] == [True, True, True]
    assert [is_folder(tmp_path / x) for x in ("", "file", "link")] == [True, False, True]


def test_missing_and_dangling_paths_do_not_exist(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "circle").symlink_to("circle")
    for name in ("missing", "missing/below", "file/below", "dangling", "circle"):
        assert not path_exists(tmp_path / name)
        assert not is_folder(tmp_path / name)


def test_path_that_cannot_be_read_is_not_missing(tmp_path: Path) -> None:
    assert [is_missing(tmp_path / x) for x in ("", "missing", "a" * 300)] == [False, True, False]


@pytest.mark.parametrize("ask", [path_exists, is_folder])
def test_path_that_cannot_be_read_raises(tmp_path: Path, ask: Callable[[Path], bool]) -> None:
    with pytest.raises(OSError, match="File name too long"):
        ask(tmp_path / ("a" * 300))


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_folder_without_search_permission_raises(tmp_path: Path) -> None:
    tmp_path.chmod(0)
    os.seteuid(65534)
    try:
        with pytest.raises(PermissionError):
            path_exists(tmp_path / "file")
    finally:
        os.seteuid(0)
