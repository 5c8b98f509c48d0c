"""`nodeplug convert` of plugins that use flags and an operator's objects instead of a file: Intel's and AMD's."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from hostdevices import scan
from hostdevices.readers import READERS, paths_reader
from nodeplug.cli import main
from nodeplug.config import Settings, loads
from resources.assignment import assign
from resources.unit_names import unit_name
from tests.hostdevices.machine import build_machine, mi300x
from tests.hostdevices.tree import Tree
from tests.nodeplug.allocations import plugins_of

VFIO = ["/dev/vfio/30", "/dev/vfio/vfio"]


class Node:
    """A machine, and conversions for it."""

    def __init__(self, tree: Tree, folder: Path) -> None:
        self.tree = tree
        self.inventory = scan(tree.host, (*READERS, paths_reader(["/dev/dlb0"])))
        self._file = folder / "theirs.yaml"

    def converted(self, text: str, *words: str) -> Result:
        self._file.write_text(text)
        return CliRunner().invoke(main, ["convert", str(self._file), "--root", str(self.tree.host.root), *words])

    def offered(self, result: Result) -> dict[str, list[str]]:
        """Return the ids of this machine's devices for each resource of a conversion."""
        resources = loads(result.stdout.encode()).resources
        found = assign(self.inventory, resources)
        return {x.name: [unit_name(x.ids, device) for device in found.devices[x.name]] for x in resources}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    folder = tmp_path_factory.mktemp("vendors")
    tree = build_machine(folder / "root")
    npu = tree.pci("0000:00:0b.0", device="7d1d", pci_class="120000", driver="intel_vpu")
    tree.child(npu, "accel/accel1", group="class/accel", node="accel/accel1")
    for name, numbers in (("sgx_enclave", "10:125"), ("sgx_provision", "10:126")):
        tree.device(f"/sys/devices/virtual/misc/{name}", group="class/misc", node=name, numbers=numbers)
    for driver, address, device in (("xe", "0000:03:00.0", "e20b"), ("i915", "0000:04:00.0", "4680")):
        gpu = tree.pci(address, device=device, pci_class="030000", driver=driver)
        number = int(address[6])
        for name in (f"card{number}", f"renderD{128 + number}"):
            tree.child(gpu, f"drm/{name}", group="class/drm", node=f"dri/{name}")
    dlb = tree.pci("0000:6d:00.0", device="2710", pci_class="0b4000", driver="dlb2")
    tree.device(f"{dlb}/dlb2/dlb0", group="class/dlb2", node="dlb0", numbers="239:0")
    tree.link("/sys/class/dlb2/dlb0/device", dlb)
    return Node(tree, folder)


def daemon_set(image: str, *arguments: str, env: str = "") -> str:
    return f"""
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: theirs}}
spec:
  template:
    spec:
      nodeSelector: {{kubernetes.io/arch: amd64}}
      containers: [{{image: "{image}", args: {list(arguments)}, env: [{env}]}}]
"""


def test_intel_gpus_are_offered_by_driver(node: Node) -> None:
    text = """
apiVersion: deviceplugin.intel.com/v1
kind: GpuDevicePlugin
metadata: {name: gpudeviceplugin-sample}
spec:
  image: intel/intel-gpu-plugin:0.36.0
  sharedDevNum: 10
  logLevel: 4
  preferredAllocationPolicy: balanced
  enableMonitoring: true
  nodeSelector: {intel.feature.node.kubernetes.io/gpu: "true"}
"""
    result = node.converted(text)
    assert result.exit_code == 1
    assert node.offered(result) == {
        "gpu.intel.com/i915": ["gpu-0000-04-00-0"],
        "gpu.intel.com/xe": ["gpu-0000-00-02-0", "gpu-0000-03-00-0"],
    }
    assert {(x.shares, x.preferred) for x in loads(result.stdout.encode()).resources} == {(10, "spread")}
    assert "gpu.intel.com/monitoring is left out" in result.stderr
    assert "/dev/dri/by-path" in result.stdout
    labels = [x["nodeSelector"] for x in yaml.safe_load(result.stdout)["resources"]]
    assert labels == [{"intel.feature.node.kubernetes.io/gpu": "true"}] * 2


@pytest.mark.parametrize(
    ("flags", "offered"),
    [
        (["-allow-ids", "0xe20b,0xE20C"], ["gpu.intel.com/xe"]),
        (["--deny-ids=0xe20b,0x56c0", "-v=4"], ["gpu.intel.com/i915"]),
        (["-bypath", "none", "-v", "2", "-shared-dev-num=2"], ["gpu.intel.com/i915", "gpu.intel.com/xe"]),
    ],
)
def test_intel_gpu_flags_select_gpus(node: Node, flags: list[str], offered: list[str]) -> None:
    for text, words in ((str(flags), ["--from", "intel-gpu"]), (daemon_set("intel/intel-gpu-plugin:1", *flags), [])):
        result = node.converted(text, *words)
        assert result.exit_code == 0, result.output
        assert [name for name, ids in node.offered(result).items() if ids] == offered
        assert ("by-path" in result.stdout) == ("-bypath" not in flags)
        assert ("kubernetes.io/arch: amd64" in result.stdout) == (not words)


@pytest.mark.parametrize(
    ("text", "offered", "remark"),
    [
        (
            "{kind: QatDevicePlugin, spec: {initImage: a, kernelVfDrivers: [4xxxvf], maxNumDevices: 1}}",
            {"qat.intel.com/cy": ["0000:6b:00.1"]},
            "the plugin created and bound them, and nodeplug does not",
        ),
        (
            "{kind: DsaDevicePlugin, spec: {sharedDevNum: 10, provisioningConfig: queues}}",
            {"dsa.intel.com/wq-user-dedicated": [], "dsa.intel.com/wq-user-shared": ["dsa-0000-6a-01-0-wq0"]},
            "enabling work queues",
        ),
        ("gpu: {device_count: 2}", {"amd.com/gpu": ["0000:c1:00.0"]}, "ids: pciBusID"),
        (
            "{kind: IaaDevicePlugin}",
            {"iaa.intel.com/wq-user-dedicated": [], "iaa.intel.com/wq-user-shared": []},
            "work queues of the kernel",
        ),
        (
            "{kind: SgxDevicePlugin, spec: {enclaveLimit: 7}}",
            {"sgx.intel.com/enclave": ["misc-sgx-enclave"], "sgx.intel.com/provision": ["misc-sgx-provision"]},
            "sgx.intel.com/epc",
        ),
        (
            "{kind: NpuDevicePlugin, spec: {sharedDevNum: 2}}",
            {"npu.intel.com/accel": ["accel-0000-00-0b-0"]},
            "shares: 2",
        ),
        ("{kind: DlbDevicePlugin}", {"dlb.intel.com/pf": ["path-dlb0"]}, "these are the nodes of the machine"),
    ],
)
def test_plugin_configuration_offers_the_same_ids(
    node: Node, text: str, offered: dict[str, list[str]], remark: str
) -> None:
    result = node.converted(text)
    assert result.exit_code == 0, result.output
    assert node.offered(result) == offered
    assert remark in result.stdout


async def test_containers_get_the_same_ids_variables_and_nodes(node: Node, tmp_path: Path, socket_dir: Path) -> None:
    """Ids, variables and nodes are unchanged for pods that request the plugins' names."""
    objects = {"gpu": "{}", "npu": "{}", "sgx": "{}", "dsa": "{sharedDevNum: 2}", "qat": "{}"}
    resources = [
        x
        for name, spec in objects.items()
        for x in loads(
            node.converted(f"{{kind: {name.capitalize()}DevicePlugin, spec: {spec}}}").stdout.encode()
        ).resources
    ] + list(loads(node.converted("[]", "--from", "amd").stdout.encode()).resources)
    async with plugins_of(node.tree.host, resources, tmp_path, socket_dir) as offering:
        for name, ids, nodes in (
            ("gpu.intel.com/i915", ["gpu-0000-04-00-0"], ["/dev/dri/card4", "/dev/dri/renderD132"]),
            ("npu.intel.com/accel", ["accel-0000-00-0b-0"], ["/dev/accel/accel1"]),
            ("sgx.intel.com/provision", None, ["/dev/sgx_provision"]),
            ("dsa.intel.com/wq-user-shared", None, ["/dev/dsa/wq0.0"]),
            ("qat.intel.com/cy", ["0000:6b:00.1"], VFIO),
            ("amd.com/gpu", ["0000:c1:00.0"], ["/dev/dri/card1", "/dev/dri/renderD129", "/dev/kfd"]),
        ):
            container = await offering.allocate(name.partition("/")[0].replace(".", "-"), name)
            assert (container.ids if ids else None, container.nodes) == (ids, nodes)
            assert container.env.get("QAT0") == ("0000:6b:00.1" if "qat" in name else None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "{kind: QatDevicePlugin, spec: {dpdkDriver: igb_uio}}",
            "nodeplug offers functions of vfio-pci and not of igb_uio",
        ),
        ("{kind: QatDevicePlugin, spec: {maxNumDevices: 8, kernelVfDrivers: [c6xxvf]}}", "maxNumDevices is 8"),
        ("{kind: FpgaDevicePlugin, spec: {mode: region}}", "fpga.intel.com/region-... is left out"),
        ("{kind: SgxDevicePlugin, spec: {dcapInfraResources: true}}", "sgx.intel.com/qe is left out"),
        (daemon_set("intel/intel-gpu-plugin:1", "-wsl"), "gpu.intel.com/dxg is left out"),
        (daemon_set("rocm/k8s-device-plugin", env='{name: AMD_GPU_DEVICE_COUNT, value: "0"}'), "0 of the GPUs are"),
    ],
)
def test_options_without_a_counterpart_are_named(node: Node, text: str, reason: str) -> None:
    result = node.converted(text)
    assert result.exit_code == 1, result.output
    assert reason in result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            daemon_set("intel/intel-gpu-plugin:1", "-no-such"),
            "-no-such is not a flag of intel-gpu; flags: allocation-policy",
        ),
        (daemon_set("example.com/own"), "no container of this DaemonSet is a known plugin"),
        (daemon_set("nvcr.io/nvidia/kubevirt-gpu-device-plugin:v1.4.0"), "convert KubeVirt's permittedHostDevices"),
        (daemon_set("docker.io/projecthami/hami:v2.6"), "share GPUs with `shares`, `sharesOf` or `mps`"),
        ("{kind: GpuDevicePlugin, spec: {sharedDev: 1}}", "unknown key sharedDev; did you mean sharedDevNum?"),
        (daemon_set("intel/intel-npu-plugin:1", "-shared-dev-num=many"), "this must be a whole number"),
    ],
)
def test_unknown_flags_keys_and_images_are_refused(node: Node, text: str, message: str) -> None:
    result = node.converted(text)
    assert result.exit_code == 2
    assert message in result.stderr


def test_nvidia_daemon_set_is_converted(node: Node) -> None:
    variables = {"MIG_STRATEGY": "single", "PASS_DEVICE_SPECS": "'true'", "GDS_ENABLED": "'true'"}
    env = ", ".join(f"{{name: {name}, value: {value}}}" for name, value in variables.items())
    text = daemon_set(
        "nvcr.io/nvidia/k8s-device-plugin:v0.17.1", "--fail-on-init-error=false", "--mofed-enabled", env=env
    )
    result = node.converted(text)
    assert result.exit_code == 0, result.output
    (found,) = loads(result.stdout.encode()).resources
    assert found.name == "nvidia.com/gpu"
    assert set(found.env) == {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_GDS", "NVIDIA_MOFED"}
    (resource,) = yaml.safe_load(result.stdout)["resources"]
    assert (resource["select"], resource["nodeSelector"]) == (
        {"any": ["mig", "nvidia-gpu"]},
        {"kubernetes.io/arch": "amd64"},
    )


@pytest.mark.parametrize(
    ("disabled", "enabled", "ignored", "health"),
    [
        ("79", "", [13, 31, 43, 45, 68, 79, 109], "strict"),
        ("79, 94,what", "13", [31, 43, 45, 68, 79, 94, 109], "strict"),
        ("79", "all", [], "strict"),
        ("", "31", [13, 43, 45, 68, 109], "strict"),
        ("All", "", None, "present"),
        ("xids,3", "79", None, "strict"),
    ],
)
def test_nvidia_health_check_variables_set_the_ignored_xids(
    node: Node, disabled: str, enabled: str, ignored: list[int] | None, health: str
) -> None:
    variables = {"DP_DISABLE_HEALTHCHECKS": disabled, "DP_ENABLE_HEALTHCHECKS": enabled}
    env = ", ".join(f'{{name: {name}, value: "{value}"}}' for name, value in variables.items())
    result = node.converted(daemon_set("nvcr.io/nvidia/k8s-device-plugin:v0.17.1", env=env))
    config = loads(result.stdout.encode())
    assert [x.health for x in config.resources] == [health]
    assert config.settings.nvml is (health == "strict")
    assert config.settings.ignored_xids == (Settings().ignored_xids if ignored is None else tuple(ignored))
    assert ("before, only those of DP_ENABLE_HEALTHCHECKS" in result.stdout) is (disabled == "xids,3")


def test_plugin_started_by_a_shell_is_recognised(node: Node) -> None:
    """The daemon sets of NVIDIA's and AMD's GPU operators do this."""

    def converted(image: str, script: str, env: str = "") -> Result:
        return node.converted(daemon_set(image, env=env).replace("args: []", f"command: [/bin/sh, -c, '{script}']"))

    env = "{name: MIG_STRATEGY, value: single}"
    nvidia = converted("nvcr.io/nvidia/k8s-device-plugin:v0.19.3", "/bin/entrypoint.sh", env)
    assert loads(nvidia.stdout.encode()).settings.nvml, nvidia.output
    wait = "while [ ! -d /sys/class/kfd ]; do sleep 1; done; exec ./k8s-device-plugin"
    for then in ("", " 2>&1", " 2>&1 | tee /log", " >>/log2 || exit 1", " & wait"):
        amd = converted("rocm/k8s-device-plugin:latest", f"{wait} -v=5 -pulse=30 -resource_naming_strategy=mixed{then}")
        assert list(node.offered(amd)) == ["amd.com/spx_nps1"]
    labeller = converted("rocm/k8s-device-plugin:labeller-latest", "./k8s-node-labeller -vram")
    assert "no container of this DaemonSet is a known plugin" in labeller.stderr


HELPERS = {
    "nvcr.io/nvidia/k8s-device-plugin:v0.19.3": "gpu-feature-discovery",
    "rocm/k8s-device-plugin:labeller": "./k8s-node-labeller",
}


@pytest.mark.parametrize(("image", "program"), HELPERS.items())
def test_node_labellers_are_not_taken_for_plugins(node: Node, image: str, program: str) -> None:
    text = daemon_set(image, env="{name: MIG_STRATEGY, value: single}").replace("args:", f"command: [{program}], args:")
    assert program in text
    result = node.converted(text)
    assert result.exit_code == 2
    assert "no container of this DaemonSet is a known plugin" in result.stderr


def test_nvidia_config_manager_is_not_taken_for_the_plugin(node: Node) -> None:
    """NVIDIA's chart has it if there are several files: it is the first container, and the plugin has CONFIG_FILE."""
    image = "nvcr.io/nvidia/k8s-device-plugin:v0.19.3"
    text = daemon_set(image, env="{name: CONFIG_FILE, value: /config/config.yaml}")
    chooser = f'{{image: "{image}", command: [config-manager], env: [{{name: ONESHOT, value: "false"}}]}}'
    result = node.converted(text.replace("containers: [", f"containers: [{chooser}, "))
    assert result.exit_code == 2
    assert "the devices of nvidia are in its file" in result.stderr


@pytest.mark.parametrize(
    ("image", "words", "plugin"),
    [
        ("ghcr.io/k8snetworkplumbingwg/sriov-network-device-plugin:latest", ["--log-level=10"], "sriov"),
        ("ghcr.io/mellanox/k8s-rdma-shared-dev-plugin", [], "rdma-shared"),
        ("ghcr.io/smarter-project/smarter-device-manager:v1.20", [], "smarter"),
        ("nvcr.io/nvidia/k8s-device-plugin:v0.17.1", ["--config-file=/c.yaml"], "nvidia"),
    ],
)
def test_daemon_set_without_the_plugins_file_is_refused(node: Node, image: str, words: list[str], plugin: str) -> None:
    result = node.converted(daemon_set(image, *words))
    assert result.exit_code == 2
    message = f"the devices of {plugin} are in its file, and not in its DaemonSet; convert the ConfigMap that it mounts"
    assert message in result.stderr


def test_daemon_sets_of_generic_gaudi_and_amd_plugins_are_converted(node: Node) -> None:
    text = daemon_set(
        "ghcr.io/squat/generic-device-plugin", "--device", "{name: a, groups: [{paths: [{path: /dev/kvm}]}]}"
    )
    result = node.converted(text)
    assert result.exit_code == 0, result.output
    assert [x.name for x in loads(result.stdout.encode()).resources] == ["squat.ai/a"]
    assert yaml.safe_load(result.stdout)["resources"][0]["nodeSelector"] == {"kubernetes.io/arch": "amd64"}
    gaudi = node.converted(daemon_set("vault.habana.ai/docker-k8s-device-plugin:1.10", "--dev_type", " gaudi"))
    assert [x.name for x in loads(gaudi.stdout.encode()).resources] == ["habana.ai/gaudi"]
    amd = node.converted(
        daemon_set("rocm/k8s-device-plugin", env="{name: CONFIG_FILE_PATH, value: /etc/amdgpu/c.yaml}")
    )
    assert "does not read that file (device_count), and offers all GPUs" in amd.stdout


@pytest.mark.parametrize(
    ("mode", "strategy", "offered", "ids"),
    [
        ("SPX", "single", {"amd.com/gpu": 1}, "pciBusID"),
        ("CPX", "single", {"amd.com/gpu": 3}, "identity"),
        ("SPX", "mixed", {"amd.com/spx_nps1": 1}, "pciBusID"),
        ("CPX", "mixed", {"amd.com/cpx_nps1": 3}, "identity"),
    ],
)
def test_amd_naming_strategy_sets_names_and_ids(
    tmp_path: Path, mode: str, strategy: str, offered: dict[str, int], ids: str
) -> None:
    tree = Tree(tmp_path / "root")
    mi300x(tree, mode, partitions=1 if mode == "SPX" else 3)
    node = Node(tree, tmp_path)
    text = daemon_set("docker.io/rocm/k8s-device-plugin:latest", f"-resource_naming_strategy={strategy}", "-pulse=30")
    result = node.converted(text)
    assert result.exit_code == 0, result.output
    assert {name: len(found) for name, found in node.offered(result).items()} == offered
    assert {x.ids for x in loads(result.stdout.encode()).resources} == {ids}
    assert "# pulse: " in result.stdout


def test_amd_mixed_strategy_without_gpus_is_left_out(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "root")
    tree.path("/sys").mkdir(parents=True, exist_ok=True)
    node = Node(tree, tmp_path)
    mixed = node.converted("[-resource_naming_strategy, mixed]", "--from", "amd")
    assert mixed.exit_code == 1
    assert "amd.com/..._nps... is left out" in mixed.stderr
