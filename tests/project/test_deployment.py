"""The shipped unit and manifest."""

import configparser
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeplug.config import Config, from_environment, loads
from nodeplug.signals import STOP_TIMEOUT

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "systemd/nodeplug.service"


def test_unit_passes_systemd_analyze_verify(tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze on this machine")
    unit = UNIT.read_text().replace("/opt/nodeplug/bin/nodeplug", "/bin/true")
    (tmp_path / "nodeplug.service").write_text(unit)
    shutil.copytree(ROOT / "systemd/drop-ins", tmp_path / "nodeplug.service.d")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / "nodeplug.service")], capture_output=True, text=True, check=False
    )
    # errors in units of this machine are not ours
    ours = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "nodeplug.service" in line]
    assert ours == []


def test_unit_exposure_is_low() -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze on this machine")
    command = ["systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold=15", str(UNIT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("drop_in", sorted((ROOT / "systemd/drop-ins").iterdir()), ids=lambda path: path.name)
def test_unit_exposure_stays_low_with_each_drop_in(tmp_path: Path, drop_in: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze on this machine")
    units = tmp_path / "etc/systemd/system"
    (units / "nodeplug.service.d").mkdir(parents=True)
    shutil.copy(UNIT, units)
    shutil.copy(drop_in, units / "nodeplug.service.d")
    where = ("--offline=true", f"--root={tmp_path}", "--threshold=18", "nodeplug.service")
    done = subprocess.run(["systemd-analyze", "security", *where], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["k0s", "microk8s"])
def test_drop_in_has_the_folders_of_its_kubelet_root(name: str) -> None:
    (root,) = re.findall(r"kubeletRoot: (\S+)}", (ROOT / f"systemd/drop-ins/{name}.conf").read_text())
    overlay = yaml.safe_load((ROOT / f"deploy/overlays/{name}/daemonset.yaml").read_text())
    (variable,) = overlay["spec"]["template"]["spec"]["containers"][0]["env"]
    assert variable == {"name": "NODEPLUG_KUBELET_ROOT", "value": root}
    lines = (ROOT / f"systemd/drop-ins/{name}.conf").read_text().splitlines()
    writable = [line for line in lines if line.startswith("ReadWritePaths=")]
    usual = ["ReadWritePaths=", *re.findall(r"(?m)^ReadWritePaths=.*$", UNIT.read_text())]
    assert [line.replace(f" -{root}/plugins ", " ").replace(root, "/var/lib/kubelet") for line in writable] == usual


def test_unit_restarts_always_except_for_an_invalid_configuration() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[method-assign,assignment]
    unit.read_string(UNIT.read_text())
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert (unit["Service"]["Restart"], unit["Service"]["RestartPreventExitStatus"]) == ("always", "2")
    assert unit["Service"]["Type"] == "notify"
    assert int(unit["Service"]["WatchdogSec"]) > 0
    assert int(unit["Service"]["TimeoutStopSec"]) > STOP_TIMEOUT


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    """The manifest's objects by kind; each kind occurs once."""
    found = [each for each in yaml.safe_load_all((ROOT / "deploy/daemonset.yaml").read_text()) if each]
    return {each["kind"]: each for each in found}


@pytest.fixture(scope="module")
def config(objects: dict[str, Any], container: dict[str, Any]) -> Config:
    environment = from_environment({x["name"]: x["value"] for x in container["env"] if "value" in x})
    return loads(objects["ConfigMap"]["data"]["config.yaml"].encode(), environment_settings=environment)


@pytest.fixture(scope="module")
def pod(objects: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = objects["DaemonSet"]["spec"]["template"]["spec"]
    return found


@pytest.fixture(scope="module")
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod["containers"]
    assert isinstance(found, dict)
    return found


def test_manifest_requests_no_privilege(container: dict[str, Any]) -> None:
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert (security["privileged"], security["allowPrivilegeEscalation"]) == (False, False)
    assert security["readOnlyRootFilesystem"]
    assert container["resources"]["limits"]["memory"]


def test_manifest_mounts_exactly_the_needed_folders(
    config: Config, pod: dict[str, Any], container: dict[str, Any]
) -> None:
    settings = config.settings
    kubelet = settings.kubelet_root
    volumes = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod["volumes"]}
    on_host = {x["mountPath"]: x.get("readOnly", False) for x in container["volumeMounts"] if volumes[x["name"]]}
    assert {x["name"] for x in container["volumeMounts"]} == set(volumes)
    assert all(volumes[x["name"]] in (None, x["mountPath"]) for x in container["volumeMounts"])
    assert on_host == {
        f"{kubelet}/device-plugins": False,
        f"{kubelet}/plugins_registry": False,
        f"{kubelet}/plugins/{settings.driver_name}": False,
        f"{kubelet}/pod-resources": True,
        settings.state_directory: False,
        settings.cdi_directory: False,
        "/dev": True,
        "/sys": True,
        "/sys/fs/cgroup": True,
    }


def test_update_starts_the_new_pod_before_the_old_one_ends(
    config: Config, objects: dict[str, Any], pod: dict[str, Any], container: dict[str, Any]
) -> None:
    update = objects["DaemonSet"]["spec"]["updateStrategy"]
    assert (update["type"], update["rollingUpdate"]) == ("RollingUpdate", {"maxSurge": 1, "maxUnavailable": 0})
    facts = {
        each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"] if "valueFrom" in each
    }
    assert facts == {"NODE_NAME": "spec.nodeName", "POD_UID": "metadata.uid"}
    assert config.settings.lock_wait_seconds > pod["terminationGracePeriodSeconds"] > STOP_TIMEOUT
    assert "ports" not in container


def test_probes_use_the_address_of_the_status_server(config: Config, container: dict[str, Any]) -> None:
    port = int(config.settings.metrics_address.rpartition(":")[2])
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": port}


def test_role_and_policy_name_the_driver_and_its_account(config: Config, objects: dict[str, Any]) -> None:
    (rule,) = (x for x in objects["ClusterRole"]["rules"] if x["resources"] == ["resourceclaims/driver"])
    assert rule["resourceNames"] == [config.settings.driver_name]
    names = re.findall(r"system:serviceaccount:(\w+):(\w+)", yaml.dump(objects["ValidatingAdmissionPolicy"]))
    account = objects["ServiceAccount"]["metadata"]
    assert names == [(account["namespace"], account["name"])]
