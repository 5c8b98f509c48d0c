"""The document: one file with its style and script, and a content security policy that allows only these two."""

import binascii
import functools
import pkgutil

from msgspec import Struct

from nodeplug.digest import sha256


class Document(Struct, frozen=True):
    """The page as it is served, and its Content-Security-Policy."""

    content: bytes
    policy: str


@functools.cache
def document() -> Document:
    """Return the page. No byte of it depends on the node: all of that arrives as data."""
    style, script, html = (_part(name) for name in ("page.css", "page.js", "page.html"))
    content = html.replace("/* style */", style).replace("/* script */", script)
    policy = (
        "default-src 'none'",
        f"style-src '{_hash(style)}'",
        f"script-src '{_hash(script)}'",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
    return Document(content.encode(), "; ".join(policy))


def _part(name: str) -> str:
    found = pkgutil.get_data("nodeplug.page", name)
    assert found is not None, "it is beside this file"
    return found.decode()


def _hash(text: str) -> str:
    digest = bytes.fromhex(sha256(text.encode()))
    return f"sha256-{binascii.b2a_base64(digest, newline=False).decode()}"
