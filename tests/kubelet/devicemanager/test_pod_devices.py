"""Records of the devices of containers."""

from kubelet.devicemanager.options import CDIDevice, DeviceRunContainerOptions, merge
from kubelet.devicemanager.pod_devices import PodRecords
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.kubelet.scenarios import scenario

ANSWER = api.ContainerAllocateResponse(envs={"A": "b"})
R = "res1"


@scenario(37)
def test_device_on_two_numa_nodes_is_one_device() -> None:
    records = PodRecords()
    records.insert("pod", "con", R, {0: ["dev1"], 1: ["dev1"]}, ANSWER)
    found = records.devices("pod", "con")
    assert found is not None
    assert [(device.id, device.topology) for device in found[R].values()] == [("dev1", (0, 1))]


@scenario(38)
def test_reservation_is_hidden_but_in_use_until_commit() -> None:
    records = PodRecords()
    assert records.reserve("pod", "con", R)
    assert not records.reserve("pod", "con", R)
    assert records.add_to_reservation("pod", "con", R, ["dev0"])
    assert not records.has_pod("pod")
    assert records.pods() == set()
    assert records.container_devices("pod", "con", R) is None
    assert records.devices("pod", "con") is None
    assert records.responses("pod", "con") == {}
    assert records.checkpoint_parts() == []
    assert records.in_use == {R: {"dev0"}}
    records.insert("pod", "other", R, {-1: ["dev1"]}, ANSWER)
    assert records.delete(["pod"]) == ["pod"]
    assert not records.has_pod("pod")
    assert records.in_use == {R: {"dev0"}}
    assert records.commit("pod", "con", R, {-1: ["dev0"]}, ANSWER)
    assert records.has_pod("pod")
    assert records.container_devices("pod", "con", R) == {"dev0": None}
    assert not records.roll_back("pod", "con", R)
    assert not records.commit("pod", "con", R, {}, ANSWER)
    assert not records.add_to_reservation("pod", "con", R, ["dev9"])
    assert records.delete(["pod"]) == []


@scenario(39)
def test_reservation_can_be_rolled_back() -> None:
    records = PodRecords()
    records.reserve("pod", "con", R)
    records.add_to_reservation("pod", "con", R, ["dev0"])
    assert records.roll_back("pod", "con", R)
    assert records.in_use == {}
    assert not records.roll_back("pod", "con", R)


@scenario(40, 43)
def test_pod_devices_and_owners_are_kept_per_resource() -> None:
    records = PodRecords()
    records.insert("pod", "c1", R, {-1: ["dev1"]}, ANSWER)
    records.insert("pod", "c2", R, {0: ["dev2"]}, ANSWER)
    records.insert("pod", "c1", "res2", {-1: ["dev3"]}, ANSWER)
    records.insert("pod2", "c9", "res2", {-1: ["dev1"]}, ANSWER)
    records.reserve("reserving", "c", R)
    records.add_to_reservation("reserving", "c", R, ["dev4"])
    assert list(records.pod_devices("pod", R)) == ["dev1", "dev2"]
    assert list(records.pod_devices("pod", "res2")) == ["dev3"]
    assert not records.pod_devices("pod", "unknown")
    assert not records.pod_devices("unknown", R)
    assert not records.pod_devices("reserving", R)
    assert records.owners(R) == {"dev1": ("pod", "c1"), "dev2": ("pod", "c2")}
    assert records.owners("res2")["dev1"] == ("pod2", "c9")
    assert records.owners("unknown") == {}


def answer(*cdi: str, **fields: object) -> api.ContainerAllocateResponse:
    return api.ContainerAllocateResponse(cdi_devices=[api.CDIDevice(name=name) for name in cdi])


@scenario(42)
def test_cdi_devices_of_all_responses_are_merged() -> None:
    assert merge([api.ContainerAllocateResponse()]) == DeviceRunContainerOptions()
    first = answer("vendor1.com/class1=device1", "vendor2.com/class2=device2")
    assert merge([first]).cdi_devices == (
        CDIDevice("vendor1.com/class1=device1"),
        CDIDevice("vendor2.com/class2=device2"),
    )
    other = answer("vendor3.com/class3=device3", "vendor4.com/class4=device4")
    assert len(merge([first, other]).cdi_devices) == 4
    assert len(merge([first, answer("vendor2.com/class2=device2", "vendor3.com/class3=device3")]).cdi_devices) == 3


def test_first_response_wins_for_a_repeated_key() -> None:
    def one(value: str) -> api.ContainerAllocateResponse:
        return api.ContainerAllocateResponse(
            envs={"E": value},
            annotations={"a": value},
            mounts=[api.Mount(container_path="/m", host_path=value, read_only=True)],
            devices=[api.DeviceSpec(container_path="/d", host_path=value, permissions="rw")],
        )

    assert merge([one("1"), one("2")]) == merge([one("1")])
    only = merge([one("1")])
    assert (only.envs[0].value, only.annotations[0].value, only.devices[0].path_on_host) == ("1", "1", "1")
    assert (only.mounts[0].name, only.mounts[0].host_path, only.mounts[0].selinux_relabel) == ("/m", "1", False)
