"""`nodeplug convert` of plugins for nodes, USB devices and PCI functions, and what containers get afterwards."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hostdevices import Device, scan
from hostdevices.readers import READERS, paths_reader
from nodeplug.cli import main
from nodeplug.config import Config, loads
from resources.assignment import assign
from resources.shares import shares_of
from tests.hostdevices.tree import Tree
from tests.nodeplug.allocations import plugins_of


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A webcam, two serial sticks and a dongle on USB, two Gaudi cards, a network function, and some nodes."""
    tree = Tree(tmp_path / "root")
    controller = tree.pci("0000:00:14.0", pci_class="0c0330", driver="xhci_hcd")
    webcam = tree.usb(controller, "1-1", devnum=3, vendor="046d", product="082d", interfaces=("0e",))
    tree.child(f"{webcam}/1-1:1.0", "video4linux/video0", group="class/video4linux", node="video0", index=0)
    for number, serial in ((2, "A1"), (4, "B2")):
        port = f"1-{number}"
        stick = tree.usb(
            controller, port, devnum=number, vendor="0403", product="6001", serial=serial, interfaces=("ff",)
        )
        tty = tree.device(f"{stick}/{port}:1.0/ttyUSB{number}", driver="usb-serial/ftdi_sio", port_number=0)
        tree.child(tty, f"tty/ttyUSB{number}", group="class/tty", node=f"ttyUSB{number}", numbers=f"188:{number}")
    dongle = tree.usb(controller, "1-5", devnum=9, vendor="0529", product="0001", interfaces=("ff",))
    for device, devnum in ((webcam, 3), (dongle, 9)):
        tree.file(f"{device}/busnum", 1)
        tree.file(f"{device}/devnum", devnum)
    for number, module in ((0, 5), (1, 2)):
        card = tree.pci(f"0000:b{number}:00.0", vendor="1da3", device="1020", pci_class="120000", driver="habanalabs")
        for name in (f"accel{number}", f"accel_controlD{number}"):
            tree.child(card, f"accel/{name}", group="class/accel", node=f"accel/{name}")
        tree.file(f"{card}/module_id", str(module))
    tree.pci("0000:3b:02.0", vendor="8086", device="1889", pci_class="020000", driver="iavf")
    for number, name in enumerate(("fuse", "mine/a", "mine/b", "random0", "random1")):
        tree.node(f"/dev/{name}", f"240:{number}")
    return tree


def converted(tree: Tree, text: str) -> Config:
    """Return the converted configuration of a file; nothing may be left out."""
    file = tree.host.root.parent / "theirs"
    file.write_text(text)
    result = CliRunner().invoke(main, ["convert", str(file), "--root", str(tree.host.root)])
    assert result.exit_code == 0, result.output
    return loads(result.stdout.encode())


def offered(tree: Tree, config: Config) -> dict[str, tuple[Device, ...]]:
    return dict(assign(scan(tree.host, (*READERS, paths_reader(config.path_globs))), config.resources).devices)


def paths(devices: tuple[Device, ...]) -> list[list[str]]:
    return sorted(sorted(x.path for x in device.devnodes) for device in devices)


def test_json_with_tabs_is_converted(tree: Tree) -> None:
    text = '{"resourceList": [\n\t{\t"resourceName":\t"a", "selectors": {"ddpProfiles": ["a \\"tab\\""]}}\n]}'
    assert [x.name for x in converted(tree, text).resources] == ["intel.com/a"]
    indented = text.replace("\n", "\n    ")
    wrapped = f"kind: ConfigMap\ndata:\n  config.json: |\n    {indented}\n"
    assert [x.name for x in converted(tree, wrapped).resources] == ["intel.com/a"]
    wrong = CliRunner().invoke(main, ["convert", "-"], input='{\n\t"resourceList": [{"resourceNam": "a"}]}')
    assert "standard input:2:20: unknown key resourceNam" in wrong.stderr  # the error still has its place


async def test_additional_info_of_functions_reaches_the_container(tree: Tree, tmp_path: Path, socket_dir: Path) -> None:
    text = """{"resourceList": [
      {"resourceName": "net", "selectors": {"vendors": ["8086"]},
       "additionalInfo": {"*": {"token": "all", "site": "x"}, "0000:3b:02.0": {"token": "one"}}},
      {"resourceName": "fpga", "deviceType": "accelerator", "additionalInfo": {"*": {"token": "all"}}}]}"""
    config = converted(tree, text)
    async with plugins_of(tree.host, config.resources, tmp_path, socket_dir) as offering:
        container = await offering.allocate("pod", "intel.com/net")
    address = "0000:3b:02.0"
    info = json.loads(container.env["PCIDEVICE_INTEL_COM_NET_INFO"])
    assert info[address] == {"generic": {"deviceID": address}, "extra": {"token": "one", "site": "x"}}
    assert not config.resources[1].additional_info  # the plugin reports it for network functions only


async def test_usb_devices_of_a_group_are_allocated_together(tree: Tree, tmp_path: Path, socket_dir: Path) -> None:
    """KubeVirt: a set of devices; the generic device plugin: all matching devices of the group."""
    sets = """
kind: KubeVirt
spec:
  configuration:
    permittedHostDevices:
      usb:
        - resourceName: kubevirt.io/set
          selectors: [{vendor: "46d", product: "82d"}, {vendor: "529", product: "1"}]
"""
    config = converted(tree, sets)
    async with plugins_of(tree.host, config.resources, tmp_path, socket_dir) as offering:
        container = await offering.allocate("pod", "kubevirt.io/set")
    assert container.env["USB_RESOURCE_KUBEVIRT_IO_SET"].split(",") == ["1:3", "1:9"]
    assert {"/dev/bus/usb/001/003", "/dev/bus/usb/001/009"} <= set(container.nodes)
    both = """devices: [{name: both, groups: [{usb: [
        {vendor: "0403", product: "6001"}, {vendor: "0529", product: "0001"}]}]}]"""
    (one,) = offered(tree, converted(tree, both))["squat.ai/both"]
    assert {x.path for x in one.devnodes} >= {f"/dev/bus/usb/001/{number}" for number in ("002", "004", "009")}


def test_usb_set_with_ambiguous_ids_is_left_out(tree: Tree) -> None:
    permitted = """kind: KubeVirt
spec: {configuration: {permittedHostDevices: {usb: [{resourceName: kubevirt.io/set,
  selectors: [{vendor: "403", product: "6001"}, {vendor: "529", product: "1"}]}]}}}
"""
    result = CliRunner().invoke(main, ["convert", "-", "--root", str(tree.host.root)], input=permitted)
    assert result.exit_code == 1
    assert "kubevirt.io/set is left out: there are several devices with one of its USB ids" in result.stderr


def test_invalid_entries_are_left_out_and_others_are_converted(tree: Tree) -> None:
    text = """
devices:
  - {name: a, groups: [{paths: [{path: /dev/fuse}]}]}
  - {name: a, groups: [{paths: [{path: /dev/random0}]}]}
  - {name: b, groups: [{paths: [{path: /dev/random1, mountPath: /proc/x}]}]}
  - {name: c, groups: [{paths: [{path: /dev/video0}]}]}
"""
    result = CliRunner().invoke(main, ["convert", "-", "--root", str(tree.host.root)], input=text)
    assert result.exit_code == 1
    assert [x.name for x in loads(result.stdout.encode()).resources] == ["squat.ai/a", "squat.ai/c"]
    assert "squat.ai/a is left out: squat.ai/a is the name of two resources" in result.stderr
    assert "squat.ai/b is left out: no device can be at /proc/x" in result.stderr


def test_groups_of_one_node_keep_different_counts(tree: Tree) -> None:
    text = """
devices:
  - name: any
    groups:
      - {count: 10, paths: [{path: /dev/fuse}]}
      - {paths: [{path: "/dev/ttyUSB*"}]}
      - {paths: [{path: "/dev/random*"}]}
  - name: camera
    groups: [{paths: [{path: /dev/video0, mountPath: /dev/cameras/}]}]
"""
    config = converted(tree, text)
    many, camera = config.resources
    shares = {x.devnodes[0].path: shares_of(many, x).count for x in offered(tree, config)["squat.ai/any"]}
    assert shares == {"/dev/fuse": 10, "/dev/ttyUSB2": 1, "/dev/ttyUSB4": 1, "/dev/random0": 1, "/dev/random1": 1}
    assert camera.container_path == "/dev/cameras/video0"


def test_every_container_gets_all_host_devices(tree: Tree) -> None:
    text = """
kind: ConfigMap
data:
  config.json: |
    {"resourceName": "github.com/everpeace-%s", "socketName": "x.sock", "numDevices": 100, "hostDevices": [%s]}
"""
    node = '{"hostPath": "/dev/%s", "containerPath": "/dev/%s", "permission": "%s"}'
    one = converted(tree, text % ("one", node % ("fuse", "mine", "r")))
    assert (one.resources[0].shares, one.resources[0].permissions) == (100, "r")
    (device,) = offered(tree, one)["github.com/everpeace-one"]
    assert [(x.path, x.container_path) for x in device.devnodes] == [("/dev/fuse", "/dev/mine")]
    two = converted(tree, text % ("two", f"{node % ('fuse', 'fuse', 'rw')}, {node % ('random0', 'r', 'rw')}"))
    (device,) = offered(tree, two)["github.com/everpeace-two"]
    assert [(x.path, x.container_path or x.path) for x in device.devnodes] == [
        ("/dev/fuse", "/dev/fuse"),
        ("/dev/random0", "/dev/r"),
    ]
    folder = converted(tree, text % ("mine", node % ("mine/*", "mine/*", "rwm")))
    assert paths(offered(tree, folder)["github.com/everpeace-mine"]) == [["/dev/mine/a", "/dev/mine/b"]]


async def test_gaudi_container_gets_the_variables_of_its_runtime(tree: Tree, tmp_path: Path, socket_dir: Path) -> None:
    text = """
kind: DaemonSet
spec:
  template:
    spec:
      nodeSelector: {habana.ai/driver: ready}
      containers:
        - image: vault.habana.ai/docker-k8s-device-plugin/docker-k8s-device-plugin:latest
          command: [habanalabs-device-plugin]
"""
    config = converted(tree, text)
    assert config.selects_nodes
    everywhere = converted(tree, text.replace("      nodeSelector: {habana.ai/driver: ready}\n", ""))
    async with plugins_of(tree.host, everywhere.resources, tmp_path, socket_dir) as offering:
        container = await offering.allocate("pod", "habana.ai/gaudi", 2)
    assert container.env["HABANA_VISIBLE_DEVICES"] == "0,1"
    assert container.env["HABANA_VISIBLE_MODULES"] == "5,2"
    assert container.nodes == [f"/dev/accel/{name}{n}" for name in ("accel", "accel_controlD") for n in (0, 1)]


AKRI = """
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: mine}
spec:
  discoveryHandler:
    name: %s
    discoveryDetails: |+
      udevRules:
      - %s
      permissions: rw
  brokerSpec: {brokerPodSpec: {containers: [{name: x, resources: {limits: {"{{PLACEHOLDER}}": "1"}}}]}}
  brokerProperties: {FORMAT: "{x}"}
  capacity: 5
"""


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("'KERNEL==\"video[0-9]*\"'", [["/dev/video0"]]),
        ('SUBSYSTEM=="tty", ATTRS{idVendor}=="0403", ATTRS{serial}=="B*"', [["/dev/ttyUSB4"]]),
        ('SUBSYSTEM=="tty", KERNEL=="ttyUSB[0-9]*|ttyACM*", ENV{ID_SERIAL_SHORT}!="A1"', [["/dev/ttyUSB4"]]),
        ('SUBSYSTEM=="usb", ATTR{idVendor}=="0529"', [["/dev/bus/usb/001/009"]]),
        ('SUBSYSTEM=="usb", ENV{DEVTYPE}=="usb_device", ATTR{idVendor}=="0529"', [["/dev/bus/usb/001/009"]]),
        ('ENV{DEVTYPE}=="usb_device", ATTR{idVendor}=="0529", SUBSYSTEM=="usb"', [["/dev/bus/usb/001/009"]]),
    ],
)
def test_akri_rule_selects_matching_nodes(tree: Tree, rule: str, found: list[list[str]]) -> None:
    config = converted(tree, AKRI % ("udev", rule))
    (resource,) = config.resources
    assert (resource.name, resource.shares, resource.permissions) == ("akri.sh/mine", 5, "rw")
    assert dict(resource.env) == {"FORMAT": "{{x}}", "UDEV_DEVNODE_MINE": "{devnodes}"}
    assert paths(offered(tree, config)["akri.sh/mine"]) == found


def with_properties(rule: str, *properties: str) -> str:
    discovery = f"    discoveryProperties: [{', '.join(properties)}]\n  brokerSpec"
    return (AKRI % ("udev", rule)).replace("  brokerSpec", discovery, 1)


NAMED = "{name: devicePluginResourceName, value: akri.sh/mine}"


async def test_akri_usb_device_gets_the_variable_of_kubevirt(tree: Tree, tmp_path: Path, socket_dir: Path) -> None:
    config = converted(tree, with_properties('SUBSYSTEM=="usb", ATTR{idVendor}=="0529"', NAMED, "{name: else}"))
    async with plugins_of(tree.host, config.resources, tmp_path, socket_dir) as offering:
        container = await offering.allocate("machine", "akri.sh/mine")
    assert container.env["USB_RESOURCE_AKRI_SH_MINE"] == "1:9"  # to_usb_resource_env_var of Akri's udev handler


@pytest.mark.parametrize(
    ("rule", "properties", "reason"),
    [
        ('SUBSYSTEM=="tty"', [NAMED], "SUBSYSTEM must be usb (devicePluginResourceName)"),
        ('SUBSYSTEM=="usb"', ['{name: vfioPassthrough, value: "True"}'], "`kind: vfio` and `compat: kubevirt` (vfio"),
        (
            'SUBSYSTEM=="usb"',
            ["{name: devicePluginResourceName, value: akri.sh/other}"],
            "KubeVirt requests akri.sh/other (devicePluginResourceName), and not akri.sh/mine",
        ),
    ],
)
def test_unconvertible_akri_properties_are_named(tree: Tree, rule: str, properties: list[str], reason: str) -> None:
    text = with_properties(rule, *properties)
    result = CliRunner().invoke(main, ["convert", "-", "--root", str(tree.host.root)], input=text)
    assert result.exit_code == 1
    assert reason in result.stderr


def test_akri_property_from_a_secret_is_refused(tree: Tree) -> None:
    text = with_properties('SUBSYSTEM=="usb"', "{name: vfioPassthrough, valueFrom: {secretKeyRef: {name: x, key: y}}}")
    result = CliRunner().invoke(main, ["convert", "-", "--root", str(tree.host.root)], input=text)
    assert result.exit_code == 2
    assert "the value of vfioPassthrough is in another object; write it here, as `value`" in result.stderr


@pytest.mark.parametrize(
    ("handler", "rule", "reason"),
    [
        ("onvif", "x", "the handler onvif finds no devices on the node itself"),
        (
            "udev",
            'ATTRS{idVendor}=="0403"',
            "it matches every part of such a device; select some with SUBSYSTEM or KERNEL",
        ),
        ("udev", 'SUBSYSTEM=="tty", TAG=="x"', "nodeplug has no equivalent of TAG with `x`"),
        (
            "udev",
            'KERNEL=="video[0-9]*", ENV{ID_V4L_CAPABILITIES}==":capture:"',
            "nodeplug has no equivalent of ENV{ID_V4L_CAPABILITIES} with `:capture:`; the preset `camera` is close",
        ),
        (
            "udev",
            'KERNEL=="ttyUSB*", ENV{ID_VENDOR_ID}!="0403"',
            "an exclusion needs a kind of devices",
        ),
        ("udev", 'SUBSYSTEM=="net"', "nodeplug has no equivalent of SUBSYSTEM with `net`"),
        ("udev", 'KERNEL=="a", RUN{program}+="x"', 'what begins with `RUN{program}+="x"` is not a known match'),
    ],
)
def test_unconvertible_akri_rules_are_named(tree: Tree, handler: str, rule: str, reason: str) -> None:
    text = AKRI % (handler, rule)
    result = CliRunner().invoke(main, ["convert", "-", "--root", str(tree.host.root)], input=text)
    assert result.exit_code == 1
    assert reason in result.stderr
