"""Goes into the image as sitecustomize: there is no ldconfig, which `ctypes.util.find_library` asks."""

import ctypes.util
from pathlib import Path


def _find_library(name: str) -> str | None:
    """Return the library's file name, as the loader finds it: the shortest is that of the interface."""
    found = [path.name for path in Path("/").glob(f"usr/lib/*-linux-gnu/lib{name}.so.*")]
    found += [path.name for path in Path("/").glob(f"lib/*-linux-gnu/lib{name}.so.*")]
    return min(found, key=len, default=None)


ctypes.util.find_library = _find_library
