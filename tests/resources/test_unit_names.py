"""Unit names that other programs expect, and devices that cannot have one."""

import pytest

from resources.resource import Ids, Resource
from resources.selector import Kinds
from resources.unit_names import unit_name
from tests.hostdevices.made import assigned, device, ids, unassigned_reason

ADDRESS = "resource.kubernetes.io/pciBusID"
GPU = device("gpu-a", "gpu", "/dev/nvidia0", attributes={ADDRESS: "0000:3b:00.0", "uuid": "GPU-4a1b"})
TWIN = device("gpu-b", "gpu", "/dev/nvidia1", attributes={ADDRESS: "0000:3b:00.0", "uuid": "GPU-77aa"})
BARE = device("gpu-c", "gpu", "/dev/dri/card1", "/dev/dri/renderD129")


@pytest.mark.parametrize(
    ("named_by", "name"),
    [("identity", "gpu-a"), ("pciBusID", "0000:3b:00.0"), ("uuid", "GPU-4a1b"), ("path", "/dev/nvidia0")],
)
def test_unit_name_follows_the_option(named_by: Ids, name: str) -> None:
    assert unit_name(named_by, GPU) == name


def test_device_without_a_unit_name_is_refused() -> None:
    found = assigned([GPU, TWIN, BARE], Resource("x/gpu", Kinds(("gpu",)), ids="uuid"))
    assert ids(found, "x/gpu") == ["gpu-a", "gpu-b"]
    assert unassigned_reason(found, "gpu-c") == "x/gpu: it has no uuid, which `ids: uuid` uses as its id"
    assert [x.is_refused for x in found.rest] == [True]
    assert set(found.owners) == {"gpu-a", "gpu-b"}
    by_path = assigned([GPU, BARE], Resource("x/gpu", Kinds(("gpu",)), ids="path"))
    assert unassigned_reason(by_path, "gpu-c") == (
        "x/gpu: `ids: path` names devices with one node, and it has 2; choose it with `nodes`"
    )


def test_devices_with_the_same_unit_name_are_refused() -> None:
    """Their order is arbitrary."""
    found = assigned([GPU, TWIN, BARE], Resource("x/gpu", Kinds(("gpu",)), ids="pciBusID"))
    assert ids(found, "x/gpu") == []
    assert unassigned_reason(found, "gpu-a") == (
        "x/gpu: `ids: pciBusID` would name it 0000:3b:00.0, and gpu-b, too; put them in a group, or leave `ids` out"
    )
    assert "and gpu-a, too" in unassigned_reason(found, "gpu-b")


@pytest.mark.parametrize("uuid", ["a" * 63, "a b", "a::1", "a\n"])
def test_invalid_unit_name_is_refused(uuid: str) -> None:
    found = assigned([device("x", "gpu", attributes={"uuid": uuid})], Resource("x/gpu", Kinds(("gpu",)), ids="uuid"))
    assert "cannot be an id: at most 62 plain characters, without ::" in unassigned_reason(found, "x")
