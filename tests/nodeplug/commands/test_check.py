"""`nodeplug check`, as run by a user."""

import json
import os
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # has no types of its own
import pytest
import yaml
from click.testing import CliRunner, Result

from hostdevices import device_id
from nodeplug.cli import main
from tests.hostdevices.machine import build_machine
from tests.hostdevices.tree import Tree
from tests.nodeplug.commands.test_discover import on_a_terminal
from tests.userspace.driver_root import install, remove

CONFIGURATION = """
resources:
  - {name: example.com/fuse, select: fuse, shares: 10}
  - name: example.com/serial
    select: {path: /dev/serial/by-id/*}
  - {name: example.com/kvm, select: kvm}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    tree = Tree(tmp_path / "root")
    tree.device("/sys/devices/virtual/misc/fuse", group="class/misc", node="fuse", numbers="10:229")
    tree.device("/sys/devices/virtual/block/loop0", group="class/block", node="loop0", numbers="7:0", kind="b", size=0)
    tree.node("/dev/ttyUSB7", "188:7")
    tree.link("/dev/serial/by-id/usb-FTDI", "/dev/ttyUSB7")
    return tree.root


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "node.yaml"
    path.write_text(CONFIGURATION)
    return path


def check(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["check", *map(str, words)])


def test_piped_output_lists_resources_and_devices(file: Path, root: Path) -> None:
    result = check(file, "--root", root)
    assert result.exit_code == 0, result.output
    serial = device_id("path", "serial/by-id/usb-FTDI")
    assert [line.split(maxsplit=2) for line in result.stdout.splitlines()] == [
        ["RESOURCE", "DEVICE", "ABOUT"],
        ["example.com/fuse", "misc-fuse", "/dev/fuse"],
        ["example.com/serial", serial, "/dev/serial/by-id/usb-FTDI"],
        ["example.com/kvm", "-", "no device here: misc-fuse: its name is fuse, not kvm"],
        ["-", "block-loop0", "example.com/serial: its node /dev/loop0 does not match /dev/serial/by-id/*"],
    ]


@pytest.mark.parametrize("columns", [50, 160])
def test_terminal_output_lists_resources_and_fits_the_width(file: Path, root: Path, columns: int) -> None:
    lines = on_a_terminal(columns, "check", file, "--root", root)
    assert all(len(line) <= columns for line in lines)
    words = " ".join(" ".join(lines).split())
    assert "example.com/fuse 1 device, 10 shares each misc-fuse /dev/fuse" in words
    assert "without a device 1 example.com/kvm no device here: misc-fuse: its name is fuse, not kvm" in words
    assert "no resource 1 block-loop0 example.com/serial" in words


def test_json_lists_resources_and_devices(file: Path, root: Path) -> None:
    result = check(file, "--root", root, "-o", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    fuse, serial, kvm = found["resources"]
    assert fuse == {
        "name": "example.com/fuse",
        "api": "device-plugin",
        "shares": 10,
        "devices": [
            {
                "id": "misc-fuse",
                "kind": "misc",
                "members": [],
                "devnodes": [{"path": "/dev/fuse", "containerPath": "/dev/fuse"}],
                "numaNodes": [],
                "health": {"healthy": True, "reason": ""},
                "unavailable": "",
                "shares": 10,
            }
        ],
        "error": "",
        "empty": "",
    }
    assert kvm["empty"] == "no device here: misc-fuse: its name is fuse, not kvm"
    assert [device["kind"] for device in serial["devices"]] == ["path"]
    assert kvm["devices"] == []
    assert [device["id"] for device in found["unassigned"]] == ["block-loop0"]
    assert found["problems"] == []


def test_unselected_devices_of_a_kind_are_counted(file: Path, tmp_path: Path) -> None:
    tree = Tree(tmp_path / "many")
    for number in range(3):
        name = f"loop{number}"
        tree.device(
            f"/sys/devices/virtual/block/{name}", group="class/block", node=name, numbers=f"7:{number}", kind="b"
        )
    file.write_text("resources: [{name: example.com/fuse, select: fuse}]")
    lines = check(file, "--root", tree.root).stdout.splitlines()
    assert [line.split(maxsplit=1) for line in lines if line.startswith("-")] == [
        ["-", "3 of kind block  no resource selects devices of kind block"]
    ]
    found = json.loads(check(file, "--root", tree.root, "-o", "json").stdout)
    assert len(found["unassigned"]) == 3


def test_wide_output_has_a_line_for_each_device(file: Path, root: Path) -> None:
    lines = check(file, "--root", root, "-o", "wide").stdout.splitlines()
    assert lines[0].split() == ["RESOURCE", "API", "SHARES", "DEVICE", "KIND", "NUMA", "HEALTH", "NODES", "ABOUT"]
    rows = [line.split(maxsplit=8) for line in lines[1:]]
    assert ["example.com/fuse", "device-plugin", "10", "misc-fuse", "misc", "-", "ok", "/dev/fuse", "-"] in rows
    assert [row[8] for row in rows if row[0] == "example.com/kvm"] == [
        "no device here: misc-fuse: its name is fuse, not kvm"
    ]
    assert [row[3] for row in rows if row[0] == "-"] == ["block-loop0"]


def test_yaml_equals_json(file: Path, root: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("resources: [{name: x/y, select: gpus}]\n")
    for words in ((file, "--root", root), (bad,)):
        found = [check(*words, "-o", output).stdout for output in ("json", "yaml")]
        assert json.loads(found[0]) == yaml.safe_load(found[1])


def test_errors_are_printed_with_line_and_column(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("resources:\n  - {name: gpu, select: gpus}\n  - {name: x/y, select: kvm, share: 2}\n")
    result = check(file)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"{file}:2:12: gpu cannot be a resource name: it has no domain, as in example.com/gpu",
        f"{file}:2:25: unknown preset gpus; did you mean gpu?",
        f"{file}:3:30: unknown key share; did you mean shares?",
    ]


def test_errors_are_printed_as_json(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("resources: [{name: x/y, select: gpus}]\n")
    result = check(file, "-o", "json")
    assert result.exit_code == 2
    assert json.loads(result.stdout) == {
        "errors": [
            {
                "file": str(file),
                "line": 1,
                "column": 33,
                "message": "unknown preset gpus",
                "hint": "did you mean gpu?",
            }
        ]
    }


def test_device_list_over_the_limit_of_the_kubelet_is_refused(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "root")
    for number in range(3):
        tree.node(f"/dev/x{number}", f"240:{number}")
    file = tmp_path / "many.yaml"
    file.write_text("resources: [{name: x/y, select: {path: /dev/x*}, shares: 15000}]\n")
    result = check(file, "--root", tree.root)
    assert result.exit_code == 2
    assert f"{file}: x/y: 3 device(s) with 15000 share(s) make a list of up to" in result.stderr
    assert json.loads(check(file, "--root", tree.root, "-o", "json").stdout)["resources"][0]["error"].startswith(
        "3 dev"
    )


@pytest.mark.parametrize("text", [b"\x00", b"\xff\xfe", b"[" * 1000, b"a: &a [*a]", b"", b"\t"])
def test_malformed_file_gives_one_error_line(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(text)
    result = check(file)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{file}:1:")
    assert len(result.stderr.splitlines()) == 1


def test_directory_instead_of_a_file_is_refused(tmp_path: Path) -> None:
    result = check(tmp_path)
    assert result.exit_code == 2
    assert result.stderr == f"{tmp_path}:1:1: this file cannot be read: Is a directory\n"


@pytest.mark.parametrize("words", [["check"], ["classes"], ["convert"], ["run", "--config"]], ids=lambda x: x[0])
def test_file_access_is_not_checked_before_reading(
    file: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """A click.Path that checks for readability would print its own text, without the place and `-o json`."""
    monkeypatch.setattr("os.access", lambda path, mode, **_: path != os.fspath(file))  # root can read every file
    file.write_text("resources: [")
    assert f"{file}:1:" in CliRunner().invoke(main, [*words, str(file)]).output


@pytest.mark.parametrize(
    ("text", "plugin"),
    [
        ("version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}", "NVIDIA's k8s-dev"),
        ('{"resourceList": [{"resourceName": "x", "selectors": {"vendors": ["8086"]}}]}', "sriov-network-device-pl"),
        ("kind: ConfigMap\ndata: {config.json: '{\"resourceList\": []}'}", "sriov-network-device-plugin"),
        ("- {devicematch: ^fuse$, nummaxdevices: 2}", "smarter-device-manager"),
    ],
)
def test_configuration_of_another_plugin_is_recognised(tmp_path: Path, text: str, plugin: str) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(text)
    last = check(file).stderr.splitlines()[-1]
    assert last.startswith(f"{file}: this is a configuration of {plugin}")
    assert last.endswith(f"; `nodeplug convert {file}` makes one of nodeplug")
    assert set(json.loads(check(file, "-o", "json").stdout)) == {"errors"}


def test_invalid_nodeplug_configuration_does_not_suggest_convert(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    for text in ("resource: []", "resources: [{nam: x/y}]", "kind: ConfigMap\ndata: {config.yaml: 'resources: []'}"):
        file.write_text(text)
        assert "convert" not in check(file).stderr


def test_root_without_sys_is_refused(file: Path, tmp_path: Path) -> None:
    result = check(file, "--root", tmp_path)
    assert result.exit_code == 1
    assert "no folder sys/ here" in result.stderr


def test_schema_option_needs_no_file(file: Path) -> None:
    result = check("--schema")
    assert result.exit_code == 0
    jsonschema.Draft202012Validator.check_schema(json.loads(result.stdout))
    assert check().exit_code == 2


def test_undefined_cdi_devices_and_invalid_specs_are_problems(file: Path, root: Path) -> None:
    """A container that uses such a device would not start. An invalid spec is reported as well."""
    file.write_text(
        'resources: [{name: example.com/fuse, select: fuse, cdiDevices: ["v.com/ab={name}", "v.com/bc=all"]}]'
    )
    (root / "etc/cdi").mkdir(parents=True)
    (root / "etc/cdi/nvidia.yaml").write_text("cdiVersion: 0.6.0\nkind: v.com/ab\ndevices:\n- name: fuse\n- 3\n")
    (root / "etc/cdi/broken.json").write_text("{")
    problems = json.loads(check(file, "--root", root, "-o", "json").stdout)["problems"]
    assert [each["where"] for each in problems] == ["/etc/cdi/broken.json", "example.com/fuse misc-fuse"]
    assert problems[1]["reason"].startswith(
        "no CDI spec in /etc/cdi, /var/run/cdi defines v.com/bc=all, so its container"
    )


def test_gpus_without_driver_libraries_are_unavailable(file: Path, tmp_path: Path) -> None:
    """The command creates no driver folder."""
    root, state = build_machine(tmp_path / "gpus").root, tmp_path / "state"
    file.write_text(
        f"settings: {{stateDirectory: {state}}}\nresources: [{{name: example.com/gpu, select: mig, userspace: nvidia}}]"
    )

    def reasons() -> set[str]:
        (found,) = json.loads(check(file, "--root", root, "-o", "json").stdout)["resources"]
        return {device["unavailable"] for device in found["devices"]}

    install(root, "535.104.05")
    assert reasons() == {""}
    remove(root, "535.104.05")
    assert reasons() == {"NVIDIA's driver 535.104.05 has no libraries below /; set settings.driverRoot"}
    assert not state.exists()


def test_resources_that_depend_on_unknown_labels_wait(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "resources: [{name: x/a, nodeSelector: {pool: p}, select: kvm, shares: 3}, {name: x/a, select: kvm},"
        " {name: x/b, select: tun}]"
    )
    root = Tree(tmp_path / "host").root
    root.mkdir(exist_ok=True)
    unknown = json.loads(check(file, "--root", root, "-o", "json").stdout)
    assert (unknown["resources"], unknown["waiting"]) == ([], ["x/a", "x/b"])
    assert "depends on this node's labels (--node-label)" in check(file, "--root", root).stdout
    for label, shares in (("pool=p", 3), ("pool=q", 1)):
        known = json.loads(check(file, "--root", root, "--node-label", label, "-o", "json").stdout)
        assert ([x["shares"] for x in known["resources"]], known["waiting"]) == ([shares, 1], [])
    assert "write NAME=VALUE" in check(file, "--node-label", "pool").stderr


def test_node_option_must_equal_the_node_name_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "settings: {nodeName: node-a}\nresources: [{name: x/a, onNodes: node-a, select: kvm}, {name: x/b, select: tun}]"
    )
    root = Tree(tmp_path / "host").root
    root.mkdir(exist_ok=True)
    result = check(file, "--root", root, "--node", "node-b")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"--node node-b: settings.nodeName in {file} is node-a and overrides it;" in result.stderr
    for words in ((), ("--node", "node-a")):
        found = json.loads(check(file, "--root", root, "-o", "json", *words).stdout)
        assert [x["name"] for x in found["resources"]] == ["x/a", "x/b"]


def test_devices_at_other_paths_are_summarised_in_one_line(tmp_path: Path) -> None:
    tree = build_machine(tmp_path / "root")
    file = tmp_path / "node.yaml"
    file.write_text("resources: [{name: example.com/serial, select: {path: /dev/ttyUSB0}}]")
    rest = [x for x in check(file, "--root", tree.root).stdout.splitlines() if x.startswith("-")]
    assert [x for x in rest if "its node" in x and "/dev/ttyS0" not in x] == []
    assert any("its node /dev/ttyS0 does not match /dev/ttyUSB0" in x for x in rest)  # a probable mistake
    assert any("devices" in x and "at no path of a resource" in x for x in rest)
    assert len(rest) < 10
    wide = check(file, "--root", tree.root, "-o", "wide").stdout
    assert "its node /dev/kvm does not match /dev/ttyUSB0" in wide


def test_nodes_of_the_device_come_before_shared_nodes(tmp_path: Path) -> None:
    tree = build_machine(tmp_path / "root")
    for name in ("nvidia-uvm-tools", "nvidia-modeset"):
        tree.node(f"/dev/{name}", "195:254")
    file = tmp_path / "node.yaml"
    file.write_text("resources: [{name: example.com/mig, select: mig}]")
    (line, *_) = [x for x in check(file, "--root", tree.root).stdout.splitlines() if "gi1-ci0" in x]
    assert "/dev/nvidia-caps/nvidia-cap12 /dev/nvidia-caps/nvidia-cap13 /dev/nvidia3 " in line
