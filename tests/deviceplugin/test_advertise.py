"""The list that the kubelet gets."""

from deviceplugin.advertise import Advertised
from deviceplugin.units import Unit, device_of, units_of
from hostdevices import Device, Health
from hostdevices.resource import Resource
from hostdevices.selector import Kinds
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api


def units(*devices: Device, shares: int = 1) -> dict[str, Unit]:
    return units_of(Resource("example.com/x", Kinds(("x",)), shares=shares), devices)


def device(name: str, healthy: bool = True, numa_nodes: tuple[int, ...] = ()) -> Device:
    return Device(
        id=name, kind="x", name=name, numa_nodes=numa_nodes, health=Health(healthy, "" if healthy else "broken")
    )


def listed(advertised: Advertised) -> list[api.Device]:
    return list(api.ListAndWatchResponse.FromString(advertised.encoded).devices)


def test_devices_are_listed_with_health_and_numa_nodes() -> None:
    advertised = Advertised()
    assert advertised.update(units(device("a", numa_nodes=(0, 1)), device("b", healthy=False)), [], {})
    assert listed(advertised) == [
        api.Device(ID="a", health="Healthy", topology=api.TopologyInfo(nodes=[api.NUMANode(ID=0), api.NUMANode(ID=1)])),
        api.Device(ID="b", health="Unhealthy"),
    ]
    assert advertised.counts() == (2, 1)


def test_no_topology_is_no_topology() -> None:
    advertised = Advertised()
    advertised.update(units(device("a")), [], {})
    assert not listed(advertised)[0].HasField("topology")


def test_an_equal_list_is_no_change() -> None:
    advertised = Advertised()
    assert advertised.update(units(device("a")), [], {})
    assert not advertised.update(units(device("a")), ["a"], {})


def test_a_leased_unit_that_is_gone_stays_listed_as_unhealthy_with_its_place() -> None:
    advertised = Advertised()
    advertised.update(units(device("a", numa_nodes=(1,)), device("b")), ["a"], {})
    advertised.update(units(device("b")), ["a"], {})
    gone = next(d for d in listed(advertised) if d.ID == "a")
    assert gone.health == "Unhealthy"
    assert [n.ID for n in gone.topology.nodes] == [1]
    assert advertised.update(units(device("b")), [], {})
    assert [d.ID for d in listed(advertised)] == ["b"]


def test_a_withheld_device_is_unhealthy_in_all_its_shares() -> None:
    advertised = Advertised()
    advertised.update(units(device("a"), shares=2), [], {"a": "on fire"})
    assert advertised.health() == {"a.0": False, "a.1": False}


def test_one_health_flip_encodes_one_device_again() -> None:
    advertised = Advertised()
    many = [device(f"d{i}") for i in range(1000)]
    advertised.update(units(*many), [], {})
    before = {id(entry) for entry in advertised._entries.values()}
    many[500] = device("d500", healthy=False)
    advertised.update(units(*many), [], {})
    assert sum(id(entry) not in before for entry in advertised._entries.values()) == 1


def test_a_units_id_reads_back() -> None:
    assert [device_of(u) for u in units(device("a-1"), shares=3)] == ["a-1"] * 3
    assert device_of("a-1") == "a-1"
