"""Licences of the shipped libraries: checks that they are allowed, and that their texts are included.

A distribution has its licence in its metadata (`License-Expression`, PEP 639; before that `License` or classifiers) and
the text in its `.dist-info`. A build fails if a library has no licence of the list, or no licence text.
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
        "MPL-2.0",  # certifi: used unchanged
        "PSF-2.0",
    }
)
"""The allowed licences by SPDX name."""
_SPDX_NAMES: Final = {"3-Clause BSD License": "BSD-3-Clause"}
_CLASSIFIERS: Final = {
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
_TEXTS = re.compile(r"(licen[cs]e|copying|notice)", re.IGNORECASE)


class Library(NamedTuple):
    """An installed distribution; `texts` are the licence files of its `.dist-info`."""

    name: str
    version: str
    licence: str
    """An SPDX expression; empty if the distribution declares no known licence."""
    texts: tuple[Path, ...]


def libraries(site: Path) -> Iterator[Library]:
    """Yield the distributions that are installed in `site`, sorted by name."""
    for folder in sorted(site.glob("*.dist-info"), key=lambda path: path.name.lower()):
        fields: Message = Parser().parsestr((folder / "METADATA").read_text())
        texts = (path for path in sorted(folder.rglob("*")) if path.is_file() and _TEXTS.search(path.name))
        yield Library(fields["Name"], fields["Version"], _licence(fields), tuple(texts))


def problems(found: Sequence[Library]) -> Iterator[str]:
    """Yield a message for each reason why a library must not be shipped."""
    for each in found:
        if not each.licence:
            yield f"{each.name} {each.version} declares no known licence"
        elif not _is_allowed(each.licence):
            yield f"{each.name} {each.version} has the licence {each.licence}, which is not on the list"
        if not any(path.stat().st_size for path in each.texts):
            yield f"{each.name} {each.version} has no licence text"


def check(site: Path) -> None:
    """Raise SystemExit if `site` has a library that must not be shipped."""
    if found := list(problems(list(libraries(site)))):
        raise SystemExit(
            "\n".join(("these libraries must not be shipped (deploy/licences.py lists the allowed licences):", *found))
        )


def check_debian(root: Path) -> None:
    """Raise SystemExit if a Debian package below `root` is not free, or has no copyright file there."""
    wrong = []
    for status in sorted((root / "var/lib/dpkg/status.d").iterdir()):
        fields: Message = Parser().parsestr(status.read_text())
        name = fields["Package"]
        if "/" in (fields["Section"] or "/"):
            wrong.append(f"{name} is not of Debian's main section, whose licences are free: {fields['Section']}")
        if not (root / "usr/share/doc" / name / "copyright").is_file():
            wrong.append(f"{name} has no copyright file")
    if wrong:
        raise SystemExit("\n".join(wrong))


def notices(site: Path, where: str) -> str:
    """Return the notices for a shipped folder: its libraries, the paths of their licence texts, and our licence."""
    own = (Path(__file__).resolve().parents[1] / "LICENSE").read_text()
    others = [each for each in libraries(site) if each.name != "nodeplug"]
    lines = [f"nodeplug comes with these libraries in {where}, unchanged, each under its own licence:", ""]
    for each in others:
        lines.append(f"{each.name} {each.version}: {each.licence}")
        lines += [f"    {path.relative_to(site)}" for path in each.texts]
    return "\n".join((*lines, "", "nodeplug itself:", "", own)) if others else own


def _licence(fields: Message) -> str:
    licence = fields["License-Expression"] or fields["License"] or ""
    licence = _SPDX_NAMES.get(licence, licence)
    if licence and (fields["License-Expression"] or licence in ALLOWED):
        return licence
    return next((_CLASSIFIERS[x] for x in fields.get_all("Classifier", ()) if x in _CLASSIFIERS), "")


def _is_allowed(expression: str) -> bool:
    """Return whether allowed licences satisfy an expression. Parentheses are not supported; no library uses them."""
    alternatives = expression.split(" OR ")
    return any(all(each in ALLOWED for each in alternative.split(" AND ")) for alternative in alternatives)
