"""Classes of small devices that are all alike: one node, a place, and a few words about the model.

A class is a row of the table; what two classes say differently is a function of the row.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial

from msgspec import Struct, structs

from hostdevices.device import AttributeValue, Device, Devnode
from hostdevices.host import Host
from hostdevices.readers.place import Places
from hostdevices.readers.reader import Finding, Reader, each, entries
from hostdevices.readers.sysfs import devnodes, hexadecimal, known, natural, text, text_value, uevent

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
    _, vendor, product = [*facts.get("HID_ID", "").lower().split(":"), "", "", ""][:3]
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


def _chip_select(_host: Host, syspath: str) -> tuple[str, ...]:
    return (f"cs{syspath.rpartition('.')[2]}",)


class SmallClass(Struct, frozen=True):
    """A row: where the class lies, which of its entries are meant, and what they say.

    `role` tells devices at one place apart where the kernel numbers them by itself. `more_nodes` are handed out with
    the device's own. `subsystems` are those whose events concern it besides its own.
    """

    kind: str
    folder: str
    names: str  # a regular expression
    attributes: Callable[[Host, str], Attributes]
    role: Callable[[Host, str], tuple[str, ...]] = _nothing
    more_nodes: Callable[[Host, str], tuple[Devnode, ...]] = _nothing
    subsystems: tuple[str, ...] = ()


SMALL_CLASSES: tuple[SmallClass, ...] = (
    SmallClass(
        "video", "/sys/class/video4linux", r"(video|v4l-subdev|vbi|radio|swradio|v4l-touch)\d+", _video, _video_role
    ),
    SmallClass("media", "/sys/bus/media/devices", r"media\d+", _model("model")),
    SmallClass("input", "/sys/class/input", r"event\d+", _input),
    SmallClass("hidraw", "/sys/class/hidraw", r"hidraw\d+", _hidraw),
    SmallClass("i2c", "/sys/class/i2c-dev", r"i2c-\d+", _model("name", "device/name")),
    SmallClass("spi", "/sys/class/spidev", r"spidev\d+\.\d+", _model("device/modalias"), _chip_select),
    SmallClass("gpio", "/sys/bus/gpio/devices", r"gpiochip\d+", _model("label", "device/label")),
    SmallClass("tpm", "/sys/class/tpm", r"tpm\d+", _tpm, more_nodes=_resource_manager, subsystems=("tpmrm",)),
    SmallClass("watchdog", "/sys/class/watchdog", r"watchdog\d+", _model("identity")),
    SmallClass("ptp", "/sys/class/ptp", r"ptp\d+", _model("clock_name")),
    SmallClass("pps", "/sys/class/pps", r"pps\d+", _model("name")),
    SmallClass("rtc", "/sys/class/rtc", r"rtc\d+", _model("name")),
    SmallClass("uio", "/sys/class/uio", r"uio\d+", _model("name")),
    SmallClass("iio", "/sys/bus/iio/devices", r"iio:device\d+", _model("label", "name")),
    SmallClass("dma_heap", "/sys/class/dma_heap", r".+", _model("name")),
    SmallClass("lirc", "/sys/class/lirc", r"lirc\d+", _lirc),
    SmallClass("cec", "/sys/class/cec", r"cec\d+", _model("name")),
)


def read_class(row: SmallClass, host: Host) -> Iterator[Finding]:
    """Yield one device per entry of a class that has a node."""
    places = Places(host)

    def device(syspath: str) -> Device | None:
        name = syspath.rpartition("/")[2]
        place = places.of(syspath)
        if place.attributes["bus"] == "virtual":
            # Without a place, what the driver says of itself is all that does not count up.
            said = map(row.attributes(host, syspath).get, ("unique", "phys", "model"))
            place = structs.replace(place, facts=next(((str(x),) for x in said if x), place.facts))
        identity, within = places.identify(row.kind, place, *row.role(host, syspath))
        nodes = devnodes(host, syspath)
        if not nodes:
            return None
        return Device(
            id=identity,
            kind=row.kind,
            name=name,
            syspath=syspath,
            attributes=known({"name": name, **place.attributes, **row.attributes(host, syspath)}),
            devnodes=nodes + row.more_nodes(host, syspath),
            numa_nodes=place.numa_nodes,
            within=within,
        )

    wanted = re.compile(row.names)
    yield from each(entries(host, row.folder, lambda x: wanted.fullmatch(x) is not None), device)


def _reader(row: SmallClass) -> Reader:
    subsystem = row.folder.removeprefix("/sys/class/").removeprefix("/sys/bus/").removesuffix("/devices")
    return Reader(row.kind, frozenset({subsystem, "usb", *row.subsystems}), partial(read_class, row))


SMALL: tuple[Reader, ...] = tuple(map(_reader, SMALL_CLASSES))
