"""The pages as a site: all are in its table of contents, links are valid, generated pages are up to date.

`make check` checks that Sphinx builds it without a warning.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from nodeplug.commands import reference
from nodeplug.commands.allocate import BAD_INPUT
from nodeplug.commands.running_daemon import CONFIGURATION, NOT_RUNNING, REFUSED
from nodeplug.process import LOCKED, RUNTIME

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md"))]


@cache
def site() -> dict[str, Any]:
    """Return the definitions of docs/conf.py."""
    names: dict[str, Any] = {"__file__": str(DOCS / "conf.py"), "__name__": "conf"}
    exec(compile((DOCS / "conf.py").read_text(), DOCS / "conf.py", "exec"), names)
    return names


def test_navigation_lists_every_page_and_appends_new_ones() -> None:
    pages = {path.stem for path in DOCS.rglob("*.md")}
    shown = [name for names in site()["navigation"](pages).values() for name in names]
    assert sorted([*shown, "index"]) == sorted(pages)
    assert {name for names in site()["NAVIGATION"].values() for name in names} | site()["SHORT"].keys() <= pages
    assert site()["navigation"](pages | {"a-new-page"})["More"][0:1] == ["a-new-page"]


def test_long_code_breaks_after_punctuation_and_inside_no_option() -> None:
    page = {"body": '<span class="pre">nodeplug_lease_info</span> <span class="pre">--create-namespace</span>'}
    site()["_breakable"](None, "", "", page, None)
    assert page["body"] == (
        '<span class="pre">nodeplug_<wbr>lease_<wbr>info</span> <span class="pre option">--create-namespace</span>'
    )


def test_included_files_are_linked_from_their_page() -> None:
    for page, file in site()["INCLUDED"].items():
        assert f"](../{file})" in (DOCS / f"{page}.md").read_text()
        assert (ROOT / file).read_text().startswith("# ")


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page, as code hosts and the site name headings."""
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text())
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in re.findall(r"(?m)^#+ (.*)$", text)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_have_existing_targets(page: Path) -> None:
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


def test_command_reference_is_current() -> None:
    page = DOCS / "commands.md"
    assert reference.with_reference(page.read_text()) == page.read_text(), (
        f"run: python -m nodeplug.commands.reference {page}"
    )


def test_exit_codes_match_the_program() -> None:
    rows = re.findall(r"(?m)^\| (\d) \| (.*) \|$", (DOCS / "commands.md").read_text())
    assert [int(code) for code, _ in rows] == sorted(
        {0, RUNTIME, REFUSED, CONFIGURATION, BAD_INPUT, LOCKED, NOT_RUNNING}
    )
    assert rows[LOCKED][1].startswith("`run`: another instance has the state directory")


def test_every_threat_boundary_names_existing_tests() -> None:
    text = (DOCS / "threat-model.md").read_text().partition("\n## Boundaries\n")[2].partition("\n## ")[0]
    defined = set(re.findall(r"def (test_\w+)", "\n".join(file.read_text() for file in (ROOT / "tests").rglob("*.py"))))
    boundaries = text.split("\n### ")[1:]
    named = [re.findall(r"`(test_\w+)`", each.partition("\nTests: ")[2]) for each in boundaries]
    assert len(named) > 10
    assert all(named)
    assert {name for names in named for name in names} <= defined


@pytest.mark.parametrize("picture", sorted((DOCS / "pictures").iterdir()), ids=lambda path: path.name)
def test_every_picture_is_on_a_page(picture: Path) -> None:
    assert any(f"](pictures/{picture.name})" in page.read_text() for page in DOCS.glob("*.md"))


@pytest.mark.parametrize("picture", sorted((DOCS / "pictures").glob("*.svg")), ids=lambda path: path.name)
def test_pictures_have_title_description_and_no_external_references(picture: Path) -> None:
    text = picture.read_text()
    assert "<title" in text
    assert "<desc" in text
    assert "prefers-color-scheme:dark" in text
    assert not re.findall(r"(?:href|src|url)\s*[=(]\s*[\"']?(?!#)", text.replace("xmlns=", ""))


def test_apiserver_page_counts_the_compared_requests() -> None:
    """Requests marked with `~` are answered differently by a real server, of any or of some releases."""
    files = (ROOT / "tests/e2e/requests").glob("*.txt")
    lines = {file.stem: [x for x in file.read_text().splitlines() if x and not x.startswith("#")] for file in files}

    def same(requests: list[str], release: str) -> int:
        marks = (re.match(r"~(\S*) ", each) for each in requests)
        return sum(not mark or (mark[1] != "" and release not in mark[1].split(",")) for mark in marks)

    every = [each for requests in lines.values() for each in requests]
    text = (DOCS / "apiserver.md").read_text()
    assert f"\n- {len(every)} requests that somebody thought of" in text
    assert f"A 1.37.1 answers {same(every, '1.37')} of them the same, a 1.36.3 {same(every, '1.36')}." in text
    pods = lines["pods"]
    assert f"Of the {len(pods)} about\n  pods it is {same(pods, '1.37')} and {same(pods, '1.36')};" in text
