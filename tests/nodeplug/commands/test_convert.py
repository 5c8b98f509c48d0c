"""`nodeplug convert`, as run by a user."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from hostdevices import Device, scan
from hostdevices.readers import READERS, paths_reader
from nodeplug.cli import main
from nodeplug.config import loads
from nodeplug.ddp_profiles import with_profiles
from resources.assignment import assign
from tests.hostdevices.machine import rdma as rdma_device
from tests.hostdevices.tree import Tree
from tests.nodeplug.commands.converted import converted, resources


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path / "root")
    for name, numbers in (("video0", "81:0"), ("video7", "81:7"), ("snd/controlC0", "116:2"), ("snd/seq", "116:1")):
        tree.node(f"/dev/{name}", numbers)
    return tree


def test_smarter_expression_becomes_a_resource_for_each_node(tree: Tree) -> None:
    text = """
- {devicematch: '^video[0-9]*$', nummaxdevices: 20}
- {devicematch: '^snd$', nummaxdevices: 2}
- {devicematch: '^ttyUSB[0-9]*$', nummaxdevices: 1}
- {devicematch: '^rtc0$', nummaxdevices: 3}
"""
    found = resources(converted(tree, text))
    assert {name: resource.shares for name, resource in found.items()} == {
        "smarter-devices/video0": 20,
        "smarter-devices/video7": 20,
        "smarter-devices/snd": 2,
        "smarter-devices/ttyUSB0": 1,  # it does not exist here, but pods can request it
        "smarter-devices/rtc0": 3,
    }
    assert [name for name, resource in found.items() if resource.dangerous] == ["smarter-devices/rtc0"]


def test_generic_groups_are_converted(tree: Tree) -> None:
    text = """
device:
  - name: capture
    groups:
      - {count: 3, paths: [{path: /dev/snd/controlC0}, {path: /dev/snd/pcmC0D0c, optional: true}]}
      - count: 3
        paths:
          - {path: /dev/snd/controlC1, mountPath: /dev/snd/controlC0}
          - {path: /dev/snd/pcmC1D0c, mountPath: /dev/snd/pcmC0D0c}
  - {name: gps, groups: [{usb: [{vendor: 1A86, product: "7523", serial: A1}]}]}
  - name: modem
    groups: [{paths: [{path: /dev/ttyUSB0, permissions: mrw}, {path: /etc/modem, type: Mount, readOnly: true}]}]
"""
    result = converted(tree, text, "--domain", "example.com")
    found = resources(result)
    assert list(found) == ["example.com/capture", "example.com/gps", "example.com/modem"]
    assert found["example.com/capture"].shares == 3
    assert "/dev/snd/controlC[01]" in result.stdout
    assert found["example.com/modem"].permissions == "rwm"
    (mount,) = found["example.com/modem"].mounts
    assert (mount.host_path, mount.read_only) == ("/etc/modem", True)


def test_sriov_function_ranges_become_vf_indices(tree: Tree) -> None:
    text = """{"resourceList": [
      {"resourceName": "a", "selectors": {"pfNames": ["ens1f0#0,2-7", "ens2f0", "ens1f0#9"], "vendors": ["14e4"]}},
      {"resourceName": "fpga", "resourcePrefix": "x.com", "deviceType": "accelerator",
       "selectors": [{"rootDevices": ["0000:8A:00.0#1-3"], "needVhostNet": true}], "excludeTopology": true}]}"""
    result = converted(tree, text)
    found = resources(result)
    assert {name: resource.vhost_net for name, resource in found.items()} == {"intel.com/a": False, "x.com/fpga": True}
    some, accelerators = (resource["select"] for resource in yaml.safe_load(result.stdout)["resources"])
    assert some["attributes"] == {"class": "02*", "vendor": "14e4"}
    functions = [{"pfName": "ens1f0", "vfIndex": [0, "2..7"]}, {"pfName": "ens2f0"}]  # the first of two entries
    assert some["all"] == [{"any": [{"attributes": attributes} for attributes in functions]}]
    assert accelerators["attributes"] == {"class": "12*"}
    assert accelerators["all"] == [{"attributes": {"pf": "0000:8a:00.0", "vfIndex": "1..3"}}]
    assert {name: resource.topology for name, resource in found.items()} == {"intel.com/a": True, "x.com/fpga": False}


def test_sriov_wildcards_in_names_are_escaped(tree: Tree) -> None:
    text = "resourceList: [{resourceName: a, selectors: {drivers: ['vfio*'], pfNames: ['ens?f0']}}]"
    (pool,) = yaml.safe_load(converted(tree, text).stdout)["resources"]
    assert pool["select"]["attributes"]["driver"] == "vfio[*]"
    assert pool["select"]["all"] == [{"attributes": {"pfName": "ens[?]f0"}}]


def test_migration_page_example_equals_the_output(tree: Tree) -> None:
    page = (Path(__file__).parents[3] / "docs/migration.md").read_text()
    theirs, ours = (page.split(f"```{language}\n")[1].split("```")[0] for language in ("json", "yaml"))
    result = converted(tree, theirs)
    assert result.exit_code == 1
    assert result.stdout.replace(str(tree.host.root.parent / "theirs.yaml"), "config.json") == ours


def test_rdma_hca_max_becomes_shares(tree: Tree) -> None:
    text = """{"periodicUpdateInterval": 300, "configList": [
      {"resourceName": "hca", "rdmaHcaMax": 1000,
       "selectors": {"vendors": ["15b3"], "deviceIDs": ["1017"], "linkTypes": ["infiniband"]}}]}"""
    found = resources(converted(tree, text))
    assert found["rdma/hca"].shares == 1000


def test_nvidia_time_slicing_becomes_shares(tree: Tree) -> None:
    text = """
version: v1
flags: {migStrategy: none, plugin: {passDeviceSpecs: true, deviceListStrategy: [envvar]}}
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources: [{name: nvidia.com/gpu, replicas: 4}]
"""
    found = resources(converted(tree, text))
    resource = found["nvidia.com/gpu.shared"]
    assert (resource.shares, resource.preferred, resource.ids) == (4, "distinct", "uuid")


def test_nvidia_flags_become_variables_and_imex_names_the_recipe(tree: Tree) -> None:
    text = """
version: v1
flags:
  {migStrategy: none, failOnInitError: true, nvidiaDriverRoot: /, nvidiaDevRoot: /, mpsRoot: /run/nvidia/mps,
   gdrcopyEnabled: true, gdsEnabled: false, mofedEnabled: true, useNodeFeatureAPI: false, deviceDiscoveryStrategy: auto}
"""
    (resource,) = resources(converted(tree, text)).values()
    variables = {"NVIDIA_VISIBLE_DEVICES": "{uuid}", "NVIDIA_GDRCOPY": "enabled", "NVIDIA_MOFED": "enabled"}
    assert dict(resource.env) == variables
    assert converted(tree, text + "imex: {channelIDs: [0], required: true}").stderr.endswith(
        "docs/recipes.md, IMEX channels\n"
    )


def test_nvidia_mig_strategy_selects_gpus_and_profiles(tree: Tree) -> None:
    """NVIDIA's library reports the ids and profiles of MIG instances, so that the file enables it."""
    single = converted(tree, "{version: v1, flags: {migStrategy: single}}")
    (each,) = loads(single.stdout.encode()).resources
    assert each.name == "nvidia.com/gpu"
    held = {"vendor": "10de", "driver": "nvidia"}
    gpu, mig = (Device("gpu-1", "gpu", "a", attributes={**held, "type": x}) for x in ("gpu", "mig"))
    assert (each.selector.mismatch(gpu), each.selector.mismatch(mig)) == ("", ""), "nodes without MIG have whole GPUs"
    assert loads(single.stdout.encode()).settings.nvml
    text = """
flags: {migStrategy: mixed, plugin: {sharedDevicesAllocationPolicy: packed}}
sharing:
  timeSlicing:
    resources: [{name: nvidia.com/gpu, replicas: 4}, {name: nvidia.com/mig-1g.10gb, replicas: 2}]
resources: {gpus: [{pattern: "*A100*", name: a100}], mig: [{pattern: 1g.10gb+me, name: media}]}
"""
    result = converted(tree, text)
    found = loads(result.stdout.encode())
    assert found.settings.nvml
    assert {x.name: (x.shares, x.ids, x.preferred) for x in found.resources} == {
        "nvidia.com/gpu": (4, "uuid", "packed"),
        "nvidia.com/mig-1g.10gb": (2, "uuid", "packed"),
        "nvidia.com/mig-1g.10gb.me": (1, "uuid", "numa"),
    }
    profiles = [x["select"]["attributes"]["profile"] for x in yaml.safe_load(result.stdout)["resources"][1:]]
    assert profiles == ["1g.10gb", "1g.10gb+me"]
    assert "# `resources` is left out: NVIDIA's plugin ignores it, too." in result.stdout
    mixed = converted(tree, "{version: v1, flags: {migStrategy: mixed}}")
    assert mixed.exit_code == 1
    assert "the file does not list the profiles" in mixed.stderr


def test_nvidia_keys_that_the_plugin_ignores_are_left_out(tree: Tree) -> None:
    text = """
version: v1
sharing:
  timeSlicing: {resources: [{name: gpu, rename: slow, devices: ["0", 3], replicas: 2}]}
"""
    result = converted(tree, text)
    assert {name: x.shares for name, x in resources(result).items()} == {"nvidia.com/gpu": 2}
    assert "# `rename` and `devices` are left out" in result.stdout


def test_nvidia_mps_uses_the_folders_of_the_control_daemon(tree: Tree) -> None:
    """NVIDIA's own control daemon keeps running; a container gets the same as before."""
    text = """
version: v1
flags: {mpsRoot: /srv/mps}
sharing: {mps: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 10}]}}
"""
    found = resources(converted(tree, text))["nvidia.com/gpu.shared"]
    assert (found.shares, found.preferred, found.mps) == (10, "distinct", "/srv/mps/nvidia.com/gpu.shared/pipe")
    assert {x.host_path: x.container_path for x in found.mounts} == {
        "/srv/mps/nvidia.com/gpu.shared/pipe": "/srv/mps/nvidia.com/gpu.shared/pipe",
        "/srv/mps/shm": "/dev/shm",
    }
    assert found.env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "10"


@pytest.mark.parametrize(
    ("strategy", "userspace", "words"),
    [
        ("envvar", None, ""),
        ("[envvar, cdi-annotations]", None, ""),
        ("cdi-cri", "nvidia", "the driver's files come by CDI as before"),
        ('"cdi-annotations,cdi-cri"', "nvidia", "for NVIDIA's runtime, and left out"),
        ("volume-mounts", None, "before, by mounts"),
    ],
)
def test_nvidia_device_list_strategy_sets_variables_or_userspace(
    tree: Tree, strategy: str, userspace: str | None, words: str
) -> None:
    flags = f"{{nvidiaDriverRoot: /run/nvidia/driver, gdsEnabled: true, plugin: {{deviceListStrategy: {strategy}}}}}"
    result = converted(tree, f"{{version: v1, flags: {flags}}}")
    (found,) = resources(result).values()
    assert (found.ids, found.userspace) == ("uuid", userspace)
    assert ("NVIDIA_VISIBLE_DEVICES" in found.env) is not bool(userspace)
    assert loads(result.stdout.encode()).settings.driver_root == ("/run/nvidia/driver" if userspace else "/")
    assert words in result.stdout


MANIFEST = """
# as `kubectl get -o yaml` and manifests have it
apiVersion: v1
kind: Namespace
metadata: {name: devices}
---
---
kind: DaemonSet
spec:
  template:
    spec:
      containers: [{image: ghcr.io/smarter-project/smarter-device-manager:v1}]
---
kind: ConfigMap
metadata: {name: theirs}
data: {conf.yaml: "[{devicematch: ^video7$, nummaxdevices: 1}]"}
---
kind: List
items:
  - {kind: ServiceAccount, metadata: {name: x}}
  - {kind: NpuDevicePlugin, metadata: {name: npu}, spec: {nodeSelector: {npu: "true"}}}
"""


def test_manifest_is_searched_for_plugin_objects(tree: Tree) -> None:
    result = converted(tree, MANIFEST)
    assert list(resources(result)) == ["smarter-devices/video7", "npu.intel.com/accel"]
    first, *lines = result.stdout.splitlines()
    assert first.endswith("a configuration of smarter-device-manager and Intel's NPU device plugin.")
    assert (
        "# Line 12 belongs to another object: the devices of smarter are in its file, and not in its DaemonSet."
        in lines
    )
    nothing = converted(tree, "kind: Namespace\n---\nkind: Service\n")
    assert nothing.exit_code == 2
    assert (
        ":1:1: none of these objects is a device plugin; kinds: ConfigMap, Configuration, DaemonSet, " in nothing.stderr
    )


def test_configuration_is_read_from_stdin(tree: Tree) -> None:
    words = ["convert", "-", "--root", str(tree.host.root)]
    result = CliRunner().invoke(main, words, input="[{devicematch: ^video7$, nummaxdevices: 1}]")
    assert list(resources(result)) == ["smarter-devices/video7"]
    assert result.stdout.startswith("# Converted from standard input, a configuration of smarter")


def test_config_map_with_several_entries_needs_the_entry_option(tree: Tree) -> None:
    text = """
kind: ConfigMap
data:
  pi.yaml: "[{devicematch: ^video7$, nummaxdevices: 1}]"
  jetson.yaml: "[{devicematch: ^video0$, nummaxdevices: 3}]"
"""
    message = "this ConfigMap has 2 entries: jetson.yaml, pi.yaml; say which one is meant, `--entry NAME`"
    assert message in converted(tree, text).stderr
    assert list(resources(converted(tree, text, "--entry", "pi.yaml"))) == ["smarter-devices/video7"]
    message = "has no entry pi; its entries are jetson.yaml, pi.yaml"
    assert message in converted(tree, text, "--entry", "pi").stderr


def test_sriov_operator_entries_become_resources_of_their_nodes(tree: Tree) -> None:
    """With Go's spelling of fields without a JSON name, and with null values."""
    text = """
kind: ConfigMap
data:
  worker-0: '{"resourceList":[{"resourceName":"nics","selectors":{"pfNames":["ens785f0#0-4"],"IsRdma":true,
    "NeedVhostNet":true},"SelectorObjs":null}]}'
  worker-1: '{"resourceList":[{"resourceName":"nics","selectors":{"pfNames":["ens785f0#0-9"],"IsRdma":false,
    "NeedVhostNet":false},"SelectorObjs":null}]}'
"""
    result = converted(tree, text)
    assert result.exit_code == 0, result.output
    for node, rdma, last in (("worker-0", True, 4), ("worker-1", None, 9)):
        (found,) = loads(result.stdout.encode(), "f", node).resources
        assert (found.name, found.vhost_net) == ("intel.com/nics", bool(rdma))
        resource = next(x for x in yaml.safe_load(result.stdout)["resources"] if x["onNodes"] == node)
        assert resource["select"]["attributes"].get("rdma") == rdma
        assert resource["select"]["all"][0]["attributes"]["vfIndex"] == f"0..{last}"
    assert loads(result.stdout.encode(), "f", "worker-2").resources == ()
    one = yaml.safe_load(converted(tree, text, "--entry", "worker-1").stdout)["resources"]
    assert ["onNodes" in x for x in one] == [False]


def test_nvidia_chart_entries_become_resources_of_their_label(tree: Tree) -> None:
    text = """
kind: ConfigMap
data:
  any: "{version: v1}"
  t4: "{version: v1, sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 3}]}}}"
"""
    result = converted(tree, text)
    assert result.exit_code == 0, result.output
    for value, shares in (("any", 1), ("t4", 3)):
        labels = {"nvidia.com/device-plugin.config": value}
        (found,) = loads(result.stdout.encode(), "f", "n", labels=labels).resources
        assert (found.name, found.shares) == ("nvidia.com/gpu", shares)


def test_entries_that_match_no_device_are_left_out(tree: Tree) -> None:
    """A selector that cannot be converted is left out, not widened."""
    for text, reason in (
        ("[{devicematch: ^video7$, nummaxdevices: 0}]", "no pod could have one (nummaxdevices is 0)"),
        ('{"configList": [{"resourceName": "a", "rdmaHcaMax": 0}]}', "no pod could have it (rdmaHcaMax)"),
        (
            '{"resourceList": [{"resourceName": "a", "selectors": {"acpiIndexes": ["x"]}}]}',
            "no function has the ACPI index x (acpiIndexes)",
        ),
    ):
        result = converted(tree, text)
        assert result.exit_code == 1
        assert reason in result.stderr
        assert loads(result.stdout.encode()).resources == ()
    (found,) = resources(
        converted(tree, "devices: [{name: a, groups: [{count: 0, paths: [{path: /dev/a}]}]}]")
    ).values()
    assert found.shares == 1  # as in the plugin


def test_usb_node_path_adds_no_nodes_of_children(tree: Tree) -> None:
    """The plugin passes on only the mounted node; a USB device here includes the nodes of its children."""
    stick = tree.usb(
        tree.pci("0000:00:14.0", pci_class="0c0330"), "1-2", vendor="0403", product="6001", interfaces=("ff",)
    )
    port = tree.device(f"{stick}/1-2:1.0/ttyUSB0", driver="usb-serial/ftdi_sio", port_number=0)
    tree.child(port, "tty/ttyUSB0", group="class/tty", node="ttyUSB0", numbers="188:0")
    result = converted(tree, "devices: [{name: usb, groups: [{paths: [{path: /dev/bus/usb/*/*}]}]}]")
    config = loads(result.stdout.encode())
    inventory = scan(tree.host, (*READERS, paths_reader(config.path_globs)))
    (device,) = assign(inventory, config.resources).devices["squat.ai/usb"]
    assert [x.path.rpartition("/")[0] for x in device.devnodes] == ["/dev/bus/usb/001"]


def test_config_map_and_arguments_are_converted(tree: Tree) -> None:
    config_map = """
kind: ConfigMap
data:
  conf.yaml: |
    - devicematch: ^video7$
      nummaxdevices: 1
"""
    assert list(resources(converted(tree, config_map))) == ["smarter-devices/video7"]
    arguments = """[--domain, x.com, "--device={name: a, groups: [{paths: [{path: /dev/a}]}]}", --log-level=all]"""
    assert list(resources(converted(tree, arguments))) == ["x.com/a"]


def test_sriov_subfunctions_are_selected(tree: Tree) -> None:
    text = """
resourceList:
- {resourceName: sf, deviceType: auxNetDevice, selectors: {vendors: [15b3], pfNames: [ens1f0], auxTypes: [sf]}}
- {resourceName: rdma-sf, deviceType: auxNetDevice, selectors: {isRdma: true, auxTypes: [sf], linkTypes: [ether]}}
- {resourceName: some, deviceType: auxNetDevice, selectors: {pfNames: ["ens1f0#80-88"], auxTypes: [sf]}}
- {resourceName: others, deviceType: auxNetDevice, selectors: {pfNames: ["ens1f0#1-5"], auxTypes: [sf]}}
"""
    physical = tree.pci("0000:3b:00.0", vendor="15b3", pci_class="020000")
    tree.child(physical, "net/ens1f0", group="class/net", type=1)
    tree.child(f"{physical}/mlx5_core.sf.4", "net/ens1f0s4", group="class/net", type=1)
    tree.child(
        f"{physical}/mlx5_core.sf.4", "infiniband/mlx5_4", group="class/infiniband", ports__1__link_layer="Ethernet"
    )
    tree.file(f"{physical}/mlx5_core.sf.4/sfnum", "88")
    found = list(resources(converted(tree, text)).values())
    assert {each.ids for each in found} == {"auxiliary"}
    assert [*found[1].env.items()] == [("PCIDEVICE_INTEL_COM_RDMA-SF", "{auxiliary}")]
    devices = scan(tree.host).devices.values()
    assert [[x.name for x in devices if not each.selector.mismatch(x)] for each in found] == [
        ["ens1f0s4"],
        ["mlx5_4"],
        ["ens1f0s4"],  # selected by its number
        [],
    ]


def test_sriov_selectors_choose_the_same_functions(tree: Tree) -> None:
    text = """
resourceList:
- {resourceName: vdpa, selectors: {vdpaType: vhost, linkTypes: [ether]}}
- {resourceName: ib, selectors: {pKeys: ["0x8001"], acpiIndexes: ["3"], linkTypes: [infiniband]}}
- {resourceName: other, selectors: {isRdma: true, pKeys: ["0x1"], linkTypes: [infiniband]}}
- {resourceName: rdma, selectors: {isRdma: true, acpiIndexes: ["3"]}}
"""
    physical = tree.pci("0000:3b:00.0", pci_class="020000", acpi_index=3)
    tree.child(physical, "net/ens1", group="class/net", type=1)
    virtual = tree.virtual_function(physical, "0000:3b:00.1", 0, pci_class="020000")
    tree.device(f"{virtual}/vdpa0", group="bus/vdpa/devices", driver="vdpa/vhost_vdpa")
    card = tree.pci("0000:5e:00.0", pci_class="020700", acpi_index=3)
    tree.child(card, "net/ib0", group="class/net", type=32)
    tree.child(card, "infiniband/mlx5_0", group="class/infiniband", ports__1__pkeys__0="0x8001")
    found = list(resources(converted(tree, text)).values())
    devices = scan(tree.host).devices.values()
    assert [[x.id for x in devices if not each.selector.mismatch(x)] for each in found] == [
        ["pci-0000-3b-00-1"],
        ["pci-0000-5e-00-0"],
        [],
        ["pci-0000-5e-00-0"],
    ]


def test_dangerous_node_in_a_group_is_offered_with_a_comment(tree: Tree) -> None:
    for name, numbers in (("vcio", "100:0"), ("vchiq", "240:0")):
        tree.node(f"/dev/{name}", numbers)
    text = "devices: [{name: pi, groups: [{paths: [{path: /dev/vcio}, {path: /dev/vchiq}]}]}]"
    result = converted(tree, text)
    (resource,) = resources(result).values()
    assert "# dangerous: /dev/vcio gives access to the kernel's memory" in result.stdout
    found = scan(tree.host, (*READERS, paths_reader(["/dev/vc*"])))
    assert len(assign(found, [resource]).devices[resource.name]) == 1


def test_igb_uio_function_is_offered_as_pci_function(tree: Tree) -> None:
    function = tree.pci("0000:3b:00.0", pci_class="020000", driver="igb_uio")
    tree.child(function, "uio/uio0", group="class/uio", node="uio0", name="igb_uio", maps__map0__size="0x20000")
    text = "resourceList: [{resourceName: dpdk, selectors: {drivers: [igb_uio, vfio-pci]}}]"
    (resource,) = resources(converted(tree, text)).values()
    assert [x.id for x in assign(scan(tree.host), [resource]).devices[resource.name]] == ["pci-0000-3b-00-0"]


def test_sriov_pools_add_only_the_requested_nodes(tree: Tree) -> None:
    text = """
resourceList:
- {resourceName: rdma, selectors: {isRdma: true, pciAddresses: ["0000:3b:00.1"]}}
- {resourceName: vdpa, selectors: {vdpaType: vhost}}
- {resourceName: plain, selectors: {vendors: [15b3]}}
"""
    for number in range(3):
        function = tree.pci(f"0000:3b:00.{number + 1}", pci_class="020000", vendor="15b3")
        rdma_device(tree, function, f"mlx5_{number}", number)
        tree.child(function, f"ptp/ptp{number}", group="class/ptp", node=f"ptp{number}")
        if number == 1:
            vdpa = tree.device(f"{function}/vdpa0", group="bus/vdpa/devices", driver="vdpa/vhost_vdpa")
            tree.device(f"{vdpa}/vhost-vdpa-0", node="vhost-vdpa-0")
    found = assign(scan(tree.host), list(resources(converted(tree, text)).values())).devices
    offered = {name: [x.path for device in each for x in device.devnodes] for name, each in found.items()}
    assert offered["intel.com/plain"] == []
    assert offered["intel.com/vdpa"] == ["/dev/vhost-vdpa-0"]
    assert sorted(offered["intel.com/rdma"]) == [f"/dev/infiniband/{x}0" for x in ("issm", "umad", "uverbs")]
    assert len(found["intel.com/plain"]) == 1


def test_ddp_profiles_enable_devlink_and_match_exactly(tree: Tree) -> None:
    text = """{"resourceList": [
      {"resourceName": "gtp", "selectors": {"ddpProfiles": ["ICE OS [Default] Package"]}}]}"""
    result = converted(tree, text)
    config = loads(result.stdout.encode())
    assert config.settings.devlink
    tree.pci("0000:3b:00.0", vendor="8086", pci_class="020000", driver="ice")
    for profile, fits in (("ICE OS [Default] Package", True), ("ICE OS D Package", False)):
        card = ("0000:3b:00.0", "ice")
        (device,) = with_profiles(scan(tree.host), {card: profile}).devices.values()
        assert (config.resources[0].selector.mismatch(device) == "") == fits


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "resourceList: [{resourceName: a, deviceType: auxNetDevice, selectors: {ddpProfiles: [x]}}]",
            "nodeplug has no equivalent of ddpProfiles",
        ),
        (
            "resourceList: [{resourceName: a, deviceType: auxNetDevice, selectors: {auxTypes: [eth], vdpaType: x}}]",
            "nodeplug has no equivalent of vdpaType, auxTypes eth",
        ),
        ("resourceList: [{resourceName: a, selectors: {auxTypes: [sf]}}]", "nodeplug has no equivalent of auxTypes"),
        (
            "resourceList: [{resourceName: a, selectors: {vendors: ['0x8086']}}]",
            "no function has the id 0x8086: the plugin",
        ),
        (
            "resourceList: [{resourceName: a, selectors: {devices: ['154C']}}]",
            "no function has the id 154C: the plugin",
        ),
        (
            "configList: [{resourceName: a, rdmaHcaMax: 1, selectors: {vendors: ['*']}}]",
            "no function has the id *: the plugin uses four digits, in lower case",
        ),
        (
            "devices: [{name: a, groups: [{count: 2, paths: [{path: /dev/a0}, {path: /dev/b0}]},"
            " {paths: [{path: /dev/a1, mountPath: /dev/a0}, {path: /dev/b1, mountPath: /dev/b0}]}]}]",
            "its groups have different counts",
        ),
        (
            "devices: [{name: a, groups: [{paths: [{path: '/dev/a*', mountPath: /dev/x/}]}]}]",
            "files that match a glob are in a folder of the container under their own names",
        ),
        (
            "devices: [{name: a, groups: [{paths: [{path: /dev/a, optional: true}, {path: /dev/b, optional: true}]}]}]",
            "all nodes of a group are optional",
        ),
        (
            "devices: [{name: a, groups: [{usb: [{vendor: '0403', product: '6001'}]},"
            " {usb: [{vendor: '1a86', product: '7523'}, {vendor: '10c4', product: ea60}]}]}]",
            "several groups of USB ids, some with more than one",
        ),
        ("devices: [{name: a, groups: [{paths: [{path: /etc/../a}]}]}]", "/etc/../a"),
        (
            "devices: [{name: a, groups: [{paths: [{path: /dev/a, limit: 3}]}]}]",
            "several of its devices have at the same time",
        ),
        ("devices: [{name: a, groups: [{paths: [{path: /etc/a, type: Mount}]}]}]", "groups without a device node"),
        ("[{devicematch: '^vcsm.*$', nummaxdevices: 1}]", "nothing here fits it"),
        ("[{devicematch: nvidia-gpu, nummaxdevices: 1}]", "Tegra's GPUs"),
        ("[{devicematch: '^iio:device0$', nummaxdevices: 1}]", "nothing here fits it"),
        (
            "devices: [{name: 'iio:0', groups: [{paths: [{path: /dev/a}]}]}]",
            "it cannot be a resource name: after the",
        ),
        ("[{devicematch: '(', nummaxdevices: 1}]", "not an expression"),
    ],
)
def test_unconvertible_entries_are_left_out_with_a_reason(tree: Tree, text: str, reason: str) -> None:
    result = converted(tree, text)
    assert result.exit_code == 1
    assert reason in result.stderr
    assert f"is left out: {reason}" in result.stdout or reason in result.stdout
    assert loads(result.stdout.encode()).resources == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: 1",
            ":1:1: this is not a configuration of a known plugin; name the plugin with --from: akri, amd, ",
        ),
        (
            '{"resourceList": [{"resourceName": "a", "selector": {}}]}',
            ":1:41: unknown key selector; did you mean selectors?",
        ),
        ("devices: [{name: a, groups: [{usb: [{vendor: 0403, product: x}]}]}]", "YAML takes 0403 for a number"),
        ("[--device, '{name: ']", ":1:12: this is not YAML"),
        ("{kind: ConfigMap, data: {}}", "this ConfigMap has no entries; convert the one that the plugin reads"),
        ("{version: v2}", 'unknown value "v2"'),
        ("{kind: KubeVirt, spec: {}}", "this KubeVirt has no spec.configuration.permittedHostDevices"),
    ],
)
def test_invalid_file_is_refused(tree: Tree, text: str, message: str) -> None:
    result = converted(tree, text)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_node_of_two_resources_belongs_to_the_first(tree: Tree) -> None:
    text = """
devices:
  - {name: audio, groups: [{paths: [{path: /dev/snd}]}]}
  - {name: card, groups: [{paths: [{path: /dev/snd/controlC0}, {path: /dev/snd/pcmC0D0c}]}]}
  - {name: any, groups: [{paths: [{path: /dev/snd/seq}]}, {paths: [{path: /dev/video*}]}]}
  - {name: video, groups: [{paths: [{path: /dev/video7}]}]}
"""
    result = converted(tree, text)
    assert result.exit_code == 1
    assert [each.name for each in loads(result.stdout.encode()).resources] == ["squat.ai/audio", "squat.ai/any"]
    both = "/dev/snd/controlC0 and /dev/snd/pcmC0D0c"
    assert f"card is left out: squat.ai/audio has {both} already, and a device has one owner" in result.stderr
    assert "squat.ai/video is left out: squat.ai/any has /dev/video7 already" in result.stderr
    assert "  # squat.ai/audio has /dev/snd/seq already, and keeps it." in result.stdout
