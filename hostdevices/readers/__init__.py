"""One reader per device class; `READERS` is the catalogue in the order in which a scan runs them.

Kinds and their attributes. An attribute is there only where the host says it; `?` marks a bool that is always there.
Ids of vendors and models are lower-case hexadecimal digits without 0x ("8086", "020000"). Texts are cut at 64 bytes
with an ellipsis. A value that the kernel writes in another form than it should is a `Problem` of that device.

Every kind: `name` (the kernel's name today), `bus` ("pci", "usb", "platform", "virtual"), `driver`,
`dangerous` (true: offered only to a resource that says `dangerous: true`), and
`resource.kubernetes.io/pcieRoot`, `resource.kubernetes.io/numaNode` (int).
Kinds that sit on a PCI function (gpu, accel, qat, dsa, nic, rdma, vfio, mdev, nvme, and any other on `bus` "pci") also:
`resource.kubernetes.io/pciBusID`, `vendor`, `device`, `sriov` ("pf", "vf"), `pf` (PCI address), `vfIndex`.
Kinds that sit on a USB device (`bus` "usb") also: `vendor`, `product`, `serial`, `port` (chain, "2.3"), `interface`.

| kind | one device per | attributes of its own |
|---|---|---|
| misc | /sys/class/misc entry with a node: kvm, fuse, tun | - |
| pci | PCI function | `class` "020000", `subsystemVendor`, `subsystemDevice`, `revision`, `iommuGroup` (int), `totalVFs`, `numVFs`, `uplink` (true) |
| gpu | GPU, or MIG instance | `type`? "gpu", "mig"; `vendor`, `model`, `uuid`, `index`, `driverVersion` (version), `memory` (bytes), `gfx`, `computePartition`, `memoryPartition`, `render`? (has a render node), `gpuInstance`, `computeInstance` |
| accel | accel, habanalabs, neuron, apex class device | `type` (the class), `module` |
| qat | QAT function | `services`, `state` |
| dsa | enabled user work queue of DSA or IAA | `type` "dsa", "iax"; `mode` "dedicated", "shared"; `size`, `priority`, `label` |
| nic | network interface | `mac`, `mtu`, `speed` (Mbit/s), `carrier`?, `operstate`, `linkType` "ethernet", "infiniband", "loopback", `devType` "bond", "wlan", `virtual`?, `uplink`? (carries a default route: never offered), `devPort`, `physPort`, `physSwitch`, `pfName`, `master` |
| rdma | RDMA device with its uverbs, umad, issm, rdma_cm nodes | `nodeType`, `nodeGUID`, `sysImageGUID`, `hcaType`, `boardID`, `firmware` (version), `ports`, `linkLayer`, `state`, `physState`, `rate`, `netdev` |
| vfio | IOMMU group held by a vfio driver, or vfio cdev | `class`, `iommuGroup`, `functions` (int), `noiommu`?, `viable`?, `iommufd`? |
| mdev | mediated device | `uuid`, `type`, `iommuGroup` |
| usb | USB device, no root hubs | `manufacturer`, `model`, `class`, `interfaceClasses` "03,0e", `speed` (Mbit/s), `revision` |
| tty | serial port with hardware behind it | `type` "serial", "usb"... see `bus` |
| video | video4linux node | `model`, `index` |
| media | media controller | `model` |
| sound | sound card, all its nodes | `card` (the card's id), `capture`?, `playback`? |
| input | event node | `model`, `phys`, `unique`, `vendor`, `product` |
| hidraw | hidraw node | `model`, `phys`, `unique`, `vendor`, `product` |
| i2c, spi, gpio, tpm, watchdog, ptp, pps, rtc, uio, iio, dma_heap, lirc, cec | class device with a node | `model` (what the driver calls it), `version` (tpm) |
| block | disk, partition, loop device; always `dangerous` | `size` (bytes), `readOnly`?, `removable`?, `model`, `serial`, `wwid`, `partition` (int) |
| nvme | NVMe controller; always `dangerous` | `model`, `serial`, `firmware` (text), `transport`, `state` |
| path | file below /dev that a configured glob matches | `path`, `subsystem` |
"""
# ruff: noqa: E501 - the table is read as one

from hostdevices.readers.misc import MISC
from hostdevices.readers.reader import Finding, Reader

READERS: tuple[Reader, ...] = (MISC,)

__all__ = ["READERS", "Finding", "Reader"]
