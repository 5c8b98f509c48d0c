"""The token and the certificate authority of a server that stores its objects.

They are stored in a file beside the data file, with mode 0600, so that kubeconfigs are still valid after a restart.
"""

from pathlib import Path

import msgspec

from controlplane.apiserver.access.tls import Authority
from controlplane.apiserver.private_files import write_private

_SUFFIX = ".credentials"


class StoredCredentialsError(Exception):
    """The file cannot be used. The text names the file, the reason and what to do."""


class StoredCredentials(msgspec.Struct, frozen=True, omit_defaults=True):
    """The generated token, empty if there is none, and the authority, None if the server never had TLS."""

    token: str = ""
    authority: Authority | None = None


def read_credentials(data: Path) -> StoredCredentials:
    """Return the credentials stored beside `data`; empty ones if there is no file. Raises StoredCredentialsError."""
    path = _path(data)
    try:
        return msgspec.json.decode(path.read_bytes(), type=StoredCredentials)
    except FileNotFoundError:
        return StoredCredentials()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        text = f"{path}: {reason}; remove the file and write the kubeconfig again with --kubeconfig"
        raise StoredCredentialsError(text) from error


def write_credentials(data: Path, credentials: StoredCredentials) -> None:
    """Store the credentials for the server's next start. Raises OSError."""
    write_private(_path(data), msgspec.json.encode(credentials).decode())


def _path(data: Path) -> Path:
    return data.with_name(data.name + _SUFFIX)
