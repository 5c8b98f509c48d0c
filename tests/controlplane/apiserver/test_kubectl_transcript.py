"""A recorded kubectl session with a real API server, repeated command by command with our server."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from resourceapi.objects.release import RELEASES
from tests.cases import recorded_at
from tests.controlplane.apiserver.running import Kubectl, Running

_TRANSCRIPT = recorded_at("kubectl/transcript.json")
_REPLACED = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
    (r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( ?[+-]\d{4}|Z)", "<time>"),
    (r'(resourceVersion"?: )"\d+"', r'\1"<rv>"'),
    (r"(Resource Version:\s+)\d+", r"\1<rv>"),
    (r"/\S*/(LIVE|MERGED)-\d+/\S+", "<file>"),
    (r"\b\d+s$", "<age>"),
    (r"\b\d+s(?=\s+tier=)", "<age>"),  # followed by labels
    (r'" deleted from \S+ namespace', '" deleted'),  # added in kubectl 1.34
    (r'"clientVersion": \{[^}]*\},\s*"kustomizeVersion": "[^"]*"', '"clientVersion"'),
    (r'^ *"(emulation|minCompatibility)\w+": .*\n', ""),  # added in kubectl 1.34
    (r"^(WARNING|Warning): version difference between client .*\n", ""),
    (r"[ \t]+$", ""),
)
# Kinds that our server does not have; see docs/apiserver.md.
_FEWER_KINDS = re.compile(r"^resourcepoolstatusrequests.*\n", re.MULTILINE)


def _plain(text: str) -> str:
    for pattern, word in _REPLACED:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    text = _FEWER_KINDS.sub("", text)
    return re.sub(r" +", " ", text)


def test_recorded_session_has_same_outputs_and_exit_codes(kubectl: str, tmp_path: Path) -> None:
    """The output and exit code of each command agree. Later commands depend on earlier ones."""
    if not _TRANSCRIPT.exists():
        pytest.skip(f"no recorded transcript at {_TRANSCRIPT}")
    session: dict[str, Any] = json.loads(_TRANSCRIPT.read_text())
    for name, text in session["files"].items():
        (tmp_path / name).write_text(text)
    wrong = []
    with Running(release=RELEASES["1.36"]) as running:
        kube = Kubectl(kubectl, running.kubeconfig(tmp_path / "config"), tmp_path)
        for recorded in session["commands"]:
            done = kube.run(*recorded["command"].split(" "))
            found = (done.returncode, _plain(done.stdout), _plain(done.stderr))
            wanted = (recorded["exit"], _plain(recorded["stdout"]), _plain(recorded["stderr"]))
            if found != wanted:
                wrong.append(f"{recorded['command']}\nexpected {wanted}\ngot      {found}")
    assert not wrong, "\n\n".join(wrong)
