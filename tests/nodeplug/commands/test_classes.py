"""`nodeplug classes`, as run by a user."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from nodeplug.cli import main
from resourceapi.objects import read_object
from resourceapi.objects.validate import validate_create

CONFIGURATION = """
settings: {driverName: devices.example.com}
resources:
  - {name: example.com/kvm, select: kvm}
  - {name: example.com/gpu, select: gpu, api: dra, dra: {extendedResource: true}}
  - {name: example.com/fuse, select: fuse, api: both, shares: 10}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "node.yaml"
    path.write_text(CONFIGURATION)
    return path


def classes(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["classes", *map(str, words)])


def test_every_dra_resource_has_a_class(file: Path) -> None:
    result = classes(file)
    assert result.exit_code == 0, result.output
    documents = list(yaml.safe_load_all(result.stdout))
    assert documents[0] == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.example.com"},
        "spec": {
            "selectors": [
                {
                    "cel": {
                        "expression": 'device.driver == "devices.example.com" &&'
                        ' device.attributes["devices.example.com"].resource == "example.com/gpu"'
                    }
                }
            ],
            "extendedResourceName": "example.com/gpu",
        },
    }
    assert [x["metadata"]["name"] for x in documents] == ["gpu.example.com", "fuse.example.com"]
    assert not any(validate_create(read_object(x)) for x in documents)


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_classes_have_the_requested_api_version(version: str, file: Path) -> None:
    documents = list(yaml.safe_load_all(classes(file, "--api-version", version).stdout))
    assert {x["apiVersion"] for x in documents} == {f"resource.k8s.io/{version}"}


def test_invalid_configuration_is_reported_with_its_places(file: Path) -> None:
    file.write_text("resources: [{name: x/y}]\n")
    result = classes(file)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{file}:1:13: the key select is missing")


def test_configuration_without_dra_resources_is_refused(file: Path) -> None:
    file.write_text("resources: [{name: x/y, select: kvm}]\n")
    result = classes(file)
    assert result.exit_code == 2
    assert result.stderr == f"{file}: no resource has `api: dra` or `api: both`\n"


def test_driver_name_is_read_from_the_environment(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODEPLUG_DRIVER_NAME", "pod.example.com")
    file.write_text(CONFIGURATION.replace("settings: {driverName: devices.example.com}", ""))
    assert 'device.driver == "pod.example.com"' in classes(file).stdout
