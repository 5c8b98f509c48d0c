"""CDI's own JSON schema and examples."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdi import (
    ContainerEdits,
    Device,
    DeviceNode,
    IntelRdt,
    InvalidSpec,
    Mount,
    NetDevice,
    Spec,
    decode,
    encode,
    validate,
)
from tests.cdi.schema import CASES, validator

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason=f"no recorded cases in {CASES}")


@pytest.fixture(scope="module")
def schema() -> Any:
    return validator()


def examples(folder: str) -> list[Any]:
    return [pytest.param(path, id=path.name) for path in sorted((CASES / folder).glob("*.json"))]


@pytest.mark.parametrize("path", examples("good"))
def test_valid_upstream_example_round_trips(schema: Any, path: Path) -> None:
    spec = decode(path.read_bytes())
    assert validate(spec) == []
    schema.validate(json.loads(encode(spec)))
    assert json.loads(encode(spec)) == json.loads(path.read_bytes())


@pytest.mark.parametrize("path", examples("bad"))
def test_invalid_upstream_example_is_refused(path: Path) -> None:
    with pytest.raises(InvalidSpec):
        assert validate(decode(path.read_bytes())) == []


words = st.text(min_size=1, max_size=5)
paths = words.map(lambda x: f"/{x}")
uint32s = st.integers(0, 2**32 - 1)
some_edits = st.builds(
    ContainerEdits,
    env=st.lists(words.map(lambda x: f"A{x}=")).map(tuple),
    device_nodes=st.lists(
        st.builds(
            DeviceNode,
            path=paths,
            host_path=paths,
            type=st.sampled_from(["", "b", "c"]),
            major=st.none() | uint32s,
            uid=st.none() | uint32s,
            file_mode=st.none() | uint32s,
            permissions=st.sampled_from(["", "rwm", "none"]),
        )
    ).map(tuple),
    mounts=st.lists(st.builds(Mount, host_path=paths, container_path=paths, options=st.just(("ro",)))).map(tuple),
    intel_rdt=st.none() | st.builds(IntelRdt, enable_monitoring=st.booleans()),
    additional_gids=st.lists(uint32s).map(tuple),
    net_devices=st.sampled_from([(), (NetDevice(host_interface_name="eth1", name="net0"),)]),
)


@given(edits=some_edits, common=some_edits)
def test_encoded_spec_follows_the_json_schema(schema: Any, edits: ContainerEdits, common: ContainerEdits) -> None:
    spec = Spec.of("ab/cd", [Device.of("d", edits)], common)
    schema.validate(json.loads(encode(spec)))
    assert decode(encode(spec)) == spec
