"""The text of the metrics, parsed by Prometheus' own parser, and by promtool if it is installed."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

from deviceplugin import ResourceStatus
from dra_plugin import DraStatus
from nodeplug.config_file import ConfigStatus
from nodeplug.metrics import MAX_LEASES, ScanStatus, collect
from nodeplug.readiness import not_ready_reasons
from nodeplug.version import VERSION
from telemetry import Histogram, Telemetry
from telemetry.exposition import Metric, render
from tests.checkpoint.build import claimed, lease

FUSE = ResourceStatus("example.com/fuse", 6, 3, 2, True, 7, "", in_use=1)
AWAY = ResourceStatus("example.com/kvm", 2, 1, 0, False, 0, "no kubelet.sock", unlisted=1)
DRA = DraStatus(devices=4, healthy=1, withheld=1, claims=2, registered=False, slice_writes=9, last_error="")


def everything() -> list[Metric]:
    """All metrics."""
    telemetry = Telemetry()
    telemetry.record_refusal("dra", "no-answer", 'it says "no"\n')
    telemetry.allocate.observe(0.003)
    file = ConfigStatus(True, 1e9)
    leases = [claimed("gpu-0", "uid")]
    return list(collect([FUSE], DRA, ScanStatus(0.25, 0), file, telemetry, leases, config_sha256="0123"))


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The samples that a scraper gets."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_samples_have_the_values_of_their_sources() -> None:
    found = samples(render(collect([FUSE, AWAY], DRA, ScanStatus(0.25, 2), ConfigStatus(False, 1e9))))
    build = found.pop(next(key for key in found if key[0] == "nodeplug_build_info"))
    assert build == 1
    fuse, kvm = ("resource", "example.com/fuse"), ("resource", "example.com/kvm")
    kinds = ("healthy", "unhealthy", "in-use", "withheld", "unlisted")
    healthy, unhealthy, in_use, withheld, unlisted = (("health", x) for x in kinds)
    assert found == {
        ("nodeplug_devices", (healthy, fuse)): 3,
        ("nodeplug_devices", (unhealthy, fuse)): 2,
        ("nodeplug_devices", (healthy, kvm)): 1,
        ("nodeplug_devices", (unhealthy, kvm)): 0,
        ("nodeplug_devices", (in_use, fuse)): 1,
        ("nodeplug_devices", (in_use, kvm)): 0,
        ("nodeplug_devices", (withheld, fuse)): 0,
        ("nodeplug_devices", (unlisted, fuse)): 0,
        ("nodeplug_devices", (unlisted, kvm)): 1,
        ("nodeplug_devices", (withheld, kvm)): 0,
        ("nodeplug_leases", (fuse,)): 2,
        ("nodeplug_leases", (kvm,)): 0,
        ("nodeplug_registrations_total", (fuse,)): 7,
        ("nodeplug_registrations_total", (kvm,)): 0,
        ("nodeplug_kubelet_listens", (fuse,)): 1,
        ("nodeplug_kubelet_listens", (kvm,)): 0,
        ("nodeplug_dra_devices", (healthy,)): 1,
        ("nodeplug_dra_devices", (unhealthy,)): 2,
        ("nodeplug_dra_devices", (withheld,)): 1,
        ("nodeplug_dra_claims", ()): 2,
        ("nodeplug_dra_registered", ()): 0,
        ("nodeplug_dra_registrations_total", ()): 0,
        ("nodeplug_dra_slice_writes_total", ()): 9,
        ("nodeplug_lease_info_omitted", ()): 0,
        ("nodeplug_leases_writable", ()): 1,
        ("nodeplug_last_lease_check_successful", ()): 1,
        ("nodeplug_config_last_reload_successful", ()): 0,
        ("nodeplug_config_last_reload_success_timestamp_seconds", ()): 1e9,
        ("nodeplug_scan_seconds", ()): 0.25,
        ("nodeplug_stuck_reads", ()): 2,
        ("nodeplug_last_scan_successful", ()): 1,
    }
    assert all(found[key] == value for key, value in samples(render(collect([FUSE, AWAY]))).items() if key in found)


def test_monitoring_page_lists_every_metric_with_type_and_labels() -> None:
    page = (Path(__file__).parents[2] / "docs/monitoring.md").read_text()
    rows = re.findall(r"^\| `(nodeplug_\w+)` \| (\w+) \|([^|]*)\|", page, re.MULTILINE)
    defined = [(each.name, each.type, {name for labels, _ in each.samples for name in labels}) for each in everything()]
    assert [(name, type_, set(re.findall(r"\w+", labels))) for name, type_, labels in rows] == defined


def test_build_info_has_the_version_and_types_match_suffixes() -> None:
    assert 'nodeplug_build_info{python="3.' in (text := render(collect([])))
    assert f'version="{VERSION}"}} 1.0\n' in text
    assert {family.name: family.type for family in text_string_to_metric_families(render(collect([FUSE], DRA)))} == {
        "nodeplug_build_info": "gauge",
        "nodeplug_devices": "gauge",
        "nodeplug_leases": "gauge",
        "nodeplug_lease_info": "gauge",
        "nodeplug_lease_info_omitted": "gauge",
        "nodeplug_leases_writable": "gauge",
        "nodeplug_last_lease_check_successful": "gauge",
        "nodeplug_registrations": "counter",
        "nodeplug_kubelet_listens": "gauge",
        "nodeplug_dra_devices": "gauge",
        "nodeplug_dra_claims": "gauge",
        "nodeplug_dra_registered": "gauge",
        "nodeplug_dra_registrations": "counter",
        "nodeplug_dra_slice_writes": "counter",
    }


def test_lease_info_has_pods_and_claims() -> None:
    shared = lease("gpu-1.3", shares=4, holder="pod/default/train/main", pods="uid-1")
    nobody = lease("gpu-2")
    claim = claimed("gpu-0", "uid-of-it", name="mine", pods="uid-1 uid-2")
    found = [dict(labels) for (name, labels) in samples(render(collect([], leases=[shared, nobody, claim]))) if labels]
    with_units = [{name: text for name, text in each.items() if text} for each in found if "unit" in each]
    gpu = {"resource": "example.com/gpu"}
    pod = {"namespace": "default", "pod": "train", "container": "main", "pod_uid": "uid-1"}
    assert with_units == [
        {**gpu, "api": "device-plugin", "unit": "gpu-1.3", "device": "gpu-1", **pod},
        {**gpu, "api": "device-plugin", "unit": "gpu-2", "device": "gpu-2"},
        {**gpu, "api": "dra", "unit": "gpu-0", "device": "gpu-0", "namespace": "default", "claim": "mine"},
    ]


def test_lease_info_is_limited_and_omissions_are_counted() -> None:
    many = [lease(f"gpu-{number}") for number in range(MAX_LEASES + 5)]
    found = samples(render(collect([], leases=many)))
    assert sum(name == "nodeplug_lease_info" for name, _ in found) == MAX_LEASES
    assert found["nodeplug_lease_info_omitted", ()] == 5


def test_histogram_has_cumulative_buckets_sum_and_count() -> None:
    histogram = Histogram((0.5, 2.5))
    for value in (0.25, 0.5, 2.0, 9.0):
        histogram.observe(value)
    metric = Metric("a_seconds", "histogram", "A.", (({"api": "dra"}, histogram),))
    assert render([metric]).splitlines()[2:] == [
        'a_seconds_bucket{api="dra",le="0.5"} 2',
        'a_seconds_bucket{api="dra",le="2.5"} 3',
        'a_seconds_bucket{api="dra",le="+Inf"} 4',
        'a_seconds_sum{api="dra"} 11.75',
        'a_seconds_count{api="dra"} 4',
    ]


def test_names_follow_prometheus_conventions() -> None:
    """Source: https://prometheus.io/docs/practices/naming. promtool checks the same, where it is installed."""
    for metric in everything():
        assert re.fullmatch(r"nodeplug_[a-z]+(_[a-z0-9]+)*", metric.name)
        assert metric.name.endswith("_total") == (metric.type == "counter")
        assert not re.search(r"_(ms|milliseconds|minutes|bucket|count|sum|gauge|counter|histogram)$", metric.name)
        assert metric.type != "histogram" or metric.name.endswith("_seconds")
        assert metric.help.endswith(".")
        labels = {name for labels, _ in metric.samples for name in labels}
        assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) and name not in ("le", "job", "instance") for name in labels)
        assert len({tuple(sorted(labels.items())) for labels, _ in metric.samples}) == len(metric.samples)


def test_promtool_accepts_the_metrics() -> None:
    if not shutil.which("promtool"):
        pytest.skip("no promtool on this machine")
    text = render(everything())
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@given(text=st.text(st.characters(exclude_categories=["Cs"])), value=st.floats(allow_nan=False))
def test_any_label_value_is_escaped_reversibly(text: str, value: float) -> None:
    metric = Metric("a_b", "gauge", text, (({"label": text, "other": "x"}, value),))
    assert samples(render([metric])) == {("a_b", (("label", text), ("other", "x"))): value}


def test_readiness_reasons_name_unregistered_parts() -> None:
    assert not_ready_reasons([FUSE]) == []
    assert not_ready_reasons([FUSE, AWAY], DRA) == [
        "resource example.com/kvm is not registered with the kubelet: no kubelet.sock",
        "the DRA driver is not registered with the kubelet",
    ]
    registered = structs.replace(DRA, registered=True, published=False, last_error="forbidden")
    assert not_ready_reasons([FUSE], registered) == ["the ResourceSlices of this node are not stored yet: forbidden"]
    assert not_ready_reasons([FUSE], structs.replace(registered, published=True)) == []
