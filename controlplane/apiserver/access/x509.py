"""Reads certificates and their public keys, as far as the rules of the API need them. No signature is checked.

Source: RFC 5280 (4.1, 4.2.1.9), RFC 3279 and RFC 8410 (keys).
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from controlplane.apiserver.access.der import SEQUENCE, parts

_VERSION, _EXTENSIONS, _UTC_TIME = 0xA0, 0xA3, 0x17
_BASIC_CONSTRAINTS = bytes.fromhex("551d13")
_TRUE = (0x01, b"\xff")
_ED25519, _RSA, _ELLIPTIC = (bytes.fromhex(text) for text in ("2b6570", "2a864886f70d010101", "2a8648ce3d0201"))
_CURVES = {
    bytes.fromhex("2a8648ce3d030107"): "P-256",
    bytes.fromhex("2b81040021"): "P-224",
    bytes.fromhex("2b81040022"): "P-384",
    bytes.fromhex("2b81040023"): "P-521",
}
_MALFORMED = (ValueError, IndexError, StopIteration)


class CertificateError(ValueError):
    """The data is no certificate, or no key of a known type."""


class Certificate(NamedTuple):
    """A certificate. `is_authority` is None if it has no basic constraints."""

    not_before: datetime
    not_after: datetime
    public_key: bytes
    is_authority: bool | None


class PublicKey(NamedTuple):
    """The type of a key, `RSA`, `Ed25519` or the name of an elliptic curve, and the bits of an RSA modulus."""

    type: str
    bits: int = 0


def read_certificate(data: bytes) -> Certificate:
    """Return a certificate. Raises CertificateError."""
    try:
        ((_, whole),) = parts(data, SEQUENCE)
        (_, signed), *_ = parts(whole)
        fields = [each for each in parts(signed) if each[0] != _VERSION]
        _, _, _, (_, validity), _, (_, key), *more = fields
        begin, end = (_time(tag, text) for tag, text in parts(validity))
        authority = None
        for tag, extensions in more:
            for _, extension in _inside(extensions) if tag == _EXTENSIONS else ():
                (_, name), *_, (_, value) = parts(extension)
                if name == _BASIC_CONSTRAINTS:
                    authority = next(_inside(value), None) == _TRUE
        return Certificate(begin, end, key, authority)
    except _MALFORMED as error:
        raise CertificateError(str(error)) from None


def requested_key(data: bytes) -> bytes:
    """Return the public key in a PKCS #10 request. Raises CertificateError."""
    try:
        ((_, whole),) = parts(data, SEQUENCE)
        (_, info), _, _ = parts(whole)
        _, _, (_, key), *_ = parts(info)
        return key
    except _MALFORMED as error:
        raise CertificateError(str(error)) from None


def read_public_key(key: bytes) -> PublicKey | None:
    """Return the type of a public key; None if it is none of the types that are known. Raises CertificateError."""
    try:
        (_, algorithm), (_, bits) = parts(key)
        (_, name), *parameters = parts(algorithm)
        if name == _ED25519:
            return PublicKey("Ed25519")
        if name == _RSA:
            modulus, _ = _inside(bits[1:])  # the first byte of a bit string counts unused bits
            return PublicKey("RSA", (int.from_bytes(modulus[1], "big").bit_length() + 7) // 8 * 8)
        if name != _ELLIPTIC:
            return None
        curve = _CURVES.get(parameters[0][1])
    except _MALFORMED as error:
        raise CertificateError(str(error)) from None
    if curve is None:
        raise CertificateError("unsupported elliptic curve")
    return PublicKey(curve)


def _inside(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The values of the only sequence in the data."""
    ((_, content),) = parts(data, SEQUENCE)
    return parts(content)


def _time(tag: int, text: bytes) -> datetime:
    digits = text.decode("ascii")
    if tag == _UTC_TIME:
        digits = ("19" if digits[:2] >= "50" else "20") + digits
    return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
