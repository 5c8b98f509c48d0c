"""`nodeplug allocate` with files, as run by a user."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from nodeplug.commands.allocate import allocate

DUMP = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: node-a}}
- {apiVersion: v1, kind: Node, metadata: {name: node-b}}
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: passed over}}
- apiVersion: resource.k8s.io/v1
  kind: DeviceClass
  metadata: {name: gpu, creationTimestamp: 2026-01-01T00:00:00Z}
  spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}
- apiVersion: resource.k8s.io/v1
  kind: ResourceSlice
  metadata: {name: a}
  spec:
    driver: gpu.example.com
    nodeName: node-a
    pool: {name: node-a, generation: 1, resourceSliceCount: 1}
    devices: [{name: gpu-0}, {name: gpu-1}]
- apiVersion: resource.k8s.io/v1
  kind: ResourceSlice
  metadata: {name: b}
  spec:
    driver: gpu.example.com
    nodeName: node-b
    pool: {name: node-b, generation: 1, resourceSliceCount: 1}
    devices: [{name: gpu-0}]
- apiVersion: resource.k8s.io/v1
  kind: ResourceClaim
  metadata: {name: held, namespace: default}
  spec: {devices: {requests: [{name: g, exactly: {deviceClassName: gpu}}]}}
  status: {allocation: {devices: {results: [{request: g, driver: gpu.example.com, pool: node-a, device: gpu-0}]}}}
"""
CLAIM = """
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaim
metadata: {name: NAME, namespace: default}
spec: {devices: {requests: [{name: g, deviceClassName: gpu, count: COUNT}]}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dump of a cluster, and a claim without an allocation, in an older version."""
    (tmp_path / "dump.yaml").write_text(DUMP)
    (tmp_path / "claim.yml").write_text(_claim("wanted", 1))
    return tmp_path


def _claim(name: str, count: int) -> str:
    return CLAIM.replace("NAME", name).replace("COUNT", str(count))


def _run(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(allocate, [str(each) for each in arguments], input=stdin)


def test_folder_is_read_and_suitable_nodes_are_listed(folder: Path) -> None:
    result = _run(folder)
    assert result.exit_code == 0
    assert "2 of 2 nodes can serve the claims: node-a, node-b" in result.output
    assert "gpu.example.com/node-a/gpu-1" in result.output
    assert "gpu.example.com/node-b/gpu-0" in result.output


def test_wide_output_lists_every_node_and_device(folder: Path) -> None:
    for number in range(2, 6):
        (folder / f"node{number}.yaml").write_text(f"{{apiVersion: v1, kind: Node, metadata: {{name: node-{number}}}}}")
    assert "and 1 more" in _run(folder).output
    lines = [line.split() for line in _run(folder, "-o", "wide").output.splitlines()]
    assert ["default/wanted", "g", "gpu.example.com/node-a/gpu-1"] in lines
    assert [line[0] for line in lines if line and line[0].startswith("node-")] == [
        f"node-{each}" for each in ("a", "b", *"2345")
    ]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("output", ["table", "wide"])
def test_markup_is_printed_and_control_characters_are_escaped(folder: Path, count: int, output: str) -> None:
    """Brackets are not interpreted as markup, and control characters are escaped."""
    (folder / "claim.yml").write_text(CLAIM.replace("NAME", r'"[/red]\x1b[31m"').replace("COUNT", str(count)))
    dump = DUMP.replace("node-a", r'"node[/a]\x1b[31m"').replace("name: gpu-1", r'name: "gpu[/b]\x07"')
    (folder / "dump.yaml").write_text(dump)
    result = _run(folder, "-o", output)
    assert (result.exit_code, result.output.replace("\n", "").isprintable()) == (count - 1, True)
    assert r"node[/a]\x1b[31m" in result.output
    if count == 1:
        assert r"gpu.example.com/node[/a]\x1b[31m/gpu[/b]\x07" in result.output
    if count == 2 or output == "wide":
        assert r"default/[/red]\x1b[31m" in result.output


def test_yaml_output_is_the_allocated_claims(folder: Path) -> None:
    result = _run(folder, "-o", "yaml")
    written = yaml.safe_load(result.output)
    assert written["metadata"]["name"] == "wanted"
    assert written["status"]["allocation"]["devices"]["results"] == [
        {"request": "g", "driver": "gpu.example.com", "pool": "node-a", "device": "gpu-1"}
    ]
    assert _run(folder, "-", "-o", "yaml", stdin=result.output).exit_code == 2, "there is nothing left to allocate"


def test_failed_allocation_prints_the_reason_first_and_exits_1(folder: Path) -> None:
    (folder / "claim.yml").write_text(_claim("wanted", 2))
    result = _run(folder)
    assert result.exit_code == 1
    assert result.output.startswith(
        "none of 2 nodes can serve the claims: claim default/wanted, request g: needs 2, 1 of 2 devices left "
        "(1 in use [default/held])"
    )
    as_yaml = _run(folder, "-o", "yaml")
    assert (as_yaml.exit_code, as_yaml.stdout) == (1, "")
    assert "node-b: claim default/wanted, request g: needs 2, 1 of 1 devices left" in as_yaml.stderr


def test_json_has_the_device_counts_of_each_request(folder: Path) -> None:
    (folder / "claim.yml").write_text(_claim("wanted", 2))
    nodes = json.loads(_run(folder, "-o", "json").output)["nodes"]
    assert [(node["node"], node["allocations"]) for node in nodes] == [("node-a", None), ("node-b", None)]
    assert nodes[0]["requests"] == [
        {
            "claim": "default/wanted",
            "request": "g",
            "wanted": 2,
            "considered": 2,
            "matching": None,
            "removed": [{"rule": "in use", "count": 1, "detail": "default/held"}],
            "left": 1,
        }
    ]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (["-claim/default/held"], "what if: would fit now: node-a"),
        (["-claim/held"], "what if: would fit now: node-a"),
        (["+device/gpu.example.com/node-b/gpu-9~gpu-0"], "what if: would fit now: node-b"),
        (["+node/node-c~node-b"], "what if: the same nodes fit"),
        (["-claim/held", "-device/gpu.example.com/node-a/gpu-1"], "what if: the same nodes fit"),
    ],
)
def test_what_if_prints_the_change_of_suitable_nodes(folder: Path, changes: list[str], line: str) -> None:
    (folder / "claim.yml").write_text(_claim("wanted", 2))
    options = [option for change in changes for option in ("--what-if", change)]
    assert _run(folder, *options).output.splitlines()[0] == line


def test_what_if_accepts_files_and_copies(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    more = tmp_path_factory.mktemp("more") / "claim.yaml"
    more.write_text(_claim("second", 1))
    result = _run(folder, "--what-if", f"+{more}")
    assert result.output.splitlines()[0] == "what if: would no longer fit: node-a, node-b"
    result = _run(folder, "--what-if", "+claim/default/second~default/wanted", "--node", "node-a")
    assert result.output.splitlines()[0] == "what if: would no longer fit: node-a"
    assert _run(folder, "--what-if", "-node/node-a").output.count("node-a") == 1, "it would no longer fit"


def test_claim_and_node_options_restrict_the_input(folder: Path) -> None:
    (folder / "more.yaml").write_text(_claim("big", 5))
    assert _run(folder).exit_code == 1
    result = _run(folder, "--claim", "wanted", "--node", "node-b")
    assert result.output.splitlines()[0] == "1 of 1 node can serve the claims: node-b"


def test_device_taint_rules_exclude_devices(folder: Path) -> None:
    (folder / "rule.yaml").write_text(
        "{apiVersion: resource.k8s.io/v1, kind: DeviceTaintRule, metadata: {name: r}, spec: "
        "{deviceSelector: {pool: node-b}, taint: {key: broken, effect: NoSchedule}}}"
    )
    assert _run(folder).output.splitlines()[0] == "1 of 2 nodes can serve the claims: node-a"


def test_nodes_default_to_those_of_slices_and_templates_are_claims(tmp_path: Path) -> None:
    slice_ = next(item for item in yaml.safe_load(DUMP)["items"] if item["kind"] == "ResourceSlice")
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "template"},
        "spec": {"spec": {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": "any"}}]}}},
    }
    any_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "any"}, "spec": {}}
    (tmp_path / "all.json").write_text(json.dumps([slice_, template, any_class]))
    assert _run(tmp_path / "all.json").output.splitlines()[0] == "1 of 1 node can serve the claims: node-a"


@pytest.mark.parametrize(
    ("arguments", "content", "text"),
    [
        (["missing.yaml"], None, "missing.yaml: No such file or directory"),
        (["x.yaml"], "a: [", "x.yaml: line 1: did not find expected node content"),
        (["x.yaml"], "just text", "x.yaml: not an object"),
        (["x.yaml"], "kind: Node", "x.yaml: needs apiVersion and kind"),
        (["x.yaml"], "{apiVersion: v1, kind: Node, metadata: {name: 5}}", "x.yaml: Node: metadata.name: "),
        (["x.yaml"], "\x00", "x.yaml: "),
        (["x.yaml"], "{apiVersion: v1, kind: Node, metadata: {name: n1}}", "there is no claim without an allocation"),
        (["x.yaml", "--claim", "c"], "{apiVersion: v1, kind: Node, metadata: {name: n1}}", "--claim c: no such claim"),
        (["x.yaml", "--what-if", "more"], _claim("c", 1), "--what-if more: write +FILE"),
        (["x.yaml", "--what-if", "-claim/other"], _claim("c", 1), "--what-if: there is no claim other; there are"),
        (["x.yaml", "--what-if", "-device/a/b"], _claim("c", 1), "--what-if: there is no device a/b; write"),
        (["x.yaml", "--node", "n"], _claim("c", 1), "--node n: no such node; there are node"),
    ],
)
def test_unusable_input_exits_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], content: str | None, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("x.yaml").write_text(content)
    result = _run(*arguments)
    assert result.exit_code == 2
    assert text in result.stderr
    assert result.stdout == ""
