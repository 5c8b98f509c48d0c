"""The documentation and the JSON Schema are derived from the settings, and agree with the reader."""

import json
import re
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]  # has no types of its own
import pytest
import yaml

from nodeplug import config
from nodeplug.config import reference
from nodeplug.config.schema import File

DOCUMENT = Path(__file__).parents[3] / "docs" / "configuration.md"
EXAMPLES = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    """The schema's validator. `jsonschema.validate` would check the schema each time, which takes 50 ms."""
    return jsonschema.Draft202012Validator(reference.schema())


def test_reference_is_up_to_date() -> None:
    text = DOCUMENT.read_text()
    assert reference.with_reference(text) == text, f"run: python -m nodeplug.config.reference {DOCUMENT}"


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_of_the_page_are_valid(validator: jsonschema.Draft202012Validator, example: str) -> None:
    assert config.loads(example.encode()).resources
    validator.validate(yaml.safe_load(example))


def test_schema_is_valid_and_accepts_the_builtin_configuration() -> None:
    schema = json.loads(json.dumps(reference.schema()))
    jsonschema.Draft202012Validator.check_schema(schema)
    builtin = (Path(config.__file__).parents[1] / "builtin.yaml").read_text()
    jsonschema.validate(yaml.safe_load(builtin), schema)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "resources: [{select: kvm}]",
        "resources: [{name: x/y, select: kvm, share: 1}]",
        "resources: [{name: x/y, select: kvm, shares: 0}]",
        "resources: [{name: x/y, select: [kvm]}]",
        "resources: [{name: x/y, select: kvm, permissions: x}]",
        "resources: [{name: x/y, select: kvm, preferred: best}]",
        "settings: {kubeletRoot: k}\nresources: []",
    ],
)
def test_schema_and_reader_refuse_the_same_files(validator: jsonschema.Draft202012Validator, text: str) -> None:
    with pytest.raises(config.ConfigError):
        config.loads(text.encode())
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(yaml.safe_load(text))


def test_every_key_has_a_description() -> None:
    described = reference.schema()["$defs"]
    assert set(described) > {File.__name__, "Settings", "ResourceEntry"}
    for struct in described.values():
        for name, key in struct["properties"].items():
            assert key.get("description"), name


def test_builtin_configuration_offers_nothing_dangerous() -> None:
    found = config.builtin()
    assert found.path_globs == ()
    assert not any(resource.dangerous for resource in found.resources)
    assert {resource.name.split("/")[0] for resource in found.resources} == {"nodeplug.dev"}
