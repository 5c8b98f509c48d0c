"""Configurations of other device plugins can be expressed, and pods get the same as before."""

from pathlib import Path

import pytest

from hostdevices import Device, Host, Inventory, scan
from hostdevices.readers import READERS, paths_reader
from nodeplug.config import loads
from nodeplug.convert import convert
from resources.assignment import assign
from tests.cases import recorded_at
from tests.hostdevices.machine import interface, rdma, sound
from tests.hostdevices.tree import Tree
from tests.nodeplug.allocations import plugins_of

PEERS = recorded_at("peers-config")
RECORDED = Path(__file__).parents[2] / "data/virtual-machine.jsonl.gz"
SOUND = [(name, card, rest) for card in (0, 1) for name, rest in (("control", ""), ("pcm", "D0c"), ("pcm", "D0p"))]

VFIO = ["/dev/vfio/90", "/dev/vfio/vfio"]
RDMA = [f"/dev/infiniband/{name}" for name in ("issm3", "rdma_cm", "umad3", "uverbs3")]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    tree = Tree(tmp_path_factory.mktemp("peers") / "root")
    _network(tree)
    _files(tree)
    return tree


def _network(tree: Tree) -> None:
    for bus, vendor, physical_device, name in (("3b", "15b3", "1017", "ens1f0"), ("af", "8086", "1572", "ens2f0")):
        physical = tree.pci(
            f"0000:{bus}:00.0", root=f"pci0000:{bus}", vendor=vendor, device=physical_device, pci_class="020000",
            driver="mlx5_core" if vendor == "15b3" else "i40e", sriov_totalvfs=8,
        )  # fmt: skip
        interface(tree, physical, name, mac="02:00:00:00:00:01", speed=25000)
        for index, (device, driver) in enumerate(
            [("1018", "mlx5_core"), ("1018", "mlx5_core")]
            if vendor == "15b3"
            else [("154c", "iavf"), ("154c", "vfio-pci")]
        ):
            function = tree.virtual_function(
                physical,
                f"0000:{bus}:02.{index}",
                index,
                vendor=vendor,
                device=device,
                pci_class="020000",
                driver=driver,
            )
            if driver == "vfio-pci":
                tree.iommu_group(90, function)
                tree.device("/sys/devices/virtual/vfio/90", group="class/vfio", node="vfio/90")
            else:
                interface(tree, function, f"{name}v{index}", mac=f"02:00:00:00:{index:02}:02")
        if vendor == "15b3":
            rdma(tree, f"/sys/devices/pci0000:{bus}/0000:{bus}:02.1", "mlx5_3", 3)
            for index, driver in ((2, "virtio_vdpa"), (3, "vhost_vdpa")):
                offloaded = tree.virtual_function(
                    physical, f"0000:3b:02.{index}", index, vendor=vendor, device="101e", pci_class="020000",
                    driver="mlx5_core",
                )  # fmt: skip
                vdpa = tree.device(f"{offloaded}/vdpa{index}", group="bus/vdpa/devices", driver=f"vdpa/{driver}")
                if driver == "vhost_vdpa":
                    tree.device(f"{vdpa}/vhost-vdpa-0", node="vhost-vdpa-0")
    for number in (7, 8, 9, 10):  # of a virtual machine, without virtual functions
        address = f"0000:00:{number:02x}.0"
        tree.iommu_group(number, tree.pci(address, vendor="1af4", pci_class="020000", driver="vfio-pci"))
        tree.device(f"/sys/devices/virtual/vfio/{number}", group="class/vfio", node=f"vfio/{number}")
    for name, numbers in (("vfio/vfio", "10:196"), ("infiniband/rdma_cm", "10:58")):
        tree.device(f"/sys/devices/virtual/misc/{name[-4:]}", group="class/misc", node=name, numbers=numbers)


def _files(tree: Tree) -> None:
    tree.device("/sys/devices/virtual/misc/fuse", group="class/misc", node="fuse", numbers="10:229")
    for number in (0, 1):
        audio = tree.pci(f"0000:00:1f.{number}", pci_class="040300", driver="snd_hda_intel")
        sound(tree, audio, number, f"Card{number}", (f"controlC{number}", f"pcmC{number}D0c", f"pcmC{number}D0p"))
    controller = tree.pci("0000:00:14.0", pci_class="0c0330", driver="xhci_hcd")
    adapter = tree.usb(controller, "1-2", devnum=4, vendor="0403", product="6001", serial="A1", interfaces=("ff",))
    port = tree.device(f"{adapter}/1-2:1.0/ttyUSB0", driver="usb-serial/ftdi_sio", port_number=0)
    tree.child(port, "tty/ttyUSB0", group="class/tty", node="ttyUSB0", numbers="188:0")
    webcam = tree.usb(controller, "1-3", devnum=5, vendor="046d", product="082d", interfaces=("0e",))
    tree.child(f"{webcam}/1-3:1.0", "video4linux/video0", group="class/video4linux", node="video0", index=0)
    for name, numbers in (("gpiomem", "244:0"), ("vchiq", "245:0"), ("hci0", "246:0"), ("rfcomm0", "216:0")):
        tree.node(f"/dev/{name}", numbers)


def offered(tree: Tree, text: str) -> dict[str, tuple[Device, ...]]:
    """Return the devices of each resource, by the name after the slash."""
    config = loads(text.encode())
    inventory: Inventory = scan(tree.host, (*READERS, paths_reader(config.path_globs)))
    assignment = assign(inventory, config.resources)
    return {name.partition("/")[2]: devices for name, devices in assignment.devices.items()}


def nodes(devices: tuple[Device, ...]) -> list[list[str]]:
    return sorted(sorted(node.path for node in device.devnodes) for device in devices)


def addresses(devices: tuple[Device, ...]) -> list[str]:
    return sorted(str(device.attributes["resource.kubernetes.io/pciBusID"]) for device in devices)


def test_generic_plugin_paths_can_be_expressed(tree: Tree) -> None:
    found = offered(
        tree,
        """
        resources:
          - {name: squat.ai/fuse, select: fuse, shares: 10}
          - {name: squat.ai/serial, select: {path: [/dev/ttyUSB*, /dev/ttyACM*, /dev/rfcomm*]}}
          - {name: squat.ai/video, select: {path: /dev/video0}}
          - name: squat.ai/capture
            group:
              paths:
                - {path: /dev/snd/controlC*, containerPath: /dev/snd/controlC0}
                - {path: /dev/snd/pcmC*D0c, containerPath: /dev/snd/pcmC0D0c}
        """,
    )
    assert nodes(found["fuse"]) == [["/dev/fuse"]]
    assert nodes(found["serial"]) == [["/dev/rfcomm0"], ["/dev/ttyUSB0"]]
    assert nodes(found["video"]) == [["/dev/video0"]]
    assert nodes(found["capture"]) == [
        ["/dev/snd/controlC0", "/dev/snd/pcmC0D0c"],
        ["/dev/snd/controlC1", "/dev/snd/pcmC1D0c"],
    ]
    assert {node.container_path for device in found["capture"] for node in device.devnodes} == {
        "/dev/snd/controlC0",
        "/dev/snd/pcmC0D0c",
    }


def test_generic_plugin_usb_ids_can_be_expressed(tree: Tree) -> None:
    found = offered(
        tree,
        """
        resources:
          - {name: squat.ai/ftdi, select: {kind: usb, attributes: {vendor: "0403", product: "6001", serial: A1}}}
          - {name: squat.ai/webcam, select: {kind: usb, attributes: {vendor: "046d"}}}
        """,
    )
    assert nodes(found["ftdi"]) == [["/dev/bus/usb/001/004", "/dev/ttyUSB0"]]
    assert nodes(found["webcam"]) == [["/dev/bus/usb/001/005", "/dev/video0"]]


def test_sriov_plugin_selectors_can_be_expressed(tree: Tree) -> None:
    found = offered(
        tree,
        """
        resources:
          - {name: mellanox.com/rdma, select: {kind: rdma, attributes: {vendor: "15b3", device: ["1016", "1018"]}}}
          - {name: intel.com/dpdk, select: {preset: sriov-vf, attributes: {vendor: "8086", driver: vfio-pci}}}
          - {name: intel.com/first, select: {preset: sriov-vf, attributes: {pfName: ens2f0, vfIndex: "0..3"}}}
          - {name: x.com/by-root, select: {preset: sriov-vf, attributes: {pf: "0000:3b:00.0"}}}
          - {name: x.com/by-address, select: {kind: pci, attributes: {pciBusID: ["0000:3b:02.1"]}}}
        """,
    )
    assert addresses(found["rdma"]) == ["0000:3b:02.1"]
    assert nodes(found["rdma"]) == [RDMA]
    assert addresses(found["dpdk"]) == ["0000:af:02.1"]
    assert nodes(found["dpdk"]) == [["/dev/vfio/90", "/dev/vfio/vfio"]]
    assert addresses(found["first"]) == ["0000:af:02.0"]
    assert addresses(found["by-root"]) == ["0000:3b:02.0", "0000:3b:02.2", "0000:3b:02.3"]
    assert found["by-address"] == ()


def test_smarter_devices_can_be_expressed(tree: Tree) -> None:
    found = offered(
        tree,
        """
        resources:
          - {name: smarter-devices/snd, select: sound, shares: 20}
          - {name: smarter-devices/gpiomem, select: {path: /dev/gpiomem}, shares: 40}
          - {name: smarter-devices/hci, select: {path: "/dev/hci[0-9]*"}}
          - {name: smarter-devices/ttyUSB, select: usb-serial}
        """,
    )
    assert len(found["snd"]) == 2
    assert nodes(found["gpiomem"]) == [["/dev/gpiomem"]]
    assert nodes(found["hci"]) == [["/dev/hci0"]]
    assert nodes(found["ttyUSB"]) == [["/dev/ttyUSB0"]]


def converted(tree: Tree, plugin: str, file: str) -> str:
    """Return the conversion of a published file."""
    path = PEERS / plugin / file
    if not path.exists():
        pytest.skip(f"no recorded cases at {PEERS}")
    published = path.read_bytes()
    mended = published.replace(b"[{", b"[", 1) if file.startswith("vdpa.malformed") else published
    return convert(mended, file, tree.host).text()


def published(tree: Tree, plugin: str, file: str) -> dict[str, tuple[Device, ...]]:
    """Return the devices that a published file offers after conversion."""
    return offered(tree, converted(tree, plugin, file))


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("dpdk.json", {"intel.com/intel_x710vfio": {"0000:af:02.1": VFIO}}),
        ("dpdk-all-nics.json", {"dpdk.org/nic": {"0000:3b:02.1": RDMA, "0000:af:02.1": VFIO}}),
        (
            "dpdk-mlnx-dpdk.json",
            {"mellanox.com/mlnx_connectx4": {}, "mellanox.com/mlnx_connectx5": {"0000:3b:02.1": RDMA}},
        ),
        ("rdma.json", {"mellanox.com/mlnx_rdma": {"0000:3b:02.1": RDMA}, "intel.com/intel_rdma": {}}),
        (
            "dpdk-virt.malformed.json",
            {
                "intel.com/intelnics_radio_downlink": {
                    f"0000:00:{x:02x}.0": [f"/dev/vfio/{x}", VFIO[1]] for x in (9, 10)
                },
                "intel.com/intelnics_radio_uplink": {f"0000:00:{x:02x}.0": [f"/dev/vfio/{x}", VFIO[1]] for x in (7, 8)},
            },
        ),
        (
            "vdpa.malformed.json",
            {
                "intel.com/vdpa_mlx_virtio": {"0000:3b:02.2": []},
                "intel.com/vdpa_mlx_vhost": {"0000:3b:02.3": ["/dev/vhost-vdpa-0"]},
            },
        ),
        (
            "deployments.json",
            {
                "intel.com/intel_sriov_netdevice": {"0000:af:02.0": []},
                "intel.com/intel_sriov_dpdk": {},  # the physical functions have other names
                "intel.com/mlnx_sriov_rdma": {},  # requires the driver mlx5_ib, which no function has
                "intel.com/brcm_sriov_bnxt": {},
            },
        ),
    ],
)
async def test_published_sriov_configurations_give_pods_the_same_devices(
    tree: Tree, socket_dir: Path, tmp_path: Path, file: str, expected: dict[str, dict[str, list[str]]]
) -> None:
    """Ids, variables and nodes for a pod that requests all devices of a resource."""
    config = loads(converted(tree, "sriov-network-device-plugin", file).encode())
    assert [each.name for each in config.resources] == list(expected)
    async with plugins_of(tree.host, config.resources, tmp_path, socket_dir) as offering:
        for number, (name, functions) in enumerate((x, y) for x, y in expected.items() if y):
            container = await offering.allocate(f"pod-{number}", name, len(functions))
            assert sorted(container.ids) == list(functions)
            variable = f"PCIDEVICE_{name.upper().translate(str.maketrans('./', '__'))}"
            assert sorted(container.env[variable].split(",")) == list(functions)
            assert f"{variable}_INFO" in container.env
            assert container.nodes == sorted({path for nodes in functions.values() for path in nodes})
        assert not any(offering.node.allocatable().get(name) for name, functions in expected.items() if not functions)


@pytest.mark.parametrize("file", ["default.yaml", "rpi.yaml", "xavier.yaml"])
def test_published_smarter_configurations_offer_the_same_nodes(tree: Tree, file: str) -> None:
    found = published(tree, "smarter-device-manager", file)
    assert {name: nodes(devices) for name, devices in found.items() if devices} == {
        "snd": [[f"/dev/snd/{name}C{number}{rest}" for name, number, rest in sorted(SOUND)]],
        "gpiomem": [["/dev/gpiomem"]],
        "hci0": [["/dev/hci0"]],
        "ttyUSB0": [["/dev/ttyUSB0"]],
        "vchiq": [["/dev/vchiq"]],
        "video0": [["/dev/video0"]],
    }


def test_recorded_machine_offers_only_existing_nodes() -> None:
    machine = Host(RECORDED)
    text = """[{devicematch: '^ttyS[0-9]*$', nummaxdevices: 1}, {devicematch: '^(fuse|kvm)$', nummaxdevices: 4}]"""
    config = loads(convert(text.encode(), "conf.yaml", machine).text().encode())
    assignment = assign(scan(machine, (*READERS, paths_reader(config.path_globs))), config.resources)
    found = {name: nodes(devices) for name, devices in assignment.devices.items()}
    assert found == {f"smarter-devices/{name}": [[f"/dev/{name}"]] for name in ("ttyS0", "fuse", "kvm")}


async def test_published_generic_arguments_give_pods_the_same_nodes(
    tree: Tree, socket_dir: Path, tmp_path: Path
) -> None:
    """All except `capture`: its nodes belong to `audio`, an earlier resource."""
    config = loads(converted(tree, "generic-device-plugin", "args.json").encode())
    everything = [f"/dev/snd/{name}C{number}{rest}" for name, number, rest in sorted(SOUND)]
    async with plugins_of(tree.host, config.resources, tmp_path, socket_dir) as offering:
        assert (await offering.allocate("serial", "squat.ai/serial", 2)).nodes == ["/dev/rfcomm0", "/dev/ttyUSB0"]
        assert (await offering.allocate("video", "squat.ai/video")).nodes == ["/dev/video0"]
        for user in ("first", "second"):
            assert (await offering.allocate(f"{user}-fuse", "squat.ai/fuse")).nodes == ["/dev/fuse"]
            assert (await offering.allocate(f"{user}-audio", "squat.ai/audio")).nodes == everything


def test_shared_rdma_devices_are_allocated_together(tmp_path: Path) -> None:
    """As in that plugin, every container gets all devices of its pool."""
    tree = Tree(tmp_path / "root")
    _network(tree)
    text = """{"configList": [{"resourceName": "hca", "rdmaHcaMax": 3, "selectors": {"vendors": ["15b3", "8086"]}}]}"""
    rdma(tree, "/sys/devices/pci0000:af/0000:af:02.0", "irdma0", 4)
    (both,) = offered(tree, convert(text.encode(), "rdma.json", tree.host).text())["hca"]
    assert {node.path for node in both.devnodes} >= {"/dev/infiniband/uverbs3", "/dev/infiniband/uverbs4"}
