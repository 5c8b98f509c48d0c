"""One reader per device class; `READERS` is the catalogue in the order in which a scan runs them.

Kinds and their attributes. An attribute is there only where the host says it; `?` marks a bool that is always there.
Ids of vendors and models are lower-case hexadecimal digits without 0x ("8086", "020000"). Texts are cut at 64 bytes
with an ellipsis. A value that the kernel writes in another form than it should is a `Problem` of that device.

Every kind: `name` (the kernel's name today), `bus` ("pci", "usb", "platform", "virtual", "mdev"), `driver`, and
`resource.kubernetes.io/pcieRoot`, `resource.kubernetes.io/numaNode` (int).
Kinds that sit on a PCI function (gpu, accel, qat, dsa, nic, rdma, vfio, mdev, nvme, and any other on `bus` "pci") also:
`resource.kubernetes.io/pciBusID`, `vendor`, `device`, `sriov` ("pf", "vf"), `pf` (PCI address), `pfName` (its interface), `vfIndex`.
Kinds that sit on a USB device (`bus` "usb") also: `vendor`, `product`, `serial`, `port` (chain, "2.3"), `interface`.

| kind | one device per | attributes of its own |
|---|---|---|
| misc | /sys/class/misc entry with a node: kvm, fuse, tun | - |
| pci | PCI function | `class` "020000", `subsystemVendor`, `subsystemDevice`, `revision`, `iommuGroup` (int), `totalVFs`, `numVFs`, `uplink` (true) |
| gpu | GPU, or MIG instance | `type`? "gpu", "mig"; `vendor`, `model`, `uuid`, `index`, `driverVersion` (version), `memory` (bytes), `gfx`, `computePartition`, `memoryPartition`, `memoryNode` (NUMA node of its memory), `render`? (has a render node), `partitioned` (true: its MIG instances or virtual functions are the devices); of MIG instances `parentUUID`, `gpuInstance`, `computeInstance` |
| accel | accel, habanalabs, neuron, apex class device | `type` (the class), `module` |
| qat | QAT function that vfio holds | `services`, `state` (of the physical function) |
| dsa | enabled user work queue of DSA or IAA | `type` "dsa", "iax"; `mode` "dedicated", "shared"; `size`, `priority`, `label` |
| nic | network interface | `mac`, `mtu`, `speed` (Mbit/s), `carrier`?, `operstate`, `linkType` "ethernet", "infiniband", "loopback", `devType` "bond", "wlan", `virtual`?, `uplink`? (carries a default route: never offered), `devPort`, `physPort`, `physSwitch`, `master` |
| rdma | RDMA device with its uverbs, umad, issm, rdma_cm nodes | `nodeType`, `nodeGUID`, `sysImageGUID`, `hcaType`, `boardID`, `firmware` (version), `ports`, `linkLayer`, `state`, `physState`, `rate`, `netdev` |
| vfio | IOMMU group held by a vfio driver, or vfio cdev | `class`, `iommuGroup`, `functions` (int), `noiommu`?, `viable`?, `iommufd`? |
| mdev | mediated device | `uuid`, `type`, `model`, `iommuGroup` |
| usb | USB device, no root hubs | `manufacturer`, `model`, `class`, `interfaceClasses` "03,0e", `speed` (Mbit/s), `revision` |
| tty | serial port with hardware behind it | `console` (true: it is the node's console) |
| video | video4linux node | `model`, `index` |
| media | media controller | `model` |
| sound | sound card, all its nodes | `card` (the card's id), `capture`?, `playback`? |
| input | event node | `model`, `phys`, `unique`, `vendor`, `product` |
| hidraw | hidraw node | `model`, `phys`, `unique`, `vendor`, `product` |
| i2c, spi, gpio, tpm, watchdog, ptp, pps, rtc, uio, iio, dma_heap, lirc, cec | class device with a node | `model` (what the driver calls it), `version` (tpm) |
| block | disk, partition, loop device | `size` (bytes), `readOnly`?, `removable`?, `model`, `serial`, `wwid`, `partition` (int) |
| nvme | NVMe controller | `model`, `serial`, `firmwareRevision`, `transport`, `state` |
| path | file below /dev that a configured glob matches | `path`, `subsystem` |
"""
# ruff: noqa: E501 - the table is read as one

from hostdevices.readers.accel import ACCEL
from hostdevices.readers.block import BLOCK, NVME
from hostdevices.readers.classes import SMALL
from hostdevices.readers.gpu import GPU
from hostdevices.readers.intel_io import DSA, QAT
from hostdevices.readers.misc import MISC
from hostdevices.readers.net import NIC
from hostdevices.readers.paths import parts_of_other_devices, paths_reader, read_paths
from hostdevices.readers.pci import PCI
from hostdevices.readers.rdma import RDMA
from hostdevices.readers.reader import Finding, Reader
from hostdevices.readers.sound import SOUND
from hostdevices.readers.tty import TTY
from hostdevices.readers.usb import USB
from hostdevices.readers.vfio import MDEV, VFIO

READERS: tuple[Reader, ...] = (
    MISC,
    PCI,
    GPU,
    ACCEL,
    QAT,
    DSA,
    NIC,
    RDMA,
    VFIO,
    MDEV,
    USB,
    TTY,
    SOUND,
    *SMALL,
    BLOCK,
    NVME,
)

__all__ = ["READERS", "Finding", "Reader", "parts_of_other_devices", "paths_reader", "read_paths"]
