"""The `__main__.py` of nodeplug.pyz.

Everything is imported from the archive except msgspec's compiled module, which the system's loader needs as a file. It
is loaded from a file in memory, so that no file is left behind and no folder must be writable.
"""

import importlib.machinery
import importlib.util
import os
import platform
import sys
from collections.abc import Sequence
from types import ModuleType

_COMPILED = "msgspec._core"


class _Finder:
    """Finds the compiled module in the archive."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if name != _COMPILED:
            return None
        file = os.memfd_create(name)
        with open(file, "wb", closefd=False) as memory:
            memory.write(_compiled())
        place = f"/proc/self/fd/{file}"
        return importlib.util.spec_from_file_location(
            name, place, loader=importlib.machinery.ExtensionFileLoader(name, place)
        )


def _compiled() -> bytes:
    machine = f"{sys.implementation.cache_tag}-{platform.machine()}"
    try:
        return bytes(__loader__.get_data(f"compiled/{machine}.so"))  # type: ignore[name-defined]
    except OSError:
        sys.exit(f"nodeplug.pyz is for CPython 3.11 to 3.14 on x86_64 and aarch64, not {machine}: install the wheel")


sys.meta_path.insert(0, _Finder)
from nodeplug.__main__ import main  # noqa: E402 - needs the finder

main()
