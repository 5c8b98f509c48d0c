"""`nodeplug kubelet verify --dra`, run against the daemon."""

import sys
from pathlib import Path

from click.testing import CliRunner

from nodeplug.commands.kubelet import kubelet
from tests.deviceplugin.host import MadeUpHost

LAUNCHER = """
import json, os, sys
folder, kubelet, kubeconfig, node = sys.argv[1:]
settings = {
    "kubeletRoot": kubelet,
    "stateDirectory": f"{folder}/state",
    "cdiDirectory": f"{folder}/cdi",
    "kubeconfig": kubeconfig,
    "nodeName": node,
}
resources = [{"name": f"example.com/{name}", "select": name, "api": "dra"} for name in ("fuse", "kvm")]
with open(f"{folder}/config.yaml", "w") as file:
    json.dump({"settings": settings, "resources": resources}, file)
command = [sys.executable, "-m", "nodeplug", "run", "--config", f"{folder}/config.yaml", "--root", f"{folder}/host"]
os.execv(sys.executable, command)
"""


def test_daemon_passes_the_verification(tmp_path: Path) -> None:
    MadeUpHost(tmp_path / "host", "fuse", "kvm")
    (tmp_path / "launch.py").write_text(LAUNCHER)
    command = [sys.executable, str(tmp_path / "launch.py"), str(tmp_path), "{kubelet}", "{kubeconfig}", "{node}"]
    done = CliRunner().invoke(kubelet, ["verify", "--dra", "--", *command], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "publishes its devices again" in done.output
    assert "0 failed, 0 warning(s), 0 skipped" in done.output


def test_missing_driver_program_exits_with_2() -> None:
    done = CliRunner().invoke(kubelet, ["verify", "--dra", "--", "/nobody/here"])
    assert done.exit_code == 2
    assert "No such file" in done.output
