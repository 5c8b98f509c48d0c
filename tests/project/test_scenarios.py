"""The pages of scenarios match the tests, and list every scenario."""

import pytest

from tests import allocator_scenarios, cel_scenarios, dra_scenarios
from tests.catalogue import Catalogue
from tests.kubelet import scenarios


@pytest.mark.parametrize(
    "catalogue",
    [scenarios.CATALOGUE, dra_scenarios.CATALOGUE, allocator_scenarios.CATALOGUE, cel_scenarios.CATALOGUE],
    ids=["device manager", "DRA", "allocator", "device selectors"],
)
def test_scenario_page_is_current_and_complete(catalogue: Catalogue) -> None:
    text = catalogue.text()
    assert catalogue.page.read_text() == text, f"write it again: see the head of {catalogue.page}"
    assert "MISSING" not in text
