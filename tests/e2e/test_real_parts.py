"""The stand-in API server under real components: kube-scheduler schedules, a controller manager makes claims."""

import contextlib
import subprocess
from collections.abc import Iterator
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
    """A part with its defaults: protobuf, leader election, informers for all that it knows."""
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


def until_bound(api: Http, name: str) -> Plain:
    """The pod, once it is on a node."""
    with api.watch(PODS, fieldSelector=f"metadata.name={name}", timeoutSeconds="100") as events:
        for event in events:
            if event["object"]["spec"].get("nodeName"):
                pod: Plain = event["object"]
                return pod
    raise TimeoutError(f"pod {name} was not bound; see the part's log")


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_pod_with_a_claim_from_a_template(tmp_path: Path, tls: bool) -> None:
    """The real claim controller makes the claim, the real scheduler allocates it and binds the pod."""
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
            assert until_bound(api, "p")["spec"]["nodeName"] == "n1"
        (claim,) = api.ok("GET", "/apis/resource.k8s.io/v1/resourceclaims")["items"]
        assert claim["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
        assert [each["name"] for each in claim["status"]["reservedFor"]] == ["p"]
        reasons = {each["reason"] for each in api.ok("GET", "/api/v1/events")["items"]}
        assert "Scheduled" in reasons
