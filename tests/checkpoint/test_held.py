"""Files that are held open: an error while one of them is opened leaks no descriptor."""

from pathlib import Path

import pytest

from checkpoint.held import Held
from tests.held import HeldSince


def test_a_file_that_cannot_be_looked_at_leaves_no_descriptor(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    (tmp_path / "circle").symlink_to("circle")
    since = HeldSince()
    for _ in range(3):
        with pytest.raises(OSError, match="symbolic links"):
            Held([tmp_path / "circle"], tmp_path / "log")
    assert since.descriptors() == []
