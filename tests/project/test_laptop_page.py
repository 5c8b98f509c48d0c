"""docs/start-laptop.md: the daemon, a stand-in kubelet and the page, with the commands of the page."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECTION = (ROOT / "docs/start-laptop.md").read_text().partition("## The daemon")[2].partition("\n## ")[0]


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="np-", dir="/tmp") as made:  # short, because socket paths are limited
        yield Path(made)


def test_page_commands_start_the_daemon_and_the_ui(tmp_path: Path, folder: Path) -> None:
    """With its own folder instead of /tmp/play, and this environment instead of the clone's."""
    section = SECTION.replace("/tmp/play", str(folder))
    for name, text in re.findall(r"```yaml\n# (\S+)\n(.*?)```", section, re.DOTALL):
        (tmp_path / name).write_text(text)
    start, use = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    activate, kubelet, daemon = start.splitlines()
    (there,) = re.findall("`kubelet.log` has `(.*?)`", section)
    assert activate == ". .venv/bin/activate"
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    # a block is pasted as a whole; between two blocks, the script waits for the page's text
    script = f"""
        until_there() {{ for n in $(seq 600); do eval "$1" >/dev/null 2>&1 && return; sleep 0.1; done; exit 1; }}
        {kubelet}
        {daemon}
        until_there 'grep -x "{there}" kubelet.log'
        {use.replace("nodeplug ui", "exec nodeplug ui")}
    """
    shell = subprocess.Popen(
        ["bash", "-e"],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert shell.stdin is not None
    assert shell.stdout is not None
    try:
        shell.stdin.write(script)
        shell.stdin.close()
        lines = []
        for line in shell.stdout:
            lines.append(line.rstrip("\n"))
            if line.startswith("http://"):
                break
        assert lines[0] == "default/demo Running"
        assert any(re.match(r"example.com/fuse +device-plugin +10 ", line) for line in lines)
        with urllib.request.urlopen(lines[-1]) as answer:
            assert "text/html" in answer.headers["content-type"]
    finally:
        os.killpg(shell.pid, signal.SIGTERM)
        shell.stdout.close()
        shell.wait(30)
