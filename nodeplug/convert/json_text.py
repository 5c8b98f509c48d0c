"""JSON that is read as YAML: the same, except for tabs between tokens, which editors insert and YAML does not allow."""

import re

_STRING_OR_TAB = re.compile(rb'"(?:[^"\\]|\\.)*"|\t', re.DOTALL)


def without_tabs(data: bytes) -> bytes:
    """Return JSON with a space for each tab outside of strings, which keeps all places; other texts unchanged."""
    if not data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"[")):
        return data
    return _STRING_OR_TAB.sub(lambda found: b" " if found[0] == b"\t" else found[0], data)
