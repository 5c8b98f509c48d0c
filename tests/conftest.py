"""What all tests share."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def socket_dir() -> Iterator[Path]:
    """A folder with a short path: a socket's has 107 bytes, and pytest's own folders use most of them."""
    folder = Path(tempfile.mkdtemp(prefix="np-"))
    yield folder
    shutil.rmtree(folder)
