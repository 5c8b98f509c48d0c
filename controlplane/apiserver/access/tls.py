"""The server's certificate, from an authority of its own, which other programs do not trust. openssl makes both.

They are made at each start. The authority's key is in memory only, for the requests that it signs (`signing`).
"""

import ipaddress
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
_DAYS = ("-days", "365")
_SECONDS = 30.0  # that a program on a busy machine may take
_NAMES = (
    "DNS:localhost",
    "DNS:kubernetes",
    "DNS:kubernetes.default",
    "DNS:kubernetes.default.svc",
    "DNS:kubernetes.default.svc.cluster.local",
    "IP:127.0.0.1",
    "IP:::1",
)
_CONFIGURATION = """[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = {names}
"""


class TlsError(Exception):
    """The certificate could not be made; the text is the reason."""


class Certificate(NamedTuple):
    """Files: the certificate and its key; the authority's certificate, also as PEM text, and its key as PEM text."""

    path: Path
    key: Path
    authority: str
    authority_path: Path
    authority_key: str


def make_certificate(folder: Path, host: str) -> Certificate:
    """Make a certificate for loopback, for `host` and for the names that services in a cluster have. Raises TlsError.

    `folder` must be readable by its owner only.
    """
    names = (*_NAMES, f"IP:{host}" if _is_address(host) else f"DNS:{host}")
    configuration = folder / "openssl.cnf"
    configuration.write_text(_CONFIGURATION.format(names=", ".join(dict.fromkeys(names))))
    use = ("-config", configuration)
    ca, ca_key, request = folder / "ca.crt", folder / "ca.key", folder / "server.csr"
    made = folder / "server.crt", folder / "server.key"
    subject = ("-subj", "/CN=nodeplug-ca")
    _openssl("req", "-x509", *_CURVE, *_DAYS, *use, *subject, "-extensions", "authority", "-keyout", ca_key, "-out", ca)
    _openssl("req", "-new", *_CURVE, *use, "-subj", "/CN=kube-apiserver", "-keyout", made[1], "-out", request)
    extensions = ("-extfile", configuration, "-extensions", "server")
    signer = ("-CA", ca, "-CAkey", ca_key, "-CAcreateserial")
    _openssl("x509", "-req", "-in", request, *signer, *_DAYS, *extensions, "-out", made[0])
    return Certificate(*made, ca.read_text(), ca, ca_key.read_text())


def sign(folder: Path, authority: str, key: str, request: bytes, extensions: str, days: int) -> str:
    """Sign a request, whose signature is checked; `extensions` are lines of openssl's configuration. Raises TlsError.

    `folder` must be empty, and readable by its owner only.
    """
    files = {"ca.crt": authority.encode(), "ca.key": key.encode(), "csr": request, "extensions": extensions.encode()}
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
