"""Different devices of one resource can have different numbers of shares, in both APIs."""

import pytest

from deviceplugin.limits import LIST_LIMIT
from deviceplugin.units import owner_of, size_of, units_of
from dra_plugin.publishing.attributes import capacities
from hostdevices import Device
from nodeplug.config import loads
from resources.container_view import ContainerView
from resources.resource import Capacity, Resource
from resources.shares import DeviceShares, shares_of
from tests.dra_plugin.offering import offering, published
from tests.hostdevices.made import assigned, device
from tests.nodeplug.config.text import errors_with_settings, one

GI = 1 << 30
SMALL = device("gpu-small", "gpu", attributes={"model": "T4", "memory": 16 * GI})
LARGE = device("gpu-large", "gpu", attributes={"model": "A100", "memory": 81 * GI})
WITHOUT_MEMORY = device("gpu-silent", "gpu", attributes={"model": "T4"})
BY_MODEL = "select: {kind: gpu}\napi: both\nshares: 2\nsharesOf: [{select: {attributes: {model: A100}}, count: 8}]"
BY_MEMORY = "select: {kind: gpu}\napi: both\nsharesOf: [{memory: 10Gi}]"


def counts(resource: Resource, *devices: Device) -> list[int]:
    return [shares_of(resource, x).count for x in devices]


def test_number_of_shares_follows_selectors() -> None:
    found = one(BY_MODEL)
    assert counts(found, SMALL, LARGE) == [2, 8]
    assert list(units_of(found, (SMALL,))) == ["gpu-small.0", "gpu-small.1"]
    assert (len(units_of(found, (SMALL, LARGE))), size_of(found, (SMALL, LARGE))) == (10, (1, 10))
    assert capacities(found, LARGE)["shares"].value == "8"
    assert owner_of(found, "gpu-large.7", LARGE) == "x/y=gpu-large/8"  # different for each number of shares


def test_number_of_shares_follows_memory() -> None:
    found = one(BY_MEMORY)
    assert counts(found, SMALL, LARGE) == [1, 8]
    assert shares_of(found, LARGE) == DeviceShares(8, 10 * GI)
    assert list(units_of(found, (SMALL,))) == ["gpu-small.0"]  # a share's name: there can be two later
    assert capacities(found, LARGE)["memory"] == Capacity(str(81 * GI), default=str(10 * GI))
    slices = published(offering([found], {"x/y": [SMALL, LARGE]}))
    assert [x.allow_multiple_allocations for x in slices.values()] == [True, True]


@pytest.mark.parametrize(
    ("unshared", "words"),
    [
        (WITHOUT_MEMORY, "the size of its memory is not known"),
        (device("gpu-x", "gpu", attributes={"memory": GI}), "a share of"),
    ],
)
def test_device_without_memory_for_a_share_is_unavailable(unshared: Device, words: str) -> None:
    found = one(BY_MEMORY)
    assert words in ContainerView(found).of(unshared).unavailable
    (offered,) = assigned([unshared], found).devices["x/y"]
    assert offered.unavailable
    assert published(offering([found], {"x/y": [offered]}))  # valid for an API server


def test_first_matching_rule_sets_the_shares() -> None:
    text = "select: {kind: gpu}\nsharesOf: [{select: {attributes: {model: T4}}, count: 3}, {memory: 1Gi}]"
    assert counts(one(text), SMALL, WITHOUT_MEMORY, LARGE) == [3, 3, 81]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sharesOf: [{}]", "exactly one of `count` and `memory`"),
        ("sharesOf: [{count: 2, memory: 1Gi}]", "exactly one of `count` and `memory`"),
        ("sharesOf: [{count: 0}]", "0 is less than 1"),
        ("sharesOf: [{memory: lots}]", "lots is not an amount"),
        ("sharesOf: [{memory: 1m}]", "a share of 1m of memory is too small"),
        (f"sharesOf: [{{count: {LIST_LIMIT}}}]", "the kubelet takes"),
        ("sharesOf: [{select: gpuu, count: 2}]", "gpuu"),
        ("sharesOf: [{count: 2}]\nreset: true", "a reset would affect the other containers"),
        ("api: dra\nsharesOf: [{memory: 1Gi}]\ndra: {capacity: {memory: {value: 2Gi, default: 1Gi}}}", "sharesOf"),
        ("api: dra\nsharesOf: [{count: 1}]\ndra: {capacity: {cores: 8}}", "without `default`"),
    ],
)
def test_invalid_shares_are_refused(text: str, words: str) -> None:
    assert any(words in x for x in errors_with_settings(f"select: gpu\n{text}"))


def test_plain_shares_apply_to_all_devices() -> None:
    (found,) = loads(b"resources: [{name: x/y, select: gpu, shares: 3}]").resources
    assert (found.is_shared, counts(found, SMALL, LARGE), size_of(found, (SMALL, LARGE))) == (True, [3, 3], (2, 3))
