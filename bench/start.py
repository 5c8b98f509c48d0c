"""Runs the daemon for a host below ROOT: start.py CONFIG ROOT. Like `nodeplug run --config`, which has no root option.

This must not import anything that the daemon does not import itself, because the daemon's memory is measured.
"""

import sys
from os import PathLike, fspath


def command(config: PathLike[str], root: PathLike[str]) -> tuple[str, ...]:
    """Return the command line; `-P` prevents that modules of this folder shadow others with the same name."""
    return (sys.executable, "-P", __file__, fspath(config), fspath(root))


def _main() -> None:
    from nodeplug.deferred import defer_unused

    defer_unused()  # before pathlib, which imports some of the deferred modules through urllib.parse
    from pathlib import Path

    from nodeplug import process

    sys.exit(process.run(*map(Path, sys.argv[1:])))


if __name__ == "__main__":
    _main()
