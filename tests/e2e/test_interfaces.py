"""Network interfaces that a real node's container runtime moves into pods of claims, and that return.

There is no hardware to move: a macvlan ends with its pod and is created again. A test with a veth imitates what the
kernel does with hardware.
"""

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.claims import claiming, driver_config, request, template
from tests.e2e.cluster import DRIVER, Cluster, device_classes, dra_daemon, offering
from tests.e2e.realnode import BUSYBOX, HOME, RealNode
from tests.network import ip

pytestmark = pytest.mark.e2e
ALL = {"name": True, "mtu": True, "mac": True, "addresses": ["198.51.100.0/24"]}
RESOURCES: list[dict[str, Any]] = [
    {"name": "e2e.example/veth", "select": {"id": "nic-npe2ev*"}, "api": "dra", "dra": {"interface": ALL}},
    {"name": "e2e.example/tap", "select": {"id": "nic-npe2et*"}, "api": "dra", "dra": {"interface": ALL}},
    {"name": "e2e.example/macvlan", "select": {"id": "nic-npe2em*"}, "api": "dra", "dra": {"interface": ALL}},
]
CLASSES = {name: f"{name}.e2e.example" for name in ("veth", "tap", "macvlan")}
FOREVER = "trap 'exit 0' TERM; while true; do sleep 1 & wait; done"
LISTING = "for i in /sys/class/net/*; do echo ${i##*/} $(cat $i/mtu) $(cat $i/address) $(cat $i/operstate); done"


@pytest.fixture(scope="module")
def classes(node: RealNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with device_classes(node, dra_daemon(node, tmp_path_factory.mktemp("classes"), RESOURCES)):
        yield


@pytest.fixture
def links() -> Iterator[None]:
    """A veth, npe2ev0, whose peer has two macvlans, npe2em0 and npe2em1; a tap, npe2et0."""
    for link in ("npe2ev0", "npe2ep0", "npe2et0"):
        subprocess.run(["ip", "link", "del", link], check=False, capture_output=True)
    ip("link", "add", "npe2ev0", "address", "02:00:00:00:0e:01", "type", "veth", "peer", "name", "npe2ep0")
    for number in (0, 1):
        mac = f"02:00:00:00:0e:1{number}"
        ip("link", "add", f"npe2em{number}", "link", "npe2ep0", "address", mac, "type", "macvlan", "mode", "bridge")
    ip("tuntap", "add", "npe2et0", "mode", "tap")
    yield
    for link in ("npe2ev0", "npe2ep0", "npe2et0"):
        subprocess.run(["ip", "link", "del", link], check=False, capture_output=True)


@pytest.fixture
def cluster(node: RealNode, classes: None, links: None, tmp_path: Path) -> Iterator[Cluster]:
    daemon = dra_daemon(node, tmp_path, RESOURCES, ociRuntime=str(HOME / "bin/runc"))
    with offering(node, daemon) as started:
        started.until_published("veth", "tap", "macvlan")
        yield started


def interface_template(kind: str, name: str, **interface: Any) -> dict[str, Any]:
    """A template for claims of one interface."""
    parameters = {"apiVersion": "nodeplug.dev/v1", "kind": "DeviceConfig", "interface": {"name": name, **interface}}
    return template(name, request(CLASSES[kind]), config=[driver_config(parameters, DRIVER)])


def using(name: str, *templates: str, containers: int = 1) -> dict[str, Any]:
    """A pod that runs until it is deleted; its containers restart when they end."""
    made = claiming(name, FOREVER, templates={each: each for each in templates})
    (first,) = made["spec"]["containers"]
    made["spec"]["restartPolicy"] = "Always"
    made["spec"]["containers"] = [{**first, "image": BUSYBOX, "name": "cde"[i]} for i in range(containers)]
    return made


def interfaces_of(cluster: Cluster, pod: str, container: str = "c") -> dict[str, list[str]]:
    """The interfaces that a container sees: MTU, address and state by name."""
    lines = cluster.node.kubectl("exec", pod, "-c", container, "--", "sh", "-c", LISTING).splitlines()
    return {name: facts for name, *facts in map(str.split, lines)}


def on_node(name: str) -> str:
    """Return ip(8)'s output for an interface of the node; "" if it does not exist."""
    done = subprocess.run(["ip", "-o", "link", "show", name], check=False, capture_output=True, text=True)
    return done.stdout


def restarts(cluster: Cluster, pod: str) -> list[int]:
    return [each["restartCount"] for each in cluster.node.get("pod", pod)["status"]["containerStatuses"]]


def address_of(cluster: Cluster, pod: str, name: str) -> str:
    """The address of an interface in a container; "" while none runs."""
    try:
        return cluster.node.kubectl("exec", pod, "--", "ifconfig", name)
    except AssertionError:
        return ""


def end(cluster: Cluster, pod: str, container: str = "c") -> None:
    """End a container, which then restarts; the command can end with it."""
    with contextlib.suppress(AssertionError):
        cluster.node.kubectl("exec", pod, "-c", container, "--", "kill", "1")


def test_restarted_container_has_both_interfaces(cluster: Cluster) -> None:
    cluster.make(
        interface_template("macvlan", "data0", mtu=1400, mac="02:00:00:00:0e:99", addresses=["198.51.100.7/24"]),
        interface_template("macvlan", "data1"),
        using("both", "data0", "data1", containers=2),
    )
    cluster.node.kubectl("wait", "pod/both", "--for=condition=Ready", "--timeout=60s")
    assert restarts(cluster, "both") == [0, 0]
    for container in "cd":
        seen = interfaces_of(cluster, "both", container)
        assert seen["data0"][:2] == ["1400", "02:00:00:00:0e:99"]
        assert seen["data1"][1].startswith("02:00:00:00:0e:1")
        environment = cluster.node.kubectl("exec", "both", "-c", container, "--", "env")
        assert "NODEPLUG_DATA0__DEVICE__INTERFACES=data0" in environment
    assert "198.51.100.7" in cluster.node.kubectl("exec", "both", "-c", "d", "--", "ifconfig", "data0")
    assert on_node("npe2em0") == on_node("npe2em1") == ""
    claims = cluster.node.get("resourceclaims")["items"]
    data = [x["status"]["devices"][0]["networkData"] for x in claims if x["status"].get("devices")]
    assert {"interfaceName": "data0", "hardwareAddress": "02:00:00:00:0e:99", "ips": ["198.51.100.7/24"]} in data
    end(cluster, "both", "d")
    cluster.node.until(lambda: sum(restarts(cluster, "both")) == 1, "a container starts again")
    cluster.node.kubectl("wait", "pod/both", "--for=condition=Ready", "--timeout=60s")
    assert interfaces_of(cluster, "both", "d") == interfaces_of(cluster, "both", "c")
    cluster.clean()
    for number in (0, 1):
        there = on_node(f"npe2em{number}")
        assert f"02:00:00:00:0e:1{number}" in there
        assert "mtu 1500" in there
    assert cluster.daemon.leases() == []


def test_interface_is_moved_into_a_recreated_sandbox(cluster: Cluster) -> None:
    """Its network namespace ends together with the macvlan, which is created again for the next one."""
    cluster.make(interface_template("macvlan", "data0", addresses=["198.51.100.9/24"]), using("again", "data0"))
    cluster.node.kubectl("wait", "pod/again", "--for=condition=Ready", "--timeout=60s")
    cluster.node.kill_sandbox("again")
    cluster.node.until(lambda: not restarts(cluster, "again") or restarts(cluster, "again")[0] > 0, "it starts again")
    cluster.node.kubectl("wait", "pod/again", "--for=condition=Ready", "--timeout=90s")
    cluster.node.until(lambda: "198.51.100.9" in address_of(cluster, "again", "data0"), "it has its interface")


def test_interface_returns_after_the_daemon_was_killed(cluster: Cluster) -> None:
    cluster.make(interface_template("macvlan", "data0", mtu=1400), using("life", "data0"))
    cluster.node.kubectl("wait", "pod/life", "--for=condition=Ready", "--timeout=60s")
    assert cluster.daemon.end(signal.SIGKILL) == -signal.SIGKILL
    end(cluster, "life")
    cluster.node.until(lambda: restarts(cluster, "life") == [1], "the container starts again with no daemon")
    cluster.daemon.start()
    cluster.node.restart_kubelet()
    assert "data0" in interfaces_of(cluster, "life")
    (name,) = [x for x in ("npe2em0", "npe2em1") if not on_node(x)]
    device = f"nic-{name}"
    cluster.node.until(lambda: device in cluster.devices(), "a kubelet that starts removes slices; they come again")
    assert not cluster.is_kept_from_claims(device)  # it has returned
    assert cluster.daemon.end(signal.SIGKILL) == -signal.SIGKILL
    cluster.node.kubectl("delete", "pod", "life", "--grace-period=1", "--wait=false")
    cluster.node.until_event("life", "Killing")
    cluster.daemon.start()
    cluster.node.kubectl("wait", "pod/life", "--for=delete", "--timeout=90s")
    assert "mtu 1500" in on_node(name)
    assert cluster.daemon.leases() == []


def test_returned_interface_has_its_previous_settings(cluster: Cluster) -> None:
    ip("addr", "add", "192.0.2.1/24", "dev", "npe2ev0")
    before = ip("-o", "addr", "show", "dev", "npe2ev0", "scope", "global").split()[1:]
    cluster.make(interface_template("veth", "data0", mtu=1300, addresses=["198.51.100.8/24"]), using("pod", "data0"))
    cluster.node.kubectl("wait", "pod/pod", "--for=condition=Ready", "--timeout=60s")
    assert interfaces_of(cluster, "pod")["data0"][0] == "1300"
    inside = f"/proc/{cluster.node.processes('pod')[0]}/ns/net"
    ip("link", "set", "data0", "netns", "1", namespace=inside)
    cluster.node.until(lambda: on_node("npe2ev0"), "it has its name again", 10)
    cluster.clean()
    assert "mtu 1500" in on_node("npe2ev0")
    assert "alias" not in on_node("npe2ev0")
    assert ip("-o", "addr", "show", "dev", "npe2ev0", "scope", "global").split()[1:] == before


def test_tap_moves_into_its_pod_and_ends_with_it(cluster: Cluster) -> None:
    """It is not created again automatically. Its owner has to create it, and then it is offered again."""
    cluster.make(interface_template("tap", "tap0", mtu=1400, mac="02:00:00:00:0e:98"), using("machine", "tap0"))
    cluster.node.kubectl("wait", "pod/machine", "--for=condition=Ready", "--timeout=60s")
    assert interfaces_of(cluster, "machine")["tap0"][:2] == ["1400", "02:00:00:00:0e:98"]
    assert on_node("npe2et0") == ""
    cluster.clean()
    assert cluster.daemon.leases() == []
    cluster.until_published("tap", gone=True)
    ip("tuntap", "add", "npe2et0", "mode", "tap")
    cluster.until_published("tap")


def test_claim_is_refused_when_the_runtime_cannot_move_interfaces(
    node: RealNode, classes: None, links: None, tmp_path: Path
) -> None:
    old = tmp_path / "runc"
    old.write_text('#!/bin/sh\necho \'{"ociVersionMax": "1.2.0", "linux": {}}\'\n')
    old.chmod(0o755)
    with offering(node, dra_daemon(node, tmp_path, RESOURCES, ociRuntime=str(old))) as cluster:
        cluster.until_published("macvlan")
        cluster.make(interface_template("macvlan", "data0"), using("refused", "data0"))
        about = "--field-selector=involvedObject.name=refused,reason=FailedPrepareDynamicResources"
        words = "cannot move interfaces"
        node.until(lambda: any(words in each["message"] for each in node.get("events", about)["items"]), words)
        assert on_node("npe2em0")
