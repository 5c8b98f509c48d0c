"""Files that are held open: an error while one of them is opened leaks no descriptor."""

from pathlib import Path

import pytest

from checkpoint.tracked_files import TrackedFiles
from tests.leaks import LeakCheck


def test_unreadable_file_leaves_no_descriptor(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    (tmp_path / "circle").symlink_to("circle")
    since = LeakCheck()
    for _ in range(3):
        with pytest.raises(OSError, match="symbolic links"):
            TrackedFiles([tmp_path / "circle"], tmp_path / "log")
    assert since.descriptors() == []
