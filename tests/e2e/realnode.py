"""A real Kubernetes node for tests: boots it, talks to it with kubectl, restarts its kubelet.

The node lives in a folder of scripts (`$NODEPLUG_REALNODE`, default `../shared/realnode` beside the checkout) that are
built once with its `build.sh`. Waiting is done by `kubectl wait`, which watches the API server.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import grpc

from kubeletapi.podresources.v1 import api_pb2 as podresources

T = TypeVar("T")
FOLDER = Path(os.environ.get("NODEPLUG_REALNODE", Path(__file__).resolve().parents[3] / "shared" / "realnode"))
HOME = Path(os.environ.get("REALNODE_HOME", Path.home() / ".cache" / "realnode"))
NODE = "realnode"
BUSYBOX = "localhost/realnode/busybox:1"


def why_not() -> str:
    """Return why no real node can run here; empty when one can."""
    if os.geteuid() != 0:
        return "a real node needs root"
    if not (FOLDER / "up.sh").exists():
        return f"no real node at {FOLDER} (NODEPLUG_REALNODE)"
    if not (HOME / "bin" / "kubelet").exists():
        return f"the real node is not built: {FOLDER / 'build.sh'}" + ("" if shutil.which("go") else " (needs Go)")
    return ""


class RealNode:
    """The node, from `up` to `down`."""

    kubelet_dir = HOME / "run" / "kubelet"
    cdi_dir = HOME / "run" / "cdi"

    def up(self, *images: Path, **settings: str) -> None:
        """Boot a fresh node, with more image files; `settings` become the scripts' environment (APISERVER_ARGS ...)."""
        self.down()
        self._script("up.sh", IMAGES=" ".join(map(str, images)), **settings)

    def down(self) -> None:
        """Stop everything, also what a broken run left."""
        self._script("down.sh")

    def restart_kubelet(self) -> None:
        """Restart the kubelet alone; pods go on running. Returns when it knows its pods again."""
        before = self._pods_of_the_kubelet()
        self._script("restart-kubelet.sh")
        deadline = time.monotonic() + 30
        while not before <= self._pods_of_the_kubelet():
            assert time.monotonic() < deadline, "the kubelet does not know its pods 30 s after its restart"
            time.sleep(0.2)  # nothing announces that a kubelet has heard of its pods

    def _pods_of_the_kubelet(self) -> set[str]:
        service = podresources.DESCRIPTOR.services_by_name["PodResourcesLister"].full_name
        with grpc.insecure_channel(f"unix:{self.kubelet_dir}/pod-resources/kubelet.sock") as channel:
            list_pods = channel.unary_unary(
                f"/{service}/List",
                request_serializer=podresources.ListPodResourcesRequest.SerializeToString,
                response_deserializer=podresources.ListPodResourcesResponse.FromString,
            )
            listed = list_pods(podresources.ListPodResourcesRequest(), timeout=10, wait_for_ready=True)
        return {f"{pod.namespace}/{pod.name}" for pod in listed.pod_resources}

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 60.0) -> str:
        """Run kubectl as administrator and return what it prints. Raises `CalledProcessError` with its stderr."""
        command = [str(FOLDER / "k"), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
        if done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def get(self, *arguments: str) -> Any:
        """Return an object as kubectl has it."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create or update objects."""
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def wait(self, what: str, path: str, value: str, timeout: int = 30) -> None:
        """Wait until the JSON path of an object has a value."""
        self.kubectl("wait", what, f"--for=jsonpath={{{path}}}={value}", f"--timeout={timeout}s", timeout=timeout + 10)

    def wait_resource(self, resource: str, allocatable: int, timeout: int = 30) -> None:
        """Wait until the node has so many healthy devices of a resource."""
        self.wait(f"node/{NODE}", f".status.allocatable.{_escaped(resource)}", str(allocatable), timeout)

    def until(self, predicate: Callable[[], T], what: str, seconds: float = 60.0) -> T:
        """Ask until the answer is true, for what kubectl cannot wait for; return it."""
        deadline = time.monotonic() + seconds
        while not (found := predicate()):
            assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
            time.sleep(0.2)
        return found

    def until_event(self, pod: str, reason: str) -> None:
        """Wait until there is an event about a pod."""
        fields = f"--field-selector=involvedObject.name={pod},reason={reason}"
        self.until(lambda: self.get("events", fields)["items"], f"{reason} of {pod}")

    def capacity(self, resource: str) -> tuple[str | None, str | None]:
        """Return the node's capacity and allocatable of a resource."""
        status = self.get("node", NODE)["status"]
        return status["capacity"].get(resource), status["allocatable"].get(resource)

    def delete_pod(self, name: str) -> None:
        """Delete a pod and wait until it is gone."""
        self.kubectl("delete", "pod", name, "--grace-period=1", "--ignore-not-found", "--wait=true")

    def _script(self, name: str, **environment: str) -> None:
        done = subprocess.run(
            [str(FOLDER / name)], env=os.environ | environment, capture_output=True, text=True, timeout=180, check=False
        )
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"


def pod(name: str, command: str, resources: dict[str, int] | None = None, uid: int | None = None) -> dict[str, Any]:
    """Write a pod with one container `c` that runs a shell command and may use some devices."""
    container: dict[str, Any] = {
        "name": "c",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", command],
    }
    if resources:
        container["resources"] = {"limits": {key: str(count) for key, count in resources.items()}}
    if uid is not None:
        container["securityContext"] = {"runAsUser": uid, "runAsGroup": uid, "runAsNonRoot": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]},
    }


def _escaped(resource: str) -> str:
    return resource.replace(".", r"\.")
