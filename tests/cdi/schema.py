"""CDI's own JSON schema, read from its repository's files."""

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # has no types of its own
from referencing import Registry, Resource

from tests.cases import recorded_at

CASES = recorded_at("cdi")


def validator() -> Any:
    """The validator for a spec; requires the files in `CASES`."""
    definitions = json.loads((CASES / "defs.json").read_text())
    definitions["$schema"] = "http://json-schema.org/draft-07/schema#"
    registry: Any = Registry().with_resource("defs.json", Resource.from_contents(definitions))
    return jsonschema.Draft7Validator(json.loads((CASES / "schema.json").read_text()), registry=registry)
