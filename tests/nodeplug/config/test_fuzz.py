"""Any file is a configuration, or a `ConfigError` with places in the file."""

from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from nodeplug import config
from nodeplug.config import ConfigError, loads

BUILTIN = (Path(config.__file__).parents[1] / "builtin.yaml").read_bytes()
KEYS = st.sampled_from(
    """
    name select group nodes shares permissions env mounts annotations cdi access preferred health reset dangerous preset
    kind id path attributes all any not within attribute paths containerPath hostPath readOnly uid gid mode vendor
    serial vfIndex carrier resources settings kubeletRoot allowedMounts logLevel api dra taint capacity counters
    partitions count consumes value default validValues min max step bindingConditions driverName nodeName kubeconfig
    """.split()  # noqa: SIM905 - sixty names one below the other hide what they are for
)
LEAVES = (
    st.sampled_from(
        ["kvm", "x/y", "usb", "/dev/tty*", "/dev/**/x", "0660", "10de", ">=2", "{ids}", "{", "", "[", "a\0b", "\ud800"]
    )
    | st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def refusal(data: bytes) -> ConfigError | None:
    try:
        loads(data, "f")
    except ConfigError as error:
        return error
    return None


def assert_accepted_or_refused(data: bytes) -> None:
    if error := refusal(data):
        lines = len(data.decode(errors="replace").splitlines()) + 1
        assert error.findings
        assert all(1 <= finding.line <= lines and finding.column >= 1 and finding.message for finding in error.findings)
        assert all(line.isprintable() for line in error.lines())


@given(st.binary(max_size=400))
def test_any_bytes_are_accepted_or_refused(data: bytes) -> None:
    assert_accepted_or_refused(data)


@given(st.text(alphabet="abx:-?[]{}#&*!|>'\"%@`,\n\t \\0\u00e4\u2028", max_size=200))
def test_any_yaml_characters_are_accepted_or_refused(text: str) -> None:
    assert_accepted_or_refused(text.encode())


@given(
    st.lists(st.dictionaries(KEYS, VALUES, max_size=8), max_size=3),
    st.dictionaries(KEYS, VALUES, max_size=3),
    st.booleans(),
)
def test_any_values_of_known_keys_are_accepted_or_refused(
    resources: list[Any], own: dict[str, Any], flow: bool
) -> None:
    named = [{"name": f"x/r{i}", "select": "kvm", **resource} for i, resource in enumerate(resources)]
    text = yaml.safe_dump({"resources": named, "settings": own}, default_flow_style=flow, allow_unicode=True)
    assert_accepted_or_refused(text.encode("utf-8", "surrogatepass"))


@given(st.integers(0, len(BUILTIN)), st.integers(0, 30), st.binary(max_size=10))
def test_damaged_builtin_file_is_accepted_or_refused(position: int, length: int, instead: bytes) -> None:
    assert_accepted_or_refused(BUILTIN[:position] + instead + BUILTIN[position + length :])
