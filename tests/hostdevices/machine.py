"""A made-up machine with at least one device of every kind, without duplicates."""

from pathlib import Path

from tests.hostdevices.tree import Tree

GPU_UUID = "GPU-1b2c3d4e-0000-1111-2222-333344445555"
MDEV_UUID = "83b8f4f2-509f-382f-3c1e-e6bfe0fa1001"


def build_machine(root: Path) -> Tree:
    """Create the machine's tree below `root`."""
    tree = Tree(root)
    _misc(tree)
    _gpus(tree)
    _accelerators(tree)
    _network(tree)
    _vfio(tree)
    _usb(tree)
    _small(tree)
    _storage(tree)
    return tree


def _misc(tree: Tree) -> None:
    for name, node, numbers in (
        ("kvm", "kvm", "10:232"),
        ("tun", "net/tun", "10:200"),
        ("rdma_cm", "infiniband/rdma_cm", "10:58"),
    ):
        tree.device(f"/sys/devices/virtual/misc/{name}", group="class/misc", node=node, numbers=numbers)


def _gpus(tree: Tree) -> None:
    intel = tree.pci(
        "0000:00:02.0",
        vendor="8086",
        device="56c0",
        pci_class="030000",
        driver="xe",
        tile0__physical_vram_size_bytes=1 << 34,
    )
    tree.child(intel, "drm/card0", group="class/drm", node="dri/card0", numbers="226:0")
    tree.child(intel, "drm/renderD128", group="class/drm", node="dri/renderD128", numbers="226:128")
    tree.device(f"{intel}/drm/card0/card0-HDMI-A-1", group="class/drm")

    amd = tree.pci(
        "0000:c1:00.0",
        root="pci0000:c0",
        bridges=("0000:c0:01.0",),
        vendor="1002",
        device="740f",
        pci_class="038000",
        driver="amdgpu",
        numa_node=1,
        unique_id="9f8e7d6c5b4a3920",
        mem_info_vram_total=68702699520,
        current_compute_partition="SPX",
        current_memory_partition="NPS1",
        product_name="Instinct MI210",
        ras__umc_err_count="ue: 0\nce: 0",
    )
    tree.child(amd, "drm/card1", group="class/drm", node="dri/card1", numbers="226:1")
    tree.child(amd, "drm/renderD129", group="class/drm", node="dri/renderD129", numbers="226:129")
    tree.device("/sys/devices/virtual/kfd/kfd", group="class/kfd", node="kfd", numbers="235:0")
    tree.file("/sys/devices/virtual/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 64\nsimd_count 0")
    tree.file(
        "/sys/devices/virtual/kfd/kfd/topology/nodes/1/properties",
        "cpu_cores_count 0\nsimd_count 416\ngfx_target_version 90010\ndrm_render_minor 129\nlocation_id 49408",
    )

    tree.pci(
        "0000:81:00.0",
        root="pci0000:80",
        vendor="10de",
        device="20b5",
        pci_class="030200",
        driver="nvidia",
        numa_node=1,
    )
    tree.file(
        "/proc/driver/nvidia/gpus/0000:81:00.0/information",
        f"Model: \t\t NVIDIA A100 80GB PCIe\nIRQ:   \t\t 120\nGPU UUID: \t {GPU_UUID}\nDevice Minor: \t 3",
    )
    tree.file(
        "/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 2023"
    )
    for name, numbers in (("nvidia3", "195:3"), ("nvidiactl", "195:255"), ("nvidia-uvm", "511:0")):
        tree.node(f"/dev/{name}", numbers)
    capabilities = "/proc/driver/nvidia/capabilities/gpu3/mig"
    for folder, minor in (("gi1", 12), ("gi1/ci0", 13), ("gi2", 21), ("gi2/ci0", 22)):
        tree.file(
            f"{capabilities}/{folder}/access", f"DeviceFileMinor: {minor}\nDeviceFileMode: 256\nDeviceFileModify: 1"
        )
        tree.node(f"/dev/nvidia-caps/nvidia-cap{minor}", f"509:{minor}")


def mi300x(tree: Tree, mode: str, partitions: int) -> None:
    """Create a GPU that can have four partitions, as amdgpu and kfd show it (recorded on an MI300X in CPX mode)."""
    gpu = tree.pci(
        "0000:05:00.0",
        root="pci0000:00",
        vendor="1002",
        device="74a1",
        driver="amdgpu",
        numa_node=1,
        unique_id="e3a9c3f6b2d1a0f1",
        mem_info_vram_total=206141652992,
        product_name="AMD Instinct MI300X",
        current_compute_partition=mode,
        current_memory_partition="NPS1",
    )
    tree.child(gpu, "drm/renderD128", group="class/drm", node="dri/renderD128", numbers="226:128")
    tree.device("/sys/devices/virtual/kfd/kfd", group="class/kfd", node="kfd", numbers="235:0")
    for number in range(1, 4):
        parent = f"/sys/devices/platform/amdgpu_xcp_{29 + number}"
        name = f"renderD{128 + number}"
        tree.child(parent, f"drm/{name}", group="class/drm", node=f"dri/{name}", numbers=f"226:{128 + number}")
    for number in range(partitions):
        facts = f"domain 0\nlocation_id {0x0500 + number}\ndrm_render_minor {128 + number}\nhive_id 11930465"
        tree.file(
            f"/sys/devices/virtual/kfd/kfd/topology/nodes/{2 + number}/properties",
            f"simd_count 152\nvendor_id 4098\ngfx_target_version 90402\n{facts}",
        )


def _accelerators(tree: Tree) -> None:
    gaudi = tree.pci(
        "0000:b3:00.0", root="pci0000:b0", vendor="1da3", device="1020", pci_class="120000", driver="habanalabs"
    )
    for name, node in (("accel0", "accel/accel0"), ("accel_controlD0", "accel/accel_controlD0")):
        tree.child(gaudi, f"accel/{name}", group="class/accel", node=node)
    tree.file(f"{gaudi}/module_id", 5)
    tree.file(f"{gaudi}/status", "operational")

    qat = tree.pci(
        "0000:6b:00.0", root="pci0000:6a", device="4940", pci_class="0b4000", driver="4xxx", sriov_totalvfs=16
    )
    tree.file(f"{qat}/qat/state", "up")
    tree.file(f"{qat}/qat/cfg_services", "sym;asym")
    virtual = tree.virtual_function(qat, "0000:6b:00.1", 0, device="4941", pci_class="0b4000", driver="vfio-pci")
    tree.iommu_group(30, virtual)
    tree.device("/sys/devices/virtual/vfio/30", group="class/vfio", node="vfio/30")

    dsa = tree.pci("0000:6a:01.0", root="pci0000:6a", device="0b25", pci_class="088000", driver="idxd", numa_node=0)
    tree.device(f"{dsa}/dsa0", group="bus/dsa/devices", state="enabled", errors="0x0 0x0 0x0 0x0")
    tree.device(
        f"{dsa}/dsa0/wq0.0",
        group="bus/dsa/devices",
        state="enabled",
        type="user",
        mode="shared",
        size=16,
        priority=10,
        name="app",
    )
    tree.device(f"{dsa}/dsa0/wq0.1", group="bus/dsa/devices", state="disabled", type="none")
    tree.node("/dev/dsa/wq0.0", "238:0")


def _network(tree: Tree) -> None:
    connectx = tree.pci(
        "0000:3b:00.0",
        root="pci0000:3a",
        bridges=("0000:3a:00.0",),
        vendor="15b3",
        device="101d",
        pci_class="020000",
        driver="mlx5_core",
        numa_node=0,
        sriov_totalvfs=8,
    )
    interface(tree, connectx, "ens1f0np0", mac="b8:ce:f6:00:00:01", speed=100000, phys_port_name="p0")
    rdma(tree, connectx, "mlx5_0", 0)
    virtual = tree.virtual_function(
        connectx, "0000:3b:00.2", 0, vendor="15b3", device="101e", pci_class="020000", driver="mlx5_core", numa_node=0
    )
    interface(tree, virtual, "ens1f0v0", mac="00:00:00:00:00:00")
    offloaded = tree.virtual_function(
        connectx, "0000:3b:00.3", 1, vendor="15b3", device="101e", pci_class="020000", driver="mlx5_core", numa_node=0
    )
    vdpa = tree.device(f"{offloaded}/vdpa0", group="bus/vdpa/devices", driver="vdpa/vhost_vdpa")
    tree.device(f"{vdpa}/vhost-vdpa-0", node="vhost-vdpa-0")
    uplink = tree.pci("0000:00:1f.6", vendor="8086", device="15be", pci_class="020000", driver="e1000e")
    eno1 = interface(tree, uplink, "eno1", mac="54:bf:64:00:00:01", speed=1000)
    bridge = tree.device(
        "/sys/devices/virtual/net/br0",
        group="class/net",
        uevent={"DEVTYPE": "bridge"},
        type=1,
        address="54:bf:64:00:00:01",
        carrier=1,
        mtu=1500,
    )
    tree.link(f"{bridge}/lower_eno1", eno1)
    tree.link(f"{eno1}/master", bridge)
    tree.device("/sys/devices/virtual/net/lo", group="class/net", type=772, mtu=65536, carrier=1)
    tree.file(
        "/proc/net/route",
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
        "br0\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0",
    )


def interface(tree: Tree, parent: str, name: str, *, mac: str, speed: int = -1, **files: str | bytes | int) -> str:
    """Create a network interface of a parent device."""
    return tree.child(
        parent,
        f"net/{name}",
        group="class/net",
        uevent={"INTERFACE": name},
        type=1,
        address=mac,
        mtu=1500,
        operstate="up",
        carrier=1,
        flags="0x1003",
        speed=speed,
        dev_port=files.pop("dev_port", 0),
        carrier_down_count=1,
        **files,
    )


def rdma(tree: Tree, parent: str, name: str, number: int) -> str:
    """Create an RDMA device of a parent device, with its verbs and management nodes."""
    syspath = tree.child(
        parent,
        f"infiniband/{name}",
        group="class/infiniband",
        node_type="1: CA",
        node_guid="b8ce:f603:0000:0001",
        fw_ver="22.35.2000",
        ports__1__state="4: ACTIVE",
        ports__1__phys_state="5: LinkUp",
        ports__1__link_layer="Ethernet",
        ports__1__rate="100 Gb/sec (4X EDR)",
        ports__1__counters__link_downed=2,
    )
    for node_class, node in (("infiniband_verbs", "uverbs"), ("infiniband_mad", "umad"), ("infiniband_mad", "issm")):
        tree.child(
            parent,
            f"{node_class}/{node}{number}",
            group=f"class/{node_class}",
            node=f"infiniband/{node}{number}",
            ibdev=name,
        )
    return syspath


def _vfio(tree: Tree) -> None:
    tree.device("/sys/devices/virtual/misc/vfio", group="class/misc", node="vfio/vfio", numbers="10:196")
    functions = [
        tree.pci(
            f"0000:41:00.{n}",
            root="pci0000:40",
            vendor="10de",
            device=device,
            pci_class=code,
            driver="vfio-pci",
            numa_node=1,
        )
        for n, device, code in ((0, "2204", "030000"), (1, "1aef", "040300"))
    ]
    tree.iommu_group(41, *functions)
    tree.device("/sys/devices/virtual/vfio/41", group="class/vfio", node="vfio/41")

    parent = tree.pci(
        "0000:65:00.0", root="pci0000:64", vendor="10de", device="1eb8", pci_class="030200", driver="nvidia-vgpu"
    )
    mdev = tree.device(f"{parent}/{MDEV_UUID}", group="bus/mdev/devices", driver="mdev/vfio_mdev")
    tree.file(f"{parent}/mdev_supported_types/nvidia-222/name", "GRID T4-1B")
    tree.link(f"{mdev}/mdev_type", f"{parent}/mdev_supported_types/nvidia-222")
    tree.iommu_group(52, mdev)
    tree.device("/sys/devices/virtual/vfio/52", group="class/vfio", node="vfio/52")


def _usb(tree: Tree) -> None:
    controller = tree.pci("0000:00:14.0", pci_class="0c0330", driver="xhci_hcd", numa_node=0)
    for bus in (1, 2):
        tree.device(f"{controller}/usb{bus}", group="bus/usb/devices", idVendor="1d6b", idProduct="0002")
    adapter = tree.usb(
        controller, "1-2", vendor="0403", product="6001", serial="A50285BI", manufacturer="FTDI", interfaces=("ff",)
    )
    port = tree.device(f"{adapter}/1-2:1.0/ttyUSB0", driver="usb-serial/ftdi_sio", port_number=0)
    tree.child(port, "tty/ttyUSB0", group="class/tty", node="ttyUSB0", numbers="188:0")

    webcam = tree.usb(
        controller,
        "1-3",
        vendor="046d",
        product="082d",
        interfaces=("0e", "0e", "01"),
        manufacturer="Logitech",
    )
    for index in (0, 1):
        tree.child(
            f"{webcam}/1-3:1.0",
            f"video4linux/video{index}",
            group="class/video4linux",
            node=f"video{index}",
            name="HD Pro Webcam C920",
            index=index,
        )
    tree.device(f"{webcam}/1-3:1.0/media0", group="bus/media/devices", node="media0", model="HD Pro Webcam C920")
    sound(tree, f"{webcam}/1-3:1.2", 1, "C920", ("controlC1", "pcmC1D0c"))

    key = tree.usb(controller, "1-4", vendor="1050", product="0120", interfaces=("03",))
    hid = tree.device(
        f"{key}/1-4:1.0/0003:1050:0120.000A",
        uevent={
            "HID_ID": "0003:00001050:00000120",
            "HID_NAME": "Yubico Security Key",
            "HID_PHYS": "usb-0000:00:14.0-4/input0",
        },
    )
    tree.child(hid, "hidraw/hidraw5", group="class/hidraw", node="hidraw5")


def sound(tree: Tree, parent: str, number: int, card: str, nodes: tuple[str, ...]) -> str:
    """Create a sound card of a parent device."""
    syspath = tree.child(parent, f"sound/card{number}", group="class/sound", id=card, number=number)
    for node in nodes:
        tree.device(f"{syspath}/{node}", group="class/sound", node=f"snd/{node}")
    return syspath


def _small(tree: Tree) -> None:
    audio = tree.pci("0000:00:1f.3", pci_class="040300", driver="snd_hda_intel")
    sound(tree, audio, 0, "PCH", ("controlC0", "pcmC0D0p", "pcmC0D0c", "hwC0D0"))
    tree.device("/sys/devices/virtual/sound/timer", group="class/sound", node="snd/timer", numbers="116:33")

    uart = tree.device("/sys/devices/pnp0/00:05", driver="pnp/serial")
    for number, kind in ((0, 4), (1, 0)):
        tree.child(
            uart, f"tty/ttyS{number}", group="class/tty", node=f"ttyS{number}", numbers=f"4:{64 + number}", type=kind
        )
    tree.device("/sys/devices/virtual/tty/tty1", group="class/tty", node="tty1", numbers="4:1")

    keyboard = tree.device(
        "/sys/devices/platform/i8042/serio0/input/input3",
        group="class/input",
        name="AT Translated Set 2 keyboard",
        phys="isa0060/serio0/input0",
        id__vendor="0001",
        id__product="0001",
    )
    tree.child(keyboard, "event3", group="class/input", node="input/event3", numbers="13:67")

    soc = "/sys/devices/platform/soc"
    bus = tree.device(f"{soc}/fe804000.i2c/i2c-1", group="bus/i2c/devices", name="bcm2835 (i2c@fe804000)")
    tree.child(bus, "i2c-dev/i2c-1", group="class/i2c-dev", node="i2c-1", name="bcm2835 (i2c@fe804000)")
    spi = tree.device(f"{soc}/fe204000.spi/spi_master/spi0/spi0.1", group="bus/spi/devices", modalias="spi:spidev")
    tree.child(spi, "spidev/spidev0.1", group="class/spidev", node="spidev0.1")
    tree.device(f"{soc}/fe200000.gpio/gpiochip0", group="bus/gpio/devices", node="gpiochip0", label="pinctrl-bcm2711")
    tree.device(f"{soc}/adc/iio:device0", group="bus/iio/devices", node="iio:device0", name="mcp3008")

    tpm = tree.device("/sys/devices/platform/MSFT0101:00", driver="platform/tpm_crb", description="TPM 2.0 Device")
    tree.child(tpm, "tpm/tpm0", group="class/tpm", node="tpm0", tpm_version_major=2)
    tree.child(tpm, "tpmrm/tpmrm0", group="class/tpmrm", node="tpmrm0")
    dog = tree.device("/sys/devices/platform/iTCO_wdt.1.auto", driver="platform/iTCO_wdt")
    tree.child(dog, "watchdog/watchdog0", group="class/watchdog", node="watchdog0", identity="iTCO_wdt")
    nic = "/sys/devices/pci0000:00/0000:00:1f.6"
    tree.child(nic, "ptp/ptp0", group="class/ptp", node="ptp0", clock_name="e1000e")
    tree.device("/sys/devices/virtual/pps/pps0", group="class/pps", node="pps0", name="ktimer")
    clock = tree.device("/sys/devices/pnp0/00:03", driver="pnp/rtc_cmos")
    tree.child(clock, "rtc/rtc0", group="class/rtc", node="rtc0", name="rtc_cmos 00:03")
    tree.child(audio, "uio/uio0", group="class/uio", node="uio0", name="uio_pci_generic")
    tree.device("/sys/devices/virtual/dma_heap/system", group="class/dma_heap", node="dma_heap/system")
    remote = tree.device(f"{soc}/ir-receiver/rc/rc0")
    tree.child(remote, "lirc0", group="class/lirc", node="lirc0")
    tree.device(f"{soc}/hdmi/cec0", group="class/cec", node="cec0")


def _storage(tree: Tree) -> None:
    drive = tree.pci("0000:5e:00.0", root="pci0000:5d", vendor="144d", device="a80a", pci_class="010802", driver="nvme")
    controller = tree.child(
        drive,
        "nvme/nvme0",
        group="class/nvme",
        node="nvme0",
        model="SAMSUNG MZQL2",
        serial="S64GNE0R",
        firmware_rev="GDC5602Q",
        transport="pcie",
        state="live",
    )
    disk = tree.child(
        controller,
        "nvme0n1",
        group="class/block",
        node="nvme0n1",
        kind="b",
        size=3750748848,
        ro=0,
        removable=0,
        wwid="eui.36344730",
    )
    tree.device(f"{disk}/nvme0n1p1", group="class/block", node="nvme0n1p1", kind="b", size=2048, ro=0, partition=1)
    tree.device(
        "/sys/devices/virtual/block/loop0", group="class/block", node="loop0", numbers="7:0", kind="b", size=0, ro=0
    )
