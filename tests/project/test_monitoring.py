"""deploy/monitoring: scraping, alerts and the dashboard use existing metrics."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click import Context

from nodeplug.cli import main
from telemetry.exposition import Metric
from tests.nodeplug.test_metrics import everything

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "deploy/monitoring"
RULES = yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]
ALERTS: list[dict[str, Any]] = [rule for group in RULES["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text())
TARGET_LABELS = {"node", "namespace", "pod", "job", "le"}
"""The PodMonitor's labels, and the label of a histogram's buckets."""


def queries() -> Iterator[str]:
    yield from (alert["expr"] for alert in ALERTS)
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (each["query"]["query"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query")


def test_queries_use_existing_metrics_and_labels() -> None:
    known: dict[str, Metric] = {}
    for metric in everything():
        suffixes = ("_bucket", "_sum", "_count") if metric.type == "histogram" else ("",)
        known.update((metric.name + suffix, metric) for suffix in suffixes)
    used: set[str] = set()
    for query in queries():
        for name, labels in re.findall(r"(nodeplug_\w+)(?:\{([^}]*)\})?", query):
            assert name in known, query
            used.add(known[name].name)
            has = {label for each, _ in known[name].samples for label in each} | TARGET_LABELS
            assert set(re.findall(r"(\w+)\s*[=!]", labels)) <= has, query
        names = set(re.findall(r"nodeplug_\w+", query))
        grouped = {
            x for part in re.findall(r"(?:by|on|group_left) \(([^)]*)\)", query) for x in re.findall(r"\w+", part)
        }
        has_labels = {label for name in names for each, _ in known[name].samples for label in each}
        assert grouped <= has_labels | TARGET_LABELS, query
    assert len(used) > 12


def labels_of(query: str) -> set[str]:
    """Return the labels of a query's result, as far as its text determines them."""
    known = {label for metric in everything() for labels, _ in metric.samples for label in labels}
    names = set(re.findall(r"nodeplug_\w+|\bup\b", query))
    exported: set[str] = set()
    for metric in everything():
        if any(name.startswith(metric.name) for name in names):
            exported |= {label for labels, _ in metric.samples for label in labels}
    kept = re.search(r"\b(?:sum|count|max|min) by \(([^)]*)\)", query)
    return set(re.findall(r"\w+", kept.group(1))) if kept else (exported & known) | TARGET_LABELS


def test_queries_use_existing_label_values() -> None:
    """For labels with our values; a resource or a node can have any name."""
    values: dict[tuple[str, str], set[str]] = {}
    for metric in everything():
        for labels, _ in metric.samples:
            for label, value in labels.items():
                values.setdefault((metric.name, label), set()).add(value)
    compared = 0
    for query in queries():
        for name, conditions in re.findall(r"(nodeplug_\w+?)(?:_bucket|_sum|_count)?\{([^}]*)\}", query):
            for label, value in re.findall(r'(\w+)\s*=~?\s*"([^"]*)"', conditions):
                if not value.startswith("$"):
                    assert set(value.split("|")) <= values[name, label], query
                    compared += 1
    assert compared >= 6


def test_legends_and_annotations_use_labels_of_the_result() -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            shown = set(re.findall(r"\{\{\s*(\w+)\s*\}\}", target.get("legendFormat", "")))
            assert shown <= labels_of(target["expr"]), panel["title"]
    for alert in ALERTS:
        for text in alert["annotations"].values():
            shown = set(re.findall(r"\$labels\.(\w+)", text))
            assert shown <= labels_of(alert["expr"]), alert["alert"]
        assert set(alert) >= {"expr", "labels", "annotations"}


def test_dashboard_panels_have_unique_ids_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24  # columns of the grid
        taken |= cells
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD["panels"])))
    assert {name for name in used if not name.startswith("__")} == variables


def test_every_alert_has_severity_texts_and_existing_commands() -> None:
    names = [alert["alert"] for alert in ALERTS]
    assert len(set(names)) == len(names)
    for alert in ALERTS:
        assert alert["labels"]["severity"] in ("info", "warning", "critical")
        texts = alert["annotations"]
        assert texts["summary"]
        assert texts["description"]
        for word in re.findall(r"(?<!-n )nodeplug ([a-z]+)", texts["description"]):
            assert word in main.list_commands(Context(main))


def test_monitoring_page_lists_every_alert() -> None:
    page = (ROOT / "docs/monitoring.md").read_text()
    rows = re.findall(r"^\| `(Nodeplug\w+)` \| (\w+) \|", page, re.MULTILINE)
    assert rows == [(alert["alert"], alert["labels"]["severity"]) for alert in ALERTS]


def test_pod_monitor_selects_the_daemonset() -> None:
    monitor = yaml.safe_load((MONITORING / "podmonitor.yaml").read_text())
    manifests = yaml.safe_load_all((ROOT / "deploy/daemonset.yaml").read_text())
    pod = next(each for each in manifests if each and each["kind"] == "DaemonSet")["spec"]["template"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    (container,) = pod["spec"]["containers"]
    address = next(each["value"] for each in container["env"] if each["name"] == "NODEPLUG_METRICS_ADDRESS")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    ports = [x["replacement"] for x in endpoint["relabelings"] if x["targetLabel"] == "__address__"]
    assert ports == [f"$1{address}", f"[$1]{address}"]


def promtool(*arguments: str | Path) -> None:
    if not shutil.which("promtool"):
        pytest.skip("no promtool on this machine")
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_alerts(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(RULES))
    promtool("check", "rules", tmp_path / "rules.yaml")


def test_promtool_accepts_the_dashboard_queries(tmp_path: Path) -> None:
    shown = (query.replace("$__rate_interval", "5m") for query in queries() if not query.startswith("label_values"))
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(shown)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", tmp_path / "rules.yaml")


_NODE: dict[str, str] = {
    "nodeplug_build_info": "1x120",
    'up{job="nodeplug"}': "1x120",
    'nodeplug_kubelet_listens{resource="a/b"}': "1x120",
    "nodeplug_dra_registered": "1x120",
    "nodeplug_config_last_reload_successful": "1x120",
    'nodeplug_config_info{sha256="0"}': "1x120",
    'nodeplug_devices{resource="a/b",health="healthy"}': "2x120",
    'nodeplug_devices{resource="a/b",health="unhealthy"}': "0x120",
    'nodeplug_devices{resource="a/b",health="in-use"}': "1x120",
    'nodeplug_devices{resource="a/b",health="withheld"}': "1x120",
    'nodeplug_dra_devices{health="unhealthy"}': "0x120",
    'nodeplug_dra_devices{health="withheld"}': "1x120",
    "nodeplug_stuck_reads": "0x120",
    'nodeplug_refusals_total{api="dra",reason="not-ready"}': "0x104 2x15",  # a pod that started too early
    'nodeplug_refusals_total{api="device-plugin",reason="defect"}': "0x120",
    "nodeplug_leases_writable": "1x120",
    "nodeplug_last_lease_check_successful": "1x120",
    "nodeplug_last_scan_successful": "1x120",
    'nodeplug_events_total{kind="set-aside"}': "0x120",
    'nodeplug_events_total{kind="kubelet-restarted"}': "0x100 1x19",
    'nodeplug_lease_commit_duration_seconds_bucket{le="0.25"}': "0+9x120",
    'nodeplug_lease_commit_duration_seconds_bucket{le="0.5"}': "0+10x120",
    'nodeplug_lease_commit_duration_seconds_bucket{le="+Inf"}': "0+10x120",
    "nodeplug_dra_slice_writes_total": "0+1x120",
}
"""The samples of a healthy node in two hours, one per minute."""
_FAILING_NODES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "NodeplugDown": ({'up{job="nodeplug"}': "0x120"}, {"job": "nodeplug"}),
    "NodeplugNotRegistered": ({'nodeplug_kubelet_listens{resource="a/b"}': "1x20 0x99"}, {"resource": "a/b"}),
    "NodeplugDriverNotRegistered": ({"nodeplug_dra_registered": "1x20 0x99"}, {}),
    "NodeplugConfigurationRefused": ({"nodeplug_config_last_reload_successful": "1x20 0x99"}, {}),
    "NodeplugDeviceUnhealthy": (
        {'nodeplug_devices{resource="a/b",health="unhealthy"}': "1x120"},
        {"resource": "a/b", "health": "unhealthy"},
    ),
    "NodeplugStuckReads": ({"nodeplug_stuck_reads": "0x20 1x99"}, {}),
    "NodeplugScanFails": ({"nodeplug_last_scan_successful": "1x20 0x99"}, {}),
    "NodeplugRefuses": (
        {'nodeplug_refusals_total{api="dra",reason="not-ready"}': "0+1x120"},
        {"api": "dra", "reason": "not-ready"},
    ),
    "NodeplugDefect": ({'nodeplug_refusals_total{api="device-plugin",reason="defect"}': "0x100 1x19"}, {}),
    "NodeplugLeasesNotWritten": ({"nodeplug_leases_writable": "1x20 0x99"}, {}),
    "NodeplugLeasesSetAside": ({'nodeplug_events_total{kind="set-aside"}': "1x120"}, {"kind": "set-aside"}),
    "NodeplugLeasesWriteSlowly": ({'nodeplug_lease_commit_duration_seconds_bucket{le="0.25"}': "0x120"}, {}),
    "NodeplugSlicesRewritten": ({"nodeplug_dra_slice_writes_total": "0+4x120"}, {}),
    "NodeplugKubeletRestarts": ({'nodeplug_events_total{kind="kubelet-restarted"}': "0x80 1+1x39"}, {}),
}
"""By alert: the samples that differ on a failing node, and the alert's labels."""
_CLUSTER_ALERTS = {"NodeplugAbsent": {}, "NodeplugConfigurationsDiffer": {"namespace": "nodeplug"}}
"""Alerts that are not about a single node."""


def _series(node: str, otherwise: dict[str, str]) -> list[dict[str, str]]:
    """Return the samples of a node in promtool's format."""
    found = []
    for name, values in (_NODE | otherwise).items():
        metric, _, labels = name.rstrip("}").partition("{")
        own = f'namespace="nodeplug",node="{node}"'
        found.append({"series": f"{metric}{{{','.join(filter(None, (labels, own)))}}}", "values": values})
    return found


def _promtool_test(series: list[dict[str, str]], expected: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Return a promtool test for exactly these alerts with these labels."""
    cases = []
    for alert in ALERTS:
        name, severity = alert["alert"], alert["labels"]["severity"]
        labels = [{"severity": severity} | expected[name]] if name in expected else []
        cases.append({"eval_time": "115m", "alertname": name, "exp_alerts": [{"exp_labels": x} for x in labels]})
    return {"interval": "1m", "input_series": series, "alert_rule_test": cases}


def test_each_alert_fires_only_for_its_failing_node(tmp_path: Path) -> None:
    """With a healthy and a failing node, evaluated by Prometheus' promtool."""
    assert _FAILING_NODES.keys() | _CLUSTER_ALERTS.keys() == {alert["alert"] for alert in ALERTS}
    well = _series("well", {})
    other = {'nodeplug_config_info{sha256="0"}': "_x120", 'nodeplug_config_info{sha256="1"}': "1x120"}
    tests = [
        _promtool_test(well, {}),
        _promtool_test([], {"NodeplugAbsent": {}}),
        _promtool_test([*well, *_series("ill", other)], {"NodeplugConfigurationsDiffer": {"namespace": "nodeplug"}}),
    ]
    for name, (otherwise, labels) in _FAILING_NODES.items():
        of_node = {"node": "ill"} if _is_grouped(name) else {"node": "ill", "namespace": "nodeplug"}
        tests.append(_promtool_test([*well, *_series("ill", otherwise)], {name: of_node | labels}))
    rules = yaml.safe_load(yaml.safe_dump(RULES))
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        rule["annotations"] = {}  # only the labels are compared
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    (tmp_path / "test.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests})
    )
    promtool("test", "rules", tmp_path / "test.yaml")


def _is_grouped(name: str) -> bool:
    """Return whether an alert's labels are those of its sum."""
    return any(alert["alert"] == name and "sum by" in alert["expr"] for alert in ALERTS)
