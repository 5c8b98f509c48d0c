"""Licences of the libraries that go into what we ship: which there may be, and that their texts go with them.

A distribution has its licence in its metadata (`License-Expression`, PEP 639; before that `License` or classifiers) and
the text in its `.dist-info`. Nothing is built with a library that says no licence of the list, or brings no text.
"""

import re
from collections.abc import Iterator, Sequence
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Final, NamedTuple

ALLOWED: Final = frozenset(
    {
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "MIT",
        "MPL-2.0",  # certifi: used as it is
        "PSF-2.0",
    }
)
"""By SPDX's names."""
_IN_WORDS: Final = {"3-Clause BSD License": "BSD-3-Clause"}
_CLASSIFIERS: Final = {
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
_TEXTS = re.compile(r"(licen[cs]e|copying|notice)", re.IGNORECASE)


class Library(NamedTuple):
    """A distribution as it is installed; `texts` are files of its `.dist-info`."""

    name: str
    version: str
    licence: str
    """An SPDX expression; empty where it says none that is known here."""
    texts: tuple[Path, ...]


def libraries(site: Path) -> Iterator[Library]:
    """Yield what is installed in `site`, by name."""
    for folder in sorted(site.glob("*.dist-info"), key=lambda path: path.name.lower()):
        fields: Message = Parser().parsestr((folder / "METADATA").read_text())
        texts = (path for path in sorted(folder.rglob("*")) if path.is_file() and _TEXTS.search(path.name))
        yield Library(fields["Name"], fields["Version"], _licence(fields), tuple(texts))


def problems(found: Sequence[Library]) -> Iterator[str]:
    """Yield in words which libraries must not be shipped as they are, and why."""
    for each in found:
        if not each.licence:
            yield f"{each.name} {each.version} says no licence that is known"
        elif not _is_allowed(each.licence):
            yield f"{each.name} {each.version} has the licence {each.licence}, which is not on the list"
        if not any(path.stat().st_size for path in each.texts):
            yield f"{each.name} {each.version} brings no text of its licence"


def check(site: Path) -> None:
    """Raise SystemExit where `site` has a library that must not be shipped as it is."""
    if found := list(problems(list(libraries(site)))):
        raise SystemExit("\n".join(("deploy/licences.py says what may be shipped:", *found)))


def check_debian(root: Path) -> None:
    """Raise SystemExit where a Debian package below `root` is not free, or has no copyright file there."""
    wrong = []
    for status in sorted((root / "var/lib/dpkg/status.d").iterdir()):
        fields: Message = Parser().parsestr(status.read_text())
        name = fields["Package"]
        if "/" in (fields["Section"] or "/"):
            wrong.append(f"{name} is not of Debian's main section, whose licences are free: {fields['Section']}")
        if not (root / "usr/share/doc" / name / "copyright").is_file():
            wrong.append(f"{name} brings no copyright file")
    if wrong:
        raise SystemExit("\n".join(wrong))


def notices(site: Path, where: str) -> str:
    """Return what stands beside our own licence: which libraries there are, and where their texts lie."""
    own = (Path(__file__).resolve().parents[1] / "LICENSE").read_text()
    others = [each for each in libraries(site) if each.name != "nodeplug"]
    lines = [f"nodeplug comes with these libraries in {where}, unchanged, each under its own licence:", ""]
    for each in others:
        lines.append(f"{each.name} {each.version}: {each.licence}")
        lines += [f"    {path.relative_to(site)}" for path in each.texts]
    return "\n".join((*lines, "", "nodeplug itself:", "", own)) if others else own


def _licence(fields: Message) -> str:
    licence = fields["License-Expression"] or fields["License"] or ""
    licence = _IN_WORDS.get(licence, licence)
    if licence and (fields["License-Expression"] or licence in ALLOWED):
        return licence
    return next((_CLASSIFIERS[x] for x in fields.get_all("Classifier", ()) if x in _CLASSIFIERS), "")


def _is_allowed(expression: str) -> bool:
    """Tell whether an expression can be met with licences of the list; those with parentheses nobody has yet."""
    alternatives = expression.split(" OR ")
    return any(all(each in ALLOWED for each in alternative.split(" AND ")) for alternative in alternatives)
