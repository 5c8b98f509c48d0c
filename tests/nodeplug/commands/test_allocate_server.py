"""`nodeplug allocate --kubeconfig`: the server's objects, and files that replace or add some."""

from pathlib import Path

from click.testing import CliRunner

from nodeplug.commands.allocate import allocate
from tests.controlplane.apiserver.running import CLAIMS, CLASSES, Running

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
NODES = "/api/v1/nodes"


def create_objects(server: Running) -> None:
    devices = [{"name": "g0"}, {"name": "g1"}]
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    slice_spec = {"driver": "gpu.example.com", "nodeName": "n1", "pool": pool, "devices": devices}
    wanted = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}}
    with server.http() as requests:
        requests.ok("POST", NODES, {"metadata": {"name": "n1"}})
        requests.ok("POST", CLASSES, {"metadata": {"name": "gpu"}})
        requests.ok("POST", SLICES, {"metadata": {"name": "s"}, "spec": slice_spec})
        requests.ok("POST", CLAIMS, {"metadata": {"name": "want"}, "spec": {"devices": {"requests": [wanted]}}})


def test_claims_are_allocated_from_the_objects_of_the_server(tmp_path: Path) -> None:
    with Running() as server:
        create_objects(server)
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        done = CliRunner().invoke(allocate, ["--kubeconfig", str(kubeconfig)])
        assert done.exit_code == 0, done.output
        assert "gpu.example.com/n1/g0" in done.output
        assert "gpu.example.com/n1/g1" in done.output
        without = CliRunner().invoke(
            allocate, ["--kubeconfig", str(kubeconfig), "--what-if", "-device/gpu.example.com/n1/g1"]
        )
        assert without.exit_code == 1
        assert "needs 2" in without.output


def test_templates_are_allocated_when_the_server_has_no_claims(tmp_path: Path) -> None:
    with Running() as server:
        create_objects(server)
        made = {"metadata": {"name": "t"}}
        with server.http() as requests:
            claim = requests.ok("GET", f"{CLAIMS}/want")
            requests.ok("DELETE", f"{CLAIMS}/want")
            requests.ok("POST", TEMPLATES, made | {"spec": {"spec": claim["spec"]}})
        done = CliRunner().invoke(allocate, ["--kubeconfig", str(server.kubeconfig(tmp_path / "kubeconfig"))])
        assert (done.exit_code, "gpu.example.com/n1/g1" in done.output) == (0, True), done.output


def test_missing_kubeconfig_and_unreachable_server_exit_2(tmp_path: Path) -> None:
    missing = CliRunner().invoke(allocate, ["--kubeconfig", str(tmp_path / "none")])
    assert (missing.exit_code, str(tmp_path / "none") in missing.output) == (2, True)
    with Running() as server:
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
    gone = CliRunner().invoke(allocate, ["--kubeconfig", str(kubeconfig)])
    assert (gone.exit_code, "--kubeconfig" in gone.output) == (2, True)


def test_missing_input_exits_2_with_a_hint() -> None:
    done = CliRunner().invoke(allocate, [])
    assert (done.exit_code, "--kubeconfig" in done.output) == (2, True)
