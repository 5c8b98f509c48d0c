"""Templates in the file: every field must be one that some device has."""

from hostdevices.attributes import ATTRIBUTES, STANDARD
from nodeplug.config.document import Document, Path, suggestion
from resources import template


def filled_template(document: Document, path: Path, text: str) -> str:
    """Check the fields of a value and return it with full attribute names."""
    found = template.read(text)
    for name in found.unknown:
        hint = suggestion(name, [*template.FIELDS, *ATTRIBUTES, *STANDARD])
        document.at(path, f"unknown field {{{name}}}", hint)
    if found.is_unbalanced:
        document.at(path, "unmatched brace", "write {{ or }} for a brace")
    return found.text
