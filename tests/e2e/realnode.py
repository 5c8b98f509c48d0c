"""A real Kubernetes node for tests: boots it, runs kubectl, restarts its kubelet.

The scripts in `node/` build and boot it. As for them, `$K8S` selects the Kubernetes release (1.34 to 1.37), `$CRI` the
container runtime, and `$REALNODE_HOME` the folder of the build. Waiting is done by `kubectl wait`, which watches the
API server.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest
from google.protobuf import message_factory

from kubelet import RELEASES
from kubelet.release import LATEST
from kubeletapi.podresources.v1 import api_pb2 as podresources

T = TypeVar("T")
FOLDER = Path(__file__).with_name("node")
KUBERNETES: str = os.environ.get("K8S", "1.36")
RELEASE = next((each for version, each in RELEASES.items() if version == KUBERNETES), LATEST)
"""The behaviour and the feature gates of its Kubernetes release."""
_BUILT = Path.home() / ".cache" / ("realnode" if KUBERNETES == "1.36" else f"realnode-{KUBERNETES}")
HOME = Path(os.environ.get("REALNODE_HOME", _BUILT))
CRI = os.environ.get("CRI", "containerd")
"""Its container runtime, one of `node/runtimes`."""
NODE = "realnode"
STATIC_PODS = HOME / "run" / "conf" / "static"
"""The kubelet's `staticPodPath`."""
CGROUP = os.environ.get("REALNODE_CGROUP", "realnode")
BUSYBOX = "localhost/realnode/busybox:1"


def skip_reason() -> str:
    """Return why no real node can run here; "" if one can."""
    if os.geteuid() != 0:
        return "a real node needs root"
    if KUBERNETES not in RELEASES:
        return f"K8S={KUBERNETES}: the tests know {', '.join(RELEASES)}"
    if not (HOME / "bin" / "kubelet").exists():
        return f"the real node is not built: make node K8S={KUBERNETES}" + ("" if shutil.which("go") else " (needs Go)")
    return ""


class RealNode:
    """The node, which runs from `up` to `down`."""

    kubelet_dir = HOME / "run" / "kubelet"
    cdi_dir = HOME / "run" / "cdi"

    def up(self, *images: Path, **settings: str) -> None:
        """Boot a fresh node with more image files; `settings` become the scripts' environment (APISERVER_ARGS ...)."""
        self.down()
        self._script("up.sh", IMAGES=" ".join(map(str, images)), **settings)

    def down(self) -> None:
        """Stop everything, including leftovers of a broken run."""
        self._script("down.sh")

    def restart_kubelet(self, refused: str = "") -> None:
        """Restart only the kubelet; pods continue. Returns when it knows all of them except `refused`."""
        before = self._pods_of_the_kubelet() - {refused}
        self._script("restart-kubelet.sh")
        self._wait_until_pods_are_known(before)

    @contextlib.contextmanager
    def without_api_server(self) -> Iterator[Callable[[], None]]:
        """Restart the kubelet without an API server; call the yielded function to start the API server again."""
        before = self._pods_of_the_kubelet()
        start = self._kill("kube-apiserver", signal.SIGKILL)
        is_away = True

        def back() -> None:
            nonlocal is_away
            is_away = False
            self._shell(f'{start}; waitfor 60 kube-apiserver "$BIN/kubectl" get --raw /readyz')
            self._shell(self._kill("kube-scheduler", signal.SIGTERM))  # it would end later anyway
            self._wait_until_pods_are_known(before)

        try:
            self._script("restart-kubelet.sh")
            yield back
        finally:
            if is_away:
                back()

    @contextlib.contextmanager
    def with_kubelet_of(self, kubeconfig: Path) -> Iterator[None]:
        """Connect the kubelet to another API server for the block; the node's own must have no pods."""
        healthy = 'waitfor 60 kubelet curl -fs "http://127.0.0.1:$P_KUBELETHZ/healthz"'
        other = (
            f'daemon kubelet "$BIN/kubelet" --kubeconfig={shlex.quote(str(kubeconfig))}'
            ' --config="$RUN/conf/kubelet.yaml"'
            ' --hostname-override=$NODE --cert-dir="$RUN/kubelet-pki" --v=2'
        )
        self._shell(f"stopone kubelet 10; {other}; {healthy}")
        try:
            yield
        finally:
            self._shell(f"stopone kubelet 10; start_kubelet; {healthy}")
            self.wait(f"node/{NODE}", ".status.conditions[?(@.type=='Ready')].status", "True", 60)

    @contextlib.contextmanager
    def without_kubelet(self) -> Iterator[None]:
        """Stop the kubelet for the block; pods continue."""
        self._shell("stopone kubelet 10")
        try:
            yield
        finally:
            healthy = 'waitfor 60 kubelet curl -fs "http://127.0.0.1:$P_KUBELETHZ/healthz"'
            self._shell(f"start_kubelet; {healthy}")

    @contextlib.contextmanager
    def without_cdi(self) -> Iterator[None]:
        """Make the container runtime ignore CDI names, the default of containerd 1.7, for the block; pods continue."""
        if CRI == "crio":
            pytest.skip("CRI-O has CDI on, and nothing to switch it off with")
        config = HOME / "run" / "conf" / "containerd.toml"
        text = config.read_text()
        config.write_text(text.replace("enable_cdi = true", "enable_cdi = false"))
        assert config.read_text() != text
        try:
            self._restart_containerd()
            yield
        finally:
            config.write_text(text)
            self._restart_containerd()

    def _restart_containerd(self) -> None:
        self._kill("containerd", signal.SIGTERM)
        version = shlex.quote(str(FOLDER / "ctr"))
        self._shell(f'. "$ROOT/runtimes/$CRI.sh"; cri_start; waitfor 30 containerd {version} version')
        self.wait(f"node/{NODE}", ".status.conditions[?(@.type=='Ready')].status", "True", 60)

    def _kill(self, program: str, number: int) -> str:
        """Stop one of the node's programs; return the shell command that starts it again."""
        process = int((HOME / "run" / "pids" / program).read_text().split()[0])
        command = Path(f"/proc/{process}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        os.kill(process, number)
        self._shell(f"stopone {program} 10")
        return shlex.join(["daemon", program, *map(os.fsdecode, command)])

    def kill_container(self, pod: str) -> None:
        """Kill the processes of a pod's only container, as the kernel does without free memory."""
        for process in self.processes(pod):
            os.kill(process, signal.SIGKILL)

    def processes(self, pod: str) -> list[int]:
        """Return the processes of a pod's only container."""
        status = self.get("pod", pod)
        container = status["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
        group = next(each for each in self._groups(status) if each.name in (container, f"crio-{container}"))
        return list(map(int, (group / "cgroup.procs").read_text().split()))

    def kill_sandbox(self, pod: str) -> None:
        """Kill the process that holds the pod's namespaces."""
        if CRI == "crio":
            pytest.skip("CRI-O pins the namespaces of a pod; no process holds them")
        status = self.get("pod", pod)
        container = status["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
        (sandbox,) = (each for each in self._groups(status) if each.name != container)
        os.kill(int((sandbox / "cgroup.procs").read_text().split()[0]), signal.SIGKILL)

    def _groups(self, pod: dict[str, Any]) -> Iterator[Path]:
        """Yield the cgroups below a pod's cgroup."""
        return Path(f"/sys/fs/cgroup/memory/{CGROUP}/kubepods").glob(f"**/pod{pod['metadata']['uid']}/*/")

    def has_cgroup(self, uid: str) -> bool:
        """Return whether a pod has a cgroup in any hierarchy."""
        return any(Path("/sys/fs/cgroup").glob(f"*/{CGROUP}/kubepods/**/pod{uid}"))

    def _wait_until_pods_are_known(self, pods: set[str]) -> None:
        # after a long absence of its API server, a kubelet retries every 30 s
        self.until(lambda: pods <= self._pods_of_the_kubelet(), "the kubelet knows its pods again", 90)

    def _pods_of_the_kubelet(self) -> set[str]:
        with self.pod_resources("List") as ask:
            listed = ask(podresources.ListPodResourcesRequest())
        return {f"{pod.namespace}/{pod.name}" for pod in listed.pod_resources}

    @contextlib.contextmanager
    def pod_resources(self, method: str) -> Iterator[Callable[[Any], Any]]:
        """Yield a function that calls the kubelet's pod-resources API."""
        service = podresources.DESCRIPTOR.services_by_name["PodResourcesLister"]
        answer = message_factory.GetMessageClass(service.methods_by_name[method].output_type)
        with grpc.insecure_channel(f"unix:{self.kubelet_dir}/pod-resources/kubelet.sock") as channel:
            call = channel.unary_unary(
                f"/{service.full_name}/{method}",
                request_serializer=lambda request: request.SerializeToString(),
                response_deserializer=answer.FromString,
            )
            yield lambda request: call(request, timeout=10, wait_for_ready=True)

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 60.0) -> str:
        """Run kubectl as administrator and return its output. Raises `CalledProcessError` with its stderr."""
        command = [str(FOLDER / "k"), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
        if done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def get(self, *arguments: str) -> Any:
        """Return an object in kubectl's format."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create or update objects."""
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def wait(self, what: str, path: str, value: str, timeout: int = 30) -> None:
        """Wait until the JSON path of an object has a value."""
        self.kubectl("wait", what, f"--for=jsonpath={{{path}}}={value}", f"--timeout={timeout}s", timeout=timeout + 10)

    def wait_resource(self, resource: str, allocatable: int, timeout: int = 30) -> None:
        """Wait until the node has this number of healthy devices of a resource."""
        self.wait(f"node/{NODE}", f".status.allocatable.{_escaped(resource)}", str(allocatable), timeout)

    def until(self, predicate: Callable[[], T], what: str, seconds: float = 60.0, period: float = 0.2) -> T:
        """Poll until the answer is true, for conditions without an event; return it."""
        deadline = time.monotonic() + seconds
        while not (found := predicate()):
            assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
            time.sleep(period)
        return found

    def always(self, predicate: Callable[[], bool], seconds: float) -> None:
        """Check for this time that a condition stays true."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert predicate()
            time.sleep(0.5)

    def until_event(self, pod: str, reason: str) -> None:
        """Wait until a pod has an Event with this reason."""
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
        _run([str(FOLDER / name)], environment)

    def _shell(self, command: str) -> None:
        _run(["bash", "-c", f". {shlex.quote(str(FOLDER / 'lib.sh'))}; {command}"], {})


def _run(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(
        command,
        env=os.environ | {"K8S": KUBERNETES, "REALNODE_HOME": str(HOME)} | environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, f"{command[-1]}: {done.stdout}{done.stderr}"


def needs(gate: str) -> pytest.MarkDecorator:
    """Skip a test if a feature gate is off."""
    reason = RELEASE.reason_unsupported(gate)
    return pytest.mark.skipif(bool(reason), reason=reason)


def pod(name: str, command: str, resources: dict[str, int] | None = None, uid: int | None = None) -> dict[str, Any]:
    """Return a pod with one container `c` that runs a shell command, optionally with devices."""
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
