"""The admission policy for DeviceConfigs: it refuses invalid ones at their creation, and accepts those for a node."""

import asyncio
from functools import cache
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controlplane.apiserver.policies import Policy
from dra_plugin.preparing.device_config import InvalidConfig, read
from resources import template
from tests.controlplane.scheduler.kit import Json, SchedulerCluster
from tests.device_configs import FOR_CLASSES, GOOD, INTERFACE, disagreements, install, policy, with_parameters

_TEXTS = st.sampled_from(
    ["", "a", "A_B", "a-b", "PATH", "HOME", "eth0", "0660", "660", "99", "192.0.2.7/24", "/a", "x"]
)
_LEAVES = st.none() | st.booleans() | st.integers(-1, 1 << 33) | st.just(44) | st.just(9000) | st.just(0.5) | _TEXTS
_ANYTHING = st.recursive(
    _LEAVES, lambda x: st.lists(x, max_size=2) | st.dictionaries(_TEXTS, x, max_size=2), max_leaves=4
)


def _object(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({}, optional=members | {"other": _LEAVES}) | _ANYTHING


_MOUNT = _object(hostPath=_TEXTS | _LEAVES, containerPath=_TEXTS | _LEAVES, readOnly=st.booleans() | _LEAVES)
_CONFIGS = st.fixed_dictionaries(
    {"apiVersion": st.just("nodeplug.dev/v1") | _LEAVES, "kind": st.just("DeviceConfig") | _LEAVES},
    optional={
        "env": st.dictionaries(_TEXTS, _TEXTS, max_size=2) | _ANYTHING,
        "access": _object(uid=_LEAVES, gid=_LEAVES, mode=_TEXTS),
        "reset": st.booleans() | _LEAVES,
        "sharing": _object(maximum=_LEAVES),
        "mounts": st.lists(_MOUNT, max_size=2) | _ANYTHING,
        "interface": _object(
            name=_TEXTS,
            mtu=_LEAVES,
            mac=st.sampled_from([INTERFACE["mac"], "00:00:00:00:00:00", "01:00:00:00:00:00"]) | _LEAVES,
            addresses=st.lists(_TEXTS, max_size=9) | _ANYTHING,
        ),
        "more": _LEAVES,
    },
)


@cache
def compiled() -> Policy:
    return Policy(policy()[0]["spec"])


def denials(parameters: Any, plural: str, driver: str = "nodeplug.dev") -> list[str]:
    request = {"operation": "CREATE", "resource": {"group": "resource.k8s.io", "version": "v1", "resource": plural}}
    inputs = {"object": with_parameters(plural, parameters, driver), "oldObject": None, "request": request}
    return [each.message for each in compiled().denials(inputs)]


@given(_CONFIGS | _ANYTHING.filter(lambda x: isinstance(x, dict)), st.booleans())
def test_policy_refuses_no_config_that_a_node_accepts(parameters: Json, is_class: bool) -> None:
    if denials(parameters, "deviceclasses" if is_class else "resourceclaims"):
        try:
            read(parameters, from_class=is_class, allowed_mounts=["/"])
        except InvalidConfig:
            return
        raise AssertionError("a node takes it")


async def test_policy_refuses_configs_that_no_node_accepts() -> None:
    async with SchedulerCluster() as cluster:
        await asyncio.to_thread(install, cluster.client)
        assert await asyncio.to_thread(lambda: list(disagreements(cluster.client))) == []


def test_policy_allows_new_labels_on_invalid_older_classes() -> None:
    """Labels and finalizers of an invalid older class can change; its parameters can change to valid ones."""
    old = with_parameters("deviceclasses", {"kind": "Old"})
    labelled = old | {"metadata": {"name": "x", "labels": {"a": "b"}}}
    other = with_parameters("deviceclasses", GOOD | {"nonsense": 1})
    request = {"operation": "UPDATE", "resource": {"group": "resource.k8s.io", "resource": "deviceclasses"}}
    judge = compiled().denials
    assert judge({"object": labelled, "oldObject": old, "request": request}) == []
    assert judge({"object": other, "oldObject": old, "request": request})


def test_reserved_variable_names_are_those_of_the_node() -> None:
    (reserved,) = (x["expression"] for x in policy()[0]["spec"]["variables"] if x["name"] == "reserved")
    for pattern in (template._RESERVED, template._NOT_FOR_CLAIMS):
        assert f'"^({pattern.pattern})$"' in reserved
    assert all(denials(each, "deviceclasses") == [] for each in FOR_CLASSES)
