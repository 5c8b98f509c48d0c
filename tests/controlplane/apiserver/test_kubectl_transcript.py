"""A recorded session of kubectl against a real API server, command by command, against ours."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.apiserver.running import Kubectl, Running

_CASES = Path(os.environ.get("NODEPLUG_CASES", Path(__file__).parents[4] / "shared/cases"))
_TRANSCRIPT = _CASES / "kubectl/transcript.json"
_REPLACED = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
    (r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( ?[+-]\d{4}|Z)", "<time>"),
    (r'(resourceVersion"?: )"\d+"', r'\1"<rv>"'),
    (r"(Resource Version:\s+)\d+", r"\1<rv>"),
    (r"/\S*/(LIVE|MERGED)-\d+/\S+", "<file>"),
    (r"\b\d+s$", "<age>"),
    (r"\b\d+s(?=\s+tier=)", "<age>"),  # labels follow it
    (r'" deleted from \S+ namespace', '" deleted'),  # since kubectl 1.34
    (r'"clientVersion": \{[^}]*\},\s*"kustomizeVersion": "[^"]*"', '"clientVersion"'),
    (r'^ *"(emulation|minCompatibility)\w+": .*\n', ""),  # shown since kubectl 1.34
    (r"^WARNING: version difference between client .*\n", ""),
    (r"[ \t]+$", ""),
)
# Kinds that our server does not have; see docs/apiserver.md.
_FEWER_KINDS = re.compile(r"^resourcepoolstatusrequests.*\n", re.MULTILINE)


def _recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_TRANSCRIPT.read_text()) if _TRANSCRIPT.exists() else {"commands": []}
    return found


def _plain(text: str) -> str:
    for pattern, word in _REPLACED:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    text = _FEWER_KINDS.sub("", text)
    return re.sub(r" +", " ", text)


@pytest.fixture(scope="module")
def session(kubectl: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """kubectl in a folder with the recorded files."""
    if not _TRANSCRIPT.exists():
        pytest.skip(f"no recorded transcript at {_TRANSCRIPT}")
    folder = tmp_path_factory.mktemp("kubectl")
    for name, text in _recorded()["files"].items():
        (folder / name).write_text(text)
    with Running() as running:
        yield Kubectl(kubectl, running.kubeconfig(folder / "config"), folder)


@pytest.mark.parametrize("recorded", _recorded()["commands"], ids=lambda recorded: recorded["command"][:60])
def test_a_recorded_command(session: Kubectl, recorded: dict[str, Any]) -> None:
    """Output and exit code; the commands build on each other, in their order."""
    done = session.run(*recorded["command"].split(" "))
    assert done.returncode == recorded["exit"], done
    assert _plain(done.stdout) == _plain(recorded["stdout"])
    assert _plain(done.stderr) == _plain(recorded["stderr"])
