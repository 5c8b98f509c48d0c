"""The image's sitecustomize: replaces `ctypes.util.find_library`, because the image has no ldconfig."""

import ctypes.util
from pathlib import Path


def _find_library(name: str) -> str | None:
    """Return the library's file name for the loader; the shortest name is the soname."""
    found = [path.name for path in Path("/").glob(f"usr/lib/*-linux-gnu/lib{name}.so.*")]
    found += [path.name for path in Path("/").glob(f"lib/*-linux-gnu/lib{name}.so.*")]
    return min(found, key=len, default=None)


ctypes.util.find_library = _find_library
