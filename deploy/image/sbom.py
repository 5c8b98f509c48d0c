"""The bill of materials of an image as a CycloneDX 1.6 document: installed Debian packages and Python distributions."""

import datetime
import json
import re
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from deploy import licences
from deploy.image import oci


def document(root: Path, site: Path, *, architecture: str) -> bytes:
    """Return the JSON document; the same image always gives the same bytes."""
    (program,) = (each for each in distributions(path=[str(site)]) if each.name == "nodeplug")
    components = sorted((*_debian(root), *_python(site)), key=lambda each: str(each["purl"]))
    made = datetime.datetime.fromtimestamp(oci.source_date(), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": made,
            "component": {
                "type": "container",
                "bom-ref": "image",
                "name": "nodeplug",
                "version": program.version,
                "properties": [{"name": "architecture", "value": architecture}],
            },
        },
        "components": components,
    }
    return json.dumps(found, indent=1).encode() + b"\n"


def _component(purl: str, name: str, version: str, licence: str | None) -> dict[str, Any]:
    licences = {"licenses": [{"expression": licence}]} if licence else {}
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, **licences}


def _debian(root: Path) -> Iterator[dict[str, Any]]:
    for file in (root / "var/lib/dpkg/status.d").iterdir():
        fields: Message = Parser().parsestr(file.read_text())
        name, version = fields["Package"], fields["Version"]
        purl = f"pkg:deb/debian/{name.replace('+', '%2B')}@{version.replace('+', '%2B')}"
        yield _component(f"{purl}?arch={fields['Architecture']}&distro=debian-12", name, version, None)


def _python(site: Path) -> Iterator[dict[str, Any]]:
    for each in licences.libraries(site):
        name = re.sub(r"[-_.]+", "-", each.name).lower()
        yield _component(f"pkg:pypi/{name}@{each.version}", each.name, each.version, each.licence)
