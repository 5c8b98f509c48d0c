"""A stand-in kubelet for tests of device plugins and DRA drivers in any language: the fixture `nodeplug_kubelet`.

The kubelet is a separate process, `nodeplug kubelet run`, and the fixture uses its control socket. This module imports
nothing of nodeplug, which can be installed anywhere. Tests and plugins can have modules of any name.
"""

import contextlib
import inspect
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

import pytest

T = TypeVar("T")
DEFAULT_TIMEOUT = 30.0  # the longest wait, unless a test passes another limit
_LOG_LINES = 200
_MAX_TEXT_LENGTH = 4_000  # characters of the state in the error of a failed wait


class KubeletError(Exception):
    """The kubelet refuses a request or does not run; the text contains the reason."""


class State:
    """The kubelet's state at one moment."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        """Wrap an answer of the control socket; `raw` contains all of it."""
        self.raw = answer
        self.changes: int = answer.get("changes", 0)
        self.drivers: Sequence[str] = answer.get("drivers", [])
        """The registered and connected DRA drivers."""

    @property
    def capacity(self) -> dict[str, int]:
        """The node's devices, by resource."""
        return {name: each["capacity"] for name, each in self._resources.items()}

    @property
    def allocatable(self) -> dict[str, int]:
        """The node's healthy devices, by resource."""
        return {name: each["allocatable"] for name, each in self._resources.items()}

    def devices(self, resource: str) -> dict[str, str]:
        """The health of a resource's devices, by ID."""
        return dict(self._resources.get(resource, {}).get("devices", {}))

    @property
    def pods(self) -> dict[str, dict[str, Any]]:
        """Pods by `namespace/name`, each with `status`, `allocations` and `claimed`."""
        return {each["name"]: each for each in self.raw.get("pods", [])}

    def status(self, name: str) -> dict[str, Any]:
        """A pod's status: `phase`, `reason`, `message`, `containerStatuses`. Raises KeyError."""
        return {"phase": "Pending", **self._pod(name)["status"]}

    def allocations(self, name: str, container: str = "c") -> dict[str, list[str]]:
        """The IDs of a container's devices, by resource. Raises KeyError."""
        return dict(self._pod(name)["allocations"][container])

    def claimed(self, name: str, container: str = "c") -> list[str]:
        """The CDI device names of a container's claims. Raises KeyError."""
        return list(self._pod(name)["claimed"][container])

    def __str__(self) -> str:
        """Return the whole state as JSON."""
        return json.dumps(self.raw, indent=1, sort_keys=True)

    @property
    def _resources(self) -> dict[str, Any]:
        return dict(self.raw.get("resources", {}))

    def _pod(self, name: str) -> dict[str, Any]:
        return self.pods[name if "/" in name else f"default/{name}"]


class Kubelet:
    """A running stand-in kubelet. Each method returns after the kubelet has done it, and raises `KubeletError`."""

    def __init__(self, folder: Path, log: Iterable[str]) -> None:
        """`folder` is its working folder, `log` contains the last lines that it printed."""
        self.folder = folder
        self.device_plugins = folder / "device-plugins"
        """The folder for device plugins' sockets, with `kubelet.sock`."""
        self.plugins_registry = folder / "plugins_registry"
        """The folder for DRA drivers' registration sockets."""
        self.pod_resources_socket = folder / "pod-resources/kubelet.sock"
        self.kubeconfig = folder / "kubeconfig"
        """The kubeconfig of its API server, if the options contain `"apiserver": True`."""
        self._log = log

    def state(self) -> State:
        """Return the current state."""
        return self.ask("status")

    def admit(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Run a pod, for example one from `pod`; return its status, which can be that of a rejected pod."""
        metadata = manifest["metadata"]
        found = self.ask("admit", admit=manifest)
        return found.status(f"{metadata.get('namespace', 'default')}/{metadata['name']}")

    def remove(self, name: str) -> None:
        """Remove a pod by its name or `namespace/name`."""
        self.ask("remove", pod=name)

    def restart(self, *, kill: bool = False) -> None:
        """Restart the kubelet, which removes all sockets in its folders. With `kill` it crashes instead of stopping."""
        self.ask("kill" if kill else "restart")

    def hold(self) -> None:
        """Make the API server unavailable: a kubelet that starts then knows no pods."""
        self.ask("hold")

    def release(self) -> None:
        """Make the API server available again."""
        self.ask("release")

    def put_claim(self, manifest: Mapping[str, Any]) -> None:
        """Add an allocated ResourceClaim to the cluster, in the form that a scheduler writes."""
        self.ask("put-claim", claim=manifest)

    def remove_claim(self, name: str) -> None:
        """Delete a ResourceClaim by its name or `namespace/name` from the cluster. Prepared devices stay prepared."""
        self.ask("remove-claim", name=name)

    def until(self, condition: Callable[[State], T], seconds: float = DEFAULT_TIMEOUT, what: str = "") -> T:
        """Wait until `condition` returns a true result for the state, and return this result.

        The condition is evaluated after each change. Raises TimeoutError with the awaited condition (`what`, or its
        source) and the last state.
        """
        deadline = time.monotonic() + seconds
        state = self.state()
        while not (found := condition(state)):
            left = deadline - time.monotonic()
            if left <= 0:
                seen = str(state)[:_MAX_TEXT_LENGTH]
                raise TimeoutError(f"not within {seconds:g} s: {what or _source(condition)}\nseen last:\n{seen}")
            state = self.ask("wait", since=state.changes, seconds=min(left, DEFAULT_TIMEOUT))
        return found

    def ask(self, do: str, **fields: Any) -> State:
        """Send a request to the control socket, one line of JSON, and return the answer."""
        path = self.folder / "control.sock"
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(DEFAULT_TIMEOUT + 60)
                connection.connect(str(path))
                connection.sendall(json.dumps({"do": do, **fields}).encode() + b"\n")
                with connection.makefile("rb") as answer:
                    line = answer.readline()
        except OSError as error:
            raise KubeletError(f"{path}: {error}; the kubelet said:\n{''.join(self._log)}") from error
        if not line:
            raise KubeletError(f"{path}: no answer; the kubelet said:\n{''.join(self._log)}")
        found = json.loads(line)
        if found.get("error"):
            raise KubeletError(found["error"])
        return State(found)


def pod(
    name: str, limits: Mapping[str, int] | None = None, *, claims: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A pod with one container `c` that requests these numbers of devices per resource, and all of these claims.

    `claims` maps the pod's name for a claim to the ResourceClaim's name.
    """
    resources: dict[str, Any] = {"limits": {resource: str(count) for resource, count in (limits or {}).items()}}
    if claims:
        resources["claims"] = [{"name": each} for each in claims]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {
            "containers": [{"name": "c", "image": "any", "resources": resources}],
            "resourceClaims": [{"name": x, "resourceClaimName": claim} for x, claim in (claims or {}).items()],
        },
    }


def allocated_claim(name: str, driver: str, *devices: str, users: Sequence[str] = ()) -> dict[str, Any]:
    """An allocated ResourceClaim: `devices` in the form `request/pool/device`, reserved for the pods named in `users`.

    Pool names can contain slashes.
    """
    parts = [(r, *place.rsplit("/", 1)) for r, place in (device.split("/", 1) for device in devices)]
    results = [{"request": r, "driver": driver, "pool": pool, "device": device} for r, pool, device in parts]
    requests = [{"name": r, "exactly": {"deviceClassName": "any"}} for r in dict.fromkeys(r for r, _, _ in parts)]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"devices": {"requests": requests}},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": user, "uid": f"uid-{user}"} for user in users],
        },
    }


@pytest.fixture
def nodeplug_kubelet_options() -> dict[str, Any]:
    """The options of `nodeplug kubelet run`, such as `{"numa_nodes": 2}`. Override this fixture to set them.

    Options with the value False or None are omitted; `{"capacity": {"cpu": 4}}` is `--capacity cpu=4`.
    """
    return {}


@pytest.fixture
def nodeplug_kubelet(nodeplug_kubelet_options: dict[str, Any]) -> Iterator[Kubelet]:
    """A running stand-in kubelet in an empty folder, without an API server unless the options contain `apiserver`."""
    options = {"apiserver": False, "api_delay": 0, **nodeplug_kubelet_options}
    with tempfile.TemporaryDirectory(prefix="np-") as name:  # short, because a socket's path has at most 107 bytes
        folder = Path(name)
        command = [*_nodeplug(), "kubelet", "run", "--dir", name, *_flags(options)]
        # removes variables for the tests' Python, because nodeplug's can be another one
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        environment |= {"PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
        )
        assert process.stdout is not None
        log: deque[str] = deque(maxlen=_LOG_LINES)
        started = threading.Event()
        reader = threading.Thread(target=_read, args=(process.stdout, log, started))
        reader.start()
        try:
            if not started.wait(DEFAULT_TIMEOUT) or not any(line.startswith("started ") for line in log):
                pytest.fail(f"{shlex.join(command)} does not run:\n{''.join(log)}")
            yield Kubelet(folder, log)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(DEFAULT_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            reader.join()
            process.stdout.close()


def _read(out: IO[str], log: "deque[str]", started: threading.Event) -> None:
    """Collect the kubelet's output; `started` is set when it runs or has ended."""
    for line in out:
        log.append(line)
        if line.startswith("started "):
            started.set()
    started.set()


def _nodeplug() -> list[str]:
    if command := os.environ.get("NODEPLUG"):
        return shlex.split(command)
    found = shutil.which("nodeplug")
    if found is None:
        pytest.fail("nodeplug is not on the PATH; install it (`pipx install nodeplug`), or set NODEPLUG to its command")
    return [found]


def _flags(options: Mapping[str, Any]) -> Iterator[str]:
    for key, value in options.items():
        flag = key.replace("_", "-")
        if value is True or (value is False and key == "apiserver"):  # the only switch with an opposite
            yield f"--{flag}" if value else f"--no-{flag}"
        elif value is not False and value is not None:
            if isinstance(value, Mapping):
                value = [f"{name}={item}" for name, item in value.items()]
            for each in value if isinstance(value, list | tuple) else (value,):
                yield from (f"--{flag}", str(each))


def _source(condition: Callable[..., Any]) -> str:
    with contextlib.suppress(OSError, TypeError):  # typed at a prompt, or not a function
        return inspect.getsource(condition).strip()
    return repr(condition)
