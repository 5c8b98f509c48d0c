"""Configurations as strings, and their errors."""

from textwrap import dedent

import pytest

from nodeplug.config import ConfigError, loads
from resources.resource import Resource


def one(text: str) -> Resource:
    """Return the resource of a configuration with one, named x/y; `text` contains its other keys."""
    lines = "\n".join(f"    {line}" for line in dedent(text).strip().splitlines())
    (resource,) = loads(f"resources:\n  - name: x/y\n{lines}\n".encode()).resources
    return resource


def errors_of(text: str) -> list[str]:
    """Return a configuration's errors, as `line:column: message; hint`."""
    with pytest.raises(ConfigError) as caught:
        loads(dedent(text).lstrip("\n").encode(), "f")
    return [line.removeprefix("f:") for line in caught.value.lines()]


def errors_with_settings(text: str, settings: str = "") -> list[str]:
    """Return the errors of the only resource, x/y, without places; `text` contains its other keys."""
    lines = "\n".join(f"    {line}" for line in dedent(text).strip().splitlines())
    found = errors_of(f"settings: {{{settings}}}\nresources:\n  - name: x/y\n{lines}\n")
    return [line.split(": ", 1)[1] for line in found]
