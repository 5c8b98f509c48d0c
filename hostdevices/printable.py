"""Texts of others in our log lines and messages: what hardware reports about itself, and a kubelet's names of pods.

Such a text may be meant to attack a terminal or a log reader, or may have 64 KiB. A line contains its printable
characters, escapes for the others, and a limited number of them.
"""

MAX_NAME_LENGTH = 100
"""Characters of a name that are shown; none of our devices has a longer name."""


def escaped(text: str) -> str:
    """Replace characters that are not printable by their escapes (`\\x1b`, `\\n`)."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def printable(text: str, max_length: int = MAX_NAME_LENGTH) -> str:
    """Return the first `max_length` characters of `text`, escaped; dots mark a cut."""
    return escaped(text) if len(text) <= max_length else f"{escaped(text[:max_length])}..."
