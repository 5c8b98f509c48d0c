"""The command `nodeplug kubelet`."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from click.testing import CliRunner, Result

from checkpoint.kubelet_devices import PodDevices, encode
from grpcunix import RpcError
from kubelet.devicemanager import Device
from kubelet.stubs import DevicePluginStub
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from nodeplug.commands.kubelet import kubelet

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
POD = """
apiVersion: v1
kind: Pod
metadata: {name: demo}
spec:
  containers:
  - {name: c, image: any, resources: {limits: {example.com/x: 1, cpu: 500m}}}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {}}}]}
---
kind: List
items:
- {kind: Pod, metadata: {name: greedy}, spec: {containers: [{name: c, resources: {limits: {example.com/x: "5"}}}]}}
"""


def nodeplug(*arguments: str | Path) -> Result:
    return CliRunner().invoke(kubelet, [str(argument) for argument in arguments], catch_exceptions=False)


class Background:
    """A process whose output lines tests can wait for."""

    def __init__(self, *command: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTHONUNBUFFERED": "1", "GRPC_VERBOSITY": "ERROR"}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

    def until(self, line: str) -> None:
        self._find(lambda printed: printed == line, line)

    def until_prefix(self, text: str) -> str:
        """The rest of the next line that starts with `text`."""
        return self._find(lambda printed: printed.startswith(text), text).removeprefix(text)

    def _find(self, is_it: Callable[[str], bool], wanted: str) -> str:
        assert self._process.stdout is not None
        for printed in self._process.stdout:
            if is_it(printed.rstrip()):
                return printed.rstrip()
        raise AssertionError(f"it ended without {wanted!r}")

    def end(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code


@pytest.fixture
def running(folder: Path) -> Iterator[Background]:
    """A kubelet in another process, and a plugin in a third."""
    process = Background(sys.executable, "-m", "nodeplug", "kubelet", "run", "--dir", str(folder), "--in-order")
    process.until(f"started {folder}")
    plugin = Background(sys.executable, str(HERE / "plugin_process.py"), str(folder / "device-plugins"), "correct")
    process.until("capacity example.com/x 2 allocatable 2")
    yield process
    assert plugin.end() == 0
    assert process.end() == 0
    assert not (folder / "control.sock").exists()


def test_admit_status_remove_and_restart_with_plugin(running: Background, folder: Path) -> None:
    (folder / "pods.yaml").write_text(POD)
    admitted = nodeplug("admit", "--dir", folder, folder / "pods.yaml")
    assert admitted.exit_code == 1
    assert admitted.output.splitlines() == [
        "default/demo Running",
        "default/greedy Failed UnexpectedAdmissionError: Pod was rejected: Allocate failed due to requested number of"
        " devices unavailable for example.com/x. Requested: 5, Available: 1, which is unexpected",
    ]
    running.until("admitted default/demo")
    shown = nodeplug("status", "--dir", folder).output
    for part in ("example.com/x", "2 Healthy", "default/demo", "example.com/x: a", "UnexpectedAdmissionError"):
        assert part in shown
    wide = nodeplug("status", "--dir", folder, "-o", "wide").output
    found = yaml.safe_load(nodeplug("status", "--dir", folder, "-o", "yaml").output)
    assert "a Healthy, b Healthy" in wide
    assert found["pods"][0]["uid"] in wide
    assert nodeplug("remove", "--dir", folder, "demo").exit_code == 0
    (folder / "one.yaml").write_text(POD.partition("---")[0])
    got = nodeplug("admit", "--dir", folder, folder / "one.yaml", "-o", "wide")
    assert got.output.splitlines() == ["default/demo Running", "  c  example.com/x: a"]
    assert nodeplug("remove", "--dir", folder, "demo").exit_code == 0
    as_data = nodeplug("admit", "--dir", folder, folder / "pods.yaml", "-o", "json")
    assert as_data.exit_code == 1
    assert [x["status"]["phase"] for x in json.loads(as_data.output)["pods"][:2]] == ["Running", "Failed"]
    assert nodeplug("restart", "--dir", folder).exit_code == 0
    running.until("capacity example.com/x 2 allocatable 2")
    data = json.loads(nodeplug("status", "--dir", folder, "-o", "json").output)
    assert {"c": {"example.com/x": ["a"]}} in [each["allocations"] for each in data["pods"]]
    assert nodeplug("remove", "--dir", folder, "demo").exit_code == 0
    again = nodeplug("remove", "--dir", folder, "demo")
    assert (again.exit_code, again.output) == (1, "Error: pod demo is not on the node\n")


def test_read_only_port_serves_metrics(folder: Path) -> None:
    command = (sys.executable, "-m", "nodeplug", "kubelet", "run", "--dir", str(folder), "--no-apiserver")
    process = Background(*command, "--read-only-port", "0")
    address = process.until_prefix("metrics at ")
    with urllib.request.urlopen(address, timeout=30) as answer:
        assert 'dra_resource_claims_in_use{driver_name="<any>"} 0.0' in answer.read().decode().splitlines()
    assert process.end() == 0


def test_malformed_manifests_and_requests_keep_kubelet_serving(folder: Path) -> None:
    process = Background(sys.executable, "-m", "nodeplug", "kubelet", "run", "--dir", str(folder), "--no-apiserver")
    process.until(f"started {folder}")
    made = folder / "made"
    digits = f"""spec: {{containers: [{{name: c, resources: {{limits: {{example.com/x: "{"1" * 5000}"}}}}}}]}}"""
    for content in (
        "[" * 100_000,
        "a: &a [x,x]\n"
        + "".join(
            f"b{n}: &b{n} [*a,*a,*a,*a,*a,*a,*a,*a]\n".replace("*a", f"*b{n - 1}" if n else "*a") for n in range(12)
        ),
        POD.partition("---")[0].replace("demo", "long").partition("spec:")[0] + digits,
        'metadata: {name: "\\e[31m"}',
    ):
        made.write_text(content)
        for arguments in (["admit", "--dir", folder], ["checkpoint"]):
            answer = nodeplug(*arguments, made)
            assert answer.exit_code in (1, 2), answer.output
            assert len(answer.output) < 1000
            assert answer.output.rstrip("\n").replace("\n", "").isprintable()
        assert nodeplug("status", "--dir", folder).exit_code == 0
    deep = b'{"do":"admit","admit":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(folder / "control.sock"))
        raw.sendall(deep + b"\n")
        assert raw.makefile().readline() == '{"error":"the request is nested too deeply"}\n'
    assert process.end() == 0


async def test_plugin_names_and_ids_are_shown_without_control_characters(folder: Path) -> None:
    command = (sys.executable, "-m", "nodeplug", "kubelet", "run", "--dir", str(folder), "--no-apiserver")
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    assert (await process.stdout.readline()).startswith(b"started")
    escape = "\x1b[31m"
    pod = folder / "pod.yaml"
    pod.write_text(POD.partition("---")[0])
    socket, kubelet_socket = folder / "device-plugins/p.sock", folder / "device-plugins/kubelet.sock"
    async with DevicePluginStub(socket, f"example.com/{escape}", [Device("a")]) as stub:
        with pytest.raises(RpcError, match="is invalid"):
            await stub.register(kubelet_socket)
    async with DevicePluginStub(socket, "example.com/x", [Device(f"a{escape}")]) as stub:
        await stub.register(kubelet_socket)
        lines: list[bytes] = []
        while not lines or lines[-1] != b"capacity example.com/x 1 allocatable 1\n":
            lines.append(await process.stdout.readline())
            assert lines[-1], "the kubelet ended"
        admitted = await asyncio.to_thread(nodeplug, "admit", "--dir", folder, pod, "-o", "wide")
        assert admitted.exit_code == 0
        assert "a\\x1b" in admitted.output
        assert "\x1b" not in admitted.output
        shown = (await asyncio.to_thread(nodeplug, "status", "--dir", folder)).output
    assert "a\\x1b" in shown
    process.terminate()
    printed = (b"".join(lines) + await process.stdout.read()).decode()
    await process.wait()
    assert r'refused example.com/\x1b[31m the ResourceName "example.com/\x1b[31m" is invalid' in printed
    assert "\x1b" not in shown + printed


def test_second_kubelet_in_folder_is_refused(folder: Path) -> None:
    process = Background(sys.executable, "-m", "nodeplug", "kubelet", "run", "--dir", str(folder))
    process.until(f"started {folder}")
    kubeconfig = (folder / "kubeconfig").read_bytes()
    second = nodeplug("run", "--dir", folder)
    assert (second.exit_code, second.output) == (
        1,
        f"Error: {folder}/device-plugins/kubelet.sock: a kubelet serves here; stop it or use another folder\n",
    )
    assert (folder / "kubeconfig").read_bytes() == kubeconfig
    assert nodeplug("status", "--dir", folder).exit_code == 0
    assert process.end() == 0
    too_long = folder / ("x" * 100)
    assert "a socket's path has at most 107 bytes" in nodeplug("run", "--dir", too_long).output
    assert not too_long.exists()
    below_a_file = folder / "kubeconfig" / "x"
    assert nodeplug("run", "--dir", below_a_file).output.endswith("kubeconfig/x: Not a directory\n")


def test_hold_and_release_with_static_pod_in_1_36(folder: Path) -> None:
    (folder / "pods.yaml").write_text(POD.partition("---")[0])
    for name, file in (("s", "static.yaml"), ("third", "third.yaml")):
        selecting = "nodeSelector: {disk: ssd}, containers: [{name: c}]"
        (folder / file).write_text(f"metadata: {{name: {name}}}\nspec: {{{selecting}}}")
    process = Background(
        *(sys.executable, "-m", "nodeplug", "kubelet", "run", "--dir", str(folder), "--no-apiserver"),
        *("--kubernetes", "1.36", "--static-pods", str(folder / "static.yaml"), "--node-name", "N"),
        *("--capacity", "pods=2", "--node-label", "disk=ssd"),
        *("--cgroup-root", str(folder / "cgroup"), "--cgroup-driver", "cgroupfs"),
    )
    process.until("container default/s-n c running")
    assert nodeplug("admit", "--dir", folder, folder / "pods.yaml").output == "default/demo Running\n"
    cgroups = folder / "cgroup" / "kubepods"
    assert len(list(cgroups.rglob("pod*"))) == 2
    for arguments in (["hold"], ["restart", "--kill"]):
        assert nodeplug(*arguments, "--dir", folder).exit_code == 0
    process.until(f"killed {folder}")
    process.until("admitted default/s-n")
    refused = nodeplug("admit", "--dir", folder, folder / "pods.yaml")
    assert "the API server is disconnected" in refused.output
    assert len(list(cgroups.rglob("pod*"))) == 2
    assert nodeplug("release", "--dir", folder).exit_code == 0
    process.until("admitted default/demo")
    too_many = nodeplug("admit", "--dir", folder, folder / "third.yaml")
    assert "Failed OutOfpods: Pod was rejected: Node didn't have enough resource: pods" in too_many.output
    assert process.end() == 0


def test_failed_restart_reports_the_path(running: Background, folder: Path) -> None:
    (folder / "pod-resources").rename(folder / "pod-resources-aside")
    (folder / "pod-resources").write_text("in the way")
    failed = nodeplug("restart", "--dir", folder)
    assert failed.exit_code == 1
    assert "pod-resources" in failed.output
    assert "the kubelet is stopped" in nodeplug("status", "--dir", folder).output
    (folder / "pod-resources").unlink()
    assert nodeplug("restart", "--dir", folder).exit_code == 0


def test_status_without_kubelet_suggests_run(folder: Path) -> None:
    found = nodeplug("status", "--dir", folder)
    assert found.exit_code == 1
    assert "is `nodeplug kubelet run` running there?" in found.output


@pytest.mark.parametrize(
    ("capacity", "text"), [("cpu", "'cpu' is not of the form NAME=AMOUNT"), ("cpu=lots", "capacity cpu: 'lots': ")]
)
def test_invalid_capacity_is_refused(folder: Path, capacity: str, text: str) -> None:
    refused = nodeplug("run", "--dir", folder, "--no-apiserver", "--capacity", capacity)
    assert refused.exit_code
    assert text in refused.output


@pytest.mark.parametrize("name", ["", "a node", "n" * 64])
def test_invalid_node_name_is_refused(folder: Path, name: str) -> None:
    refused = nodeplug("run", "--dir", folder, "--node-name", name)
    assert refused.exit_code == 2
    assert f"Invalid value for '--node-name': {name!r}: " in refused.output
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no pod in it"),
        ("kind: Service", "kind Service, but only pods can be admitted"),
        ("- 1", "kind list, but only pods can be admitted"),
        ("kind: Pod\nspec: {}", "metadata.name: Required value"),
        ("resources: []", "no pod in it: kind and metadata are missing"),
        ("kind: Pod\nmetadata: {name: a}", "spec: Required value"),
        ("{", "expected"),
        (
            "metadata: {name: a}\nspec: {containers: [{name: c, resources: {limits: {x/y: much}}}]}",
            "quantities must match",
        ),
        (
            "metadata: {name: a}\nspec: {containers: [{name: c, resources: {limits: {x/y: -1}}}]}",
            'spec.containers[0].resources.limits[x/y]: Invalid value: "-1": must be greater than or equal to 0',
        ),
        (
            "metadata: {name: a}\nspec: {initContainers: [{name: c, resources: {requests: {x.example/y: 500m}}}]}",
            'spec.initContainers[0].resources.requests[x.example/y]: Invalid value: "500m": must be an integer',
        ),
        (
            "metadata: {name: a}\nspec: {containers: [{name: c, resources: {requests: {x.example/y: 1}}}]}",
            "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
        ),
        (
            "metadata: {name: a}\n"
            "spec: {containers: [{name: c, resources: {requests: {x.example/y: 1}, limits: {x.example/y: 2}}}]}",
            'spec.containers[0].resources.requests: Invalid value: "1": must be equal to x.example/y limit of 2',
        ),
    ],
)
def test_invalid_pod_file_is_refused(folder: Path, text: str, message: str) -> None:
    (folder / "pods.yaml").write_text(text)
    found = nodeplug("admit", "--dir", folder, folder / "pods.yaml")
    assert found.exit_code == 1
    assert message in found.output


def test_unknown_pod_fields_are_warnings(folder: Path) -> None:
    """A misspelt field means a pod without its devices. Fields that this kubelet merely ignores cause no warning."""
    spec = "{tolerations: [], containers: [{name: c, env: [], resources: {limit: {example.com/x: 1}}}], contaners: []}"
    (folder / "pods.yaml").write_text(f"metadata: {{name: a}}\nspec: {spec}")
    warned = nodeplug("admit", "--dir", folder, folder / "pods.yaml").stderr.splitlines()
    assert warned[:-1] == [
        f'Warning: {folder}/pods.yaml: pod a: unknown field "spec.containers[0].resources.limit"',
        f'Warning: {folder}/pods.yaml: pod a: unknown field "spec.contaners"',
    ]
    assert "is `nodeplug kubelet run` running there?" in warned[-1]


@pytest.mark.parametrize(
    "arguments",
    [
        ("verify", "--seconds", "nan", "--", "true"),
        ("verify", "--seconds", "inf", "--", "true"),
        ("run", "--dir", "k", "--api-delay", "nan"),
    ],
)
def test_seconds_that_are_not_finite_are_refused(arguments: tuple[str, ...]) -> None:
    refused = nodeplug(*arguments)
    option = next(each for each in arguments if each in ("--seconds", "--api-delay"))
    value = arguments[arguments.index(option) + 1]
    message = f"Error: Invalid value for '{option}': '{value}' is not a number of seconds, such as 30 or 0.5."
    assert (refused.exit_code, refused.output.splitlines()[-1]) == (2, message)


def test_status_shows_uid_if_two_pods_have_one_name(running: Background, folder: Path) -> None:
    """A failed pod stays on the node when a new pod with its name arrives."""
    for uid in ("0a", "0b"):
        limits = "{limits: {example.com/x: 7}}"
        text = f"metadata: {{name: p, uid: {uid}}}\nspec: {{containers: [{{name: c, resources: {limits}}}]}}"
        (folder / "pod.yaml").write_text(text)
        nodeplug("admit", "--dir", folder, folder / "pod.yaml")
        *_, last = nodeplug("status", "--dir", folder).output.splitlines()
        assert ("default/p" in last, "0b" in last.split()) == (True, uid == "0b")
        assert last.endswith("which is unexpected")  # the long reason is behind the other columns


def test_checkpoint_shows_devices_and_corruption(folder: Path) -> None:
    answer = api.ContainerAllocateResponse(
        envs={"E": "v"},
        annotations={"a": "n"},
        devices=[api.DeviceSpec(host_path="/dev/x", container_path="/dev/y", permissions="rw")],
        mounts=[api.Mount(host_path="/h", container_path="/c", read_only=True)],
        cdi_devices=[api.CDIDevice(name="v.com/c=d")],
    )
    entries = [
        PodDevices("uid1", "c", "example.com/x", {-1: ["a"], 1: ["b"]}, answer.SerializeToString()),
        PodDevices("uid2", "[c]", "example.com/x", None, b"\xff"),
        PodDevices("uid3", "c", "example.com/x", {}, None),
    ]
    file = folder / "kubelet_internal_checkpoint"
    file.write_bytes(encode(entries, {"example.com/x": ["a", "b"], "example.com/none": []}))
    shown = nodeplug("checkpoint", file, "-o", "wide")
    assert shown.exit_code == 0
    assert "device /dev/x" not in nodeplug("checkpoint", file).output
    for part in (
        "uid1",
        "[c]",
        "device /dev/x -> /dev/y rw",
        "mount /h -> /c read-only",
        "env E=v",
        "annotation a=n",
        "CDI v.com/c=d",
        "(cannot be read)",
        "(none)",
        "a, b",
        "checksum: good",
    ):
        assert part in shown.output
    found = json.loads(nodeplug("checkpoint", file, "-o", "json").output)
    assert found["entries"][0] == {
        "podUID": "uid1",
        "container": "c",
        "resource": "example.com/x",
        "devices": [{"numaNode": None, "ids": ["a"]}, {"numaNode": 1, "ids": ["b"]}],
        "answer": {
            "envs": {"E": "v"},
            "annotations": {"a": "n"},
            "devices": [{"hostPath": "/dev/x", "containerPath": "/dev/y", "permissions": "rw"}],
            "mounts": [{"hostPath": "/h", "containerPath": "/c", "readOnly": True}],
            "cdiDevices": [{"name": "v.com/c=d"}],
        },
    }
    assert [entry["answer"] for entry in found["entries"][1:]] == [None, None]
    assert (found["registered"], found["problem"]) == ({"example.com/x": ["a", "b"], "example.com/none": []}, "")
    file.write_bytes(file.read_bytes().replace(b"uid1", b"uid9"))
    damaged = nodeplug("checkpoint", file)
    assert damaged.exit_code == 1
    assert "its content has" in damaged.output
    assert damaged.output.endswith("the current kubelet refuses it: checkpoint is corrupted\n")
    damaged = nodeplug("checkpoint", file, "-o", "yaml")
    assert (damaged.exit_code, yaml.safe_load(damaged.output)["problem"]) == (1, "checkpoint is corrupted")


def test_checkpoint_shows_flat_form_before_1_20_and_error(folder: Path) -> None:
    file = folder / "file"
    file.write_bytes(encode([PodDevices("uid1", "c", "example.com/x", flat=["a", "b"], response=b"")], {}))
    shown = nodeplug("checkpoint", file)
    assert shown.exit_code == 1
    assert "a, b" in shown.output
    assert "the current kubelet refuses it: json: cannot unmarshal array" in shown.output


def test_checkpoint_shows_claims_of_dra_manager_state(folder: Path) -> None:
    from checkpoint import kubelet_claims as claims

    device = claims.PreparedDevice("pool", "gpu-0", None, ["r"], ["v.com/c=d"])
    states = {"gpu.example.com": claims.DriverState([device]), "nic.example.com": claims.DriverState()}
    file = folder / "dra_manager_state"
    file.write_bytes(claims.encode([claims.ClaimState("uid1", "claim", "ns", {"pod1": object()}, states)]))
    (shown_claim,) = json.loads(nodeplug("checkpoint", file, "-o", "json").output)["claims"]
    assert [each["devices"] for each in shown_claim["drivers"]] == [
        [{"pool": "pool", "device": "gpu-0", "shareID": "", "requests": ["r"], "cdiDevices": ["v.com/c=d"]}],
        None,
    ]
    shown = nodeplug("checkpoint", file, "-o", "wide")
    assert shown.exit_code == 0
    for part in ("ns/claim", "uid1", "pod1", "gpu.example.com", "pool/gpu-0", "v.com/c=d", "checksum: good"):
        assert part in shown.output


@pytest.mark.parametrize("content", ["", "{", "[]", "1", '{"Data":[]}', "[" * 100_000], ids=str.__len__)
def test_checkpoint_of_malformed_file_is_refused(folder: Path, content: str) -> None:
    (folder / "file").write_text(content)
    found = nodeplug("checkpoint", folder / "file")
    assert found.exit_code == 1
    assert found.output.startswith(f"Error: {folder / 'file'}: ")
    as_data = nodeplug("checkpoint", folder / "file", "-o", "json")
    assert as_data.exit_code == 1


def test_verify_reports_as_json_and_junit() -> None:
    command = ["--", "sh", "-c", "exit 3"]
    as_json = nodeplug("verify", "-o", "json", *command)
    check = {
        "group": "registration",
        "name": "still runs",
        "outcome": "fail",
        "detail": "the command ended with exit code 3",
    }
    assert (as_json.exit_code, json.loads(as_json.stdout)) == (1, {"passed": False, "checks": [check]})
    as_junit = ElementTree.fromstring(nodeplug("verify", "-o", "junit", *command).stdout)
    (failure,) = as_junit.iterfind("testsuite/testcase[@name='still runs']/failure")
    assert failure.get("message") == "the command ended with exit code 3"
    assert nodeplug("verify", "--", "/nobody/here").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "pool/g0"], "--device is the device that is claimed from a DRA driver: use it with --dra"),
        (["--dra", "--device", "g0"], "Invalid value for --device: 'g0' is not POOL/DEVICE, as in node/gpu-0."),
        (["--dra", "--device", "pool/"], "Invalid value for --device: 'pool/' is not POOL/DEVICE, as in node/gpu-0."),
    ],
)
def test_verify_refuses_invalid_device_option(arguments: list[str], message: str) -> None:
    refused = nodeplug("verify", *arguments, "--", "true")
    assert (refused.exit_code, refused.output.splitlines()[-1]) == (2, f"Error: {message}")


def test_stopped_verify_stops_its_command() -> None:
    """The command has its own process group, so a signal to the group of `verify` does not reach it."""
    script = "echo $$ >&2; exec sleep 600"
    arguments = [sys.executable, "-m", "nodeplug", "kubelet", "verify", "--", "sh", "-c", script]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, cwd=CHECKOUT) as running:
        assert running.stderr is not None
        sleeping = int(running.stderr.readline())
        running.terminate()
        assert running.wait(30) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(sleeping, 0)


def test_verify_shows_errors_without_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    command = ("--", sys.executable, str(HERE / "plugin_process.py"), "{dir}", "escapes-in-error")
    output = nodeplug("verify", "--no-plugin-restarts", *command).stdout
    assert "skip comes back after its restart  left out, as requested" in output
    assert "\x1b" not in output
    assert "desc = \\x1b[31mno\\x1b[0m" in output
