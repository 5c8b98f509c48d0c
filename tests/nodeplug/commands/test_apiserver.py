"""`nodeplug apiserver` as a process."""

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import yaml
from click.testing import CliRunner

from nodeplug.cli import main

_CLASS = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu}\nspec: {}\n"
_POOL = (
    "---\napiVersion: devmgmtproto.k8s.io/v1alpha1\nkind: DevicePool\nmetadata: {name: p}\n"
    "spec: {driver: d, devices: []}\n"
)
_NODE = "---\napiVersion: v1\nkind: Node\nmetadata: {name: node1}\nstatus: {capacity: {cpu: '2'}}\n"


def test_server_loads_manifests_and_stops_on_sigterm(tmp_path: Path) -> None:
    """Manifests are loaded before it serves, the kubeconfig is valid, and SIGTERM ends it with code 0."""
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests/one.yaml").write_text(_CLASS + _NODE + _POOL)
    config = tmp_path / "config"
    command = [sys.executable, "-m", "nodeplug", "apiserver", "--kubeconfig", str(config)]
    with subprocess.Popen(
        [*command, "--load", str(tmp_path / "manifests")], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        process.stdout.readline()  # the hint is printed after the kubeconfig is written
        (cluster,) = yaml.safe_load(config.read_text())["clusters"]
        server = cluster["cluster"]["server"]
        in_path = f"http://{server.rpartition('@')[2]}"  # for clients that send no password
        assert in_path.startswith(f"{url}/")
        assert config.stat().st_mode & 0o777 == 0o600
        pool = "/apis/devmgmtproto.k8s.io/v1alpha1/devicepools/p"
        for path in (pool, "/apis/resource.k8s.io/v1/deviceclasses/gpu", "/api/v1/nodes/node1"):
            with urllib.request.urlopen(in_path + path, timeout=10) as answer:
                found = json.load(answer)
        assert found["status"]["capacity"] == {"cpu": "2"}
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_invalid_manifest_is_refused_with_file_and_reason(tmp_path: Path) -> None:
    """The message contains the file and the API's reason."""
    bad = tmp_path / "bad.yaml"
    bad.write_text(_CLASS.replace("gpu", "A_B"))
    done = CliRunner().invoke(main, ["apiserver", "--load", str(bad)])
    assert done.exit_code == 1
    assert f'{bad}: DeviceClass.resource.k8s.io "A_B" is invalid: metadata.name' in done.output


def test_unwritable_kubeconfig_is_named(tmp_path: Path) -> None:
    """The error names the requested file."""
    done = CliRunner().invoke(main, ["apiserver", "--kubeconfig", str(tmp_path / "missing/config")])
    assert (done.exit_code, done.output.splitlines()[-1]) == (
        1,
        f"Error: [Errno 2] No such file or directory: '{tmp_path}/missing/config'",
    )


def test_authorization_mode_is_case_sensitive() -> None:
    """They are spelled as for kube-apiserver."""
    assert "[AlwaysAllow|RBAC]" in CliRunner().invoke(main, ["apiserver", "--help"]).output
    refused = CliRunner().invoke(main, ["apiserver", "--authorization-mode", "rbac"])
    assert refused.exit_code == 2
    assert "Did you mean 'RBAC'?" in refused.output


def test_port_in_use_is_named() -> None:
    """One line names the port."""
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = CliRunner().invoke(main, ["apiserver", "--port", port])
    assert done.exit_code == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in done.output


def test_empty_host_is_refused() -> None:
    refused = CliRunner().invoke(main, ["apiserver", "--host", ""])
    assert (refused.exit_code, "--host: an address to listen on" in refused.output) == (2, True)
