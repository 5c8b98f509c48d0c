"""Classes of similar small devices: one node, a location, and a model.

Each class is a row of the table; a function in the row covers the differences between classes.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from msgspec import Struct, structs

from hostdevices.device import AttributeValue, Device, Devnode
from hostdevices.host import Host
from hostdevices.readers.location import SysfsLocations
from hostdevices.readers.pci import function_above
from hostdevices.readers.reader import Finding, PresetFacts, Reader, attributes, each, entries
from hostdevices.readers.sysfs import devnodes, hexadecimal, known, natural, text, text_value, uevent

_HID = re.compile(r"[0-9A-F]{4}:[0-9A-F]{4}:[0-9A-F]{4}\.[0-9A-F]{4,}")  # bus, vendor, product, a counter

Attributes = dict[str, AttributeValue | None]


def _model(*files: str) -> Callable[[Host, str], Attributes]:
    def read(host: Host, syspath: str) -> Attributes:
        return {"model": next(filter(None, (text(host, f"{syspath}/{file}") for file in files)), None)}

    return read


def _video(host: Host, syspath: str) -> Attributes:
    return {"model": text(host, f"{syspath}/name"), "index": natural(host, f"{syspath}/index")}


def _input(host: Host, syspath: str) -> Attributes:
    device = f"{syspath}/device"
    return {
        "model": text(host, f"{device}/name"),
        "phys": text(host, f"{device}/phys"),
        "unique": text(host, f"{device}/uniq"),
        "vendor": hexadecimal(host, f"{device}/id/vendor", 4),
        "product": hexadecimal(host, f"{device}/id/product", 4),
    }


def _hidraw(host: Host, syspath: str) -> Attributes:
    facts = uevent(host, f"{syspath}/device")
    # The kernel names a HID device by its ids. Its uevent has them too, beside texts from the device itself.
    named = _HID.fullmatch((host.resolve(f"{syspath}/device") or "").rpartition("/")[2])
    identity = named[0].partition(".")[0] if named else facts.get("HID_ID", "")
    _, vendor, product = [*identity.lower().split(":"), "", "", ""][:3]
    return {
        "model": text_value(facts.get("HID_NAME")),
        "phys": text_value(facts.get("HID_PHYS")),
        "unique": text_value(facts.get("HID_UNIQ")),
        "vendor": vendor[-4:],
        "product": product[-4:],
    }


def _tpm(host: Host, syspath: str) -> Attributes:
    return {
        "model": text(host, f"{syspath}/device/description"),
        "version": natural(host, f"{syspath}/tpm_version_major"),
    }


def _lirc(host: Host, syspath: str) -> Attributes:
    return {"model": text_value(uevent(host, f"{syspath}/device").get("DRV_NAME"))}


def _i2c(host: Host, syspath: str) -> Attributes:
    model = next(filter(None, (text(host, f"{syspath}/{file}") for file in ("name", "device/name"))), None)
    # drivers/i2c/busses: i801, piix4 and their like name the adapter of a board's own bus so, and no others do
    return {"model": model, "smbus": True if model and model.startswith("SMBus") else None}


def _uio(host: Host, syspath: str) -> Attributes:
    function = function_above(syspath)
    group = host.link(f"{function}/iommu_group") if function else None
    mode = (host.read(f"/sys/kernel/iommu_groups/{group}/type") if group else None) or "identity"
    has_registers = bool(function and host.list(f"{syspath}/maps"))
    return {
        "model": text(host, f"{syspath}/name"),
        "unconfined": True if has_registers and mode == "identity" else None,
    }


def _resource_manager(host: Host, syspath: str) -> tuple[Devnode, ...]:
    """Return the node through which many programs can use one TPM."""
    number = syspath.rpartition("/tpm")[2]
    return devnodes(host, f"{syspath}/device/tpmrm/tpmrm{number}")


def _nothing(_host: Host, _syspath: str) -> tuple[()]:
    return ()


def _video_role(host: Host, syspath: str) -> tuple[str, ...]:
    kind = re.sub(r"[^a-z].*", "", syspath.rpartition("/")[2].replace("v4l-", "", 1))
    index = natural(host, f"{syspath}/index")
    return (*((kind,) if kind != "video" else ()), *((f"index{index}",) if index else ()))


def _paired_role(host: Host, syspath: str) -> tuple[str, ...]:
    """Distinguish the devices that are paired with one receiver: all have its location, and come and go separately."""
    parts = syspath.split("/")
    depths = [depth for depth, part in enumerate(parts) if _HID.fullmatch(part)]
    if len(depths) < 2:
        return ()
    unique = uevent(host, "/".join(parts[: depths[-1] + 1])).get("HID_UNIQ", "")
    return tuple(filter(None, (parts[depths[-1]].split(":")[2].partition(".")[0].lower(), unique)))


def _chip_select(_host: Host, syspath: str) -> tuple[str, ...]:
    return (f"cs{syspath.rpartition('.')[2]}",)


class SmallClass(Struct, frozen=True):
    """A row: the folder of the class, its relevant entries, and their attributes.

    `facts` reads the attributes, which `described` describes. `help` is that of the preset, which has the kind's name.
    `role` distinguishes devices at one location where the kernel only numbers them. `more_nodes` are allocated with the
    device's own. Events of `subsystems` concern the class besides those of its own. `is_dangerous` is the preset's.
    """

    kind: str
    folder: str
    names: str  # a regular expression
    facts: Callable[[Host, str], Attributes]
    help: str
    described: str = "model text"
    role: Callable[[Host, str], tuple[str, ...]] = _nothing
    more_nodes: Callable[[Host, str], tuple[Devnode, ...]] = _nothing
    subsystems: tuple[str, ...] = ()
    can_be_renumbered: bool = True
    more_presets: Mapping[str, PresetFacts] = {}
    is_dangerous: bool = False


_INPUT = """
    model    text
    phys     text         where it is connected: "usb-0000:00:14.0-3/input0"
    unique   text         its serial number or hardware address
    vendor   hexadecimal
    product  hexadecimal
"""
# Memory-to-memory drivers: decoders, encoders, scalers, and the part of a camera's pipeline after its sensor. Only a
# call distinguishes their nodes from a camera's (VIDIOC_QUERYCAP), for which they would have to be opened.
_MEMORY_TO_MEMORY = (
    "amphion-vpu",
    "bcm2835-codec",
    "bcm2835-isp",
    "cedrus",
    "coda",
    "hantro-vpu",
    "meson-vdec",
    "mtk-mdp3",
    "mtk-vcodec-*",
    "pispbe",
    "qcom-venus-*",
    "rkvdec*",
    "rockchip-rga",
    "rpi-hevc-dec",
    "rpivid",
    "s5p-mfc",
)
_CAMERA = PresetFacts(
    "what can be captured from: the first node of each video device, without codecs",
    {"index": 0, "name": "video*"},
    lacking={"driver": _MEMORY_TO_MEMORY},
)

SMALL_CLASSES: tuple[SmallClass, ...] = (
    SmallClass(
        "video",
        "/sys/class/video4linux",
        r"(video|v4l-subdev|vbi|radio|swradio|v4l-touch)\d+",
        _video,
        "video4linux nodes, all of them",
        described="model text\nindex integer the number of the node among those of its hardware, from 0",
        role=_video_role,
        more_presets={"camera": _CAMERA},
    ),
    SmallClass("media", "/sys/bus/media/devices", r"media\d+", _model("model"), "media controllers"),
    SmallClass(
        "input",
        "/sys/class/input",
        r"event\d+",
        _input,
        "keyboards, pointers, joysticks: event nodes",
        _INPUT,
        role=_paired_role,
    ),
    SmallClass(
        "hidraw",
        "/sys/class/hidraw",
        r"hidraw\d+",
        _hidraw,
        "raw HID devices: security keys, sensors",
        _INPUT,
        role=_paired_role,
    ),
    SmallClass(
        "i2c",
        "/sys/class/i2c-dev",
        r"i2c-\d+",
        _i2c,
        "I2C buses",
        described="model text\nsmbus boolean true if it is the board's own bus, with memory modules and regulators",
    ),
    SmallClass(
        "spi", "/sys/class/spidev", r"spidev\d+\.\d+", _model("device/modalias"), "SPI devices", role=_chip_select
    ),
    SmallClass("gpio", "/sys/bus/gpio/devices", r"gpiochip\d+", _model("label", "device/label"), "GPIO chips"),
    SmallClass(
        "tpm",
        "/sys/class/tpm",
        r"tpm\d+",
        _tpm,
        "TPMs, each with its resource manager's node",
        described="model text\nversion integer 1 or 2",
        more_nodes=_resource_manager,
        subsystems=("tpmrm",),
        is_dangerous=True,
    ),
    SmallClass(
        "watchdog", "/sys/class/watchdog", r"watchdog\d+", _model("identity"), "watchdog timers", is_dangerous=True
    ),
    SmallClass("ptp", "/sys/class/ptp", r"ptp\d+", _model("clock_name"), "PTP hardware clocks"),
    SmallClass("pps", "/sys/class/pps", r"pps\d+", _model("name"), "pulse-per-second sources"),
    SmallClass("rtc", "/sys/class/rtc", r"rtc\d+", _model("name"), "real-time clocks", is_dangerous=True),
    SmallClass(
        "uio",
        "/sys/class/uio",
        r"uio\d+",
        _uio,
        "user space I/O devices",
        described="model text\nunconfined boolean true if no IOMMU confines the DMA of its PCI function",
    ),
    SmallClass(
        "iio", "/sys/bus/iio/devices", r"iio:device\d+", _model("label", "name"), "industrial I/O: converters, sensors"
    ),
    SmallClass(
        "dma_heap", "/sys/class/dma_heap", r".+", _model("name"), "heaps of DMA buffers", can_be_renumbered=False
    ),
    SmallClass("lirc", "/sys/class/lirc", r"lirc\d+", _lirc, "infrared receivers and senders"),
    SmallClass("cec", "/sys/class/cec", r"cec\d+", _model("name"), "HDMI CEC adapters"),
)


def read_class(row: SmallClass, host: Host) -> Iterator[Finding]:
    """Yield one device per entry of a class that has a node."""
    locations = SysfsLocations(host)

    def device(syspath: str) -> Device | None:
        name = syspath.rpartition("/")[2]
        location = locations.of(syspath)
        if location.attributes["bus"] == "virtual":
            # Without a location, only what the driver reports about itself is not counted up.
            names = map(row.facts(host, syspath).get, ("unique", "phys", "model"))
            location = structs.replace(location, facts=next(((str(x),) for x in names if x), location.facts))
        identity, parents = locations.identify(row.kind, location, *row.role(host, syspath))
        nodes = devnodes(host, syspath)
        if not nodes:
            return None
        return Device(
            id=identity,
            kind=row.kind,
            name=name,
            syspath=syspath,
            attributes=known({"name": name, **location.attributes, **row.facts(host, syspath)}),
            devnodes=nodes + row.more_nodes(host, syspath),
            numa_nodes=location.numa_nodes,
            parents=parents,
        )

    wanted = re.compile(row.names)
    yield from each(entries(host, row.folder, lambda x: wanted.fullmatch(x) is not None), device)


def small_reader(row: SmallClass) -> Reader:
    """Return the reader for a row."""
    subsystem = row.folder.removeprefix("/sys/class/").removeprefix("/sys/bus/").removesuffix("/devices")
    return Reader(
        row.kind,
        frozenset({subsystem, "usb", *row.subsystems}),
        partial(read_class, row),
        one_per=f"{subsystem} device with a node",
        attributes=attributes(row.described),
        presets={row.kind.replace("_", "-"): PresetFacts(row.help, is_dangerous=row.is_dangerous), **row.more_presets},
        can_be_renumbered=row.can_be_renumbered,
    )


READERS = tuple(map(small_reader, SMALL_CLASSES))
