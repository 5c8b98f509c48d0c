"""The page of scenarios says what the tests say."""

from tests.kubelet import scenarios


def test_the_page_is_fresh() -> None:
    assert scenarios.PAGE.read_text() == scenarios.page(), "run: python -m tests.kubelet.scenarios"


def test_no_scenario_is_forgotten() -> None:
    assert "MISSING" not in scenarios.page()
