"""Device ids: readable DNS labels that differ for different facts."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostdevices import device_id, is_device_id
from tests.dra_scenarios import scenario

FACTS = st.lists(st.text(min_size=1, max_size=80), min_size=1, max_size=5)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (("misc", "kvm"), "misc-kvm"),
        (("misc", "cpu_dma_latency"), "misc-cpu-dma-latency"),
        (("pci", "0000:3b:00.0"), "pci-0000-3b-00-0"),
        (("pci", "10000:01:00.0"), "pci-10000-01-00-0"),
        (("usb", "1a86", "7523", "0000:00:14.0", "0", "2.3"), "usb-1a86-7523-0000-00-14-0-0-2-3"),
        (("mdev", "83b8f4f2-509f-382f-3c1e-e6bfe0fa1001"), "mdev-83b8f4f2-509f-382f-3c1e-e6bfe0fa1001"),
        (("dma_heap", "system"), "dma-heap-system"),
    ],
)
def test_short_facts_form_a_readable_id(facts: tuple[str, ...], expected: str) -> None:
    assert device_id(*facts) == expected


def test_facts_differing_in_case_get_different_digests() -> None:
    ids = {device_id("usb", "0403", "6001", serial) for serial in ("A50285BI", "a50285bi", "A50285Bi", "A50285BI ")}
    assert len(ids) == 4
    assert all(identity.startswith("usb-0403-6001-a50285bi") for identity in ids)


def test_long_facts_are_truncated_to_distinct_ids() -> None:
    first, second = (device_id("path", "serial/by-id/" + "x" * 90 + end) for end in ("1", "2"))
    assert first != second
    assert len(first) == len(second) == 63


@scenario(294)
@given(FACTS)
def test_any_facts_form_a_stable_dns_label(facts: list[str]) -> None:
    identity = device_id("usb", *facts)
    assert is_device_id(identity)
    assert identity == device_id("usb", *facts)


@given(FACTS, FACTS)
def test_facts_differing_in_more_than_separators_get_different_ids(first: list[str], second: list[str]) -> None:
    if re.sub(r"[:._/-]+", "-", "-".join(first)) != re.sub(r"[:._/-]+", "-", "-".join(second)):
        assert device_id("usb", *first) != device_id("usb", *second)


@pytest.mark.parametrize("text", ["", "-a", "a-", "A", "a_b", "a.b", "a" * 64, "ä", "a\n"])
def test_invalid_device_id_is_recognised(text: str) -> None:
    assert not is_device_id(text)
