"""An operator's commands on a node agree with the kubelet, the API server and the containers.

One daemon, with pods that use both APIs; then devices are withheld, and the kubelet stops.
"""

import io
import json
import signal
import subprocess
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubelet.release import DEVICE_TAINTS
from kubeletapi.podresources.v1 import api_pb2 as podresources
from tests.e2e.claims import claim, claiming, request
from tests.e2e.cluster import Cluster, device_classes, dra_daemon, offering
from tests.e2e.conftest import PROGRAM, DaemonProcess
from tests.e2e.realnode import NODE, RELEASE, RealNode, pod

pytestmark = pytest.mark.e2e
FUSE, KVM, TUN = "e2e.example/fuse", "e2e.example/kvm", "e2e.example/tun"
ENDED_BY_CTRL_C = ("env", "--default-signal=INT")  # SIGINT is ignored if the tests run in the background
RESOURCES: list[dict[str, Any]] = [
    {"name": FUSE, "select": "fuse", "shares": 2},
    {"name": KVM, "select": "kvm", "api": "both", "cdi": True},
    {"name": TUN, "select": "tun", "api": "dra"},
]


class Operator:
    """Runs commands on the node."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self._daemon = daemon
        self._state = ["--state", str(daemon.state)]
        self.config = ["--config", str(daemon.config)]

    def run(self, *words: str, exits: int | None = 0, state: bool = True) -> str:
        """Return a command's output; with `exits`, it must end with this code."""
        command = [*PROGRAM, *words, *(self._state if state else ())]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert exits in (None, done.returncode), f"{words}: {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def json(self, *words: str, exits: int | None = 0, state: bool = True) -> Any:
        return json.loads(self.run(*words, "-o", "json", exits=exits, state=state))

    def following(self) -> "subprocess.Popen[str]":
        """Start `events --follow` in the background."""
        command = [*ENDED_BY_CTRL_C, *PROGRAM, "events", "--follow", "-o", "json", *self._state]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def page(self) -> "subprocess.Popen[str]":
        command = [*ENDED_BY_CTRL_C, *PROGRAM, "ui", *self._state]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def kubelet_devices(node: RealNode) -> set[tuple[str, str, str]]:
    """Return the pods' devices according to the kubelet: pod, resource or claim, device."""
    with node.pod_resources("List") as ask:
        listed = ask(podresources.ListPodResourcesRequest())
    found = set()
    for each in listed.pod_resources:
        for container in each.containers:
            found |= {(each.name, x.resource_name, unit) for x in container.devices for unit in x.device_ids}
            for x in container.dynamic_resources:
                found |= {(each.name, x.claim_name, y.device_name) for y in x.claim_resources}
    return found


def daemon_devices(operator: Operator) -> set[tuple[str, str, str]]:
    """Return the same from `leases list`; the pod of a claim is known by its uid."""
    leases = operator.json("leases", "list")["leases"]
    return {(x["pod"] or "".join(x["podUids"]), x["claim"] or x["resource"], x["unit"]) for x in leases}


def healthy(operator: Operator, exits: int = 0) -> dict[tuple[str, str], int]:
    return {(x["name"], x["api"]): x["healthy"] for x in operator.json("status", exits=exits)["resources"]}


@pytest.fixture
def cluster(node: RealNode, tmp_path: Path) -> Iterator[Cluster]:
    daemon = dra_daemon(node, tmp_path, RESOURCES)
    with device_classes(node, daemon), offering(node, daemon) as started:
        node.wait_resource(FUSE, 2)
        node.wait_resource(KVM, 1)
        started.until_published("kvm", "tun")
        yield started


def test_operator_commands_agree_with_kubelet_and_api_server(cluster: Cluster, tmp_path: Path) -> None:
    node, operator = cluster.node, Operator(cluster.daemon)
    with operator.following() as follow:
        try:
            _pods_have_devices(cluster, operator)
            _devices_are_withheld(cluster, operator)
            _page_and_bundle_show_the_leases(operator, tmp_path)
            _kubelet_stops(node, operator)
        finally:
            follow.send_signal(signal.SIGINT)
            output, _ = follow.communicate(timeout=20)
    kinds = [(x["kind"], x["device"]) for x in map(json.loads, output.splitlines())]
    wanted = [("allocated", "misc-kvm"), ("withheld", "misc-fuse"), ("readmitted", "misc-fuse")]
    assert [x for x in kinds if x in wanted] == wanted


def _pods_have_devices(cluster: Cluster, operator: Operator) -> None:
    """The kubelet and the daemon agree about each device; a claim's kvm is leased for both APIs."""
    node = cluster.node
    cluster.make(claim("op-kvm", request("kvm.e2e.example")), claim("op-tun", request("tun.e2e.example")))
    cluster.make(
        pod("op-fuse", "exec 3<>/dev/fuse && sleep 600", {FUSE: 1}),
        claiming("op-b", "exec 3<>/dev/kvm && sleep 600", claims={"d": "op-kvm"}),
        claiming("op-c", "exec 3<>/dev/net/tun && sleep 600", claims={"d": "op-tun"}),
    )
    for name in ("op-fuse", "op-b", "op-c"):
        cluster.running(name)
    uids = {node.get("pod", name)["metadata"]["uid"]: name for name in ("op-b", "op-c")}
    theirs = kubelet_devices(node)
    assert {(name, what) for name, what, _ in theirs} == {("op-fuse", FUSE), ("op-b", "op-kvm"), ("op-c", "op-tun")}
    node.until(lambda: {(uids.get(x, x), y, z) for x, y, z in daemon_devices(operator)} == theirs, "the same leases")
    node.wait_resource(KVM, 0)
    # a resource with both APIs: none is free, and the picture shows the holder instead of a fault
    assert healthy(operator) == {
        (FUSE, "device-plugin"): 2,
        (KVM, "device-plugin"): 0,
        (KVM, "dra"): 1,
        (TUN, "dra"): 1,
    }
    assert operator.json("explain", KVM)["missing"] == ["all of it is leased"]
    assert "0 of 1 are healthy and free" in operator.run("dry-run", "allocate", KVM, exits=1)
    picture = operator.run("topology")
    assert f"+ misc-kvm  {KVM}  [default/op-kvm]\n" in picture
    assert f"+ misc-fuse  {FUSE}  [default/op-fuse]\n" in picture
    # a dry run predicts the next pod's unit
    (unit,) = (x["unit"] for x in operator.json("dry-run", "allocate", FUSE)["units"])
    cluster.make(pod("op-next", "sleep 600", {FUSE: 1}))
    cluster.running("op-next")
    assert ("op-next", FUSE, unit) in kubelet_devices(node)
    node.delete_pod("op-next")


def _devices_are_withheld(cluster: Cluster, operator: Operator) -> None:
    """The kubelet and the scheduler give them to no new pod; current holders keep them."""
    node = cluster.node
    operator.run("withhold", "/dev/fuse", "--reason", "it smokes")
    operator.run("withhold", "/dev/net/tun")
    node.wait_resource(FUSE, 0)
    node.until(lambda: cluster.is_kept_from_claims("misc-tun"), "tun is kept from claims")
    if RELEASE.has(DEVICE_TAINTS):
        (taint,) = cluster.devices()["misc-tun"]["taints"]
        assert (taint["effect"], taint["value"]) == ("NoSchedule", "withheld")
    assert healthy(operator) == {
        (FUSE, "device-plugin"): 0,
        (KVM, "device-plugin"): 0,
        (KVM, "dra"): 1,
        (TUN, "dra"): 0,
    }
    assert "withheld: it smokes" in operator.run("explain", "/dev/fuse")
    assert "unavailable: withheld: it smokes" in operator.run("topology")
    found = operator.json("doctor", *operator.config, state=False)["findings"]
    notes = [(x["message"], x["hint"]) for x in found if "withheld" in x["message"]]
    assert notes[0] == ("misc-fuse is withheld (it smokes)", "nodeplug readmit misc-fuse")
    assert [x for x in found if x["outcome"] == "wrong"] == []
    assert node.get("pod", "op-fuse")["status"]["phase"] == node.get("pod", "op-c")["status"]["phase"] == "Running"
    cluster.make(pod("op-late", "exec 3<>/dev/fuse && echo opened", {FUSE: 1}))
    node.until_event("op-late", "FailedScheduling")
    operator.run("readmit", "/dev/fuse")
    operator.run("readmit", "misc-tun")
    assert cluster.succeeded("op-late") == "opened\n"
    node.delete_pod("op-late")
    node.until(lambda: not cluster.is_kept_from_claims("misc-tun"), "tun is offered to claims again")


def _page_and_bundle_show_the_leases(operator: Operator, folder: Path) -> None:
    with operator.page() as page:
        try:
            assert page.stdout is not None
            address = next(word for line in page.stdout for word in line.split() if word.startswith("http://"))
            with urllib.request.urlopen(address, timeout=20) as answer:
                assert b"<html" in answer.read()
        finally:
            page.send_signal(signal.SIGINT)
    bundle = folder / "report.tar.gz"
    operator.run("bundle", str(bundle), *operator.config, state=False)
    with tarfile.open(fileobj=io.BytesIO(bundle.read_bytes())) as archive:
        status = archive.extractfile(next(x for x in archive if x.name.endswith("/status.json")))
        assert status is not None
        leases = json.load(status)["leases"]
    assert {"op-fuse", "op-kvm", "op-tun"} <= {x["pod"] or x["claim"] for x in leases}


def _kubelet_stops(node: RealNode, operator: Operator) -> None:
    """It is reported as waiting, not as a refusal; everything is healthy once it is back."""
    socket = node.kubelet_dir / "device-plugins/kubelet.sock"
    node.until(lambda: len(daemon_devices(operator)) == 3, "the leases of ended pods end")
    before = daemon_devices(operator)
    with node.without_kubelet():
        words = f"resource {FUSE} is not registered with the kubelet: waiting for the kubelet: "
        node.until(lambda: words in json.dumps(operator.json("status", exits=None)["problems"]), "the status says so")
        assert "refused:" not in operator.run("status", exits=1)
        findings = operator.json("doctor", *operator.config, exits=1, state=False)["findings"]
        assert [
            x for x in findings if x["subject"] == "kubelet" and x["outcome"] == "wrong" and str(socket) in x["message"]
        ]
        assert daemon_devices(operator) == before
    node.wait(f"node/{NODE}", r".status.conditions[?(@.type=='Ready')].status", "True", 60)
    node.until(lambda: operator.json("status", exits=None)["problems"] == [], "everything is registered again")
    assert daemon_devices(operator) == before
