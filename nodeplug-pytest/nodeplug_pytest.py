"""A stand-in kubelet for tests of device plugins and DRA drivers, in any language: the fixture `nodeplug_kubelet`.

The kubelet is a process of its own, `nodeplug kubelet run`, and is asked through its control socket. Nothing of
nodeplug is imported here: it can be installed anywhere, and tests and plugins may have modules of any name.
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
SECONDS = 30.0  # the longest that anything is waited for, unless a test says otherwise
_LOG_LINES = 200
_LONGEST_TEXT = 4_000  # characters of the state in the words of a wait that was in vain


class KubeletError(Exception):
    """The kubelet refuses, or does not run; says why."""


class State:
    """What the kubelet knows at one moment."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        """Take what the control socket answers; `raw` has all of it."""
        self.raw = answer
        self.changes: int = answer.get("changes", 0)
        self.drivers: Sequence[str] = answer.get("drivers", [])
        """The DRA drivers that are registered and connected."""

    @property
    def capacity(self) -> dict[str, int]:
        """The node's devices, by resource."""
        return {name: each["capacity"] for name, each in self._resources.items()}

    @property
    def allocatable(self) -> dict[str, int]:
        """The node's healthy devices, by resource."""
        return {name: each["allocatable"] for name, each in self._resources.items()}

    def devices(self, resource: str) -> dict[str, str]:
        """The health of a resource's devices, by id."""
        return dict(self._resources.get(resource, {}).get("devices", {}))

    @property
    def pods(self) -> dict[str, dict[str, Any]]:
        """Pods by `namespace/name`, each with `status`, `allocations` and `claimed`."""
        return {each["name"]: each for each in self.raw.get("pods", [])}

    def status(self, name: str) -> dict[str, Any]:
        """A pod's status: `phase`, `reason`, `message`, `containerStatuses`. Raises KeyError."""
        return {"phase": "Pending", **self._pod(name)["status"]}

    def allocations(self, name: str, container: str = "c") -> dict[str, list[str]]:
        """The ids of the devices that a container has, by resource. Raises KeyError."""
        return dict(self._pod(name)["allocations"][container])

    def claimed(self, name: str, container: str = "c") -> list[str]:
        """The CDI names that a container has of its claims. Raises KeyError."""
        return list(self._pod(name)["claimed"][container])

    def __str__(self) -> str:
        """Return all of it as JSON."""
        return json.dumps(self.raw, indent=1, sort_keys=True)

    @property
    def _resources(self) -> dict[str, Any]:
        return dict(self.raw.get("resources", {}))

    def _pod(self, name: str) -> dict[str, Any]:
        return self.pods[name if "/" in name else f"default/{name}"]


class Kubelet:
    """A running stand-in kubelet. Each method returns when the kubelet has done it, and raises `KubeletError`."""

    def __init__(self, folder: Path, log: Iterable[str]) -> None:
        """`folder` is where it runs, `log` has the last lines that it printed."""
        self.folder = folder
        self.device_plugins = folder / "device-plugins"
        """Where device plugins put their sockets; `kubelet.sock` is there."""
        self.plugins_registry = folder / "plugins_registry"
        """Where DRA drivers put their registration sockets."""
        self.pod_resources_socket = folder / "pod-resources/kubelet.sock"
        self.kubeconfig = folder / "kubeconfig"
        """Of its API server, where the options have `"apiserver": True`."""
        self._log = log

    def state(self) -> State:
        """What it knows now."""
        return self.ask("status")

    def admit(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Run a pod, such as `pod` makes; return its status, which may be that of a refused one."""
        metadata = manifest["metadata"]
        found = self.ask("admit", admit=manifest)
        return found.status(f"{metadata.get('namespace', 'default')}/{metadata['name']}")

    def remove(self, name: str) -> None:
        """End a pod, by its name or `namespace/name`."""
        self.ask("remove", pod=name)

    def restart(self, *, kill: bool = False) -> None:
        """Restart the kubelet: all sockets in its folders go. `kill`: it crashes instead of stopping."""
        self.ask("kill" if kill else "restart")

    def hold(self) -> None:
        """Have the API server go away: a kubelet that starts knows no pods."""
        self.ask("hold")

    def release(self) -> None:
        """Have it come back."""
        self.ask("release")

    def put_claim(self, manifest: Mapping[str, Any]) -> None:
        """Let the cluster have a ResourceClaim, allocated, as a scheduler would leave it."""
        self.ask("put-claim", claim=manifest)

    def remove_claim(self, name: str) -> None:
        """Delete a ResourceClaim, by its name or `namespace/name`, from the cluster; what is prepared stays so."""
        self.ask("remove-claim", name=name)

    def until(self, condition: Callable[[State], T], seconds: float = SECONDS, what: str = "") -> T:
        """Wait until `condition` says something true of the state, and return that; it is asked after each change.

        Raises TimeoutError with what was waited for (`what`, or the condition's source) and what was seen last.
        """
        deadline = time.monotonic() + seconds
        state = self.state()
        while not (found := condition(state)):
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(
                    f"not within {seconds:g} s: {what or _source(condition)}\nseen last:\n{str(state)[:_LONGEST_TEXT]}"
                )
            state = self.ask("wait", since=state.changes, seconds=min(left, SECONDS))
        return found

    def ask(self, do: str, **fields: Any) -> State:
        """Send a request to the control socket, one line of JSON, and return what is answered."""
        path = self.folder / "control.sock"
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(SECONDS + 60)
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
    """A pod with one container `c` that wants so many devices of these resources, and all of these claims.

    `claims` maps what the pod calls a claim to the ResourceClaim's name.
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
    """A ResourceClaim as a scheduler leaves it: `devices` as `request/pool/device`, for the pods named in `users`.

    Pools may have slashes.
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
    """How `nodeplug_kubelet` runs, in the words of `nodeplug kubelet run --help`: `{"numa_nodes": 2}`. Override it.

    What is False or None is as if it was not there.
    """
    return {}


@pytest.fixture
def nodeplug_kubelet(nodeplug_kubelet_options: dict[str, Any]) -> Iterator[Kubelet]:
    """A stand-in kubelet that runs on an empty folder, without an API server unless the options have `apiserver`."""
    options = {"apiserver": False, "api_delay": 0, **nodeplug_kubelet_options}
    with tempfile.TemporaryDirectory(prefix="np-") as name:  # short: a socket's path has 107 bytes
        folder = Path(name)
        command = [*_nodeplug(), "kubelet", "run", "--dir", name, *_flags(options)]
        # what is for the tests' Python is not for nodeplug's, which may be another one
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
            if not started.wait(SECONDS) or not any(line.startswith("started ") for line in log):
                pytest.fail(f"{shlex.join(command)} does not run:\n{''.join(log)}")
            yield Kubelet(folder, log)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            reader.join()
            process.stdout.close()


def _read(out: IO[str], log: "deque[str]", started: threading.Event) -> None:
    """Keep what the kubelet prints; `started` is set once it runs, or has ended."""
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
        if value is True or (value is False and key == "apiserver"):  # the one switch that has an opposite
            yield f"--{flag}" if value else f"--no-{flag}"
        elif value is not False and value is not None:
            for each in value if isinstance(value, list | tuple) else (value,):
                yield from (f"--{flag}", str(each))


def _source(condition: Callable[..., Any]) -> str:
    with contextlib.suppress(OSError, TypeError):  # it was typed in, or is no function
        return inspect.getsource(condition).strip()
    return repr(condition)
