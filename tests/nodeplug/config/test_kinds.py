"""Keys that cannot apply to any device of a resource's selector are errors of the file."""

import pytest

from tests.nodeplug.config.text import errors_with_settings, one


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "select: usb\nuserspace: nvidia",
            "no device that is selected here (kind: usb) can have a GPU's driver; leave it out, or select GPUs",
        ),
        (
            "select: {kind: [nic, pci]}\nids: uuid",
            "no device that is selected here (kind: nic, pci) can have a UUID; kinds with one: gpu, mdev",
        ),
        (
            "select: usb\ncompat: nvidia",
            "no device that is selected here (kind: usb) can have a UUID, by which NVIDIA's programs know a GPU;"
            " select GPUs",
        ),
        ("select: amd-gpu\nuserspace: nvidia", "this is for NVIDIA's GPUs, and others are selected; leave it out"),
        (
            "select: {kind: gpu, attributes: {vendor: ['8086', '1002']}}\ncompat: nvidia",
            "this is for NVIDIA's GPUs, and others are selected; leave it out",
        ),
        (
            "select: {preset: usb, attributes: {vendor: '0529'}}\ncompat: sriov",
            "no device that is selected here (kind: usb) can have a PCI address, by which Multus knows it; select",
        ),
        ("select: nic\ncompat: kubevirt", "KubeVirt cannot pass a machine a device of kind nic; add `kind: vfio`,"),
        (
            "select: usb-serial\ncompat: kubevirt",
            "KubeVirt cannot pass a machine a device of kind tty; add `kind: vfio`,",
        ),
        (
            "select: gpu\napi: dra\ndra: {interface: move}",
            "no device that is selected here (kind: gpu) can have a network interface; kinds with one: nic,",
        ),
        (
            "select: {kind: pci}\nidentity: port",
            "no device that is selected here (kind: pci) can have a USB port; leave it out",
        ),
        (
            "select: usb\nsharesOf: [{memory: 10Gi}]",
            "no device that is selected here (kind: usb) can have `memory`; say how many shares: `count`",
        ),
        (
            "select: gpu\nsharesOf: [{count: 2}, {select: intel-gpu, count: 3}]",
            "this applies to no device: the entry before it applies to all; put it first, or give the other one"
            " `select`",
        ),
        (
            "select: gpu\ncdi: false\ncdiDevices: ['n.com/gpu={uuid}']",
            "only CDI can add such devices to a container; leave `cdi: false` out",
        ),
        (
            "select: gpu\nuserspace: nvidia\ncdiDevices: ['nvidia.com/gpu={uuid}']",
            "both this and `userspace: nvidia` add the driver's libraries; leave one of them out",
        ),
        ("select: gpu\ncontainerPath: /dev", "no device can be at /dev; use a path below /dev that no container has"),
        ("select: gpu\ncontainerPath: /dev/null", "no device can be at /dev/null; use a path below /dev"),
        ("select: gpu\ncontainerPath: /dev/pts/5", "no device can be at /dev/pts/5; use a path below /dev"),
        (
            "select: {kind: pci}\napi: dra\ncdiDevices: ['n.com/gpu=b']\ndra: {bind: vfio-pci}",
            "a device with another driver is its whole IOMMU group, with the nodes of that; leave it out",
        ),
        ("select: gpu\nonNodes: [Train-1]", "no node can have the name Train-1; lower-case letters, digits, dots"),
        ("select: gpu\nonNodes: ''", "no node can have the name (empty); lower-case letters"),
        ("select: gpu\nnodeSelector: {a b: x}", "no label can have the name a b; as in example.com/pool"),
        ("select: gpu\nnodeSelector: {A.b/c: x}", "no label can have the name A.b/c; as in example.com/pool"),
        ("select: gpu\nnodeSelector: {a: [b, c d]}", "no label can have the value c d; letters, digits, dots"),
    ],
)
def test_keys_that_apply_to_no_device_or_node_are_refused(text: str, message: str) -> None:
    (found,) = errors_with_settings(text)
    assert found.startswith(message)


@pytest.mark.parametrize(
    "text",
    [
        "select: {attributes: {vendor: 10de}}\nids: uuid\nuserspace: nvidia\nidentity: port",
        "select: {any: [usb, mig]}\ncompat: nvidia",
        "select: {any: [amd-gpu, nvidia-gpu]}\nuserspace: nvidia",
        "select: {kind: gpu, attributes: {vendor: '10*'}}\ncompat: nvidia",
        "select: {kind: usb}\napi: dra\ndra: {interface: move}",
        "select: qat\ncompat: kubevirt",
        "select: gpu\nsharesOf: [{select: intel-gpu, count: 3}, {memory: 1Gi}]",
        "select: gpu\nonNodes: ['*.example.com', 'node-[0-9]', 'node-[!a-c]?']",
        "select: gpu\nnodeSelector: {example.com/Pool_1: ['', 'a*', X.y_z-1]}",
        "select: usb\ncontainerPath: /dev/tty0",
    ],
)
def test_keys_that_apply_to_some_devices_are_accepted(text: str) -> None:
    assert one(text).name == "x/y"


def test_hints_contain_no_links() -> None:
    (found,) = errors_with_settings("select: nic\napi: dra\ndra: {interface: true}")
    assert found.endswith(
        "moves into the pod that claims it, and back when the pod ends. An object also defines what a claim may choose."
    )
    (found,) = errors_with_settings("select: gpu\nevictAfterSeconds: 30s")
    assert "[" not in found
