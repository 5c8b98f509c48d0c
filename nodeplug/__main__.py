"""The program: `nodeplug`, and `python -m nodeplug`."""

import sys


def main() -> None:
    """Run a command. The daemon's own needs no parser of command lines, which would stay in memory with it."""
    match sys.argv[1:]:
        case ["run", "--config", path]:
            from nodeplug.deferred import defer_unused

            defer_unused()  # before pathlib, which has urllib.parse import some of it
            from pathlib import Path

            from nodeplug import process

            sys.exit(process.run(Path(path), Path("/")))
        case _:
            from nodeplug import cli

            cli.main()


if __name__ == "__main__":
    if not sys.flags.safe_path and not __file__.startswith(sys.path[0] + "/"):
        del sys.path[0]  # the working directory, which may have packages with the names of ours: kubelet, checkpoint
    main()
