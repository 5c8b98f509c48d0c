"""The metrics' text, read by Prometheus' own parser."""

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from deviceplugin import ResourceStatus
from dra_plugin import DraStatus
from nodeplug.config_file import ConfigStatus
from nodeplug.metrics import Metric, ScanStatus, collect, render
from nodeplug.readiness import why_not_ready
from nodeplug.version import VERSION

FUSE = ResourceStatus("example.com/fuse", 5, 3, 2, True, 7, "")
AWAY = ResourceStatus("example.com/kvm", 1, 1, 0, False, 0, "no kubelet.sock")
DRA = DraStatus(devices=4, healthy=1, claims=2, registered=False, slice_writes=9, last_error="")


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What a scraper makes of it."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_all_of_them() -> None:
    found = samples(render(collect([FUSE, AWAY], DRA, ScanStatus(0.25, 2), ConfigStatus(False, 1e9))))
    build = found.pop(next(key for key in found if key[0] == "nodeplug_build_info"))
    assert build == 1
    fuse, kvm = ("resource", "example.com/fuse"), ("resource", "example.com/kvm")
    healthy, unhealthy = ("health", "healthy"), ("health", "unhealthy")
    assert found == {
        ("nodeplug_devices", (healthy, fuse)): 3,
        ("nodeplug_devices", (unhealthy, fuse)): 2,
        ("nodeplug_devices", (healthy, kvm)): 1,
        ("nodeplug_devices", (unhealthy, kvm)): 0,
        ("nodeplug_leases", (fuse,)): 2,
        ("nodeplug_leases", (kvm,)): 0,
        ("nodeplug_registrations_total", (fuse,)): 7,
        ("nodeplug_registrations_total", (kvm,)): 0,
        ("nodeplug_kubelet_listens", (fuse,)): 1,
        ("nodeplug_kubelet_listens", (kvm,)): 0,
        ("nodeplug_dra_devices", (healthy,)): 1,
        ("nodeplug_dra_devices", (unhealthy,)): 3,
        ("nodeplug_dra_claims", ()): 2,
        ("nodeplug_dra_registered", ()): 0,
        ("nodeplug_dra_slice_writes_total", ()): 9,
        ("nodeplug_config_last_reload_successful", ()): 0,
        ("nodeplug_config_last_reload_success_timestamp_seconds", ()): 1e9,
        ("nodeplug_scan_seconds", ()): 0.25,
        ("nodeplug_stuck_reads", ()): 2,
    }
    assert all(found[key] == value for key, value in samples(render(collect([FUSE, AWAY]))).items() if key in found)


def test_what_is_told_stands_in_the_page_for_operators() -> None:
    page = (Path(__file__).parents[2] / "docs/operating.md").read_text()
    rows = re.findall(r"^\| `(nodeplug_\w+)` \| (\w+) \|([^|]*)\|", page, re.MULTILINE)
    told = [
        (each.name, each.type, {name for labels, _ in each.samples for name in labels})
        for each in collect([FUSE], DRA, ScanStatus(0.25, 0), ConfigStatus(True, 1e9))
    ]
    assert [(name, type_, set(re.findall(r"\w+", labels))) for name, type_, labels in rows] == told


def test_which_nodeplug_it_is() -> None:
    assert 'nodeplug_build_info{python="3.' in (text := render(collect([])))
    assert f'version="{VERSION}"}} 1.0\n' in text
    assert {family.name: family.type for family in text_string_to_metric_families(render(collect([FUSE], DRA)))} == {
        "nodeplug_build_info": "gauge",
        "nodeplug_devices": "gauge",
        "nodeplug_leases": "gauge",
        "nodeplug_registrations": "counter",
        "nodeplug_kubelet_listens": "gauge",
        "nodeplug_dra_devices": "gauge",
        "nodeplug_dra_claims": "gauge",
        "nodeplug_dra_registered": "gauge",
        "nodeplug_dra_slice_writes": "counter",
    }


@given(text=st.text(st.characters(exclude_categories=["Cs"])), value=st.floats(allow_nan=False))
def test_whatever_a_label_holds_comes_back(text: str, value: float) -> None:
    metric = Metric("a_b", "gauge", text, (({"label": text, "other": "x"}, value),))
    assert samples(render([metric])) == {("a_b", (("label", text), ("other", "x"))): value}


def test_why_it_is_not_ready() -> None:
    assert why_not_ready([FUSE]) == []
    assert why_not_ready([FUSE, AWAY], DRA) == [
        "resource example.com/kvm is not registered with the kubelet: no kubelet.sock",
        "the DRA driver is not registered with the kubelet",
    ]
