"""`nodeplug convert` of any file of a plugin for paths: the result is always valid."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostdevices import Host
from nodeplug.config import ConfigError, loads
from nodeplug.convert import convert
from nodeplug.convert.conversion import LeftOut, Offered
from tests.hostdevices.tree import Tree

NAMES = st.sampled_from(["a", "b", "UP", "with:colon", "x" * 64, "é"])
NODES = st.sampled_from(["/dev/a", "/dev/b*", "/dev/snd", "/dev/snd/c[01]", "/dev/mem", "/etc/x", "/dev/../a", "/dev/"])
INSIDE = st.sampled_from(["", "/dev/in", "/dev/in/", "/proc/x", "relative", "/dev/b*"])
PATHS = st.fixed_dictionaries(
    {"path": NODES},
    optional={
        "mountPath": INSIDE,
        "permissions": st.sampled_from(["r", "mrw", "x", ""]),
        "type": st.sampled_from(["Device", "Mount"]),
        "optional": st.booleans(),
        "limit": st.integers(0, 3),
        "readOnly": st.booleans(),
    },
)
USB = st.fixed_dictionaries({"vendor": st.just("0403"), "product": st.sampled_from(["6001", "X", ""])})
GROUPS = st.fixed_dictionaries(
    {},
    optional={
        "count": st.integers(0, 4),
        "paths": st.lists(PATHS, max_size=3),
        "usb": st.lists(USB, max_size=2),
    },
)
DEVICES = st.lists(
    st.fixed_dictionaries({"name": NAMES, "groups": st.lists(GROUPS, max_size=3)}), min_size=1, max_size=4
)
MATCHES = st.lists(
    st.fixed_dictionaries(
        {
            "devicematch": st.sampled_from(["^a$", "^snd$", ".*", "(", "^mem$", "^ttyS[0-9]*$", "nvidia-gpu"]),
            "nummaxdevices": st.integers(0, 9),
        }
    ),
    min_size=1,
    max_size=5,
)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    tree = Tree(Path(tmp_path_factory.mktemp("anything")) / "root")
    for number, name in enumerate(("a", "b0", "b1", "snd/c0", "snd/c1", "mem")):
        tree.node(f"/dev/{name}", f"240:{number}" if name != "mem" else "1:1")
    return tree.host


@given(theirs=st.one_of(st.fixed_dictionaries({"devices": DEVICES}), MATCHES))
def test_every_conversion_is_a_valid_configuration(host: Host, theirs: Any) -> None:
    try:
        conversion = convert(json.dumps(theirs, ensure_ascii=False).encode(), "theirs", host)
    except ConfigError:
        return  # an error with its place; the command exits with 2
    found = loads(conversion.text().encode())
    assert len(found.resources) == sum(isinstance(x, Offered) for x in conversion.resources)
    assert all(x.reason for x in conversion.resources if isinstance(x, LeftOut))
