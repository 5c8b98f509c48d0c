"""Compute accelerators that have a class of their own: accel (NPUs, Gaudi, AIC100, XDNA), habanalabs, Neuron, Coral."""

from collections.abc import Iterator

from hostdevices.device import AttributeValue, Device, Devnode
from hostdevices.host import Host
from hostdevices.readers.place import Places
from hostdevices.readers.reader import Finding, Reader, each, entries
from hostdevices.readers.sysfs import devnodes, known, natural, text

_CLASSES = ("accel", "habanalabs", "neuron_device", "apex")
_CONTROL = "accel_controlD"  # Gaudi's second node of the same card


def read(host: Host) -> Iterator[Finding]:
    """Yield one device per accelerator that has a node."""
    places = Places(host)
    for name in _CLASSES:
        folder = f"/sys/class/{name}"
        controls: dict[str, str] = {}
        for control in entries(host, folder, lambda x: x.startswith(_CONTROL)):
            controls[control.rpartition(_CONTROL)[2]] = control

        def accelerator(syspath: str, name: str = name, controls: dict[str, str] = controls) -> Device | None:
            kernel_name = syspath.rpartition("/")[2]
            place = places.of(syspath)
            identity, within = places.identify("accel", place)
            nodes: tuple[Devnode, ...] = devnodes(host, syspath)
            if not nodes:
                return None
            index = kernel_name.lstrip("acelhndvurop_")
            if index in controls:
                nodes += devnodes(host, controls[index])
            attributes: dict[str, AttributeValue | None] = {
                "name": kernel_name,
                **place.attributes,
                "type": name,
                "model": text(host, f"{syspath}/device/card_type") or text(host, f"{syspath}/device/device_type"),
                "module": natural(host, f"{syspath}/device/module_id"),
            }
            return Device(
                id=identity,
                kind="accel",
                name=kernel_name,
                syspath=syspath,
                attributes=known(attributes),
                devnodes=nodes,
                numa_nodes=place.numa_nodes,
                within=within,
            )

        yield from each(entries(host, folder, lambda x: not x.startswith(_CONTROL)), accelerator)


ACCEL = Reader("accel", frozenset(_CLASSES), read)
