"""The program: `nodeplug`, and `python -m nodeplug`."""

import sys


def main() -> None:
    """Run a command. The daemon's own command needs no command line parser, which would stay in memory."""
    match sys.argv[1:]:
        case ["run", "--config", path]:
            from nodeplug.deferred import defer_unused

            defer_unused()  # before pathlib: it makes urllib.parse import some of these modules
            from pathlib import Path

            from nodeplug import process

            sys.exit(process.run(Path(path), Path("/")))
        case _:
            from nodeplug import cli

            cli.main()


if __name__ == "__main__":
    if not sys.flags.safe_path and not __file__.startswith(sys.path[0] + "/"):
        del sys.path[0]  # the working directory, which can contain packages with the names of ours: kubelet, checkpoint
    main()
