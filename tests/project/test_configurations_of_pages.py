"""Every configuration on a page is valid."""

import re
from pathlib import Path

import pytest
import yaml

from nodeplug.config import loads

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CONFIGURATIONS = [
    pytest.param(text, id=f"{page.name}-{number}")
    for page in PAGES
    for number, text in enumerate(re.findall(r"(?s)```yaml\n(.*?)```", page.read_text()))
    if re.search(r"^(resources|settings):", text, re.MULTILINE) and "kustomization.yaml\n" not in text
]


@pytest.mark.parametrize("text", CONFIGURATIONS)
def test_configuration_on_a_page_is_valid(text: str) -> None:
    (document,) = yaml.safe_load_all(text)
    assert loads(text.encode()).resources or "settings" in document


def test_pages_have_configurations() -> None:
    assert len(CONFIGURATIONS) > 50
