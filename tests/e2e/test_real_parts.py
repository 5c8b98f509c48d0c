"""The stand-ins with real components: kube-scheduler schedules, a controller manager creates claims."""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from resourceapi.objects.release import RELEASES
from tests.controlplane.apiserver.running import Http, Plain, Running
from tests.controlplane.scheduler.kit import device_class, node, slice_, template
from tests.e2e.realnode import HOME, KUBERNETES, RELEASE

_PARTS = ("kube-scheduler", "kube-controller-manager")
_MISSING = [each for each in _PARTS if not (HOME / "bin" / each).exists()]

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(bool(_MISSING), reason=f"not built: {', '.join(_MISSING)}; make node K8S={KUBERNETES}"),
]
SERVED = RELEASES[RELEASE.version]  # the real scheduler waits for v1 of taint rules
PODS = "/api/v1/namespaces/default/pods"


@contextlib.contextmanager
def running(part: str, kubeconfig: Path, *arguments: str) -> Iterator[None]:
    """Run a component with its defaults: protobuf, leader election, informers for all its kinds."""
    access = [
        f"--{name}={kubeconfig}" for name in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    ]
    command = [str(HOME / "bin" / part), *access, "--secure-port=0", *arguments]
    with open(kubeconfig.with_name(f"{part}.log"), "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


def until(api: Http, path: str, name: str, is_it: Callable[[Plain], object]) -> Plain:
    """Wait for an object in the expected state, and return it."""
    with api.watch(path, fieldSelector=f"metadata.name={name}", timeoutSeconds="100") as events:
        for event in events:
            if is_it(event["object"]):
                found: Plain = event["object"]
                return found
    raise TimeoutError(f"{path}/{name} has not become what it should; see the part's log")


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_real_controller_and_scheduler_allocate_a_template_claim(tmp_path: Path, tls: bool) -> None:
    """The real claim controller creates the claim, the real scheduler allocates it and binds the pod."""
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    ready = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": "g"}]}}
    references = [{"name": "g", "resourceClaimTemplateName": template()["metadata"]["name"]}]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [container], "resourceClaims": references},
    }
    with Running(tls=tls, definitions=(), release=SERVED) as server, server.http() as api:
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        api.ok("POST", "/api/v1/nodes", node() | {"status": ready})
        api.ok("POST", "/apis/resource.k8s.io/v1/deviceclasses", device_class())
        api.ok("POST", "/apis/resource.k8s.io/v1/resourceslices", slice_("n1", "gpu-0"))
        api.ok("POST", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates", template())
        api.ok("POST", PODS, pod)
        controllers = "--controllers=resourceclaim-controller"
        with (
            running("kube-scheduler", kubeconfig),
            running("kube-controller-manager", kubeconfig, controllers, "--use-service-account-credentials=false"),
        ):
            assert until(api, PODS, "p", lambda pod: pod["spec"].get("nodeName"))["spec"]["nodeName"] == "n1"
        (claim,) = api.ok("GET", "/apis/resource.k8s.io/v1/resourceclaims")["items"]
        assert claim["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
        assert [each["name"] for each in claim["status"]["reservedFor"]] == ["p"]
        reasons = {each["reason"] for each in api.ok("GET", "/api/v1/events")["items"]}
        assert "Scheduled" in reasons


def test_real_scheduler_uses_the_node_of_the_stand_in_kubelet(tmp_path: Path, socket_dir: Path) -> None:
    """It has room for pods and the labels of node selectors, and its Lease keeps it Ready."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m", "memory": "1Mi"}}}
    spec = {"containers": [container], "nodeSelector": {"kubernetes.io/os": "linux"}}
    with Running(definitions=(), release=SERVED) as server, server.http() as api:
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        api.ok("POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
        release = ("--kubernetes", RELEASE.version)
        command = [sys.executable, "-m", "nodeplug", "kubelet", "run", "--dir", str(socket_dir), *release]
        kubelet = subprocess.Popen([*command, "--kubeconfig", str(kubeconfig)])
        try:
            with running("kube-scheduler", kubeconfig):
                until(api, PODS, "p", lambda pod: pod["status"]["phase"] == "Running")
            controllers = ("--controllers=node-lifecycle-controller", "--use-service-account-credentials=false")
            soon = ("--node-monitor-period=1s", "--node-monitor-grace-period=12s", "--node-startup-grace-period=12s")
            with running("kube-controller-manager", kubeconfig, *controllers, *soon):
                lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
                times: set[str] = set()

                def is_third(found: Plain) -> bool:
                    times.add(found["spec"]["renewTime"])
                    return len(times) == 3

                until(api, lease, "node", is_third)
            (taken,) = api.ok("GET", "/api/v1/nodes")["items"]
            assert "taints" not in taken["spec"]
            (ready,) = [each["status"] for each in taken["status"]["conditions"] if each["type"] == "Ready"]
            assert ready == "True"
        finally:
            kubelet.terminate()
            kubelet.wait(30)
