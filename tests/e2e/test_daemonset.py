"""The shipped DaemonSet: its image's contents, its privileges, and the devices of pods."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.dra_scenarios import scenario
from tests.e2e.allocatable import Allocatable
from tests.e2e.claims import claim, claiming, request
from tests.e2e.conftest import IMAGE
from tests.e2e.realnode import NODE, RELEASE, RealNode, pod

pytestmark = pytest.mark.e2e
DRIVER = "nodeplug.dev"
DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
MANIFEST = DEPLOY / "daemonset.yaml"


CLAIMED = {"name": "nodeplug.dev/tun", "select": "tun", "api": "dra"}


@pytest.fixture
def daemonset(node: RealNode) -> Iterator[RealNode]:
    """The applied manifest, with the image of this run, and a device of this machine for claims."""
    objects = [each for each in yaml.safe_load_all(MANIFEST.read_text()) if each]
    (settings,) = (each for each in objects if each["kind"] == "ConfigMap")
    config = yaml.safe_load(settings["data"]["config.yaml"])
    config["resources"].append(CLAIMED)
    settings["data"]["config.yaml"] = json.dumps(config)
    template = objects[-1]["spec"]["template"]["spec"]
    template["hostNetwork"] = True  # pods have no network here
    (container,) = template["containers"]
    container |= {"image": IMAGE, "imagePullPolicy": "Never"}
    container["env"] += [
        {"name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1"},
        {"name": "KUBERNETES_SERVICE_PORT", "value": "16443"},
    ]
    node.apply(*objects)
    try:
        node.kubectl("rollout", "status", "daemonset/nodeplug", "-n", "nodeplug", "--timeout=60s")
        node.wait_resource("nodeplug.dev/fuse", 100)
        yield node
    finally:
        print(node.kubectl("logs", "-n", "nodeplug", "daemonset/nodeplug"))
        node.kubectl("delete", "namespace", "nodeplug", "--wait=true", "--timeout=60s")
        node.kubectl("delete", "resourceslices", f"--field-selector=spec.driver={DRIVER}")
        node.wait_resource("nodeplug.dev/fuse", 0)


OPERATORS = ("security.openshift.io/", "monitoring.coreos.com/")  # kinds that this server does not have


@pytest.mark.parametrize(
    "made_by", ["base", *sorted(f"overlays/{x.name}" for x in (DEPLOY / "overlays").iterdir()), "chart"]
)
def test_server_accepts_the_shipped_manifests(node: RealNode, made_by: str) -> None:
    if made_by == "chart":
        command = ["helm", "template", "nodeplug", str(DEPLOY / "chart"), "-n", "nodeplug"]
        command[0] = str(Path.home() / ".cache/realnode/bin/helm")
        made = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    else:
        made = node.kubectl("kustomize", str(DEPLOY / made_by))
    objects = [x for x in yaml.safe_load_all(made) if x and not x["apiVersion"].startswith(OPERATORS)]
    node.kubectl("create", "namespace", "nodeplug")
    try:
        stream = yaml.safe_dump_all(objects)
        taken = node.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=stream)
        assert len(taken.splitlines()) == len(objects)
    finally:
        node.kubectl("delete", "namespace", "nodeplug", "--wait=true", "--timeout=60s")


def test_pods_open_devices_of_the_daemonset(daemonset: RealNode) -> None:
    node = daemonset
    for name, device in (("fuse", "/dev/fuse"), ("kvm", "/dev/kvm")):
        node.apply(pod(f"ds-{name}", f"exec 3<>{device} && echo opened", {f"nodeplug.dev/{name}": 1}))
        node.wait(f"pod/ds-{name}", ".status.phase", "Succeeded")
        assert node.kubectl("logs", f"ds-{name}") == "opened\n"
        node.delete_pod(f"ds-{name}")


def test_new_instance_takes_over_during_an_update(daemonset: RealNode) -> None:
    node = daemonset
    node.apply(pod("ds-holder", "exec 3<>/dev/fuse && sleep 600", {"nodeplug.dev/fuse": 1}))
    node.wait("pod/ds-holder", ".status.phase", "Running")
    with Allocatable(node, "nodeplug.dev/fuse") as allocatable:
        node.kubectl("rollout", "restart", "daemonset/nodeplug", "-n", "nodeplug")
        node.kubectl("rollout", "status", "daemonset/nodeplug", "-n", "nodeplug", "--timeout=60s")
        allocatable.until(100, steady=3.0)  # the old one has ended as well
        gap = sum(allocatable.gaps(100))
    print(f"an update of the DaemonSet: not all allocatable for {gap:.2f} s")
    assert not (gap and RELEASE.distinguishes_instances)
    node.wait_resource("nodeplug.dev/fuse", 100)
    assert node.get("pod", "ds-holder")["status"]["phase"] == "Running"
    node.delete_pod("ds-holder")


def test_container_has_no_capability_and_cannot_write_elsewhere(daemonset: RealNode) -> None:
    inside = ("exec", "-n", "nodeplug", "daemonset/nodeplug", "--", "python3", "-c")
    script = """
import pathlib, shutil
print(next(line for line in open("/proc/1/status") if line.startswith("CapEff")).split()[1])
for path in ("/x", "/usr/lib/nodeplug/x", "/dev/x", "/sys/x", "/var/lib/kubelet/pod-resources/x"):
    try:
        pathlib.Path(path).write_text("")
        print("written:", path)
    except OSError:
        pass
print("shell:", shutil.which("sh"))
"""
    assert daemonset.kubectl(*inside, script).splitlines() == ["0" * 16, "shell: None"]


def test_container_can_open_the_kernel_uevent_socket(daemonset: RealNode) -> None:
    inside = ("exec", "-n", "nodeplug", "daemonset/nodeplug", "--", "python3", "-c")
    opened = "from hostdevices.watching.uevent_socket import UeventSocket; UeventSocket('kernel', 4096); print('open')"
    assert daemonset.kubectl(*inside, opened) == "open\n"


@pytest.fixture
def tun(daemonset: RealNode, tmp_path: Path) -> Iterator[str]:
    """The DeviceClass of the claims' device; its slice is published."""
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"resources": [CLAIMED]}))
    command = [sys.executable, "-m", "nodeplug", "classes", str(config)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    daemonset.kubectl("apply", "-f", "-", stdin=printed)
    daemonset.until(lambda: slices(daemonset), "the node's slice")
    yield "tun.nodeplug.dev"
    daemonset.kubectl("delete", "-f", "-", stdin=printed)


def slices(node: RealNode) -> dict[str, str]:
    """Return the uid and node of the DaemonSet's slices."""
    listed = node.get("resourceslices", f"--field-selector=spec.driver={DRIVER}")["items"]
    return {each["metadata"]["uid"]: each["spec"]["nodeName"] for each in listed}


@scenario(210, 214, 216, 247)
def test_claims_are_prepared_by_the_service_account_during_an_update(daemonset: RealNode, tun: str) -> None:
    node = daemonset
    before = slices(node)
    assert set(before.values()) == {NODE}
    node.apply(claim("ds-tun", request(tun)))
    try:
        node.apply(claiming("ds-claim", "exec 3<>/dev/net/tun && sleep 600", claims={"tun": "ds-tun"}))
        node.wait("pod/ds-claim", ".status.phase", "Running", timeout=60)
        status = node.until(lambda: node.get("resourceclaim", "ds-tun")["status"].get("devices"), "the claim's status")
        assert [each["driver"] for each in status] == [DRIVER]
        node.kubectl("rollout", "restart", "daemonset/nodeplug", "-n", "nodeplug")
        node.kubectl("rollout", "status", "daemonset/nodeplug", "-n", "nodeplug", "--timeout=60s")
        assert slices(node) == before
        node.delete_pod("ds-claim")  # the new instance unprepares its claim, otherwise the pod would stay
        node.apply(claiming("ds-again", "exec 3<>/dev/net/tun && echo opened", claims={"tun": "ds-tun"}))
        node.wait("pod/ds-again", ".status.phase", "Succeeded", timeout=60)
    finally:
        for name in ("ds-claim", "ds-again"):
            node.delete_pod(name)
        node.kubectl("delete", "resourceclaim", "ds-tun", "--ignore-not-found")


@scenario(246)
def test_instance_cannot_write_slices_of_another_node(daemonset: RealNode, tun: str) -> None:
    del tun
    inside = ("exec", "-n", "nodeplug", "daemonset/nodeplug", "--", "python3", "-c")
    script = """
from resourceapi.client import Refused, in_cluster
from resourceapi.client.blocking import Client
from resourceapi.objects import v1
import msgspec
slices = Client(in_cluster()).resource(v1.ResourceSlice)
mine = slices.list(field_selector="spec.driver=nodeplug.dev").items[0]
meta = msgspec.structs.replace(mine.metadata, name="foreign", uid="", resource_version="", owner_references=())
spec = msgspec.structs.replace(mine.spec, node_name="another")
try:
    slices.create(msgspec.structs.replace(mine, metadata=meta, spec=spec))
except Refused as refusal:
    print(refusal.message)
"""
    assert "may only write its own slices" in daemonset.kubectl(*inside, script)
