"""Becomes the daemon of a host below ROOT: start.py CONFIG ROOT. `nodeplug run --config` begins so, and takes no root.

Nothing that the daemon does not load itself may be imported here: its memory is measured.
"""

import sys
from os import PathLike, fspath


def command(config: PathLike[str], root: PathLike[str]) -> tuple[str, ...]:
    """Return the command line; without `-P` this folder's modules would come before others of their names."""
    return (sys.executable, "-P", __file__, fspath(config), fspath(root))


def _main() -> None:
    from nodeplug.deferred import defer_unused

    defer_unused()  # before pathlib, which has urllib.parse import some of it
    from pathlib import Path

    from nodeplug import process

    sys.exit(process.run(*map(Path, sys.argv[1:])))


if __name__ == "__main__":
    _main()
