"""Differences between releases for the same objects."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from resourceapi.device_selectors import check_device_selector
from resourceapi.objects import read_object, v1
from resourceapi.objects.codec import without_unknown
from resourceapi.objects.disabled_fields import without_disabled
from resourceapi.objects.release import LATEST, RELEASES, Release
from resourceapi.objects.validate import validate_create, validate_status_update, validate_update
from tests.resourceapi.objects import samples

FOLDER = Path(__file__).parents[2] / "data" / "recorded" / "validation"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def _answers(release: Release) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (FOLDER / f"answers-{release.version}.{release.patch}.txt").read_text().splitlines():
        if line.startswith("# "):
            name = line.removeprefix("# ")
            found[name] = []
        else:
            found[name].append(line.strip())
    return found


def _errors(release: Release, kind: str, values: list[dict[str, Any]]) -> list[str]:
    version = values[0]["apiVersion"].rpartition("/")[2]
    objects = [without_unknown(read_object(value, defaults_at=NOW)) for value in values]
    if len(objects) == 1:
        check = check_device_selector
        errors = validate_create(objects[0], check_selector=check, release=release, version=version)
    elif kind == "status":
        errors = validate_status_update(objects[1], objects[0], release=release, version=version)
    else:
        errors = validate_update(objects[1], objects[0], release=release, version=version)
    return [str(error) for error in errors]


@pytest.mark.parametrize("version", ["1.36", "1.37"])
def test_errors_equal_those_of_real_api_servers(version: str) -> None:
    """Fifty invalid objects, checked by the original code of both releases."""
    release = RELEASES[version]
    expected = _answers(release)
    for line in (FOLDER / "objects.tsv").read_text().splitlines():
        name, kind, *values = line.split("\t")
        found = _errors(release, kind, [json.loads(value) for value in values if value])
        assert (name, found) == (name, expected[name])


def test_update_does_not_validate_unchanged_fields() -> None:
    bad = "spec.devices.0.capacity.memory.requestPolicy.validRange.step"
    stored = samples.build_object(samples.SLICE, bad, "-1")
    changed = samples.build_object(samples.changed(samples.SLICE, bad, "-1"), "spec.pool.generation", 7)
    messages = [str(error) for error in validate_update(changed, stored)]
    assert not [text for text in messages if "step" in text]
    assert [text for text in map(str, validate_create(stored)) if "must be greater than zero" in text]


@pytest.mark.parametrize("version", ["1.34", "1.35"])
def test_fields_of_disabled_features_are_dropped(version: str) -> None:
    old = RELEASES[version]
    dropped = without_disabled(samples.build_object(samples.SLICE), None, old)
    assert isinstance(dropped, v1.ResourceSlice)
    (device, *_) = dropped.spec.devices
    assert (device.taints, device.consumes_counters, device.binding_conditions) == ((), (), ())
    assert device.allow_multiple_allocations is None
    assert all(capacity.request_policy is None for capacity in device.capacity.values())
    device_class = without_disabled(samples.build_object(samples.DEVICE_CLASS), None, old)
    assert isinstance(device_class, v1.DeviceClass)
    assert device_class.spec.extended_resource_name is None
    claim = without_disabled(samples.build_object(samples.CLAIM), None, old)
    assert isinstance(claim, v1.ResourceClaim)
    assert claim.spec.devices.requests[0].exactly is not None
    assert claim.spec.devices.requests[0].exactly.capacity is None
    assert claim.spec.devices.requests[0].exactly.tolerations  # tolerations are kept


def test_stored_object_keeps_fields_of_disabled_features() -> None:
    obj = samples.build_object(samples.SLICE)
    assert without_disabled(obj, obj, RELEASES["1.34"]) == obj
    assert without_disabled(obj, None, LATEST) is obj
