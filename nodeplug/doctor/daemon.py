"""The daemon: whether it runs, reports problems, and has loaded the present file."""

from collections.abc import Iterator
from pathlib import Path

from nodeplug.config import ConfigError, Settings, read
from nodeplug.control import client
from nodeplug.control.client import NoSocket, NotRunning
from nodeplug.control.protocol import Refusal
from nodeplug.control.status import Answer, Question, first_pod_note
from nodeplug.digest import sha256
from nodeplug.doctor.finding import Finding

_SUBJECT = "daemon"
_ELSEWHERE = "or name its state directory with --state, if it has another one (settings.stateDirectory)"


def examine(settings: Settings, path: Path) -> Iterator[Finding]:
    """Query the daemon, and compare its loaded configuration with the file at `path`."""
    try:
        found = client.ask(Path(settings.state_directory), Question(), Answer)
    except (NotRunning, Refusal) as error:
        elsewhere = _ELSEWHERE if isinstance(error, NoSocket) else ""
        yield Finding("wrong", _SUBJECT, str(error), elsewhere)
        return
    yield Finding("ok", _SUBJECT, f"it runs: nodeplug {found.daemon.version}, pid {found.daemon.pid}")
    for problem in found.problems:
        yield Finding("wrong", _SUBJECT, problem, "see `nodeplug status`")
    for each in found.withheld:
        reason = f" ({each.reason})" if each.reason else ""
        yield Finding("note", _SUBJECT, f"{each.device} is withheld{reason}", f"nodeplug readmit {each.device}")
    if line := first_pod_note(found):
        yield Finding("note", _SUBJECT, line)
    try:
        content = read(path) if path.exists() else b""
    except ConfigError:
        return  # the examination of the configuration reports it
    if content and found.configuration.sha256 not in ("", sha256(content)):
        yield Finding("note", _SUBJECT, f"it has not loaded the present contents of {path}", "nodeplug reload")
