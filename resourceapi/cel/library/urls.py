"""url() and its parts, parsed like Go's net/url. Source: k8s.io/apiserver/pkg/cel/library/urls.go."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from resourceapi.cel.declarations import Function, Overload, group
from resourceapi.cel.errors import CelEvalError
from resourceapi.cel.library.networks import AddressError, parse_address
from resourceapi.cel.values import register_type
from resourceapi.objects.errors import quoted_text

_UNRESERVED = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~")
_PATH = _UNRESERVED | frozenset(b"$&+,/:;=@")
_HOST = _UNRESERVED | frozenset(b"!$&'()*+,;=:[]<>\"")
_FRAGMENT = _UNRESERVED | frozenset(b"$&+,/:;=?@!()*")
_USER = _UNRESERVED | frozenset(b"$&+,;=")
_ENCODED = frozenset(b"!$&'()*+,;=:@[]%")
_USERINFO = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_ESCAPE = re.compile(rb"%[0-9A-Fa-f]{2}")


class Url:
    """A parsed URL. `host` includes the port, `user` the @. Path and fragment are unescaped; `raw_` ones are not."""

    __slots__ = (
        *("fragment", "has_authority", "has_query", "host", "opaque", "path", "query", "raw_fragment", "raw_path"),
        *("scheme", "user"),
    )

    def __init__(self, text: str) -> None:
        """Parse a URL that a request can have: absolute, or starting with a slash. Raises UrlError."""
        check_request_uri(text)
        without, _, self.raw_fragment = text.partition("#")  # the check above does not treat it as a fragment
        self._parse(without, of_request=False)
        with _naming(text):
            self.fragment = _unescape(self.raw_fragment)

    def __str__(self) -> str:
        text = f"{self.scheme}:" if self.scheme else ""
        if self.opaque:
            text += self.opaque
        else:
            if self.has_authority and (self.host or self.path or self.user):
                text += f"//{self.user}{_escape(self.host, _HOST)}"
            text += _escaped_path(self)
        if self.has_query:
            text += f"?{self.query}"
        if self.fragment:
            text += "#" + _as_written(self.raw_fragment, self.fragment, _FRAGMENT)
        return text

    def _parse(self, text: str, *, of_request: bool) -> None:
        """Parse everything except a fragment. Raises UrlError."""
        self.has_authority = self.has_query = False
        self.scheme = self.user = self.host = self.opaque = self.path = self.raw_path = self.query = ""
        with _naming(text):
            if any(ord(char) < 0x20 or ord(char) == 0x7F for char in text):
                raise UrlError("net/url: invalid control character in URL")
            if not text and of_request:
                raise UrlError("empty url")
            if text == "*":
                self.path = "*"
                return
            rest, question, self.query = self._take_scheme(text).partition("?")
            self.has_query = bool(question)
            if not rest.startswith("/"):
                if self.scheme:
                    self.opaque = rest  # for example mailto:x
                    return
                if of_request:
                    raise UrlError("invalid URI for request")
            may_omit_scheme = not of_request and not rest.startswith("///")
            if rest.startswith("//") and (self.scheme or may_omit_scheme):
                authority, slash, path = rest[2:].partition("/")
                rest = slash + path
                self.has_authority = True
                self._take_authority(authority)
            self.raw_path = rest
            self.path = _unescape(rest)

    def _take_scheme(self, text: str) -> str:
        scheme, colon, rest = text.partition(":")
        if not colon or not re.fullmatch(r"([A-Za-z][A-Za-z0-9+.\-]*)?", scheme):
            return text
        if not scheme:
            raise UrlError("missing protocol scheme")
        self.scheme = scheme.lower()
        return rest

    def _take_authority(self, authority: str) -> None:
        user, at, host = authority.rpartition("@")
        self.host = _parse_host(self.scheme, host)
        if at and not _USERINFO.fullmatch(user):
            raise UrlError("net/url: invalid userinfo")
        name, colon, password = user.partition(":")
        self.user = f"{_escape(_unescape(name), _USER)}{colon}{_escape(_unescape(password), _USER)}{at}"


class UrlError(Exception):
    """The text is not a URL; the message is Go's."""


register_type(Url, "kubernetes.URL", "cel.URL", lambda left, right: str(left) == str(right))


def check_request_uri(text: str) -> None:
    """Raise UrlError unless a request can have the text as its URL."""
    Url.__new__(Url)._parse(text, of_request=True)


@contextmanager
def _naming(text: str) -> Iterator[None]:
    """Add the parsed text to the messages of errors."""
    try:
        yield
    except UrlError as error:
        raise UrlError(f"parse {quoted_text(text)}: {error}") from None


def _parse_host(scheme: str, host: str) -> str:
    if "[" in host[1:]:
        raise UrlError("invalid IP-literal")
    if host.startswith("["):
        name, closing, port = host[1:].rpartition("]")
        if not closing:
            raise UrlError("missing ']' in host")
        _check_port(port)
        unescaped_port = _unescape(port, _is_host_escape)
        name, percent, zone = name.partition("%25")
        address = _unescape(name, _is_host_escape) + _unescape(percent + zone, _is_zone_escape)
        _check_literal(address)
        return f"[{address}]{unescaped_port}"
    # URLs of some databases list several hosts with ports, so other schemes can have more than one colon.
    colon = host.find(":") if scheme in ("http", "https") else host.rfind(":")
    if colon >= 0:
        _check_port(host[colon:])
    return _unescape(host, _is_host_escape)


def _check_literal(text: str) -> None:
    """Raise UrlError unless the text in brackets is an IPv6 address."""
    try:
        address, _ = parse_address(text)
    except AddressError as error:
        raise UrlError(f"invalid host: {error}") from None
    if address.version != 6:
        raise UrlError("invalid IP-literal")


def _check_port(port: str) -> None:
    if port and not re.fullmatch(r":[0-9]*", port):
        raise UrlError(f"invalid port {quoted_text(port)} after host")


def _is_host_escape(byte: int) -> bool:
    """Return whether this byte can be escaped in a host: non-ASCII bytes, and the % before a zone."""
    return byte >= 0x80 or byte == ord("%")


def _is_zone_escape(byte: int) -> bool:
    return byte in b"% " or byte in _HOST


def _unescape(text: str, may_be_escaped: Callable[[int], bool] | None = None) -> str:
    """Return the text without escapes. Raises UrlError.

    For a part of a host, `may_be_escaped` returns whether a byte can be escaped; unescaped bytes are checked too.
    """
    raw = text.encode("utf-8", "surrogateescape")
    plain, position = bytearray(), 0
    while position < len(raw):
        byte = raw[position]
        if byte == ord("%"):
            escape = raw[position : position + 3]
            value = int(escape[1:], 16) if _ESCAPE.fullmatch(escape) else -1
            if value < 0 or (may_be_escaped is not None and not may_be_escaped(value)):
                raise UrlError(f"invalid URL escape {quoted_text(escape.decode('utf-8', 'surrogateescape'))}")
            plain.append(value)
            position += 3
            continue
        if may_be_escaped is not None and byte < 0x80 and byte not in _HOST:
            raise UrlError(f"invalid character {quoted_text(chr(byte))} in host name")
        plain.append(byte)
        position += 1
    return plain.decode("utf-8", "surrogateescape")


def _escape(text: str, allowed: frozenset[int]) -> str:
    raw = text.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if byte in allowed else f"%{byte:02X}" for byte in raw)


def _as_written(raw: str, plain: str, allowed: frozenset[int]) -> str:
    """Return `raw`, a path or a fragment, if it is well encoded; otherwise encode `plain`."""
    if raw and all(byte in allowed or byte in _ENCODED for byte in raw.encode()):
        return raw
    return "*" if plain == "*" else _escape(plain, allowed)


def _escaped_path(url: Url) -> str:
    """Return the escaped path."""
    return _as_written(url.raw_path, url.path, _PATH)


def _url(text: str) -> Url:
    try:
        return Url(text)
    except UrlError as error:
        raise CelEvalError(f"URL parse error during conversion from string: {error}") from None


def _is_url(text: str) -> bool:
    try:
        check_request_uri(text)
    except UrlError:
        return False
    return True


def _host_and_port(url: Url) -> tuple[str, str]:
    host, port = url.host, ""
    colon = host.rfind(":")
    if colon >= 0 and re.fullmatch(r":[0-9]*", host[colon:]):
        host, port = host[:colon], host[colon + 1 :]
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host, port


def _query(url: Url) -> dict[Any, Any]:
    values: dict[Any, Any] = {}
    for pair in url.query.split("&"):
        if not pair or ";" in pair:
            continue
        key, _, value = pair.partition("=")
        try:
            key, value = _unescape(key.replace("+", " ")), _unescape(value.replace("+", " "))
        except UrlError:
            continue
        values.setdefault(key, []).append(value)
    return values


def functions() -> list[Function]:
    """url(), isURL() and the getters."""
    return group(
        [
            Overload("string_to_url", "url(string) -> URL", _url),
            Overload("url_get_scheme", "URL.getScheme() -> string", lambda url: url.scheme),
            Overload("url_get_host", "URL.getHost() -> string", lambda url: url.host),
            Overload("url_get_hostname", "URL.getHostname() -> string", lambda url: _host_and_port(url)[0]),
            Overload("url_get_port", "URL.getPort() -> string", lambda url: _host_and_port(url)[1]),
            Overload("url_get_escaped_path", "URL.getEscapedPath() -> string", _escaped_path),
            Overload("url_get_query", "URL.getQuery() -> map(string, list(string))", _query),
            Overload("is_url_string", "isURL(string) -> bool", _is_url),
        ]
    )
