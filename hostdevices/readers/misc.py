"""Singletons of the misc class: kvm, fuse, tun, vhost-net, vsock, rtc and others. Their name is their identity."""

from collections.abc import Iterator

from hostdevices.device import Device
from hostdevices.host import Host
from hostdevices.identity import device_id
from hostdevices.readers.previous_scan import NOTHING, PreviousScan
from hostdevices.readers.reader import Finding, PresetFacts, Reader, each, entries
from hostdevices.readers.sysfs import devnodes, numa_nodes


def read(host: Host, previous: PreviousScan = NOTHING) -> Iterator[Finding]:
    """Yield one device per entry of /sys/class/misc that has a node."""
    known = previous.known(lambda device: device.syspath)

    def singleton(syspath: str) -> Device | None:
        device = known.get(syspath)
        if device is not None and all(host.devnode(node.path) == node for node in device.devnodes):
            return device
        name = syspath.rpartition("/")[2]
        nodes = devnodes(host, syspath)
        if not nodes:
            return None
        return Device(
            id=device_id("misc", name),
            kind="misc",
            name=name,
            syspath=syspath,
            attributes={"name": name, "bus": "virtual"},
            devnodes=nodes,
            numa_nodes=numa_nodes(host, syspath),
        )

    yield from each(entries(host, "/sys/class/misc"), singleton)


MISC = Reader(
    "misc",
    frozenset({"misc"}),
    read,
    read,
    one_per="/sys/class/misc entry with a node: kvm, fuse, tun",
    presets={
        "cuse": PresetFacts("/dev/cuse: character devices made in user space", {"name": "cuse"}, is_dangerous=True),
        "fuse": PresetFacts("/dev/fuse: file systems in user space", {"name": "fuse"}),
        "hwrng": PresetFacts("/dev/hwrng: the hardware's random numbers", {"name": "hw_random"}),
        "kvm": PresetFacts("/dev/kvm: hardware virtualization", {"name": "kvm"}),
        "loop-control": PresetFacts(
            "/dev/loop-control: makes loop devices", {"name": "loop-control"}, is_dangerous=True
        ),
        "nitro-enclaves": PresetFacts("/dev/nitro_enclaves", {"name": "nitro_enclaves"}),
        "sev": PresetFacts("/dev/sev: AMD's encrypted virtual machines", {"name": "sev"}),
        "sgx": PresetFacts("/dev/sgx_enclave: Intel SGX enclaves", {"name": "sgx_enclave"}),
        "sgx-provision": PresetFacts("/dev/sgx_provision: SGX attestation", {"name": "sgx_provision"}),
        "tdx": PresetFacts("/dev/tdx_guest: Intel TDX attestation", {"name": "tdx_guest"}),
        "tun": PresetFacts("/dev/net/tun: network interfaces in user space", {"name": "tun"}),
        "udmabuf": PresetFacts("/dev/udmabuf: DMA buffers from memory", {"name": "udmabuf"}),
        "uinput": PresetFacts("/dev/uinput: input devices made in user space", {"name": "uinput"}, is_dangerous=True),
        "userfaultfd": PresetFacts("/dev/userfaultfd", {"name": "userfaultfd"}),
        "vhost-net": PresetFacts("/dev/vhost-net: fast virtio networks", {"name": "vhost-net"}),
        "vhost-vsock": PresetFacts(
            "/dev/vhost-vsock: sockets to virtual machines, host's side", {"name": "vhost-vsock"}
        ),
        "vsock": PresetFacts("/dev/vsock: sockets between a virtual machine and its host", {"name": "vsock"}),
    },
    can_be_renumbered=False,
)
READERS = (MISC,)
