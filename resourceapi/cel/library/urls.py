"""url() and its parts, as Go's net/url reads them. Source: k8s.io/apiserver/pkg/cel/library/urls.go."""

from __future__ import annotations

import re
from typing import Any

from resourceapi.cel.declarations import Function, Overload, group
from resourceapi.cel.errors import CelEvalError
from resourceapi.cel.gotext import go_quote
from resourceapi.cel.library.networks import AddressError, parse_address
from resourceapi.cel.values import register_type

_UNRESERVED = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~")
_PATH = _UNRESERVED | frozenset(b"$&+,/:;=@")
_ENCODED_PATH = _PATH | frozenset(b"!'()*[]%")
_HOST = _UNRESERVED | frozenset(b"!$&'()*+,;=:[]<>\"")
_FRAGMENT = _UNRESERVED | frozenset(b"$&+,/:;=?@!()*'")
_USER = _UNRESERVED | frozenset(b"$&+,;=")
_USERINFO = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")


class Url:
    """A parsed URL; `host` includes the port, `user` the @, `path` is unescaped and `raw_path` as written."""

    __slots__ = (
        *("fragment", "has_authority", "has_query", "host", "opaque", "path", "query", "raw_path", "scheme", "user"),
    )

    def __init__(self, text: str) -> None:
        """Read a URL as a request would: absolute, or starting with a slash. Raises UrlError."""
        self.has_authority = self.has_query = False
        self.scheme = self.user = self.host = self.opaque = self.path = self.raw_path = self.query = ""
        _parse(self, text)
        # A request has no fragment, but the value has.
        without, _, self.fragment = text.partition("#")
        if without != text:
            _parse(self, without)

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
            text += "#" + _escape(_unescape(self.fragment), _FRAGMENT)
        return text


class UrlError(Exception):
    """The text is not a URL; the message is Go's."""


register_type(Url, "kubernetes.URL", "cel.URL", lambda left, right: str(left) == str(right))


def _parse(url: Url, text: str) -> None:
    if any(ord(char) < 0x20 or ord(char) == 0x7F for char in text):
        raise UrlError(f"parse {go_quote(text)}: net/url: invalid control character in URL")
    try:
        _parse_parts(url, text)
    except UrlError as error:
        raise UrlError(f"parse {go_quote(text)}: {error}") from None


def _parse_parts(url: Url, text: str) -> None:
    if not text:
        raise UrlError("empty url")
    if text == "*":
        url.path = "*"
        return
    rest = _take_scheme(url, text)
    rest, question, query = rest.partition("?")
    url.has_query, url.query = bool(question), query
    if not rest.startswith("/"):
        if url.scheme:
            url.opaque = rest  # such as mailto:x
            return
        raise UrlError("invalid URI for request")
    if rest.startswith("//") and (url.scheme or not rest.startswith("///")):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        url.has_authority = True
        _take_authority(url, authority)
    url.raw_path = rest
    url.path = _unescape(rest)


def _take_scheme(url: Url, text: str) -> str:
    for index, char in enumerate(text):
        if char.isascii() and char.isalpha():
            continue
        if char.isascii() and (char.isdigit() or char in "+-."):
            if index == 0:
                return text
            continue
        if char == ":":
            if index == 0:
                raise UrlError("missing protocol scheme")
            url.scheme = text[:index].lower()
            return text[index + 1 :]
        return text
    return text


def _take_authority(url: Url, authority: str) -> None:
    user, at, host = authority.rpartition("@")
    if at and not _USERINFO.fullmatch(user):
        raise UrlError("net/url: invalid userinfo")
    name, colon, password = user.partition(":")
    url.user = f"{_escape(_unescape(name), _USER)}{colon}{_escape(_unescape(password), _USER)}{at}"
    url.host = _parse_host(host)


def _parse_host(host: str) -> str:
    if "[" in host[1:]:
        raise UrlError("invalid IP-literal")
    if host.startswith("["):
        closing = host.rfind("]")
        if closing < 0:
            raise UrlError("missing ']' in host")
        _check_port(host[closing + 1 :])
        name, _, _ = host.partition("%25")  # behind it is the zone
    else:
        name = host
        colon = host.find(":")
        if colon >= 0:
            _check_port(host[colon:])
    for char in host.encode():
        if char < 0x80 and char not in _HOST and char != ord("%"):
            raise UrlError(f"invalid character {go_quote(chr(char))} in host name")
    if "%" in name:
        match = re.search(r"%(?![89A-Fa-f][0-9A-Fa-f])[^%]{0,2}", name)
        if match is not None:
            raise UrlError(f"invalid URL escape {go_quote(match.group())}")
    unescaped = _unescape(host)
    if host.startswith("["):
        _check_literal(unescaped[1 : unescaped.rfind("]")])
    return unescaped


def _check_literal(text: str) -> None:
    """Only an address of IPv6 stands in brackets."""
    try:
        address, _ = parse_address(text)
    except AddressError as error:
        raise UrlError(f"invalid host: {error}") from None
    if address.version != 6:
        raise UrlError("invalid IP-literal")


def _check_port(port: str) -> None:
    if port and not re.fullmatch(r":[0-9]*", port):
        raise UrlError(f"invalid port {go_quote(port)} after host")


def _unescape(text: str) -> str:
    match = re.search(r"%(?![0-9A-Fa-f]{2}).{0,2}", text, re.DOTALL)
    if match is not None:
        raise UrlError(f"invalid URL escape {go_quote(match.group())}")
    if "%" not in text:
        return text
    parts = re.split(r"%([0-9A-Fa-f]{2})", text)
    raw = b"".join(part.encode() if index % 2 == 0 else bytes([int(part, 16)]) for index, part in enumerate(parts))
    return raw.decode("utf-8", "surrogateescape")


def _escape(text: str, allowed: frozenset[int]) -> str:
    raw = text.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if byte in allowed else f"%{byte:02X}" for byte in raw)


def _url(text: str) -> Url:
    try:
        return Url(text)
    except UrlError as error:
        raise CelEvalError(f"URL parse error during conversion from string: {error}") from None


def _is_url(text: str) -> bool:
    try:
        Url(text)
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


def _escaped_path(url: Url) -> str:
    if url.raw_path and all(byte in _ENCODED_PATH for byte in url.raw_path.encode()):
        return url.raw_path
    return "*" if url.path == "*" else _escape(url.path, _PATH)


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
