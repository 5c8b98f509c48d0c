"""Whole machines: all devices that the built-in configuration offers can be published and selected."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dra_plugin.publishing.device_class import device_class
from hostdevices import Host, scan
from nodeplug.config import builtin
from resourceapi.cel import DeviceView, compile_selector, device_environment
from resourceapi.objects.validate import validate_create
from resources.assignment import assign
from resources.resource import Resource
from tests.dra_plugin.offering import DRIVER, offering, published
from tests.hostdevices.machine import build_machine
from tests.nodes.test_archives import ARCHIVES, FOLDER

RESOURCES = [structs.replace(resource, api="dra") for resource in builtin().resources]


def test_devices_of_every_kind_are_published_and_selected(tmp_path: Path) -> None:
    assert len(check(build_machine(tmp_path / "root").host)) > 20


def test_devices_of_this_machine_are_published_and_selected() -> None:
    check(Host())


@pytest.mark.parametrize(
    "archive",
    ARCHIVES or [pytest.param(None, marks=pytest.mark.skip(reason=f"no recorded machines in {FOLDER}"))],
    ids=lambda path: path and path.name,
)
def test_devices_of_a_recorded_machine_are_published_and_selected(
    archive: Any, unpacked: Callable[[Path], Path]
) -> None:
    check(Host(unpacked(archive)))


def check(host: Host) -> dict[str, Resource]:
    """Check a host's slices against the API's rules, each class against its resource; return resources by device."""
    offers = offering(RESOURCES, assign(scan(host), RESOURCES).devices)
    shown = published(offers)
    views = {name: DeviceView(DRIVER, x.attributes, x.capacity) for name, x in shown.items()}
    found: dict[str, Resource] = {}
    for resource in RESOURCES:
        made = device_class(resource, DRIVER)
        assert not validate_create(made)
        (selector,) = made.spec.selectors
        assert selector.cel is not None
        meant = compile_selector(selector.cel.expression, device_environment())
        found |= {name: resource for name, view in views.items() if meant.matches(view)}
    assert {x.name: x.resource.name for x in offers} == {name: x.name for name, x in found.items()}
    for offered in offers:
        assert not offered.device.attributes.keys() - shown[offered.name].attributes.keys()
    return found
