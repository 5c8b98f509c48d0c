"""Manifests for clusters: deploy/base, its overlays, and the chart, which must create the same objects."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # has no types of its own
import pytest
import yaml

from nodeplug.config import Config, from_environment, loads
from nodeplug.version import VERSION
from resourceapi.client import in_cluster

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
Objects = dict[tuple[str, str], dict[str, Any]]

WITHOUT_DRA = [
    {"name": "nodeplug.dev/fuse", "select": "fuse", "shares": 100},
    {"name": "nodeplug.dev/kvm", "select": "kvm", "shares": 100},
    {"name": "nodeplug.dev/gpu", "select": "gpu"},
    {"name": "nodeplug.dev/usb-serial", "select": "usb-serial"},
]
VALUES: dict[str, dict[str, Any]] = {
    "base": {},
    "overlays/api-server": {"apiServer": {"host": "api.cluster.example"}},
    "overlays/cluster-events": {"clusterEvents": True},
    "overlays/device-config-policy": {"deviceConfigPolicy": True},
    "overlays/driver-files": {"driverFiles": True},
    "overlays/eviction": {"evictsPods": True},
    "overlays/k0s": {"kubeletRoot": "/var/lib/k0s/kubelet"},
    "overlays/microk8s": {"kubeletRoot": "/var/snap/microk8s/common/var/lib/kubelet"},
    "overlays/moving-interfaces": {"hostNetwork": True, "movesInterfaces": True},
    "overlays/monitoring": {"monitoring": {"podMonitor": True, "rules": True, "dashboard": True}},
    "overlays/network-cards": {"hostNetwork": True},
    "overlays/nvml": {"driverFiles": True, "nvml": True},
    "overlays/openshift": {"openshift": {"enabled": True}},
    "overlays/node-features": {"nodeFeatures": True},
    "overlays/reset": {"writableSys": True},
    "overlays/talos": {"cdiDirectory": "/var/cdi/dynamic"},
    "overlays/tracing": {"tracing": {"enabled": True}},
    "overlays/without-dra": {"dra": {"enabled": False}, "config": {"resources": WITHOUT_DRA}},
}
"""The chart's values that correspond to a folder."""


def _tool(name: str) -> str:
    """Return a program of this machine or of the real node."""
    found = shutil.which(name, path=str(Path.home() / ".cache/realnode/bin")) or shutil.which(name)
    if not found:
        pytest.skip(f"no {name} here: `make node` builds it")
    return found


def _objects(text: str) -> Objects:
    """Parse objects; configurations are compared by content, and named entries in any order."""
    found: Objects = {}
    for each in yaml.safe_load_all(text):
        if not each:
            continue
        if each["kind"] == "ConfigMap":  # JSON is YAML as well
            each["data"] = {name: yaml.safe_load(content) for name, content in each["data"].items()}
        if each["kind"] == "DaemonSet":
            pod = each["spec"]["template"]["spec"]
            pod["volumes"].sort(key=lambda volume: volume["name"])
            pod["containers"][0]["env"].sort(key=lambda variable: variable["name"])
            pod["containers"][0]["volumeMounts"].sort(key=lambda mount: mount["mountPath"])
            for mount in pod["containers"][0]["volumeMounts"]:
                mount.setdefault("readOnly", False)
        found[each["kind"], each["metadata"]["name"]] = each
    return found


@pytest.fixture(scope="session")
def kustomize() -> Callable[[str], Objects]:
    """Build the objects of a folder."""
    kubectl = _tool("kubectl")

    @cache
    def build(folder: str) -> Objects:
        command = [kubectl, "kustomize", str(DEPLOY / folder)]
        return _objects(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    return build


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict[str, Any]], subprocess.CompletedProcess[str]]:
    """Render the chart with values."""
    program = _tool("helm")
    values = tmp_path_factory.mktemp("helm") / "values.yaml"

    def template(chart_values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        values.write_text(json.dumps(chart_values))
        command = [program, "template", "nodeplug", str(DEPLOY / "chart"), "-n", "nodeplug", "-f", str(values)]
        return subprocess.run(command, check=False, capture_output=True, text=True)

    return template


def test_every_overlay_is_compared() -> None:
    assert set(VALUES) == {"base", *(f"overlays/{each.name}" for each in (DEPLOY / "overlays").iterdir())}
    assert (DEPLOY / "daemonset.yaml").samefile(DEPLOY / "base/daemonset.yaml")


@pytest.mark.parametrize("folder", VALUES)
def test_overlay_and_chart_create_the_same_objects(
    folder: str,
    kustomize: Callable[[str], Objects],
    helm: Callable[[dict[str, Any]], subprocess.CompletedProcess[str]],
) -> None:
    rendered = helm({"namespace": {"create": True}} | VALUES[folder])
    assert rendered.returncode == 0, rendered.stderr
    assert _objects(rendered.stdout) == kustomize(folder)


@pytest.mark.parametrize("folder", VALUES)
def test_pod_matches_the_configuration_of_the_daemon(folder: str, kustomize: Callable[[str], Objects]) -> None:
    _check_the_pod(kustomize(folder))


def _config(objects: Objects) -> Config:
    """The daemon's configuration in the pod, from the file and the environment."""
    (container,) = objects["DaemonSet", "nodeplug"]["spec"]["template"]["spec"]["containers"]
    environment = from_environment({x["name"]: x["value"] for x in container["env"] if "value" in x})
    content = json.dumps(objects["ConfigMap", "nodeplug"]["data"]["config.yaml"]).encode()
    return loads(content, environment_settings=environment)


def _check_the_pod(objects: Objects) -> None:
    config = _config(objects)
    settings = config.settings
    pod = objects["DaemonSet", "nodeplug"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    on_host = {x["name"]: x["hostPath"]["path"] for x in pod["volumes"] if "hostPath" in x}
    mounted = {x["name"]: x["mountPath"] for x in container["volumeMounts"] if x["name"] in on_host}
    if "host" in mounted:  # the daemon reads the files below it, and gives the runtime paths of the host
        assert (mounted.pop("host"), on_host.pop("host")) == (settings.driver_root, settings.driver_root_on_host)
    assert mounted == on_host
    has_dra = ("ClusterRole", "nodeplug") in objects
    root = settings.kubelet_root
    assert {path for path in on_host.values() if path.startswith(root)} == {
        f"{root}/{name}"
        for name in ("device-plugins", "plugins_registry", "pod-resources")
        + ((f"plugins/{settings.driver_name}",) if has_dra else ())
    }
    assert {settings.cdi_directory, settings.state_directory} < set(on_host.values())
    assert pod["automountServiceAccountToken"] is has_dra
    assert has_dra is any(resource.api != "device-plugin" for resource in config.resources)
    host, _, port = settings.metrics_address.rpartition(":")
    asked = container["livenessProbe"]["httpGet"]
    assert (asked.get("host", ""), asked["port"]) == (host, int(port))
    if host:  # with hostNetwork, the older instance would answer HTTP probes of both
        command = ["python3", "-m", "nodeplug.probe", settings.status_socket]
        assert container["readinessProbe"]["exec"]["command"] == command
        assert "httpGet" not in container["readinessProbe"]
    else:
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": int(port)}
    assert bool(host) is pod.get("hostNetwork", False)
    assert settings.lock_wait_seconds > pod["terminationGracePeriodSeconds"]
    assert container["image"].endswith("/nodeplug:" + VERSION)  # an image without a host name is from Docker Hub


@pytest.mark.parametrize(
    ("chart_values", "says"),
    [
        ({"kubeletroot": "/x"}, "kubeletroot"),
        (
            {"config": {"settings": {"kubeletRoot": "/x"}}},
            "config.settings.kubeletRoot: set the value kubeletRoot instead",
        ),
        ({"config": {"settings": {"metricsAddress": ":1"}}}, "set the value metricsPort instead"),
        ({"kubeletRoot": "/var/lib/kubelet/"}, "/kubeletRoot"),
        ({"monitoring": {"podMonitor": True}, "hostNetwork": True}, "monitoring.podMonitor: with hostNetwork"),
        ({"apiServer": {"host": "https://api.cluster.example"}}, "/apiServer/host"),
        ({"apiServer": {"host": "10.0.0.1:6443"}}, "/apiServer/host"),
        ({"apiServer": {"host": "[fd00::1]"}}, "/apiServer/host"),
        ({"apiServer": {"host": "10.0.0.1", "port": 0}}, "/apiServer/port"),
        ({"tracing": {"environment": {"TRACES": "x"}}}, "at '/tracing/environment'"),
        ({"maxSurge": 0}, "/maxSurge"),
        ({"maxSurge": "10"}, "/maxSurge"),
        ({"podLabels": {"app.kubernetes.io/name": "x"}}, "/podLabels"),
        ({"apiServer": {"host": "10.0.0.1"}} | VALUES["overlays/without-dra"], "apiServer.host needs dra.enabled"),
        ({"clusterEvents": True} | VALUES["overlays/without-dra"], "clusterEvents needs dra.enabled"),
        ({"evictsPods": True} | VALUES["overlays/without-dra"], "evictsPods needs dra.enabled"),
        ({"deviceConfigPolicy": True} | VALUES["overlays/without-dra"], "deviceConfigPolicy needs dra.enabled"),
        ({"dra": {"enabled": False}}, "nodeplug.dev/gpu has `api: both`, which needs dra.enabled"),
    ],
)
def test_invalid_values_are_refused(
    chart_values: dict[str, Any], says: str, helm: Callable[[dict[str, Any]], subprocess.CompletedProcess[str]]
) -> None:
    refused = helm(chart_values)
    assert refused.returncode != 0
    assert says in refused.stderr


@pytest.mark.parametrize("host", ["api.cluster.example", "10.0.0.1", "fd00::1", "::1", "localhost"])
def test_client_uses_the_configured_api_server_address(
    host: str, tmp_path: Path, helm: Callable[[dict[str, Any]], subprocess.CompletedProcess[str]]
) -> None:
    rendered = helm({"apiServer": {"host": host}})
    assert rendered.returncode == 0, rendered.stderr
    (container,) = _objects(rendered.stdout)["DaemonSet", "nodeplug"]["spec"]["template"]["spec"]["containers"]
    variables = {x["name"]: x["value"] for x in container["env"] if "value" in x}
    for name in ("token", "ca.crt"):
        (tmp_path / name).write_text("x")
    shown = f"[{host}]" if ":" in host else host
    assert in_cluster(tmp_path, variables)().server == f"https://{shown}:6443"


def test_values_are_set_in_the_pod(
    helm: Callable[[dict[str, Any]], subprocess.CompletedProcess[str]],
) -> None:
    of_the_pod: dict[str, Any] = {
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "nodeSelector": {"gpu": "true"},
        "priorityClassName": "system-cluster-critical",
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    }
    volume = {"name": "driver", "hostPath": {"path": "/run/nvidia/driver"}}
    mount = {"name": "driver", "mountPath": "/run/nvidia/driver", "readOnly": True}
    limits = {"limits": {"memory": "512Mi"}}
    values = {
        "image": {"repository": "r.example.com/n", "tag": "1@sha256:00", "pullSecrets": [{"name": "r"}]},
        "maxSurge": "10%",
        "podLabels": {"team": "edge"},
        "podAnnotations": {"example.com/a": "1"},
        "extraVolumes": [volume],
        "extraVolumeMounts": [mount],
        "resources": limits,
        **of_the_pod,
    }
    rendered = helm(values)
    assert rendered.returncode == 0, rendered.stderr
    spec = _objects(rendered.stdout)["DaemonSet", "nodeplug"]["spec"]
    template, pod = spec["template"], spec["template"]["spec"]
    (container,) = pod["containers"]
    assert {key: pod[key] for key in of_the_pod} == of_the_pod
    assert (container["image"], pod["imagePullSecrets"]) == ("r.example.com/n:1@sha256:00", [{"name": "r"}])
    assert spec["updateStrategy"]["rollingUpdate"] == {"maxSurge": "10%", "maxUnavailable": 0}
    assert template["metadata"]["labels"] == {"app.kubernetes.io/name": "nodeplug", "team": "edge"}
    assert template["metadata"]["annotations"] == values["podAnnotations"]
    assert volume in pod["volumes"]
    assert mount in container["volumeMounts"]
    assert container["resources"]["limits"] == limits["limits"]


def test_default_values_match_the_schema() -> None:
    values = yaml.safe_load((DEPLOY / "chart/values.yaml").read_text())
    schema = json.loads((DEPLOY / "chart/values.schema.json").read_text())
    jsonschema.validate(values, schema)
    assert set(schema["properties"]) == {*values, "global"}
    chart = yaml.safe_load((DEPLOY / "chart/Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == VERSION


@pytest.mark.parametrize("folder", [name for name in VALUES if name != "overlays/without-dra"])
def test_own_kustomization_works_on_every_overlay(
    folder: str, tmp_path: Path, kustomize: Callable[[str], Objects]
) -> None:
    """It changes the offered resources, and nothing of the pod."""
    page = (DEPLOY.parent / "docs/install.md").read_text()
    (own,) = re.findall(r"(?s)```yaml\n# own/kustomization.yaml\n(.*?)```", page)
    shutil.copytree(DEPLOY, tmp_path / "deploy", ignore=shutil.ignore_patterns("image", "chart"))
    own_folder = tmp_path / "own"
    own_folder.mkdir()
    (own_folder / "kustomization.yaml").write_text(own.replace("../deploy/base", f"../deploy/{folder}"))
    (own_folder / "config.yaml").write_text("resources: [{name: example.com/tty, select: usb-serial, api: both}]\n")
    objects = kustomize(str(own_folder))
    _check_the_pod(objects)
    assert objects["ConfigMap", "nodeplug"]["data"]["config.yaml"]["resources"][0]["name"] == "example.com/tty"
    (container,) = objects["DaemonSet", "nodeplug"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/nodeplug:0.1.0"


def test_privileged_pod_for_nvml_is_allowed_on_openshift(
    helm: Callable[[dict[str, Any]], subprocess.CompletedProcess[str]],
) -> None:
    rendered = helm({"nvml": True, "openshift": {"enabled": True}})
    objects = _objects(rendered.stdout)
    (container,) = objects["DaemonSet", "nodeplug"]["spec"]["template"]["spec"]["containers"]
    security = container["securityContext"]
    assert security["privileged"]
    assert "allowPrivilegeEscalation" not in security  # the API server refuses false beside it
    constraints = objects["SecurityContextConstraints", "nodeplug"]
    assert constraints["allowPrivilegedContainer"]
    assert constraints["requiredDropCapabilities"] == []


def test_systemd_cluster_manifests_are_the_rights_of_the_daemonset(kustomize: Callable[[str], Objects]) -> None:
    """The DaemonSet's rights, without the DaemonSet."""
    base = kustomize("base")
    wanted = {key: value for key, value in base.items() if key[0] not in ("DaemonSet", "ConfigMap")}
    assert kustomize("../systemd/cluster") == wanted
    assert {key[0] for key in wanted} > {"ClusterRole", "ServiceAccount", "ValidatingAdmissionPolicy"}
