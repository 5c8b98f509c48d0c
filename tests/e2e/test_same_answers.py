"""Samples of random requests and watches on the stand-in API server and a real one; the modules compare more."""

from pathlib import Path

import pytest

from tests.e2e import compare_objects, compare_quotas, compare_watches
from tests.e2e.compare_servers import compared, servers
from tests.e2e.realserver import skip_reason

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(skip_reason()), reason=skip_reason())]


def test_random_requests_have_the_same_answers(tmp_path: Path) -> None:
    """Codes, warnings and bodies agree, except for known reasons."""
    with servers(tmp_path) as (ours, real):
        differing = [each for each in compared(ours, real, 600, seed=1) if each.found]
    unexplained = [(each.formatted.request, each.found) for each in differing if not each.reason]
    assert len(unexplained) <= 600 * 0.03, unexplained  # one of 32 in a run of 10 000
    assert len(differing) <= 600 * 0.15


def test_mutated_objects_have_the_same_answers(tmp_path: Path) -> None:
    """Refusals, warnings and stored objects agree, except for known reasons."""
    kinds = ["ConfigMap", "DaemonSet", "DeviceClass", "Pod", "ResourceClaim", "ResourceSlice", "Service"]
    with servers(tmp_path) as (ours, real):
        exchanges = list(compare_objects.compared(ours, real, 20, 1, kinds))
    unexplained = [(each.request, each.found) for each in exchanges if each.found and not each.reason]
    assert len(unexplained) <= len(exchanges) * 0.03, unexplained


def test_watches_deliver_the_same_events(tmp_path: Path) -> None:
    """Events, objects and refusals agree, except for known reasons."""
    with servers(tmp_path) as (ours, real):
        watches = list(compare_watches.compared(ours, real, 2, seed=1))
    assert watches
    unexplained = [(each.watched, each.found) for each in watches if each.found and not each.reason]
    assert len(unexplained) <= 1, unexplained


def test_quotas_and_limit_ranges_have_the_same_answers(tmp_path: Path) -> None:
    """Refusals, defaults of pods and usage agree, except for known reasons."""
    with servers(tmp_path) as (ours, real):
        exchanges = list(compare_quotas.compared(ours, real, 4, 1))
    unexplained = [(each.request, each.found) for each in exchanges if each.found and not each.reason]
    assert not unexplained
