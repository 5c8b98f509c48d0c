"""The Go examples work: upstream's modules, client-go with its defaults, and only our commands.

They need no node, but Go, and its module proxy once; programs are kept until their sources change.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e import go_programs

pytestmark = pytest.mark.e2e
SOURCES = Path(__file__).resolve().parents[2] / "examples" / "go"


@pytest.fixture(scope="module")
def built() -> Path:
    """The folder of the programs."""
    return go_programs.built(SOURCES, "nodeplug-examples")


def verified(*arguments: str) -> str:
    """Return the output of `nodeplug kubelet verify` for a command, which must succeed."""
    command = [sys.executable, "-m", "nodeplug", "kubelet", "verify", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("kubernetes", ["1.34", "1.35", "1.36", "1.37"])
def test_device_plugin_example_passes_the_verification(built: Path, kubernetes: str) -> None:
    output = verified("--kubernetes", kubernetes, "--", str(built / "device-plugin"), "{dir}")
    assert "comes back after restart 3" in output
    assert "0 failed, 0 warning(s)" in output


def test_dra_driver_example_passes_the_verification(built: Path, tmp_path: Path) -> None:
    """Takes up to a minute, because upstream's helper does not check its own slices sooner."""
    places = ("-kubelet", "{kubelet}", "-kubeconfig", "{kubeconfig}", "-node", "{node}", "-cdi", str(tmp_path))
    output = verified("--dra", "--", str(built / "dra-driver"), *places)
    assert "publishes its devices again" in output
    assert "0 failed, 3 warning(s)" in output  # a bad claim fails the whole call, as in upstream's helper
    assert list(tmp_path.iterdir()) == []
