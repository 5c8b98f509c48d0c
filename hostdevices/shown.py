"""What others wrote, within a line of ours: what hardware says of itself, what a kubelet calls pods and claims.

Whoever wrote it may have meant a terminal or a log reader, or 64 KiB: a line shows characters that can be printed, the
others by their escapes, and as many of them as help.
"""

NAME = 100
"""Characters of a name that are shown; none of our devices has a longer name."""


def escaped(text: str) -> str:
    """Replace characters that are not printable by their escapes (`\\x1b`, `\\n`)."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shown(text: str, most: int = NAME) -> str:
    """Return the first `most` characters of `text`, escaped; dots mark a cut."""
    return escaped(text) if len(text) <= most else f"{escaped(text[:most])}..."
