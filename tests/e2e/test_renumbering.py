"""A restarted container on a real node gets its own device at its current node, or does not start.

With a runtime that supports CDI, and with one that ignores it, the default of containerd 1.7.
"""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.claims import claim, claiming, request
from tests.e2e.cluster import Cluster, device_classes, dra_daemon, offering
from tests.e2e.realnode import RealNode, pod
from tests.e2e.sticks import FIRST, SECOND, SERIALS, Sticks

pytestmark = pytest.mark.e2e
STICK = {"select": {"preset": "usb-serial", "attributes": {"serial": SERIALS[0]}}}
RESOURCES: list[dict[str, Any]] = [
    {"name": "e2e.example/auto", **STICK},
    {"name": "e2e.example/named", **STICK, "cdi": True},
    {"name": "e2e.example/claimed", **STICK, "api": "dra"},
]
SHOWS = 'for x in /dev/ttyUSB*; do stat -c "%n %t:%T" $x; done; exec sleep 3600'
NOTHING = ""


@pytest.fixture(scope="module", params=[True, False], ids=["with-cdi", "without-cdi"])
def has_cdi(node: RealNode, request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether the runtime supports CDI."""
    if request.param:
        yield True
        return
    with node.without_cdi():
        yield False


@pytest.fixture
def cluster(node: RealNode, tmp_path: Path, sticks: Sticks, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A daemon that offers the resource of the test."""
    resources = [each for each in RESOURCES if each["name"] == f"e2e.example/{request.param}"]
    daemon = dra_daemon(node, tmp_path, resources, root=sticks.root, rescanSeconds=1)
    has_classes = request.param == "claimed"
    with device_classes(node, daemon) if has_classes else nullcontext(), offering(node, daemon) as started:
        yield started


def always(made: dict[str, Any]) -> dict[str, Any]:
    """The pod, with a container that is restarted when it ends."""
    made["spec"]["restartPolicy"] = "Always"
    return made


def until_sees(cluster: Cluster, name: str, expected: str, restarts: int) -> None:
    """Wait until the pod's container has restarted this often and finds this in /dev."""

    def started() -> bool:
        statuses = cluster.node.get("pod", name)["status"].get("containerStatuses", [])
        return any(each["restartCount"] >= restarts and "running" in each["state"] for each in statuses)

    cluster.node.until(started, f"{name} runs after {restarts} restarts", 90)
    cluster.node.until(lambda: seen(cluster, name) == expected, f"{name} finds {expected!r}", 10)


def seen(cluster: Cluster, name: str) -> str:
    lines = cluster.node.kubectl("logs", name).splitlines()
    return "\n".join(line for line in lines if not line.startswith("stat:"))


@pytest.mark.parametrize("cluster", ["auto"], indirect=True)
def test_container_is_refused_while_its_device_node_is_stale(cluster: Cluster, sticks: Sticks, has_cdi: bool) -> None:
    del has_cdi  # in both cases, the nodes in the kubelet's stored answer are wrong
    node = cluster.node
    node.wait_resource("e2e.example/auto", 1)
    cluster.make(always(pod("auto", SHOWS, {"e2e.example/auto": 1})))
    until_sees(cluster, "auto", FIRST, restarts=0)
    node.kill_container("auto")
    until_sees(cluster, "auto", FIRST, restarts=1)
    sticks.plug(SECOND, FIRST)
    node.kill_container("auto")

    def refusal() -> str:
        events = node.get("events", "--field-selector=involvedObject.name=auto")["items"]
        return next((each["message"] for each in events if "was allocated" in each["message"]), "")

    refused = node.until(refusal, "the kubelet says why it does not start")
    assert "the container was allocated /dev/ttyUSB70, which is " in refused
    assert "its device is at /dev/ttyUSB71; delete the pod" in refused
    sticks.plug(FIRST, SECOND)
    until_sees(cluster, "auto", FIRST, restarts=2)


@pytest.mark.parametrize("cluster", ["named"], indirect=True)
def test_cdi_name_resolves_to_the_current_device_node(cluster: Cluster, sticks: Sticks, has_cdi: bool) -> None:
    cluster.node.wait_resource("e2e.example/named", 1)
    cluster.make(always(pod("named", SHOWS, {"e2e.example/named": 1})))
    until_sees(cluster, "named", FIRST if has_cdi else NOTHING, restarts=0)
    sticks.plug(SECOND, FIRST)
    cluster.node.kill_container("named")
    until_sees(cluster, "named", SECOND if has_cdi else NOTHING, restarts=1)


@pytest.mark.parametrize("cluster", ["claimed"], indirect=True)
def test_cdi_name_of_a_claim_resolves_to_the_current_device_node(
    cluster: Cluster, sticks: Sticks, has_cdi: bool
) -> None:
    cluster.until_published("claimed")
    cluster.make(claim("claimed", request("claimed.e2e.example")))
    cluster.make(always(claiming("claimed", SHOWS, claims={"stick": "claimed"})))
    until_sees(cluster, "claimed", FIRST if has_cdi else NOTHING, restarts=0)
    sticks.plug(SECOND, FIRST)
    cluster.node.until(
        lambda: "ttyUSB71" in "".join(path.read_text() for path in cluster.cdi_files()), "the daemon has found it"
    )
    cluster.node.kill_container("claimed")
    until_sees(cluster, "claimed", SECOND if has_cdi else NOTHING, restarts=1)


@pytest.fixture
def tun(node: RealNode, tmp_path: Path) -> Iterator[Cluster]:
    access = {"uid": 1000, "gid": 1000, "mode": "0600"}
    tun = {"name": "e2e.example/tun", "select": "tun", "shares": 4, "access": access}
    with offering(node, dra_daemon(node, tmp_path, [tun])) as started:
        node.wait_resource("e2e.example/tun", 4)
        yield started


def test_device_node_has_the_configured_owner_only_with_cdi(tun: Cluster, has_cdi: bool) -> None:
    command = "stat -c '%u %g %a' /dev/net/tun; (exec 3<>/dev/net/tun) 2>/dev/null && echo opened || echo refused"
    for name, uid in (("root", None), ("user", 1000)):
        tun.make(pod(f"tun-{name}", command, {"e2e.example/tun": 1}, uid=uid))
    owned = "1000 1000 600\nopened\n"
    mode = os.stat("/dev/net/tun").st_mode & 0o777  # a container's mode without CDI; it differs between hosts
    plain = f"0 0 {mode:o}\n"
    # root with the default capabilities can open every file
    assert tun.succeeded("tun-root") == (owned if has_cdi else f"{plain}opened\n")
    opens = "opened" if mode & 0o6 == 0o6 else "refused"
    assert tun.succeeded("tun-user") == (owned if has_cdi else f"{plain}{opens}\n")
