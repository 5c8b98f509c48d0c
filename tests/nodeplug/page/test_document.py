"""The accessibility of the document: structure, names, contrast."""

import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from nodeplug.page.document import document
from tests.nodeplug.control.test_topology import luminance

TEXT = document().content.decode()
STYLE = TEXT.partition("<style>")[2].partition("</style>")[0]
_VOID = {"meta", "link", "input", "br"}


class Elements(HTMLParser):
    """Elements with their attributes, text and ancestors."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str], list[str]]] = []
        self.texts: dict[int, str] = {}
        self._open: list[tuple[str, int]] = []
        self.feed(TEXT)
        assert self._open == [], "each is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}, [name for name, _ in self._open]))
        if tag not in _VOID:
            self._open.append((tag, len(self.found) - 1))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for _, number in self._open:
            self.texts[number] = self.texts.get(number, "") + data

    def all(self, *tags: str) -> list[tuple[str, dict[str, str], list[str]]]:
        return [each for each in self.found if each[0] in tags]


PAGE = Elements()


def test_landmarks_are_unique_and_a_skip_link_leads_to_the_devices() -> None:
    tags = [tag for tag, _, _ in PAGE.found]
    assert all(tags.count(tag) == 1 for tag in ("header", "nav", "main", "footer", "h1", "title", "noscript", "dialog"))
    first = PAGE.all("a")[0]
    assert (first[1]["class"], first[1]["href"]) == ("skip", "#devices")
    assert PAGE.all("html")[0][1]["lang"] == "en"
    assert "width=device-width" in TEXT
    assert "user-scalable" not in TEXT
    assert "maximum-scale" not in TEXT


def test_headings_skip_no_level_and_regions_have_names() -> None:
    levels = [int(tag[1]) for tag, _, _ in PAGE.all("h1", "h2", "h3", "h4")]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for _, attributes, _ in PAGE.all("section", "dialog", "nav", "form"):
        is_named = attributes.keys() & {"aria-labelledby", "aria-label", "method"}
        assert is_named, attributes


def test_references_exist_and_fields_have_labels() -> None:
    ids = [attributes["id"] for _, attributes, _ in PAGE.found if "id" in attributes]
    assert len(set(ids)) == len(ids)
    for _, attributes, _ in PAGE.found:
        for name in ("aria-labelledby", "for", "aria-describedby"):
            assert set(attributes.get(name, "").split()) <= set(ids)
        if (target := attributes.get("href", "")).startswith("#"):
            assert target[1:] in ids
        assert int(attributes.get("tabindex", "0")) <= 0
    assert all("label" in ancestors for _, _, ancestors in PAGE.all("input", "select"))


def test_changes_are_announced_and_animations_can_be_off() -> None:
    assert {x["id"] for _, x, _ in PAGE.found if "aria-live" in x or x.get("role") == "status"} == {
        "link",
        "found",
        "spoken",
    }
    assert re.search(r"prefers-reduced-motion: reduce\) \{ \.new \{ animation: none", STYLE)
    assert STYLE.count("animation: ") == 2
    assert "transition" not in STYLE
    assert "forced-colors: active" in STYLE
    assert ":focus-visible" in STYLE


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_contrast_suffices_on_every_background(scheme: int) -> None:
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)[scheme]))

    def contrast(one: str, other: str) -> float:
        dark, light = sorted((luminance(colours[one]), luminance(colours[other])))
        return (light + 0.05) / (dark + 0.05)

    for ground in ("paper", "box", "healthy", "unavailable", "unhealthy"):
        assert contrast("text", ground) >= 7, ground
    assert contrast("soft", "paper") >= 7
    assert contrast("soft", "box") >= 7
    assert contrast("link", "paper") >= 4.5
    assert contrast("line", "paper") >= 3  # the edges of controls
    assert contrast("focus", "paper") >= 3
