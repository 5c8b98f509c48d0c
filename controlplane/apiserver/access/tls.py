"""The server's certificate, from an authority of its own, which other programs do not trust. openssl makes both.

The certificate is made at each start, the authority only if there is no stored one (`stored_credentials`). The
authority's key also signs certificate requests (`signing`).
"""

import ipaddress
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
_DAYS = ("-days", "365")
_DAYS_OF_AUTHORITY = ("-days", "3650")  # as kubeadm's
_SECONDS = 30.0  # the time limit of openssl, enough on a busy machine
_NAMES = (
    "DNS:localhost",
    "DNS:kubernetes",
    "DNS:kubernetes.default",
    "DNS:kubernetes.default.svc",
    "DNS:kubernetes.default.svc.cluster.local",
    "IP:127.0.0.1",
    "IP:::1",
)
_AUTHORITY = """[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
"""
_SERVER = """[req]
distinguished_name = name
[name]
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = {names}
"""


class TlsError(Exception):
    """The certificate could not be made; the text is the reason."""


class Authority(msgspec.Struct, frozen=True):
    """An authority's certificate and key, as PEM texts."""

    certificate: str
    key: str


class Certificate(NamedTuple):
    """Files: the certificate and its key, and the authority's certificate."""

    path: Path
    key: Path
    authority: Path


def make_authority(folder: Path) -> Authority:
    """Make an authority. Raises TlsError. `folder` must be readable by its owner only."""
    configuration, ca, key = folder / "authority.cnf", folder / "authority.crt", folder / "authority.key"
    configuration.write_text(_AUTHORITY)
    use = ("-config", configuration, "-subj", "/CN=nodeplug-ca", "-extensions", "authority")
    _openssl("req", "-x509", *_CURVE, *_DAYS_OF_AUTHORITY, *use, "-keyout", key, "-out", ca)
    return Authority(ca.read_text(), key.read_text())


def make_certificate(folder: Path, host: str, authority: Authority) -> Certificate:
    """Make a certificate for loopback, `host`, and the names of services in a cluster. Raises TlsError.

    `folder` must be readable by its owner only.
    """
    names = (*_NAMES, f"IP:{host}" if _is_address(host) else f"DNS:{host}")
    configuration, ca, ca_key = folder / "openssl.cnf", folder / "ca.crt", folder / "ca.key"
    configuration.write_text(_SERVER.format(names=", ".join(dict.fromkeys(names))))
    ca.write_text(authority.certificate)
    ca_key.write_text(authority.key)
    made, key, request = folder / "server.crt", folder / "server.key", folder / "server.csr"
    use = ("-config", configuration, "-subj", "/CN=kube-apiserver")
    _openssl("req", "-new", *_CURVE, *use, "-keyout", key, "-out", request)
    extensions = ("-extfile", configuration, "-extensions", "server")
    signer = ("-CA", ca, "-CAkey", ca_key, "-CAcreateserial")
    _openssl("x509", "-req", "-in", request, *signer, *_DAYS, *extensions, "-out", made)
    return Certificate(made, key, ca)


def sign(folder: Path, authority: Authority, request: bytes, extensions: str, days: int) -> str:
    """Sign a request after checking its signature. `extensions` are lines of openssl's configuration. Raises TlsError.

    `folder` must be empty, and readable by its owner only.
    """
    files = {
        "ca.crt": authority.certificate.encode(),
        "ca.key": authority.key.encode(),
        "csr": request,
        "extensions": extensions.encode(),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    made = folder / "crt"
    use = ("-CA", folder / "ca.crt", "-CAkey", folder / "ca.key", "-CAcreateserial", "-extfile", folder / "extensions")
    _openssl("x509", "-req", "-in", folder / "csr", *use, "-days", str(days), "-out", made)
    return made.read_text()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _openssl(*arguments: str | Path) -> None:
    command: Sequence[str] = ["openssl", *map(str, arguments)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_SECONDS)
    except FileNotFoundError:
        raise TlsError("TLS needs the openssl program, which makes the certificate; install it") from None
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", "") or str(error)
        raise TlsError(f"openssl {arguments[0]}: {' '.join(str(output).split())}") from error
