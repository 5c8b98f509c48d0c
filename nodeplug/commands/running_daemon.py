"""What the commands that ask the running daemon share: its location, the output of its answer, exit codes.

Exit codes: 0 it has answered, 1 it refuses the request or something is wrong, 2 the configuration or the command line
is wrong, 4 no daemon answers.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec import Struct

from nodeplug.commands.failure import Failure
from nodeplug.config.document import suggestion
from nodeplug.config.environment import VARIABLES
from nodeplug.control import client
from nodeplug.control.client import NoSocket, NotRunning
from nodeplug.control.protocol import Refusal

REFUSED, CONFIGURATION, NOT_RUNNING = 1, 2, 4
STATE_DIRECTORY = Path(os.environ.get(VARIABLES["stateDirectory"]) or "/var/lib/nodeplug")
"""The default of settings.stateDirectory, in this environment."""
_CONFIGURATION = Path("/etc/nodeplug/config.yaml")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def state_option(command: F) -> F:
    """Add `--state`."""
    return click.option(
        "--state",
        default=STATE_DIRECTORY,
        show_default=True,
        type=click.Path(path_type=Path, readable=False),  # a later error names the users who can read it
        help="The daemon's state directory, as settings.stateDirectory says.",
    )(command)


def config_options(command: F) -> F:
    """Add `--config` and `--state` to a command that reads the daemon's files, and asks the daemon if one runs."""
    config = click.option(
        "--config",
        "path",
        show_default=f"that of the running daemon, or {_CONFIGURATION}",
        type=click.Path(path_type=Path, readable=False),
        callback=lambda ctx, _parameter, value: value or _configuration_in_use(ctx.params["state"] or STATE_DIRECTORY),
        help="The daemon's configuration.",
    )
    state = click.option(
        "--state",
        show_default="as the configuration says",
        type=click.Path(path_type=Path, readable=False),
        is_eager=True,  # for --config depends on it
        help="The daemon's state directory, if it differs from settings.stateDirectory.",
    )
    return config(state(command))


def ask(state: Path, question: Struct, kind: type[T], seconds: float = client.TIMEOUT) -> T:
    """Return the daemon's answer. Raises `Failure` if there is none within `seconds`."""
    try:
        return client.ask(state, question, kind, seconds)
    except (NotRunning, Refusal) as error:
        raise failure(error) from None


def check_resource(state: Path, name: str) -> None:
    """Raise `Failure` for a resource that the daemon neither offers nor has leased."""
    from nodeplug.control import status

    found = ask(state, status.Question(), status.Answer)
    known = {x.name for x in found.resources} | {x.resource for x in found.leases}
    if name not in known:
        raise Failure("; ".join(filter(None, (f"there is no resource {name}", suggestion(name, known)))), REFUSED)


def _configuration_in_use(state: Path) -> Path:
    """Return the file of the daemon with this state directory, or the default path of the package and the image."""
    from nodeplug.control import status

    try:
        used = Path(client.ask(state, status.Question(), status.Answer).configuration.file)
    except (NotRunning, Refusal):
        return _CONFIGURATION
    return used if used.exists() else _CONFIGURATION  # a daemon in a pod sees other files


def failure(error: NotRunning | Refusal, option: str = "--state") -> Failure:
    """Return why no daemon answers, or its refusal, with the exit code for that.

    `option` is the one that names another daemon's state directory.
    """
    if isinstance(error, NotRunning):
        elsewhere = f", or name the one of its configuration (settings.stateDirectory) with {option}"
        return Failure(f"{error}{elsewhere if isinstance(error, NoSocket) else ''}", NOT_RUNNING)
    return Failure(str(error), CONFIGURATION if error.findings else REFUSED, error.findings)


def clock(seconds: float) -> str:
    """Return a time as text, in the local time zone; empty for none."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds else ""


def duration(seconds: float) -> str:
    """Return a duration in its two largest units: 3d4h, 5m20s."""
    parts: list[str] = []
    rest = int(seconds)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count or parts or unit == "s":
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])
