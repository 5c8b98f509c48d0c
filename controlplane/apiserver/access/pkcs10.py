"""Parses a certificate signing request (PKCS #10) from its DER, as far as signers need it.

The signer checks the signature. Source: RFC 2986, RFC 5280 (4.2.1.6), see `der` and `pem`.
"""

import ipaddress
from collections.abc import Iterator
from typing import NamedTuple

from controlplane.apiserver.access.der import SEQUENCE, SET, parts
from controlplane.apiserver.access.pem import pem_blocks

_ATTRIBUTES = 0xA0
_COMMON_NAME, _ORGANIZATION = bytes.fromhex("550403"), bytes.fromhex("55040a")
_EXTENSION_REQUEST, _ALTERNATIVE_NAMES = bytes.fromhex("2a864886f70d01090e"), bytes.fromhex("551d11")
_EMAIL, _DNS, _URI, _ADDRESS = 0x81, 0x82, 0x86, 0x87


class RequestError(ValueError):
    """The data is not a certificate signing request. The text is the reference server's, if it has one."""


class CertificateRequest(NamedTuple):
    """The names in a request: those of its subject, and the alternative names."""

    common_name: str
    organizations: tuple[str, ...]
    dns: tuple[str, ...] = ()
    emails: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


def read_request(pem: bytes) -> CertificateRequest:
    """Return the first PEM block's request. Raises RequestError."""
    block = next(pem_blocks(pem), None)
    if block is None or block.type != "CERTIFICATE REQUEST":
        raise RequestError("PEM block type must be CERTIFICATE REQUEST")
    try:
        return _request(block.data)
    except (ValueError, IndexError, StopIteration) as error:
        raise RequestError(f"asn1: structure error: {error or 'it ends too early'}") from None


def _request(data: bytes) -> CertificateRequest:
    ((_, whole),) = parts(data, SEQUENCE)
    (_, info), *_ = parts(whole)
    _, (_, subject), _, *more = parts(info)
    names: dict[bytes, list[str]] = {}
    for _, one in parts(subject, SET):
        for _, pair in parts(one, SEQUENCE):
            (_, identifier), (_, text) = parts(pair)
            names.setdefault(identifier, []).append(text.decode("utf-8", "replace"))
    others: dict[int, list[bytes]] = {}
    for tag, attributes in more:
        for kind, name in _alternative_names(attributes) if tag == _ATTRIBUTES else ():
            others.setdefault(kind, []).append(name)
    dns, emails, uris = (tuple(name.decode("ascii") for name in others.get(kind, ())) for kind in (_DNS, _EMAIL, _URI))
    addresses = tuple(str(ipaddress.ip_address(packed)) for packed in others.get(_ADDRESS, ()))
    common = names.get(_COMMON_NAME) or [""]
    return CertificateRequest(common[-1], tuple(names.get(_ORGANIZATION, ())), dns, emails, uris, addresses)


def _alternative_names(attributes: bytes) -> Iterator[tuple[int, bytes]]:
    for _, attribute in parts(attributes, SEQUENCE):
        (_, identifier), (_, values) = parts(attribute)
        if identifier != _EXTENSION_REQUEST:
            continue
        for _, extensions in parts(values, SEQUENCE):
            for _, extension in parts(extensions, SEQUENCE):
                (_, name), *_, (_, value) = parts(extension)
                if name == _ALTERNATIVE_NAMES:
                    for _, found in parts(value, SEQUENCE):
                        yield from parts(found)
