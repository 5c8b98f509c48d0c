"""GPUs of DRM, MIG instances of NVIDIA, kfd of AMD."""

import pytest

from hostdevices import Device, Inventory, Version, scan
from hostdevices.readers.gpu import read
from resources.assignment import assign
from resources.presets import preset
from resources.resource import Resource
from tests.hostdevices.machine import GPU_UUID, mi300x
from tests.hostdevices.tree import Tree


def gpus(tree: Tree) -> dict[str, Device]:
    return {device.id: device for device in read(tree.host) if isinstance(device, Device)}


def paths(device: Device) -> list[str]:
    return [node.path for node in device.devnodes]


def test_card_and_render_node_are_matched_by_parent(tree: Tree) -> None:
    for address, card, render in (("0000:03:00.0", 1, 128), ("0000:04:00.0", 0, 129)):
        parent = tree.pci(address, driver="xe")
        tree.child(parent, f"drm/card{card}", group="class/drm", node=f"dri/card{card}")
        tree.child(parent, f"drm/renderD{render}", group="class/drm", node=f"dri/renderD{render}")
    found = gpus(tree)
    assert paths(found["gpu-0000-03-00-0"]) == ["/dev/dri/card1", "/dev/dri/renderD128"]
    assert paths(found["gpu-0000-04-00-0"]) == ["/dev/dri/card0", "/dev/dri/renderD129"]
    assert found["gpu-0000-04-00-0"].attributes["render"] is True


def test_memory_of_intel_gpus_is_read(tree: Tree) -> None:
    """Source: Linux, xe_tile_sysfs.c: per tile; Intel's own i915: per card. Integrated GPUs have no own memory."""
    for number, driver in enumerate(("xe", "i915", "i915", "xe")):
        parent = tree.pci(f"0000:0{number + 3}:00.0", driver=driver)
        card = tree.child(parent, f"drm/card{number}", group="class/drm", node=f"dri/card{number}")
        if number == 0:
            for tile in (0, 1):
                tree.file(f"{parent}/tile{tile}/physical_vram_size_bytes", 8 << 30)
        elif number == 1:
            tree.file(f"{card}/lmem_total_bytes", 6 << 30)
    assert [x.attributes.get("memory") for x in gpus(tree).values()] == [16 << 30, 6 << 30, None, None]


def test_gpu_id_contains_no_card_number(tree: Tree) -> None:
    parent = tree.pci("0000:03:00.0", driver="i915")
    tree.child(parent, "drm/card7", group="class/drm", node="dri/card7")
    (device,) = gpus(tree).values()
    assert (device.id, device.name, device.attributes["render"]) == ("gpu-0000-03-00-0", "card7", False)


def test_gpu_without_dev_nodes_keeps_type_gpu(tree: Tree) -> None:
    """It stays a device of its resource, and is unhealthy."""
    parent = tree.pci("0000:03:00.0", driver="xe")
    for name in ("card0", "renderD128"):
        tree.child(parent, f"drm/{name}", group="class/drm", node=f"dri/{name}")
        tree.path(f"/dev/dri/{name}").unlink()
    (device,) = gpus(tree).values()
    assert (device.attributes["type"], device.devnodes) == ("gpu", ())


def test_connectors_and_ttm_are_omitted(tree: Tree) -> None:
    parent = tree.pci("0000:03:00.0", driver="i915")
    card = tree.child(parent, "drm/card0", group="class/drm", node="dri/card0")
    tree.device(f"{card}/card0-HDMI-A-1", group="class/drm")
    tree.device("/sys/devices/virtual/drm/ttm", group="class/drm")
    tree.child("/sys/devices/platform/vkms", "drm/card1", group="class/drm", node="dri/card1")
    assert set(gpus(tree)) == {"gpu-0000-03-00-0", "gpu-vkms"}


def test_displays_fpgas_and_npus_are_not_selected_by_gpu_preset(tree: Tree) -> None:
    """A server's BMC (ast), the firmware's frame buffer, a virtual machine's screen; boards report no GPU vendor.

    Rockchip's NPU (RKNPU) and XRT's FPGAs (xocl) are DRM devices as well.
    """
    places = {
        "ast": tree.pci("0000:04:00.0", vendor="1a03", driver="ast"),
        "vmwgfx": tree.pci("0000:00:0f.0", vendor="15ad", driver="vmwgfx"),
        "xe": tree.pci("0000:03:00.0", driver="xe"),
        "nvidia": tree.pci("0000:05:00.0", vendor="10de", driver="nvidia"),
        "simple": "/sys/devices/platform/simple-framebuffer.0",
        "panthor": tree.device("/sys/devices/platform/fb000000.gpu", driver="platform/panthor"),
        "fpga": tree.pci("0000:06:00.1", vendor="10ee", pci_class="120000", driver="xocl"),
        "npu": tree.device("/sys/devices/platform/fdab0000.npu", driver="platform/RKNPU"),
        "tegra": tree.device("/sys/devices/platform/13e00000.host1x/drm", group="bus/host1x/devices"),
    }
    tree.file("/proc/driver/nvidia/gpus/0000:05:00.0/information", "Device Minor: \t 0")
    for number, (name, parent) in enumerate(places.items()):
        tree.child(parent, f"drm/card{number}", group="class/drm", node=f"dri/card{number}")
        if name in ("vmwgfx", "xe", "panthor", "fpga", "npu", "tegra"):
            tree.child(parent, f"drm/renderD{number}", group="class/drm", node=f"dri/renderD{number}")
    offered = assign(scan(tree.host), [Resource("example.com/gpu", preset("gpu"))]).devices["example.com/gpu"]
    assert [gpu.id for gpu in offered] == ["gpu-0000-03-00-0", "gpu-0000-05-00-0", "gpu-fb000000-gpu"]
    others = [str(gpu.attributes["type"]) for gpu in gpus(tree).values() if gpu not in offered]
    assert sorted(others) == ["display"] * 4 + ["fpga", "npu"]


def test_nvidia_gpu_is_read_from_proc(inventory: Inventory) -> None:
    gpu = inventory.devices["gpu-0000-81-00-0"]
    assert paths(gpu) == ["/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm"]
    assert gpu.numa_nodes == (1,)
    assert (
        gpu.attributes.items()
        >= {
            "type": "gpu",
            "vendor": "10de",
            "model": "NVIDIA A100 80GB PCIe",
            "uuid": GPU_UUID,
            "index": 3,
            "driverVersion": Version("535.104.5"),  # a semantic version has no leading zeros
        }.items()
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 2023", Version("535.104.5")),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build", Version("570.86.15")),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.42  Mon", Version("470.42.0")),
        ("something else", None),
    ],
)
def test_nvidia_driver_version_is_parsed(line: str, expected: Version | None, tree: Tree) -> None:
    tree.pci("0000:81:00.0", vendor="10de", driver="nvidia")
    tree.file("/proc/driver/nvidia/gpus/0000:81:00.0/information", "GPU UUID: \t GPU-????????-????\nDevice Minor: \t 0")
    tree.file("/proc/driver/nvidia/version", line)
    (gpu,) = gpus(tree).values()
    assert gpu.attributes.get("driverVersion") == expected
    assert "uuid" not in gpu.attributes  # the driver does not report it yet


def test_mig_instance_has_its_gpu_as_parent(inventory: Inventory) -> None:
    instance = inventory.devices["gpu-0000-81-00-0-gi2-ci0"]
    assert instance.parents == ("gpu-0000-81-00-0", "pci-0000-81-00-0")
    assert paths(instance)[-2:] == ["/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"]
    assert (
        instance.attributes.items()
        >= {
            "type": "mig",
            "parentUUID": GPU_UUID,
            "gpuInstance": 2,
            "computeInstance": 0,
        }.items()
    )
    assert "uuid" not in instance.attributes


def test_partitioned_gpu_has_partitioned_attribute(inventory: Inventory, tree: Tree) -> None:
    assert inventory.devices["gpu-0000-81-00-0"].attributes["partitioned"] is True
    assert "partitioned" not in inventory.devices["gpu-0000-c1-00-0"].attributes
    physical = tree.pci("0000:03:00.0", driver="xe", sriov_totalvfs=7)
    virtual = tree.virtual_function(physical, "0000:03:00.1", 0, driver="xe")
    for card, parent in enumerate((physical, virtual)):
        tree.child(parent, f"drm/card{card}", group="class/drm", node=f"dri/card{card}")
    assert [gpu.attributes.get("partitioned") for gpu in gpus(tree).values()] == [True, None]


def test_gpu_found_only_by_its_driver_is_listed(tree: Tree) -> None:
    tree.file("/sys/bus/pci/devices/0004:05:00.0/class", "0x030200")
    tree.file("/proc/driver/nvidia/gpus/0004:05:00.0/numa_status", "Node:      255\nStatus:    online")
    (gpu,) = gpus(tree).values()
    assert gpu.id == "gpu-0004-05-00-0"
    assert gpu.devnodes == ()
    assert gpu.attributes.items() >= {"driver": "nvidia", "vendor": "10de", "memoryNode": 255}.items()


def test_amd_gpu_has_kfd_node_and_gfx_target(inventory: Inventory) -> None:
    gpu = inventory.devices["gpu-0000-c1-00-0"]
    assert paths(gpu) == ["/dev/dri/card1", "/dev/dri/renderD129", "/dev/kfd"]
    assert (
        gpu.attributes.items()
        >= {
            "model": "Instinct MI210",
            "uuid": "9f8e7d6c5b4a3920",
            "gfx": "gfx90a",
            "memory": 68702699520,
            "computePartition": "SPX",
            "memoryPartition": "NPS1",
        }.items()
    )


def amd_gpus(tree: Tree) -> dict[str, Device]:
    offered = assign(scan(tree.host), [Resource("amd.com/gpu", preset("amd-gpu"))]).devices["amd.com/gpu"]
    return {device.id: device for device in offered}


def test_every_partition_of_an_amd_gpu_is_a_gpu(tree: Tree) -> None:
    mi300x(tree, "CPX", partitions=3)
    found = amd_gpus(tree)
    assert {identity: paths(device) for identity, device in found.items()} == {
        "gpu-0000-05-00-0": ["/dev/dri/renderD128", "/dev/kfd"],
        "gpu-0000-05-00-0-xcp1": ["/dev/dri/renderD129", "/dev/kfd"],
        "gpu-0000-05-00-0-xcp2": ["/dev/dri/renderD130", "/dev/kfd"],
    }
    second = found["gpu-0000-05-00-0-xcp1"]
    assert second.parents == ("pci-0000-05-00-0",)
    assert second.numa_nodes == (1,)
    assert (
        second.attributes.items()
        >= {
            "name": "amdgpu_xcp_30",
            "bus": "pci",
            "vendor": "1002",
            "device": "74a1",
            "driver": "amdgpu",
            "model": "AMD Instinct MI300X",
            "computePartition": "CPX",
            "partition": 1,
            "parentUUID": "e3a9c3f6b2d1a0f1",
            "gfx": "gfx942",
            "hive": "b60b61",
            "resource.kubernetes.io/pciBusID": "0000:05:00.0",
        }.items()
    )
    assert not {"uuid", "memory"} & found["gpu-0000-05-00-0"].attributes.keys()  # those describe the whole GPU


def test_unpartitioned_amd_gpu_is_one_gpu(tree: Tree) -> None:
    mi300x(tree, "SPX", partitions=1)
    (gpu,) = amd_gpus(tree).values()
    assert gpu.id == "gpu-0000-05-00-0"
    assert gpu.attributes["uuid"] == "e3a9c3f6b2d1a0f1"
    assert gpu.attributes["memory"] == 206141652992
    assert not {"partition", "parentUUID"} & gpu.attributes.keys()


def test_xgmi_links_are_counted_between_directly_linked_gpus(tree: Tree) -> None:
    """Two modules of two GPUs: kfd lists the weight and the bandwidth of the link to each other node."""
    nodes = "/sys/devices/virtual/kfd/kfd/topology/nodes"
    tree.device("/sys/devices/virtual/kfd/kfd", group="class/kfd", node="kfd", numbers="235:0")
    tree.file(f"{nodes}/0/properties", "cpu_cores_count 64\nsimd_count 0")
    ways = {  # type, weight, bandwidth: four links inside a module, one or two hops to another module
        (1, 0): (2, 20, 32000),
        (1, 2): (11, 15, 200000),
        (1, 3): (11, 15, 0),
        (1, 4): (11, 30, 50000),
        (2, 1): (11, 15, 200000),
        (2, 9): (11, 15, 50000),
    }
    for number in range(1, 5):
        minor = 127 + number
        pci = tree.pci(f"0000:0{number}:00.0", vendor="1002", device="740c", driver="amdgpu")
        tree.child(pci, f"drm/renderD{minor}", group="class/drm", node=f"dri/renderD{minor}", numbers=f"226:{minor}")
        facts = f"simd_count 440\nlocation_id {number << 8}\ndrm_render_minor {minor}\nhive_id 11930465"
        tree.file(f"{nodes}/{number}/properties", facts)
    for i, ((one, other), (kind, weight, most)) in enumerate(ways.items()):
        facts = f"type {kind}\nnode_from {one}\nnode_to {other}\nweight {weight}"
        widths = f"min_bandwidth {most and 50000}\nmax_bandwidth {most}"
        tree.file(f"{nodes}/{one}/io_links/{i}/properties", f"{facts}\n{widths}")
    found = amd_gpus(tree)
    assert found["gpu-0000-01-00-0"].links == (("0000:02:00.0", 4), ("0000:03:00.0", 1))
    assert found["gpu-0000-02-00-0"].links == (("0000:01:00.0", 4),)
    assert found["gpu-0000-03-00-0"].links == ()


def test_amd_partitions_are_distinct_without_kfd(tree: Tree) -> None:
    for partition in (0, 1):
        parent = tree.device(f"/sys/devices/platform/amdgpu_xcp_{partition}", driver="platform/amdgpu")
        minor = 130 + partition
        tree.child(parent, f"drm/renderD{minor}", group="class/drm", node=f"dri/renderD{minor}", numbers=f"226:{minor}")
    assert [paths(gpu) for gpu in amd_gpus(tree).values()] == [["/dev/dri/renderD130"], ["/dev/dri/renderD131"]]
