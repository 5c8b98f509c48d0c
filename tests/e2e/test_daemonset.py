"""The DaemonSet as it is shipped: its image's contents, its privileges, and what pods get from it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import IMAGE
from tests.e2e.realnode import RealNode, pod

pytestmark = pytest.mark.e2e
MANIFEST = Path(__file__).resolve().parents[2] / "deploy/daemonset.yaml"


@pytest.fixture
def daemonset(node: RealNode) -> Iterator[RealNode]:
    """The manifest applied, with the image that this run built."""
    objects = [each for each in yaml.safe_load_all(MANIFEST.read_text()) if each]
    (container,) = objects[-1]["spec"]["template"]["spec"]["containers"]
    container |= {"image": IMAGE, "imagePullPolicy": "Never"}
    node.apply(*objects)
    try:
        node.kubectl("rollout", "status", "daemonset/nodeplug", "-n", "nodeplug", "--timeout=60s")
        node.wait_resource("nodeplug.dev/fuse", 100)
        yield node
    finally:
        print(node.kubectl("logs", "-n", "nodeplug", "daemonset/nodeplug"))
        node.kubectl("delete", "namespace", "nodeplug", "--wait=true", "--timeout=60s")
        node.wait_resource("nodeplug.dev/fuse", 0)


def test_pods_open_what_the_daemonset_offers(daemonset: RealNode) -> None:
    node = daemonset
    for name, device in (("fuse", "/dev/fuse"), ("kvm", "/dev/kvm")):
        node.apply(pod(f"ds-{name}", f"exec 3<>{device} && echo opened", {f"nodeplug.dev/{name}": 1}))
        node.wait(f"pod/ds-{name}", ".status.phase", "Succeeded")
        assert node.kubectl("logs", f"ds-{name}") == "opened\n"
        node.delete_pod(f"ds-{name}")


def test_a_new_instance_takes_over_beside_the_old_one(daemonset: RealNode) -> None:
    node = daemonset
    node.apply(pod("ds-holder", "exec 3<>/dev/fuse && sleep 600", {"nodeplug.dev/fuse": 1}))
    node.wait("pod/ds-holder", ".status.phase", "Running")
    node.kubectl("rollout", "restart", "daemonset/nodeplug", "-n", "nodeplug")
    node.kubectl("rollout", "status", "daemonset/nodeplug", "-n", "nodeplug", "--timeout=60s")
    node.wait_resource("nodeplug.dev/fuse", 100)
    assert node.get("pod", "ds-holder")["status"]["phase"] == "Running"
    node.delete_pod("ds-holder")


def test_it_has_no_privilege_and_writes_nowhere_else(daemonset: RealNode) -> None:
    inside = ("exec", "-n", "nodeplug", "daemonset/nodeplug", "--", "sh", "-c")
    status = daemonset.kubectl(*inside, "grep CapEff /proc/1/status")
    assert int(status.split()[1], 16) == 0
    for path in ("/x", "/dev/x", "/sys/x", "/var/lib/kubelet/pod-resources/x"):
        assert "refused" in daemonset.kubectl(*inside, f"(echo > {path}) 2>/dev/null || echo refused")
