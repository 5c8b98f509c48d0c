"""The program: `nodeplug`, and `python -m nodeplug`."""

import sys
from pathlib import Path


def main() -> None:
    """Run a command. The daemon's own needs no parser of command lines, which would stay in memory with it."""
    match sys.argv[1:]:
        case ["run", "--config", path]:
            from nodeplug import process

            sys.exit(process.run(Path(path), Path("/")))
        case _:
            from nodeplug import cli

            cli.main()


if __name__ == "__main__":
    main()
