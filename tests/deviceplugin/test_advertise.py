"""The list that the kubelet gets."""

from deviceplugin.advertise import Advertised
from deviceplugin.units import name_in
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


def test_no_topology_is_no_topology() -> None:
    advertised = Advertised()
    advertised.replace({"a": (True, ())})
    assert not listed(advertised)[0].HasField("topology")


def test_an_equal_list_is_no_change() -> None:
    advertised = Advertised()
    assert advertised.replace({"a": (True, ())})
    before = advertised.encoded
    assert not advertised.replace({"a": (True, ())})
    assert not advertised.set_health(["a"], True)
    assert advertised.encoded is before


def test_health_changes_of_some_units_encode_those_again() -> None:
    advertised = Advertised()
    advertised.replace({f"d{i}": (True, ()) for i in range(1000)})
    before = {**advertised._entries}
    assert advertised.set_health(["d500", "d501"], False)
    assert [unit for unit, entry in advertised._entries.items() if entry is not before[unit]] == ["d500", "d501"]
    assert advertised.counts() == (1000, 998)
    assert [x.health for x in listed(advertised)[499:503]] == ["Healthy", "Unhealthy", "Unhealthy", "Healthy"]


def test_a_units_id_reads_back() -> None:
    assert [name_in(x) for x in ("a-1", "a-1.0", "a-1.17")] == ["a-1"] * 3
    names = ("0000:3b:00.0", "GPU-4a1b", "/dev/ttyUSB0", "/dev/a.1")
    assert [name_in(x) for x in names] == [name_in(f"{x}::17") for x in names] == list(names)
