"""DeviceConfigs: valid ones, and how malicious ones are refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_plugin.preparing.device_config import Configs, DeviceConfig, InvalidConfig, read, read_configs
from resourceapi.objects import v1
from resources.resource import Mount, NodeAccess, Resource
from resources.selector import Kinds
from tests.dra_plugin.preparing.world import CONFIG, DRIVER, config, result
from tests.dra_scenarios import scenario

GPU = Resource("example.com/gpu", Kinds(("gpu",)))


def problems(parameters: Any, *, from_class: bool = False, allowed_mounts: tuple[str, ...] = ("/opt",)) -> list[str]:
    """Return the errors of a configuration."""
    with pytest.raises(InvalidConfig) as refused:
        read(parameters, from_class=from_class, allowed_mounts=allowed_mounts)
    return list(refused.value.problems)


def settings(configs: list[v1.DeviceAllocationConfiguration], resource: Resource = GPU, request: str = "gpu") -> Any:
    allocation = v1.DeviceAllocationResult(results=(result("d", request),), config=tuple(configs))
    found = read_configs(allocation, DRIVER, ("/opt",))
    return found.settings(resource, allocation.results[0])


def test_class_configuration_with_all_fields_is_read() -> None:
    text = json.dumps(
        CONFIG
        | {
            "env": {"MODEL": "{model} on {numaNode}"},
            "access": {"uid": 1000, "gid": 44, "mode": "0660"},
            "reset": True,
            "sharing": {"maximum": 2},
            "mounts": [{"hostPath": "/opt/lib"}, {"hostPath": "/opt/x", "containerPath": "/x", "readOnly": False}],
        }
    )
    found = read(text, from_class=True, allowed_mounts=("/opt",))
    assert found.env == {"MODEL": "{model} on {resource.kubernetes.io/numaNode}"}
    assert (found.reset, found.access.mode, [x.host_path for x in found.mounts]) == (
        True,
        "0660",
        ["/opt/lib", "/opt/x"],
    )


def test_configurations_are_merged_in_order_field_by_field() -> None:
    configs = [
        config(env={"A": "claim"}, access={"uid": 7}),
        config(env={"A": "class", "B": "class"}, access={"gid": 44, "uid": 5}, source=v1.FROM_CLASS, reset=True),
        config(env={"B": "class 2"}, source=v1.FROM_CLASS, mounts=[{"hostPath": "/opt/a", "containerPath": "/lib/a"}]),
        config("other", env={"A": "not for us"}),
        config(reset=False),
    ]
    resource = Resource(
        "example.com/gpu",
        Kinds(("gpu",)),
        env={"A": "resource", "C": "resource"},
        access=NodeAccess(mode=0o600),
        mounts=(Mount("/opt/b", "/lib/a"), Mount("/opt/c", "/lib/c")),
    )
    found = settings(configs, resource)
    assert found.env == {"A": "claim", "B": "class 2", "C": "resource"}
    assert found.access == NodeAccess(7, 44, 0o600)
    assert found.reset  # a claim cannot switch off a reset that its class requires
    assert found.mounts == (Mount("/opt/a", "/lib/a"), Mount("/opt/c", "/lib/c"))


@scenario(57)
def test_configuration_applies_to_its_requests_and_subrequests() -> None:
    def env(request: str, *wanted: str) -> bool:
        return bool(settings([config(*wanted, env={"A": "1"})], request=request).env)

    assert env("foo")
    assert env("foo", "foo")
    assert env("foo/bar", "foo")
    assert env("foo/bar", "foo/bar")
    assert not env("foo/bar", "foo/not-bar")
    both = [config("foo", env={"A": "class"}, source=v1.FROM_CLASS), config("foo/bar", env={"B": "claim"})]
    assert settings(both, request="foo/bar").env == {"A": "class", "B": "claim"}


def test_configuration_of_other_drivers_is_ignored() -> None:
    foreign = v1.DeviceAllocationConfiguration(
        source=v1.FROM_CLAIM, opaque=v1.OpaqueDeviceConfiguration(driver="gpu.example.com", parameters={"kind": "X"})
    )
    beside = v1.DeviceAllocationConfiguration(source=v1.FROM_CLAIM, requests=("other",))
    allocation = v1.DeviceAllocationResult(results=(result("d"),), config=(foreign, beside))
    assert read_configs(allocation, DRIVER, ()) == Configs()


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (None, "parameters: must be an object with apiVersion nodeplug.dev/v1 and kind DeviceConfig"),
        ([], "parameters: must be an object with apiVersion nodeplug.dev/v1 and kind DeviceConfig"),
        ({}, "parameters: must have apiVersion nodeplug.dev/v1 and kind DeviceConfig, has nothing"),
        (
            {"apiVersion": "nodeplug.dev/v2", "kind": "DeviceConfig"},
            "parameters: must have apiVersion nodeplug.dev/v1 and kind DeviceConfig, has nodeplug.dev/v2 DeviceConfig",
        ),
        (
            {"apiVersion": "gpu.example.com/v1", "kind": "GpuConfig"},
            "parameters: must have apiVersion nodeplug.dev/v1 and kind DeviceConfig, has gpu.example.com/v1 GpuConfig",
        ),
        (CONFIG | {"extra": 1}, "parameters: Object contains unknown field `extra`"),
        (CONFIG | {"access": {"user": 1}}, "parameters.access: Object contains unknown field `user`"),
        (CONFIG | {"access": None}, "parameters.access: Expected `object`, got `null`"),
        (CONFIG | {"access": {"uid": "1"}}, "parameters.access.uid: Expected `int`, got `str`"),
        (CONFIG | {"access": {"uid": True}}, "parameters.access.uid: Expected `int`, got `bool`"),
        (CONFIG | {"access": {"uid": -1}}, "parameters.access.uid: Expected `int` >= 0"),
        (CONFIG | {"access": {"gid": 2**32 - 1}}, "parameters.access.gid: Expected `int` <= 4294967294"),
        (
            CONFIG | {"access": {"mode": "4755"}},
            'parameters.access.mode: must be permission bits in octal, as in "0660"',
        ),
        (
            CONFIG | {"access": {"mode": "0660\n"}},
            'parameters.access.mode: must be permission bits in octal, as in "0660"',
        ),
        (CONFIG | {"reset": "yes"}, "parameters.reset: Expected `bool`, got `str`"),
        (CONFIG | {"env": ["A=B"]}, "parameters.env: Expected `object`, got `array`"),
        (CONFIG | {"env": {"A": 1}}, "parameters.env.A: must be text in quotes"),
        (
            CONFIG | {"env": {"A B": "1"}},
            "parameters.env.A B: cannot be the name of a variable; use letters, digits and underscores",
        ),
        (CONFIG | {"env": {"A": "{colour}"}}, "parameters.env.A: no device has {colour}"),
        (CONFIG | {"env": {"A": "{"}}, "parameters.env.A: unmatched brace; write {{ or }} for a brace"),
        (
            CONFIG | {"mounts": [{"hostPath": "/opt/a"}]},
            "parameters.mounts: only a DeviceClass can mount; ask your administrator for one",
        ),
        (
            CONFIG | {"sharing": {"maximum": 1}},
            "parameters.sharing: concerns other claims, so only a DeviceClass can set it",
        ),
        (CONFIG | {"env": {"A": "x" * 10240}}, "parameters: 10309 bytes, the limit is 10240"),
        ('{"a"', "parameters: json: Input data was truncated"),
        ("{" * 20000, "parameters: more than 10240 bytes"),
        (b"\xff", "parameters: json: JSON is malformed: invalid character (byte 0)"),
    ],
)
def test_invalid_configuration_is_refused_with_its_path(parameters: Any, words: str) -> None:
    assert problems(parameters) == [words]


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "KUBERNETES_PORT", "NODEPLUG_MINE__GPU"])
def test_reserved_variable_is_refused(name: str) -> None:
    words = f"parameters.env.{name}: cannot be set by a configuration; choose another name"
    assert problems(CONFIG | {"env": {name: "x"}}) == [words]
    assert problems(CONFIG | {"env": {name: "x"}}, from_class=True) == [words]


def test_duplicate_member_in_text_is_refused() -> None:
    head = '{"apiVersion": "nodeplug.dev/v1", "kind": "DeviceConfig", '
    assert problems(head + '"reset": true, "reset": false}') == ["parameters.reset: appears twice"]
    assert problems(head + '"env": {"A": "1", "A": "1"}}') == ["parameters.env.A: appears twice"]
    twice = head + '"mounts": [{"hostPath": "/opt/a", "hostPath": "/etc"}]}'
    assert problems(twice, from_class=True) == ["parameters.mounts[0].hostPath: appears twice"]


@pytest.mark.parametrize(
    ("mount", "words"),
    [
        ({"hostPath": "/etc"}, "parameters.mounts[0].hostPath: /etc is not below any of the node's allowedMounts"),
        ({"hostPath": "/opt2"}, "parameters.mounts[0].hostPath: /opt2 is not below any of the node's allowedMounts"),
        (
            {"hostPath": "/opt/../etc"},
            "parameters.mounts[0].hostPath: /opt/../etc is not an absolute path without empty, `.` or `..` components",
        ),
        (
            {"hostPath": "/opt/a", "containerPath": "proc"},
            "parameters.mounts[0].containerPath: proc is not an absolute path without empty, `.` or `..` components",
        ),
        (
            {"hostPath": "/opt/a", "containerPath": "/proc/sys"},
            "parameters.mounts[0].containerPath: nothing can be mounted at /proc/sys",
        ),
        (
            {"hostPath": "/opt/a", "containerPath": "/"},
            "parameters.mounts[0].containerPath: nothing can be mounted at /",
        ),
    ],
)
def test_mount_outside_the_node_policy_is_refused(mount: dict[str, Any], words: str) -> None:
    assert words in problems(CONFIG | {"mounts": [mount]}, from_class=True)


def test_two_mounts_at_one_path_are_refused() -> None:
    mounts = [{"hostPath": "/opt/a", "containerPath": "/x"}, {"hostPath": "/opt/b", "containerPath": "/x"}]
    assert problems(CONFIG | {"mounts": mounts}, from_class=True) == ["parameters.mounts[1]: two mounts at /x"]


def test_error_is_printable_and_short() -> None:
    (words,) = problems(CONFIG | {"\x1b[2J" + "x" * 5000: 1})
    assert words.isprintable()
    assert len(words) < 400


def test_deep_nesting_is_refused_without_recursion() -> None:
    deep: Any = "bottom"
    for _ in range(100_000):
        deep = [deep]
    assert problems(CONFIG | {"env": deep}) == ["parameters: more than 16 levels deep"]
    while isinstance(deep, list):  # otherwise the interpreter frees the list recursively
        deep = deep[0]


names = st.sampled_from(["uid", "mode", "hostPath", "x"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=10,
)
fields = st.sampled_from(["env", "access", "reset", "sharing", "mounts", "kind", "apiVersion", "x"])


def outcome(parameters: Any, from_class: bool) -> DeviceConfig | tuple[str, ...]:
    try:
        return read(parameters, from_class=from_class, allowed_mounts=("/opt",))
    except InvalidConfig as refused:
        return refused.problems


@given(extra=st.dictionaries(fields, values), from_class=st.booleans())
def test_any_object_is_a_configuration_or_is_refused(extra: dict[str, Any], from_class: bool) -> None:
    for parameters in (CONFIG | extra, json.dumps(CONFIG | extra)):
        found = outcome(parameters, from_class)
        if isinstance(found, DeviceConfig):
            assert from_class or not found.mounts
        else:
            assert found
            assert all(problem.startswith("parameters") for problem in found)


@given(text=st.binary(max_size=200) | st.text(max_size=200))
def test_any_text_is_refused(text: bytes | str) -> None:
    assert problems(text)
