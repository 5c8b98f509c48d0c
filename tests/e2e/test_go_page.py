"""docs/testing-a-plugin.md: its Go test passes with the page's plugin, and fails without a plugin.

Needs no node, but Go.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e
CHECKOUT = Path(__file__).parents[2]
PAGE = CHECKOUT / "docs" / "testing-a-plugin.md"
DEADLINE = "30 * time.Second"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the page's test and plugin, and this checkout's `nodeplug` below `bin`."""
    if shutil.which("go") is None:
        pytest.skip("needs Go in PATH")
    (test,) = re.findall(r"```go\n(.*?)```", PAGE.read_text(), re.DOTALL)
    plugin = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    (tmp_path / "go.mod").write_text("module example.com/plugin\n\ngo 1.22\n")
    (tmp_path / "plugin_test.go").write_text(test)
    (tmp_path / "plugin.py").write_text(plugin)
    (tmp_path / "bin").mkdir()
    for name, command in (("nodeplug", f"{sys.executable} -m nodeplug"), ("python3", sys.executable)):
        (tmp_path / "bin" / name).write_text(
            f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(CHECKOUT))} exec {command} "$@"\n'
        )
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def go_test(project: Path) -> subprocess.CompletedProcess[str]:
    # short, because Go's tests create sockets below it
    environment = {**os.environ, "PATH": f"{project / 'bin'}:{os.environ['PATH']}", "TMPDIR": "/tmp", "GOFLAGS": ""}
    return subprocess.run(["go", "test", "./..."], cwd=project, env=environment, capture_output=True, text=True)


def test_go_test_of_the_page_passes(project: Path) -> None:
    done = go_test(project)
    assert done.returncode == 0, done.stdout + done.stderr


def test_go_test_fails_when_the_plugin_does_not_start(project: Path) -> None:
    (project / "bin" / "python3").write_text("no program")
    done = go_test(project)
    assert (done.returncode, "exec format error" in done.stdout) == (1, True), done.stdout + done.stderr


def test_go_test_fails_when_the_plugin_has_no_devices(project: Path) -> None:
    """It fails after the page's deadline, which is shortened here."""
    test = (project / "plugin_test.go").read_text()
    assert DEADLINE in test
    (project / "plugin_test.go").write_text(test.replace(DEADLINE, "time.Second"))
    (project / "plugin.py").write_text("")
    done = go_test(project)
    assert (done.returncode, "no devices of the plugin" in done.stdout) == (1, True), done.stdout + done.stderr
