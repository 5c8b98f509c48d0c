"""docs/install.md: the files that it names exist, and its statements about values are true."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import yaml

from nodeplug.version import VERSION
from resourceapi.client import from_kubeconfig

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/install.md").read_text()
SHELL = [line for block in re.findall(r"(?s)```sh\n(.*?)```", PAGE) for line in block.splitlines()]


def test_files_named_in_commands_exist_or_are_built() -> None:
    named = {word for line in SHELL for word in line.split() if re.match(r"(deploy|systemd)/", word)}
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
    made = {word.removeprefix("./") for line in SHELL for word in line.split() if "dist/" in word}
    known = {"nodeplug-*.whl", f"nodeplug-{VERSION}-py3-none-any.whl", f"nodeplug-{VERSION}-amd64.oci.tar"}
    assert made == {f"dist/{name}" for name in known | {f"nodeplug_{VERSION}_amd64.deb", f"nodeplug-{VERSION}.pyz"}}


def test_tables_list_every_overlay_and_drop_in_and_existing_values() -> None:
    overlays = set(re.findall(r"(?m)^\| [^|]+ \| `([a-z0-9-]+)` \|", PAGE))
    assert overlays == {each.name for each in (ROOT / "deploy/overlays").iterdir()}
    drop_ins = set(re.findall(r"`([a-z0-9]+\.conf)` \|", PAGE))
    assert drop_ins == {each.name for each in (ROOT / "systemd/drop-ins").iterdir()}
    values = yaml.safe_load((ROOT / "deploy/chart/values.yaml").read_text())
    for path in re.findall(r"`([a-zA-Z.]+)=\S+` \|", PAGE):
        first, *rest = path.split(".")
        assert first in values
        assert not rest or rest[0] in values[first]


def test_kubeconfig_made_by_the_page_is_usable(tmp_path: Path) -> None:
    """With this folder in place of the node's; only the token is made up."""
    kubectl = shutil.which("kubectl", path=str(Path.home() / ".cache/realnode/bin")) or shutil.which("kubectl")
    if not kubectl:
        pytest.skip("no kubectl here: `make node` builds it")
    (tmp_path / "admin").write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
                "clusters": [
                    {
                        "name": "c",
                        "cluster": {
                            "server": "https://192.0.2.10:6443",
                            "certificate-authority-data": base64.b64encode(b"the CA").decode(),
                        },
                    }
                ],
            }
        )
    )
    (block,) = (block for block in re.findall(r"(?s)```sh\n(.*?)```", PAGE) if "tokenFile" in block)
    script = "".join(line for line in block.splitlines(keepends=True) if not re.match("kubectl (apply|create)", line))
    environment = {"KUBECONFIG": str(tmp_path / "admin"), "PATH": f"{Path(kubectl).parent}:{os.environ['PATH']}"}
    script = script.replace("/etc/nodeplug", str(tmp_path))
    subprocess.run(["sh", "-ec", script], cwd=tmp_path, env=environment, check=True, capture_output=True)
    (tmp_path / "token").write_text("a token\n")
    found = from_kubeconfig(tmp_path / "kubeconfig")()
    assert (found.server, found.ca, found.token) == ("https://192.0.2.10:6443", "the CA", "a token")


def test_pip_installation_works_as_written(tmp_path: Path) -> None:
    """With the libraries of this environment instead of the network's, and without the checkout."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    venv.create(tmp_path / "nodeplug", symlinks=True)
    (site,) = (tmp_path / "nodeplug").glob("lib/python*/site-packages")
    libraries = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "libraries.pth").write_text(libraries + "\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    lines = [line for line in SHELL if line.startswith("~/nodeplug/")]
    assert len(lines) == 3
    for line in lines:
        command = line.replace("~", str(tmp_path)).replace(
            "/bin/pip install", "/bin/python -m pip install -q --no-deps"
        )
        done = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, check=False, capture_output=True)
        assert (done.returncode, done.stdout != b"") == (0, "pip" not in line), done.stderr
    assert (site / "nodeplug/__main__.py").exists()
    assert not (site / "tests").exists()
