"""Presets: a name for each class of devices that people ask for."""

from collections.abc import Mapping

from msgspec import Struct

from hostdevices.selector import AllOf, AnyOf, Attribute, Kinds, Not, Preset, Selection


class PresetEntry(Struct, frozen=True):
    """What a preset means: `selector` for the program, `help` for people."""

    selector: Selection
    help: str


def preset(name: str) -> Preset:
    """Return the selector with this name. Raises `KeyError` where there is none."""
    return Preset(name, PRESETS[name].selector)


def _kind(kind: str, *selectors: Selection) -> Selection:
    return AllOf((Kinds((kind,)), *selectors)) if selectors else Kinds((kind,))


def _is(name: str, *accepted: bool | int | str) -> Attribute:
    return Attribute(name, accepted)


def _misc(*names: str) -> Selection:
    return _kind("misc", _is("name", *names))


def _gpu(vendor: str) -> Selection:
    return _kind("gpu", _is("vendor", vendor), _is("type", "gpu"), Not(_is("partitioned", True)))


_VF = _is("sriov", "vf")
_NIC = Not(AnyOf((_is("virtual", True), _is("linkType", "loopback"))))

PRESETS: Mapping[str, PresetEntry] = {
    "accel": PresetEntry(_kind("accel"), "compute accelerators: accel class, Gaudi, Neuron, Coral"),
    "amd-gpu": PresetEntry(_gpu("1002"), "GPUs of AMD, each with /dev/kfd"),
    "block": PresetEntry(_kind("block"), "disks, partitions and loop devices (dangerous)"),
    "camera": PresetEntry(
        _kind("video", _is("index", 0)), "what can be captured from: the first node of each video device"
    ),
    "cec": PresetEntry(_kind("cec"), "HDMI CEC adapters"),
    "cuse": PresetEntry(_misc("cuse"), "/dev/cuse: character devices made in user space"),
    "dma-heap": PresetEntry(_kind("dma_heap"), "heaps of DMA buffers"),
    "dsa": PresetEntry(_kind("dsa", _is("type", "dsa")), "user work queues of Intel's Data Streaming Accelerator"),
    "fuse": PresetEntry(_misc("fuse"), "/dev/fuse: file systems in user space"),
    "gpio": PresetEntry(_kind("gpio"), "GPIO chips"),
    "gpu": PresetEntry(
        _gpu("*"), "GPUs of every vendor; those that are partitioned (MIG, SR-IOV) are not offered whole"
    ),
    "hidraw": PresetEntry(_kind("hidraw"), "raw HID devices: security keys, sensors"),
    "hwrng": PresetEntry(_misc("hw_random"), "/dev/hwrng: the hardware's random numbers"),
    "i2c": PresetEntry(_kind("i2c"), "I2C buses"),
    "iaa": PresetEntry(_kind("dsa", _is("type", "iax")), "user work queues of Intel's Analytics Accelerator"),
    "iio": PresetEntry(_kind("iio"), "industrial I/O: converters, sensors"),
    "input": PresetEntry(_kind("input"), "keyboards, pointers, joysticks: event nodes"),
    "intel-gpu": PresetEntry(_gpu("8086"), "GPUs of Intel"),
    "kvm": PresetEntry(_misc("kvm"), "/dev/kvm: hardware virtualization"),
    "lirc": PresetEntry(_kind("lirc"), "infrared receivers and senders"),
    "loop": PresetEntry(_kind("block", _is("name", "loop*")), "loop devices (dangerous)"),
    "loop-control": PresetEntry(_misc("loop-control"), "/dev/loop-control: makes loop devices (dangerous)"),
    "mdev": PresetEntry(_kind("mdev"), "mediated devices, e.g. vGPUs"),
    "media": PresetEntry(_kind("media"), "media controllers"),
    "mig": PresetEntry(_kind("gpu", _is("type", "mig")), "MIG instances of NVIDIA's GPUs"),
    "nic": PresetEntry(_kind("nic", _NIC), "network interfaces with hardware behind them; never the node's uplink"),
    "nitro-enclaves": PresetEntry(_misc("nitro_enclaves"), "/dev/nitro_enclaves"),
    "nvidia-gpu": PresetEntry(_gpu("10de"), "GPUs of NVIDIA"),
    "nvme": PresetEntry(_kind("nvme"), "NVMe controllers (dangerous)"),
    "pps": PresetEntry(_kind("pps"), "pulse-per-second sources"),
    "ptp": PresetEntry(_kind("ptp"), "PTP hardware clocks"),
    "qat": PresetEntry(_kind("qat"), "Intel QuickAssist functions"),
    "rdma": PresetEntry(_kind("rdma"), "RDMA devices with their verbs nodes"),
    "rtc": PresetEntry(_kind("rtc"), "real-time clocks (dangerous)"),
    "serial": PresetEntry(_kind("tty"), "serial ports of every bus"),
    "sev": PresetEntry(_misc("sev"), "/dev/sev: AMD's encrypted virtual machines"),
    "sgx": PresetEntry(_misc("sgx_enclave"), "/dev/sgx_enclave: Intel SGX enclaves"),
    "sgx-provision": PresetEntry(_misc("sgx_provision"), "/dev/sgx_provision: SGX attestation"),
    "sound": PresetEntry(_kind("sound"), "sound cards, each with all its nodes"),
    "spi": PresetEntry(_kind("spi"), "SPI devices"),
    "sriov-vf": PresetEntry(
        AllOf((Kinds(("pci",)), _VF, _is("class", "02*"))), "virtual functions of network cards, whatever their driver"
    ),
    "tdx": PresetEntry(_misc("tdx_guest"), "/dev/tdx_guest: Intel TDX attestation"),
    "tpm": PresetEntry(_kind("tpm"), "TPMs, each with its resource manager's node"),
    "tun": PresetEntry(_misc("tun"), "/dev/net/tun: network interfaces in user space"),
    "udmabuf": PresetEntry(_misc("udmabuf"), "/dev/udmabuf: DMA buffers from memory"),
    "uinput": PresetEntry(_misc("uinput"), "/dev/uinput: input devices made in user space (dangerous)"),
    "uio": PresetEntry(_kind("uio"), "user space I/O devices"),
    "usb": PresetEntry(_kind("usb", Not(_is("class", "09"))), "USB devices, without hubs"),
    "usb-serial": PresetEntry(_kind("tty", _is("bus", "usb")), "USB serial ports"),
    "userfaultfd": PresetEntry(_misc("userfaultfd"), "/dev/userfaultfd"),
    "vfio": PresetEntry(_kind("vfio"), "IOMMU groups held by a vfio driver, each with all its functions"),
    "vhost-net": PresetEntry(_misc("vhost-net"), "/dev/vhost-net: fast virtio networks"),
    "vhost-vsock": PresetEntry(_misc("vhost-vsock"), "/dev/vhost-vsock: sockets to virtual machines, host's side"),
    "video": PresetEntry(_kind("video"), "video4linux nodes, all of them"),
    "vsock": PresetEntry(_misc("vsock"), "/dev/vsock: sockets between a virtual machine and its host"),
    "watchdog": PresetEntry(_kind("watchdog"), "watchdog timers (dangerous)"),
}
