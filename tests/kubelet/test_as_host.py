"""Commands with a fixed /var/lib/kubelet use the stand-in there, and the machine's own folder stays unchanged."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "examples" / "device-plugin" / "plugin.py"
AS_ORDINARY_USER = ("unshare", "-U", "--map-user=1000", "--map-group=1000")
SCRIPT = """
import sys
from pathlib import Path
from kubelet import NodeError
from kubelet.conformance import as_host

folder = Path(sys.argv[1])
before = sorted(x.name for x in folder.parent.iterdir())
try:
    as_host.enter(folder)
except NodeError as error:
    sys.exit(str(error))
assert list(folder.iterdir()) == [], "it is empty"
(folder / "mine").touch()
assert sorted({*before, folder.name}) == sorted(x.name for x in folder.parent.iterdir()), "the others are there"
print(*sorted(x.read_text() for x in folder.parent.iterdir() if x.is_file()))
"""


def run_trial(folder: Path, *prefix: str) -> subprocess.CompletedProcess[str]:
    command = [*prefix, sys.executable, "-c", SCRIPT, str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def skip_without_namespaces(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """The result. If this machine forbids namespaces, check that the error says what to do, and skip the test."""
    if "unshare:" in done.stderr:
        assert "user.max_user_namespaces" in done.stderr or "unshare: unshare failed" in done.stderr, done.stderr
        pytest.skip("no namespaces on this machine")
    return done


@pytest.mark.parametrize("prefix", [(), AS_ORDINARY_USER], ids=["as we are", "as an ordinary user"])
@pytest.mark.parametrize("exists", [True, False])
def test_replaced_folder_is_empty_and_private_to_process(tmp_path: Path, prefix: tuple[str, ...], exists: bool) -> None:
    folder = tmp_path / "kubelet"
    (tmp_path / "file").write_text("of the machine")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "other" / "deep").mkdir(parents=True)
    if exists:
        folder.mkdir()
        (folder / "kubelet.sock").touch()
    done = skip_without_namespaces(run_trial(folder, *prefix))
    assert (done.returncode, done.stdout.strip()) == (0, "of the machine of the machine"), done.stderr
    left = sorted(str(x.relative_to(tmp_path)) for x in tmp_path.rglob("*"))
    ours = ["kubelet", "kubelet/kubelet.sock"] if exists else []
    assert left == ["file", *ours, "link", "other", "other/deep"]


def test_forbidden_namespaces_error_names_the_sysctl(tmp_path: Path) -> None:
    script = 'echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-all --inh-caps=-all "$@"'
    done = run_trial(tmp_path / "kubelet", "unshare", "-Ur", "sh", "-c", script, "sh")
    if "unshare: unshare failed" in done.stderr or "setpriv" in done.stderr:
        pytest.skip("no namespaces on this machine")
    assert done.returncode == 1
    assert "kubelet cannot be replaced for the command alone" in done.stderr
    assert "allow user namespaces (sysctl user.max_user_namespaces" in done.stderr


def test_verify_as_host_accepts_plugin_with_fixed_path(tmp_path: Path) -> None:
    before = host_kubelet_folder()
    fixed = tmp_path / "fixed.py"
    fixed.write_text(
        "import runpy, sys\n"
        "sys.argv[1:] = ['/var/lib/kubelet/device-plugins']\n"
        f"runpy.run_path({str(PLUGIN)!r}, run_name='__main__')\n"
    )
    command = ["-m", "nodeplug", "kubelet", "verify", "--as-host", "--failures-only", "--", sys.executable, str(fixed)]
    done = skip_without_namespaces(
        subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    )
    assert (done.returncode, "0 failed" in done.stdout) == (0, True), done.stdout + done.stderr
    assert host_kubelet_folder() == before


def host_kubelet_folder() -> list[str] | None:
    """The content of the machine's own folder."""
    folder = Path("/var/lib/kubelet")
    return sorted(x.name for x in folder.iterdir()) if folder.is_dir() else None
