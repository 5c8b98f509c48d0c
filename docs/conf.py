"""The documentation as a site: `make site` builds it from these pages as they are, with Sphinx, into build/site.

Pages are plain Markdown with links that hold on a code host, too. What is the site's alone stands here: the order of
the pages, and which files above this folder are pages of it (changelog, contributor's rules, security policy).
Nothing is loaded from elsewhere when a page is read.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
NAVIGATION = {
    "Start here": ["start-laptop", "start-edge-box", "start-cluster", "testing-a-plugin"],
    "Offering devices": ["recipes", "nvidia-gpus", "network-functions", "virtual-machines", "claims", "migration"],
    "Running nodeplug": ["install", "operating", "monitoring", "troubleshooting"],
    "Reference": ["configuration", "device-classes", "commands", "support", "promises", "benchmarks"],
    "How it works": ["concepts", "architecture", "transport", "threat-model"],
    "Without a cluster": ["kubectl-walkthrough", "apiserver", "k8srm"],
    "The project": ["contributing", "add-a-device-class", "release-notes", "security"],
}
"""Captions and their pages in order. A page that stands nowhere here is listed at the end: none can be missing."""

SHORT = {
    "testing-a-plugin": "Testing a plugin or driver",
    "migration": "From another plugin",
    "network-functions": "Network cards",
    "virtual-machines": "Virtual machines",
    "claims": "Claims (DRA)",
    "promises": "Guarantees",
    "kubectl-walkthrough": "A claim with kubectl",
    "apiserver": "The API server",
    "k8srm": "The k8srm prototype",
    "contributing": "Contributing",
    "security": "Reporting a vulnerability",
}
"""Words of the navigation for pages whose title needs more than a line there."""

INCLUDED = {"release-notes": "CHANGELOG.md", "contributing": "CONTRIBUTING.md", "security": "SECURITY.md"}
"""Pages that are a title and a link here, and on the site the file that they link to."""

project = "nodeplug"
extensions = ["myst_parser"]
root_doc = "index"
exclude_patterns = ["pictures/*.md"]
myst_heading_anchors = 4
nitpicky = True
templates_path: list[str] = []
html_theme = "furo"
html_title = "nodeplug"
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_static_path = ["site.css"]
html_css_files = ["site.css"]
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"


def navigation(pages: set[str]) -> dict[str, list[str]]:
    """Return the captions with all `pages`, those that NAVIGATION does not name at the end."""
    named = {caption: [name for name in names if name in pages] for caption, names in NAVIGATION.items()}
    rest = sorted(pages - {root_doc} - {name for names in named.values() for name in names})
    return named | ({"More": rest} if rest else {})


def _entry(name: str) -> str:
    return f"{SHORT[name]} <{name}>" if name in SHORT else name


def _read(_app: "Sphinx", name: str, source: list[str]) -> None:
    """Give the first page the table of contents, included pages their text, links out of docs/ their words alone.

    A link whose words are a file's name says the page's title.
    """
    if name == root_doc:
        pages = {path.stem for path in HERE.glob("*.md")}
        for caption, names in navigation(pages).items():
            entries = "\n".join(map(_entry, names))
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"
    if name in INCLUDED:
        source[0] = (HERE.parent / INCLUDED[name]).read_text()
        source[0] = re.sub(r"\]\(docs/", "](", source[0])
    source[0] = re.sub(r"\[([^\]\n]+)\]\(\.\./([^)\n]+)\)", _above, source[0])
    source[0] = re.sub(r"\[([^\]\n]+)\]\(([A-Z]+\.md)\)", _above, source[0])
    source[0] = re.sub(r"\[(?:docs/)?([a-z0-9-]+)\.md\]\(", _titled, source[0])


def _above(link: re.Match[str]) -> str:
    """A link to a file of the repository: a page where the site has it, else its path."""
    words, path = link[1], link[2]
    page = next((page for page, file in INCLUDED.items() if file == path), None)
    return f"[{words}]({page}.md)" if page else words


def _titled(link: re.Match[str]) -> str:
    title = (HERE / f"{link[1]}.md").read_text().partition("\n")[0].removeprefix("# ")
    return f"[{title}]("


def _breakable(_app: "Sphinx", _name: str, _template: str, context: dict[str, Any], _doctree: object) -> None:
    """Let long code break after its punctuation and between its words; options stay whole."""
    body = re.sub(r'(?<=<span class="pre)(?=">-[^<]{,30}<)', " option", context.get("body", ""))
    context["body"] = re.sub(r'(?<=<span class="pre">)[^<]{12,}', _broken, body)


def _broken(code: re.Match[str]) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])|(?<=[\w;)\]}*][_/.,:=])(?=[\w{(\[*&])", "<wbr>", code[0])


def setup(app: "Sphinx") -> None:
    """Let Sphinx read pages through us."""
    app.connect("source-read", _read)
    app.connect("html-page-context", _breakable)
