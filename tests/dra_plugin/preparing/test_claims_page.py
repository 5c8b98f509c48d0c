"""The examples of the page about claims work."""

from pathlib import Path

import yaml

from dra_plugin.preparing.device_config import DeviceConfig, read
from resourceapi.objects import v1
from resourceapi.objects.decode import read_as

PAGE = Path(__file__).parents[3] / "docs/claims.md"


def test_example_class_is_valid_and_all_fields_are_documented() -> None:
    text = PAGE.read_text()
    document = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    (config,) = read_as(v1.DeviceClass, document).spec.config
    assert config.opaque is not None
    read(config.opaque.parameters, from_class=True, allowed_mounts=("/opt",))
    for field in DeviceConfig.__struct_fields__[2:]:
        assert f"| `{field}" in text
