"""`compat`: variables and metadata for other programs, in the format of their own plugins."""

import pytest
from msgspec.structs import replace

from deviceplugin.response import container_response
from nodeplug.config import loads
from resources.container_view import ContainerView
from resources.resource import NodeAccess, Resource
from tests.hostdevices.made import device
from tests.nodeplug.config.text import errors_of, errors_with_settings, one

ADDRESS = "{resource.kubernetes.io/pciBusID}"


def named(name: str, text: str) -> Resource:
    (resource,) = loads(f"resources: [{{name: {name}, {text}}}]".encode()).resources
    return resource


def test_sriov_sets_ids_variables_and_attributes() -> None:
    """The id is the address, which Multus passes on. The variable's name is in capitals, with `_` for `.` and `/`."""
    found = named("intel.com/sriov_dpdk", "select: sriov-vf, compat: sriov, api: both")
    assert found.ids == "pciBusID"
    assert found.env == {"PCIDEVICE_INTEL_COM_SRIOV_DPDK": ADDRESS}
    assert found.device_info == "PCIDEVICE_INTEL_COM_SRIOV_DPDK_INFO"
    assert found.dra.attributes == {
        "k8s.cni.cncf.io/deviceID": ADDRESS,
        "k8s.cni.cncf.io/resourceName": "intel.com/sriov_dpdk",
    }


@pytest.mark.parametrize(
    ("select", "env", "attributes"),
    [
        ("vfio", {"PCI_RESOURCE_EXAMPLE_COM_MY-GPU": ADDRESS}, {}),
        ("mdev", {"MDEV_PCI_RESOURCE_EXAMPLE_COM_MY-GPU": "{uuid}"}, {}),
        ("{kind: usb, id: usb-1*}", {"USB_RESOURCE_EXAMPLE_COM_MY-GPU": "{usbAddress}"}, {}),
    ],
)
def test_kubevirt_sets_the_variable_and_the_node_owner(
    select: str, env: dict[str, str], attributes: dict[str, str]
) -> None:
    """It finds the variable by the resource's name, including dashes; its user must be able to open the node."""
    found = named("example.com/my-gpu", f"select: {select}, compat: kubevirt, api: both")
    assert (found.ids, found.env, found.dra.attributes) == ("identity", env, attributes)
    assert found.access == NodeAccess(107, 107)


def test_several_devices_are_joined_with_commas() -> None:
    found = named("example.com/usb", "select: usb, compat: kubevirt")
    sticks = [device(f"usb-{n}", "usb", attributes={"usbAddress": f"1:{n}"}) for n in (3, 12)]
    env = container_response(found, {x.id: x for x in sticks}, with_cdi_names=False).envs
    assert env["USB_RESOURCE_EXAMPLE_COM_USB"] == "1:3,1:12"


def test_nvidia_sets_ids_and_visible_devices() -> None:
    found = named("nvidia.com/gpu", "select: nvidia-gpu, compat: nvidia, shares: 2")
    assert (found.ids, found.env) == ("uuid", {"NVIDIA_VISIBLE_DEVICES": "{uuid}"})


def test_explicit_keys_override_compat() -> None:
    found = one("""
        select: mdev
        compat: kubevirt
        api: both
        ids: uuid
        access: {uid: 5}
        env: {MDEV_PCI_RESOURCE_X_Y: "a", MORE: "b"}
        dra: {attributes: {tier: "x"}}
    """)
    assert (found.ids, found.access) == ("uuid", NodeAccess(5))
    assert found.env == {"MDEV_PCI_RESOURCE_X_Y": "a", "MORE": "b"}
    assert found.dra.attributes == {"tier": "x"}


def test_ids_stay_unchanged_with_dra_only() -> None:
    found = one("select: sriov-vf\ncompat: sriov\napi: dra")
    assert (found.ids, found.device_info, list(found.dra.attributes)) == (
        "identity",
        "PCIDEVICE_X_Y_INFO",
        ["k8s.cni.cncf.io/deviceID", "k8s.cni.cncf.io/resourceName"],
    )


def test_node_owner_is_not_set_without_cdi() -> None:
    assert one("select: vfio\ncompat: kubevirt\ncdi: false").access is None


def test_pci_functions_field_lists_all_functions_of_a_group() -> None:
    found = one('select: vfio\nenv: {ALL: "{pciFunctions}", FIRST: "{pciBusID}"}')
    functions = ("0000:41:00.0", "0000:41:00.1")
    group = replace(
        device("vfio-1", "vfio", attributes={"resource.kubernetes.io/pciBusID": functions[0]}), functions=functions
    )
    env = container_response(found, {group.id: group}, with_cdi_names=False).envs
    assert (env["ALL"], env["FIRST"]) == (",".join(functions), functions[0])
    stick = device("usb-1", "usb")
    assert (
        ContainerView(one('select: usb\nenv: {ALL: "{pciFunctions}"}'))
        .of(stick)
        .unavailable.startswith("it has no pciFunctions")
    )


@pytest.mark.parametrize("select", ["{id: usb-1*}", "{path: /dev/x}", "{kind: [usb, mdev]}"])
def test_kubevirt_requires_one_known_kind(select: str) -> None:
    assert errors_with_settings(f"select: {select}\ncompat: kubevirt") == [
        "KubeVirt asks for PCI, mediated and USB devices in different ways; add `kind: vfio`, `kind: mdev` or"
        " `kind: usb`"
    ]


def test_two_resources_with_compat_nvidia_are_refused() -> None:
    assert errors_of("""
        resources:
          - {name: x/a, select: nvidia-gpu, compat: nvidia}
          - {name: x/b, select: mig, compat: nvidia}
    """) == [
        "3:30: NVIDIA_VISIBLE_DEVICES is also set by x/a; a container with both would see one of them;"
        " choose another name"
    ]
