"""The token and the authority of a server that keeps its objects, so that its kubeconfigs are valid after a restart.

They are in a file beside that of the objects, which only its owner can read.
"""

from pathlib import Path

import msgspec

from controlplane.apiserver.access.tls import Authority
from controlplane.apiserver.private_files import write_private

_SUFFIX = ".credentials"


class KeptCredentialsError(Exception):
    """The file cannot be used. The text names the file, the reason and what to do."""


class KeptCredentials(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored token (empty if the server never generated one), and the authority of a server with TLS."""

    token: str = ""
    authority: Authority | None = None


def read_credentials(data: Path) -> KeptCredentials:
    """Return the credentials stored beside `data`; empty ones if there is no file. Raises KeptCredentialsError."""
    path = _path(data)
    try:
        return msgspec.json.decode(path.read_bytes(), type=KeptCredentials)
    except FileNotFoundError:
        return KeptCredentials()
    except (OSError, msgspec.DecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        text = f"{path}: {reason}; remove the file, and have the kubeconfig written again (--kubeconfig)"
        raise KeptCredentialsError(text) from error


def write_credentials(data: Path, credentials: KeptCredentials) -> None:
    """Store the credentials for the server's next start. Raises OSError."""
    write_private(_path(data), msgspec.json.encode(credentials).decode())


def _path(data: Path) -> Path:
    return data.with_name(data.name + _SUFFIX)
