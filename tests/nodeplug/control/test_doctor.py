"""`nodeplug doctor`, on made-up machines with and without the prerequisites."""

import asyncio
import json
import os
import socket
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hostdevices import Host
from kubelet.node import Node
from nodeplug.cli import main
from nodeplug.config import Settings, load
from nodeplug.doctor import cluster, host, runtime
from nodeplug.doctor.examination import findings
from nodeplug.doctor.observers import examine
from tests.deviceplugin.host import MadeUpHost
from tests.hostdevices.pci_kernel import PciKernel
from tests.nodeplug.conftest import pod
from tests.nodeplug.control.conftest import FUSE, KVM, DaemonUnderTest
from tests.nodeplug.machine import Machine
from tests.resourceapi.client.peer import Request, serving
from tests.running import until

_NOBODY = 65534
CRI = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n'


async def examined(config: Path, root: Path) -> tuple[int, list[tuple[str, str, str]]]:
    """Return the exit code, and each finding's outcome, subject and text."""
    words = ["doctor", "--config", str(config), "--root", str(root), "-o", "json"]
    result = await asyncio.to_thread(CliRunner().invoke, main, words)
    found = json.loads(result.stdout)["findings"]
    assert all(x["hint"] for x in found if x["outcome"] == "wrong" and x["subject"] != "daemon")
    return result.exit_code, [(x["outcome"], x["subject"], x["message"]) for x in found]


async def test_complete_machine_has_no_errors(daemon: DaemonUnderTest, node: Node) -> None:
    (daemon.root / "etc/containerd").mkdir(parents=True)
    (daemon.root / "etc/containerd/config.toml").write_text("version = 3\n")
    await daemon.start(FUSE)
    await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
    assert (await node.admit(pod("a"))).phase == "Running"
    code, found = await examined(daemon.path, daemon.root)
    assert code == 0, found
    assert {subject for outcome, subject, _ in found if outcome == "ok"} == {
        *("configuration", "daemon", "kubelet", "runtime", "host")
    }
    await daemon.run("withhold", "/dev/fuse", "--reason", "noise")
    daemon.write(FUSE, {"name": "example.com/gps", "select": "usb-serial"})
    code, found = await examined(daemon.path, daemon.root)
    assert code == 0
    assert ("note", "daemon", f"it has not loaded the present contents of {daemon.path}") in found
    assert ("note", "daemon", "misc-fuse is withheld (noise)") in found
    (gps,) = (says for outcome, subject, says in found if (outcome, subject) == ("note", "host") and "gps" in says)
    assert gps.startswith("example.com/gps: no device here")


async def test_missing_kubelet_daemon_and_configuration_are_reported(
    tmp_path: Path, socket_dir: Path, made_up: MadeUpHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({"settings": {"kubeletRoot": f"{socket_dir}/none"}, "resources": [KVM]}))
    code, found = await examined(path, made_up.root)
    assert code == 1
    assert ("wrong", "kubelet", f"there is no {socket_dir}/none: no kubelet has run on this node") in found
    assert [x[0] for x in found if x[1] == "daemon"] == ["wrong"]
    path.write_text("resources: 3")
    assert (await examined(path, made_up.root))[1][0][:2] == ("wrong", "configuration")
    path.unlink()
    monkeypatch.setenv("NODEPLUG_KUBELET_ROOT", f"{socket_dir}/none")  # set as in a pod
    _, found = await examined(path, made_up.root)
    assert found[0] == ("note", "configuration", f"there is no {path}")
    assert ("wrong", "kubelet", f"there is no {socket_dir}/none: no kubelet has run on this node") in found


def test_inaccessible_kubelet_socket_is_reported_with_the_hint_to_use_root(
    tmp_path: Path, socket_dir: Path, made_up: MadeUpHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODEPLUG_KUBELET_ROOT", str(socket_dir))
    path, host = socket_dir / "device-plugins/kubelet.sock", made_up.host
    path.parent.mkdir()
    list(findings(tmp_path / "config.yaml", host))  # first imports all modules that it uses
    before = os.geteuid()
    with socket.socket(socket.AF_UNIX) as kubelet:
        kubelet.bind(str(path))
        kubelet.listen()
        path.chmod(0o000)
        socket_dir.chmod(0o711)
        try:
            os.seteuid(before or _NOBODY)
            found = list(findings(tmp_path / "config.yaml", host))
        finally:
            os.seteuid(before)
    assert [(x.message, x.hint) for x in found if x.subject == "kubelet"] == [
        (f"{path}: Permission denied", "some checks need root: run this command as root")
    ]


def test_inaccessible_folders_are_reported_with_the_hint_to_use_root(
    tmp_path: Path, socket_dir: Path, made_up: MadeUpHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, kubelet, host = tmp_path / "etc/config.yaml", socket_dir / "kubelet", made_up.host
    for folder in (config.parent, kubelet):
        folder.mkdir()
    config.write_text("resources: []")
    monkeypatch.setenv("NODEPLUG_KUBELET_ROOT", str(kubelet))
    list(findings(config, host))  # first imports all modules that it uses
    before = os.geteuid()
    try:
        for folder in (config.parent, kubelet):
            folder.chmod(0)
        os.seteuid(before or _NOBODY)
        found = list(findings(config, host))
    finally:
        os.seteuid(before)
        for folder in (config.parent, kubelet):
            folder.chmod(0o700)
    says = [f"{config}:1:1: this file cannot be read: Permission denied"]
    assert [x.message for x in found if x.subject == "configuration"] == says
    assert [(x.outcome, x.hint) for x in found if x.subject == "kubelet"] == [
        ("wrong", "some checks need root: run this command as root")
    ]
    assert "host" in {x.subject for x in found}


@pytest.mark.parametrize("text", ['version = "3"', "plugins = 3", "plugins = [1]"])
async def test_invalid_runtime_configuration_is_a_note(daemon: DaemonUnderTest, text: str) -> None:
    daemon.write(FUSE)
    (daemon.root / "etc/containerd").mkdir(parents=True)
    path = daemon.root / "etc/containerd/config.toml"
    path.write_text(text)
    _, found = await examined(daemon.path, daemon.root)
    says = "/etc/containerd/config.toml does not show whether CDI is enabled; nothing that is offered needs it"
    assert ("note", "runtime", says) in found


async def test_stopped_kubelet_is_an_error(daemon: DaemonUnderTest, node: Node) -> None:
    daemon.write(FUSE)
    await node.stop(kill=True)
    code, found = await examined(daemon.path, daemon.root)
    assert code == 1
    assert [x[2].startswith(("nothing listens at ", "there is no ")) for x in found if x[1] == "kubelet"] == [
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("configuration", "cdi", "outcome", "words"),
    [
        (
            'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = false\n',
            True,
            "wrong",
            "CDI is needed by",
        ),
        (f"{CRI}enable_cdi = false\n", "auto", "note", "nothing"),
        (f"{CRI}enable_cdi = true\n", True, "ok", "CDI is enabled"),
        ("version = 2\n", True, "note", "does not show"),
        ("version = \n", True, "note", "cannot be read"),
        (None, True, "note", "no file here shows"),
    ],
)
async def test_runtime_configuration_shows_whether_cdi_is_enabled(
    daemon: DaemonUnderTest, configuration: str | None, cdi: object, outcome: str, words: str
) -> None:
    daemon.write({**FUSE, "cdi": cdi}, cdiDirectory="/var/run/cdi")
    if configuration is not None:
        (daemon.root / "etc/containerd").mkdir(parents=True)
        (daemon.root / "etc/containerd/config.toml").write_text(configuration)
    _, found = await examined(daemon.path, daemon.root)
    ((judged, _, says),) = [x for x in found if x[1] == "runtime"]
    assert judged == outcome
    assert words in says


async def test_cdi_device_that_another_spec_also_defines_is_an_error(daemon: DaemonUnderTest) -> None:
    await daemon.start({**FUSE, "cdi": True})
    settings = load(daemon.path).settings
    folder = Path(settings.cdi_directory)
    await until(lambda: list(folder.glob("nodeplug-*.json")))
    (ours,) = folder.glob("nodeplug-*.json")

    def found() -> list[str]:
        return [x.message for x in runtime.examine(Host(daemon.root), settings, None) if x.outcome == "wrong"]

    text = ours.read_text()
    (folder / "other.yaml").write_text(text.replace("misc-fuse", "another"))
    (folder / "vendor.json").write_text(text.replace("example.com/fuse", "vendor.example/fuse"))
    (folder / "nonsense.json").write_text("{")
    assert found() == []
    (folder / "copy.yaml").write_text(text)
    assert found() == [
        f"{folder}/copy.yaml also defines example.com/fuse=misc-fuse: no container with this device can start"
    ]


async def test_runtime_configuration_of_rke2_is_found(daemon: DaemonUnderTest) -> None:
    daemon.write({**FUSE, "cdi": True}, cdiDirectory="/var/run/cdi")
    path = daemon.root / "var/lib/rancher/rke2/agent/etc/containerd/config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(f"{CRI}enable_cdi = true\n")
    _, found = await examined(daemon.path, daemon.root)
    assert ("ok", "runtime", f"CDI is enabled in containerd (/{path.relative_to(daemon.root)})") in found


@pytest.mark.parametrize(
    ("features", "outcome", "words"),
    [('{"linux": {"netDevices": {"enabled": true}}}', "ok", "moves them"), ("{}", "wrong", "cannot move interfaces")],
)
async def test_runtime_is_checked_for_moving_interfaces(
    daemon: DaemonUnderTest, features: str, outcome: str, words: str
) -> None:
    runtime = daemon.root / "runc"
    runtime.write_text(f"#!/bin/sh\necho '{features}'\n")
    runtime.chmod(0o755)
    moving = {"name": "x/nic", "select": "nic", "api": "dra", "dra": {"interface": "move"}}
    daemon.write(moving, cdiDirectory="/var/run/cdi", ociRuntime=str(runtime))
    _, found = await examined(daemon.path, daemon.root)
    ((judged, _, says),) = [x for x in found if x[1] == "runtime" and "x/nic: interfaces move" in x[2]]
    assert (judged, words in says) == (outcome, True)


async def test_api_server_is_checked_for_resource_slices(machine: Machine, tmp_path: Path) -> None:
    await machine.classes()
    await machine.start()
    await machine.until_published()
    _, found = await examined(tmp_path / "config0.yaml", machine.host.root)
    assert any(
        x[:2] == ("ok", "API server") and x[2].startswith("ResourceSlices of nodeplug.dev at ") and x[2].endswith(": 1")
        for x in found
    ), found
    machine.kubeconfig.unlink()
    _, found = await examined(tmp_path / "config0.yaml", machine.host.root)
    assert [x[0] for x in found if x[1] == "API server"] == ["wrong"]


async def test_malformed_answer_of_the_api_server_is_an_error(tmp_path: Path) -> None:
    async def answer(request: Request) -> None:
        items = [{"metadata": {"name": "a"}, "spec": 3}]
        await request.answer({"kind": "ResourceSliceList", "metadata": {"resourceVersion": "1"}, "items": items})

    async with serving(answer) as peer:
        config = tmp_path / "kubeconfig"
        clusters = [{"name": "c", "cluster": {"server": peer.url}}]
        contexts = [{"name": "x", "context": {"cluster": "c", "user": ""}}]
        config.write_text(json.dumps({"clusters": clusters, "contexts": contexts, "current-context": "x"}))
        settings = Settings(kubeconfig=str(config))
        (found,) = await asyncio.to_thread(lambda: list(cluster.examine(settings)))
    assert (found.outcome, found.subject) == ("wrong", "API server")
    assert "spec" in found.message


async def test_kernel_is_checked_for_iommu_groups_and_the_bind_driver(tmp_path: Path) -> None:
    kernel = PciKernel(tmp_path / "host")
    path = tmp_path / "config.yaml"
    bound = {"name": "x/y", "select": {"kind": "pci"}, "api": "dra", "dra": {"bind": "vfio-pci"}}
    path.write_text(json.dumps({"resources": [bound]}))

    async def bind_findings() -> list[tuple[str, str]]:
        _, found = await examined(path, kernel.made.root)
        return [(outcome, words) for outcome, _, words in found if words.startswith("x/y: claims have its devices")]

    words = "x/y: claims have its devices with the driver vfio-pci"
    assert await bind_findings() == [("wrong", f"{words}, and are refused: there is no IOMMU group")]
    kernel.function("0000:41:00.0", 7)
    assert await bind_findings() == [("ok", f"{words}, which the kernel has")]
    kernel.unload("vfio-pci")
    assert await bind_findings() == [("wrong", f"{words}, and are refused: the kernel has no driver vfio-pci")]


@pytest.mark.parametrize(("shown", "outcomes"), [("memory", ["note"]), ("pids", []), ("cgroup.controllers", [])])
def test_cgroups_without_processes_are_noted(tmp_path: Path, shown: str, outcomes: list[str]) -> None:
    (tmp_path / "sys/fs/cgroup" / shown).mkdir(parents=True)
    found = [x.outcome for x in host.examine(Host(tmp_path), None) if x.message.startswith("cgroups have version 1")]
    assert found == outcomes


def test_receivers_of_traces_and_node_features_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(examine(Settings())) == []
    settings = Settings(tracing=True, features_directory=str(tmp_path / "features.d"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"127.0.0.1:{server.getsockname()[1]}"
        findings = list(examine(settings, {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://somebody:secret@{where}/below"}))
    assert [(x.outcome, x.subject) for x in findings] == [("ok", "traces"), ("note", "node features")]
    assert findings[0].message == f"a program listens at {where}/below"
    (tmp_path / "features.d").mkdir()
    away, there = examine(settings, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://{where}"})
    assert (away.outcome, there.outcome) == ("note", "ok")
    assert f"http://{where} cannot be reached from here" in away.message
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    assert next(examine(settings)).hint == "pip install 'nodeplug[tracing]'"
