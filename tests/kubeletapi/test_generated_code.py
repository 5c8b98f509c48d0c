"""`kubeletapi` equals the output of `proto`, and it loads with the installed protobuf."""

import importlib
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GENERATOR = ROOT / ".venv-proto/bin/python"


def test_stored_code_equals_generator_output(tmp_path: Path) -> None:
    probe = [str(GENERATOR), "-c", "import grpc_tools"]
    if not GENERATOR.exists() or subprocess.run(probe, check=False, capture_output=True).returncode:
        pytest.skip("the pinned generator is not installed for this Python (make proto)")
    subprocess.run([str(GENERATOR), str(ROOT / "proto/generate.py"), str(tmp_path)], check=True, cwd=tmp_path)
    fresh = {p.relative_to(tmp_path): p.read_text() for p in tmp_path.rglob("*.py*") if "__pycache__" not in p.parts}
    stored = {
        p.relative_to(ROOT): p.read_text() for p in (ROOT / "kubeletapi").rglob("*.py*") if "__pycache__" not in p.parts
    }
    assert fresh == stored


@pytest.mark.parametrize("proto", sorted(str(p.relative_to(ROOT / "proto")) for p in (ROOT / "proto").rglob("*.proto")))
def test_every_generated_module_loads(proto: str) -> None:
    module = importlib.import_module("kubeletapi." + proto.removesuffix(".proto").replace("/", ".") + "_pb2")
    assert module.DESCRIPTOR.name == f"kubeletapi/{proto}"


def test_services_have_upstream_full_names() -> None:
    from kubeletapi.deviceplugin.v1beta1 import api_pb2 as deviceplugin
    from kubeletapi.dra.v1 import api_pb2 as dra
    from kubeletapi.dra_health.v1alpha1 import api_pb2 as health

    assert deviceplugin.DESCRIPTOR.services_by_name["DevicePlugin"].full_name == "v1beta1.DevicePlugin"
    assert dra.DESCRIPTOR.services_by_name["DRAPlugin"].full_name == "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
    assert health.DESCRIPTOR.services_by_name["DRAResourceHealth"].full_name == "v1alpha1.DRAResourceHealth"
