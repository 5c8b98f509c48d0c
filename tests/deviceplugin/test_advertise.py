"""The list that a plugin sends to the kubelet."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.advertise import Advertised
from deviceplugin.units import device_name_of
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api


def listed(advertised: Advertised) -> list[api.Device]:
    return list(api.ListAndWatchResponse.FromString(advertised.encoded).devices)


def test_units_are_listed_with_health_and_numa_nodes() -> None:
    advertised = Advertised()
    assert advertised.encoded == b""
    assert advertised.replace({"a": (True, (0, 1)), "b": (False, ())})
    assert listed(advertised) == [
        api.Device(ID="a", health="Healthy", topology=api.TopologyInfo(nodes=[api.NUMANode(ID=0), api.NUMANode(ID=1)])),
        api.Device(ID="b", health="Unhealthy"),
    ]
    assert advertised.counts() == (2, 1)
    assert (advertised.numa_nodes("a"), advertised.numa_nodes("x")) == ((0, 1), ())
    assert [advertised.is_healthy(x) for x in "abx"] == [True, False, None]


def test_device_without_numa_nodes_has_no_topology() -> None:
    advertised = Advertised()
    advertised.replace({"a": (True, ())})
    assert not listed(advertised)[0].HasField("topology")


def test_equal_list_is_not_a_change() -> None:
    advertised = Advertised()
    assert advertised.replace({"a": (True, ())})
    before = advertised.encoded
    assert not advertised.replace({"a": (True, ())})
    assert not advertised.set_health(["a"], True)
    assert advertised.encoded is before


def test_health_change_of_some_units_leaves_the_others_unchanged() -> None:
    advertised = Advertised()
    advertised.replace({f"d{i}": (True, ()) for i in range(1000)})
    assert advertised.set_health(["d500", "d501"], False)
    assert advertised.counts() == (1000, 998)
    assert [x.health for x in listed(advertised)[499:503]] == ["Healthy", "Unhealthy", "Unhealthy", "Healthy"]


def test_equal_entries_of_units_are_stored_once() -> None:
    advertised = Advertised()
    advertised.replace({f"d{i}": (i % 2 == 0, (i % 3,)) for i in range(5000)})
    assert len({id(entry) for entry in advertised._entries.values()}) == 6
    advertised.set_health([f"d{i}" for i in range(5000)], True)
    assert len({id(entry) for entry in advertised._entries.values()}) <= 6


_IDS = st.sampled_from([*(f"misc-{i}" for i in range(12)), "a", "a" * 63, "0000:3b:00.0::3", "\n", "a\n\x0ba", "ü"])
_HEALTH_AND_NODES = st.tuples(st.booleans(), st.lists(st.integers(0, 12) | st.just(1023), max_size=40).map(tuple))
_LIST = st.dictionaries(_IDS, _HEALTH_AND_NODES) | st.lists(st.tuples(_IDS, _HEALTH_AND_NODES)).map(
    lambda x: dict(reversed(x))
)


@given(first=_LIST, steps=st.lists(_LIST | st.tuples(st.lists(_IDS), st.booleans()), max_size=8))
def test_incrementally_changed_list_equals_a_newly_encoded_list(
    first: dict[str, Any], steps: list[dict[str, Any] | tuple[list[str], bool]]
) -> None:
    advertised, units = Advertised(), dict(first)
    advertised.replace(units)
    for step in steps:
        before, sent = list(units.items()), advertised.encoded
        if isinstance(step, dict):
            units = {**units, **step} if len(step) % 2 else {x: units.get(x, what) for x, what in step.items()}
            has_changed = advertised.replace(units)
        else:
            some, is_healthy = [x for x in step[0] if x in units], step[1]
            units |= {x: (is_healthy, units[x][1]) for x in some}
            has_changed = advertised.set_health(some, is_healthy)
        whole = Advertised()
        whole.replace(units)
        assert advertised.encoded == whole.encoded
        assert has_changed == (list(units.items()) != before)
        assert has_changed or advertised.encoded is sent
        assert advertised.counts() == whole.counts()


def test_device_name_is_read_from_a_unit_id() -> None:
    assert [device_name_of(x) for x in ("a-1", "a-1.0", "a-1.17")] == ["a-1"] * 3
    names = ("0000:3b:00.0", "GPU-4a1b", "/dev/ttyUSB0", "/dev/a.1")
    assert [device_name_of(x) for x in names] == [device_name_of(f"{x}::17") for x in names] == list(names)
