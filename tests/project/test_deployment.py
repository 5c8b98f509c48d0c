"""The unit and the manifest that we ship."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from nodeplug.config import loads

ROOT = Path(__file__).resolve().parents[2]


def test_the_unit_verifies_clean(tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze on this machine")
    unit = (ROOT / "systemd/nodeplug.service").read_text().replace("/opt/nodeplug/bin/nodeplug", "/bin/true")
    (tmp_path / "nodeplug.service").write_text(unit)
    shutil.copytree(ROOT / "systemd/nodeplug.service.d", tmp_path / "nodeplug.service.d")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / "nodeplug.service")], capture_output=True, text=True, check=False
    )
    # units of this machine that the service is ordered after may be wrong; that is not ours to mend
    ours = [line for line in done.stderr.splitlines() if "nodeplug.service" in line or "dra.conf" in line]
    assert ours == []


def test_the_manifest_asks_for_no_privilege_and_its_configuration_loads() -> None:
    objects = [each for each in yaml.safe_load_all((ROOT / "deploy/daemonset.yaml").read_text()) if each]
    kinds = {each["kind"]: each for each in objects}
    assert loads(kinds["ConfigMap"]["data"]["config.yaml"].encode()).resources
    (container,) = kinds["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert (security["privileged"], security["allowPrivilegeEscalation"]) == (False, False)
    assert security["readOnlyRootFilesystem"]
    mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
    assert mounts["/dev"]
    assert mounts["/sys"]
