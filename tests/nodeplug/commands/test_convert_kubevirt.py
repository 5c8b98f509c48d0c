"""`nodeplug convert` of KubeVirt's `permittedHostDevices`."""

from pathlib import Path

import pytest

from hostdevices import scan
from nodeplug.config import loads
from tests.hostdevices.machine import MDEV_UUID
from tests.hostdevices.tree import Tree
from tests.nodeplug.commands.converted import converted, resources


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "root")


KUBEVIRT = """
apiVersion: kubevirt.io/v1
kind: KubeVirt
metadata: {name: kubevirt}
spec:
  certificateRotateStrategy: {}
  configuration:
    developerConfiguration: {featureGates: [HostDevices]}
    permittedHostDevices:
      pciHostDevices:
        - {pciVendorSelector: "10DE:20B5", resourceName: nvidia.com/A100}
        - {pciVendorSelector: "8086:6F54", resourceName: intel.com/qat, externalResourceProvider: true}
        - {pciVendorSelector: "10DE", resourceName: nvidia.com/any}
      mediatedDevices:
        - {mdevNameSelector: "GRID_T4-1B", resourceName: nvidia.com/GRID_T4-1B}
      usb:
        - {resourceName: kubevirt.io/stick, selectors: [{vendor: "951", product: "1666"}]}
        - resourceName: kubevirt.io/twice
          selectors: [{vendor: "46f4", product: "1"}, {vendor: 46F4, product: "0001"}]
"""


def test_permitted_host_devices_select_the_same_devices(tree: Tree) -> None:
    result = converted(tree, KUBEVIRT)
    assert result.exit_code == 1
    found = {x.name: x for x in loads(result.stdout.encode()).resources}
    card = tree.pci("0000:41:00.0", vendor="10de", device="20b5", driver="vfio-pci")
    tree.iommu_group(7, card)
    tree.device("/sys/devices/virtual/vfio/7", group="class/vfio", node="vfio/7")
    for address, driver, kind in (("0000:42:00.0", "nvgrace_gpu_vfio_pci", 0), ("0000:43:00.0", "nvidia", 1117)):
        function = tree.pci(address, vendor="10de", device="20b5", driver=driver)
        tree.iommu_group(int(address[6]) + 6, function)
        tree.device(f"/sys/devices/virtual/vfio/{int(address[6]) + 6}", group="class/vfio", node=f"vfio/{address[6]}")
        tree.file(f"{function}/nvidia/current_vgpu_type", kind)
    parent = tree.pci("0000:65:00.0", vendor="10de", device="20b5", driver="nvidia")
    mdev = tree.device(f"{parent}/{MDEV_UUID}", group="bus/mdev/devices")
    tree.file(f"{parent}/mdev_supported_types/nvidia-222/name", "GRID T4-1B")
    tree.link(f"{mdev}/mdev_type", f"{parent}/mdev_supported_types/nvidia-222")
    tree.usb(tree.pci("0000:00:14.0", pci_class="0c0330"), "1-2", vendor="0951", product="1666")
    devices = scan(tree.host).devices.values()
    meant = {name: [x.name for x in devices if not each.selector.mismatch(x)] for name, each in found.items()}
    assert meant == {
        "nvidia.com/A100": ["0000:41:00.0", "0000:43:00.0"],
        "nvidia.com/GRID_T4-1B": [MDEV_UUID],
        "kubevirt.io/stick": ["1-2"],
    }
    assert dict(found["nvidia.com/A100"].env) == {"PCI_RESOURCE_NVIDIA_COM_A100": "{resource.kubernetes.io/pciBusID}"}
    assert found["nvidia.com/GRID_T4-1B"].ids == "uuid"
    for words in (
        "intel.com/qat is left out: another plugin offers it",
        "nvidia.com/any is left out: 10DE is not vendor and device",
        "kubevirt.io/twice is left out: there are several devices with one of its USB ids",
    ):
        assert words in result.stderr


@pytest.mark.parametrize("place", ["spec: {virtualization: %s}", "spec: %s"])
def test_hyperconverged_object_is_converted(tree: Tree, place: str) -> None:
    devices = """{permittedHostDevices: {
      pciHostDevices: [{pciDeviceSelector: "8086:6F54", resourceName: intel.com/qat},
        {pciDeviceSelector: "10DE:1DB6", resourceName: nvidia.com/V100, disabled: true}],
      usbHostDevices: [{resourceName: kubevirt.io/storage, selectors: [{vendor: 46f4, product: "0001"}]}]}}"""
    found = resources(converted(tree, "kind: HyperConverged\n" + place % devices))
    assert list(found) == ["intel.com/qat", "kubevirt.io/storage"]


def test_part_of_a_kubevirt_object_is_converted(tree: Tree) -> None:
    text = "configuration: {permittedHostDevices: {mediatedDevices: [{mdevNameSelector: V5, resourceName: x.io/v}]}}"
    assert list(resources(converted(tree, text))) == list(resources(converted(tree, f"spec: {{{text}}}"))) == ["x.io/v"]
