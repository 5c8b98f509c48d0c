"""`nodeplug convert` of an operator's objects that install a plugin: converted, or the needed file is named."""

from pathlib import Path

import pytest

from hostdevices import scan
from nodeplug.config import loads
from tests.hostdevices.tree import Tree
from tests.nodeplug.commands.converted import converted, resources

DEVICE_CONFIG = """
apiVersion: amd.com/v1alpha1
kind: DeviceConfig
metadata: {name: theirs, namespace: kube-amd-gpu}
spec:
  driver: {enable: true, driverType: %s}
  devicePlugin:
    enableDevicePlugin: %s
    devicePluginImage: rocm/k8s-device-plugin:latest
    devicePluginArguments: {%s}
  metricsExporter: {enable: true}
  selector: {feature.node.kubernetes.io/amd-gpu: "true"}
"""
NIC_CLUSTER_POLICY = """
apiVersion: mellanox.com/v1alpha1
kind: NicClusterPolicy
metadata: {name: nic-cluster-policy}
spec:
  ofedDriver: {image: doca-driver}
  rdmaSharedDevicePlugin:
    image: k8s-rdma-shared-dev-plugin
    config: |
      {"configList": [{"resourceName": "rdma_shared_device_a", "rdmaHcaMax": 63,
        "selectors": {"vendors": ["15b3"], "deviceIDs": ["101b"]}}]}
  sriovDevicePlugin:
    image: sriov-network-device-plugin
    config: |
      {"resourceList": [{"resourcePrefix": "nvidia.com", "resourceName": "hostdev",
        "selectors": {"vendors": ["15b3"], "isRdma": true}}]}
"""
WITH_CARDS = {"feature.node.kubernetes.io/pci-15b3.present": "true"}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A GPU, and another GPU with a virtual function for virtual machines, each grouped with its audio function."""
    tree = Tree(tmp_path / "root")
    gpu = tree.pci("0000:41:00.0", vendor="1002", device="74a1", pci_class="120000", driver="amdgpu")
    for name in ("card0", "renderD128"):
        tree.child(gpu, f"drm/{name}", group="class/drm", node=f"dri/{name}")
    physical = tree.pci("0000:43:00.0", vendor="1002", device="74a1", pci_class="120000", driver="vfio-pci")
    sound = tree.pci("0000:43:00.1", vendor="1002", device="ab28", pci_class="040300", driver="vfio-pci")
    virtual = tree.virtual_function(
        physical, "0000:43:02.0", 0, vendor="1002", device="74b5", pci_class="120000", driver="vfio-pci"
    )
    for number, members in ((7, (physical, sound)), (8, (virtual,))):
        tree.iommu_group(number, *members)
        tree.device(f"/sys/devices/virtual/vfio/{number}", group="class/vfio", node=f"vfio/{number}")
    return tree


@pytest.mark.parametrize(
    ("driver", "arguments", "offered"),
    [
        ("container", "", {"amd.com/gpu": ["card0"]}),
        ("container", "driver_type: container", {"amd.com/gpu": ["card0"]}),
        ("container", "resource_naming_strategy: mixed", {"amd.com/gpu": ["card0"]}),
        ("vf-passthrough", "", {"amd.com/gpu_vf": ["0000:43:02.0"]}),
        ("pf-passthrough", "", {"amd.com/gpu_pf": ["0000:43:00.0"]}),
        ("pf-passthrough", "resource_naming_strategy: single", {"amd.com/gpu": ["0000:43:00.0"]}),
    ],
)
def test_amd_device_config_selects_devices_of_its_driver_type(
    tree: Tree, driver: str, arguments: str, offered: dict[str, list[str]]
) -> None:
    if "driver_type" in arguments:
        text = DEVICE_CONFIG.replace(", driverType: %s", "") % ("true", arguments)
    else:
        text = DEVICE_CONFIG % (driver, "true", arguments)
    result = converted(tree, text)
    assert result.exit_code == 0, result.output
    labels = {"feature.node.kubernetes.io/amd-gpu": "true"}
    assert loads(result.stdout.encode(), "f", "n", labels={}).resources == ()
    devices = scan(tree.host).devices.values()
    found = loads(result.stdout.encode(), "f", "n", labels=labels).resources
    assert {x.name: [d.name for d in devices if not x.selector.mismatch(d)] for x in found} == offered
    assert ["PCI_RESOURCE_AMD_COM_GPU" in str(dict(x.env)) for x in found] == [driver != "container"]


def test_amd_device_config_with_the_plugin_off_is_refused(tree: Tree) -> None:
    result = converted(tree, DEVICE_CONFIG % ("container", "false", ""))
    assert result.exit_code == 2
    assert ":8:25: its device plugin is off (spec.devicePlugin.enableDevicePlugin), and offers nothing" in result.stderr


def test_device_config_of_nodeplug_is_not_taken_for_amds(tree: Tree) -> None:
    assert (
        "not a configuration of a known plugin"
        in converted(tree, "{apiVersion: nodeplug.dev/v1, kind: DeviceConfig}").stderr
    )


def test_amd_driver_type_flag_selects_virtual_functions(tree: Tree) -> None:
    flags = "[-driver_type=vf-passthrough, -resource_naming_strategy=single]"
    (found,) = resources(converted(tree, flags, "--from", "amd")).values()
    assert found.name == "amd.com/gpu"
    assert [x.name for x in scan(tree.host).devices.values() if not found.selector.mismatch(x)] == ["0000:43:02.0"]


def test_nic_cluster_policy_converts_the_files_of_two_plugins(tree: Tree) -> None:
    """On nodes with the vendor's cards, where the operator runs its daemon sets."""
    result = converted(tree, NIC_CLUSTER_POLICY)
    assert result.exit_code == 0, result.output
    found = {x.name: x for x in loads(result.stdout.encode(), "f", "n", labels=WITH_CARDS).resources}
    assert {name: x.shares for name, x in found.items()} == {"rdma/rdma_shared_device_a": 63, "nvidia.com/hostdev": 1}
    assert loads(result.stdout.encode(), "f", "n", labels={}).resources == ()
    chosen = NIC_CLUSTER_POLICY.replace("  ofedDriver:", '  nodeSelector: {zone: "a"}\n  ofedDriver:')
    result = converted(tree, chosen)
    assert loads(result.stdout.encode(), "f", "n", labels=WITH_CARDS).resources == ()
    assert len(loads(result.stdout.encode(), "f", "n", labels={**WITH_CARDS, "zone": "a"}).resources) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{apiVersion: nvidia.com/v1, kind: ClusterPolicy, spec: {mig: {strategy: single}}}",
            "the offered devices are in the DaemonSet that NVIDIA's operator makes from a ClusterPolicy; convert that,"
            " `kubectl get daemonset nvidia-device-plugin-daemonset -o yaml` in the operator's namespace",
        ),
        (
            "{apiVersion: sriovnetwork.openshift.io/v1, kind: SriovNetworkNodePolicy, spec: {resourceName: a}}",
            "in the ConfigMap that the SR-IOV operator makes from all its policies; convert that, `kubectl get"
            " configmap device-plugin-config -o yaml`",
        ),
        *(
            (
                f"{{apiVersion: sriovnetwork.openshift.io/v1, kind: {kind}, spec: {{}}}}",
                "in the ConfigMap that the SR-IOV operator makes from all its policies",
            )
            for kind in ("SriovNetworkNodeState", "SriovNetworkPoolConfig", "SriovOperatorConfig")
        ),
        *(
            (
                f"{{apiVersion: sriovnetwork.k8snetworkplumbingwg.io/v1alpha1, kind: {kind}, spec: {{}}}}",
                "this belongs to a DRA driver, whose devices have no resource names that pods could continue to"
                " request; write a",
            )
            for kind in ("SriovResourcePolicy", "DeviceAttributes")
        ),
        (
            "{apiVersion: mellanox.com/v1alpha1, kind: NicClusterPolicy, spec: {ofedDriver: {}}}",
            "this NicClusterPolicy has no spec.rdmaSharedDevicePlugin.config or spec.sriovDevicePlugin.config",
        ),
        (
            "{apiVersion: mellanox.com/v1alpha1, kind: NicClusterPolicy, spec: {sriovDevicePlugin: {config: '[a'}}}",
            "this is not YAML",
        ),
    ],
)
def test_unsupported_object_error_names_what_to_convert(tree: Tree, text: str, message: str) -> None:
    for around in ("%s", "{kind: Namespace}\n---\n%s"):
        result = converted(tree, around % text)
        assert (result.exit_code, result.stdout) == (2, "")
        assert message in result.stderr


def test_kind_of_another_api_group_is_ignored(tree: Tree) -> None:
    policy = "{apiVersion: kyverno.io/v1, kind: ClusterPolicy, spec: {}}"
    assert "this is not a configuration of a known plugin" in converted(tree, policy).stderr
    assert "another object" not in converted(tree, f"{policy}\n---{NIC_CLUSTER_POLICY}").stdout
