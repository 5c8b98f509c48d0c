"""JSON where YAML is read: the same, but for tabs between its words, which editors put there and YAML does not have."""

import re

_STRING_OR_TAB = re.compile(rb'"(?:[^"\\]|\\.)*"|\t', re.DOTALL)


def without_tabs(data: bytes) -> bytes:
    """Return JSON with a space for each tab outside of strings, which keeps its places; other texts as they are."""
    if not data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"[")):
        return data
    return _STRING_OR_TAB.sub(lambda found: b" " if found[0] == b"\t" else found[0], data)
