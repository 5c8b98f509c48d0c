"""Credentials and trusted certificates, from a kubeconfig or from a pod's service account.

The client rereads the files every minute and after a 401, because tokens and certificates rotate.
"""

import base64
import os
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from resourceapi.client.errors import ClientError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class CredentialsError(ClientError):
    """Credentials are missing or cannot be used; the message names the file and the reason."""


class Credentials(msgspec.Struct, frozen=True):
    """The server's address and the credentials for it. Certificates and keys are PEM texts.

    `username` and `password` are for basic authentication; `proxy` is set only by a kubeconfig.
    """

    server: str
    token: str = ""
    username: str = ""
    password: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    server_name: str = ""
    is_insecure: bool = False
    proxy: str = ""
    namespace: str = "default"


Source = Callable[[], Credentials]
"""Reads the current credentials; raises CredentialsError."""


def in_cluster(folder: Path = SERVICE_ACCOUNT, environment: Mapping[str, str] = os.environ) -> Source:
    """Return a source of the credentials of this pod. It ignores the environment's proxy settings."""

    def read() -> Credentials:
        host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
        if not host or not port:
            raise CredentialsError("not in a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
        shown = f"[{host}]" if ":" in host else host
        namespace = folder / "namespace"
        return Credentials(
            server=f"https://{shown}:{port}",
            token=_text(folder / "token").strip(),
            ca=_text(folder / "ca.crt"),
            namespace=_text(namespace).strip() if namespace.exists() else "default",
        )

    return read


def from_kubeconfig(path: Path, context: str = "") -> Source:
    """Return a source of the credentials of a kubeconfig's context, by default the current one."""

    known: tuple[str, dict[str, Any]] | None = None  # the text that was read last, and its document

    def read() -> Credentials:
        nonlocal known
        text = _text(path)
        # parsing in Python takes up to 20 ms; the parser in C would take 0.5 MiB for good
        if known is None or text != known[0]:
            known = text, _document(path, text)
        document = known[1]
        name = context or document.get("current-context") or ""
        chosen = _named(path, document, "contexts", name, "context")
        cluster = _named(path, document, "clusters", str(chosen.get("cluster")), "cluster")
        user = _named(path, document, "users", str(chosen["user"]), "user") if chosen.get("user") else {}
        return _credentials(path, cluster, user, str(chosen.get("namespace") or "default"))

    return read


def _document(path: Path, text: str) -> dict[str, Any]:
    try:
        document = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise CredentialsError(f"{path}{place}: this is not YAML: {error.problem or error.context}") from error
    except RecursionError as error:
        raise CredentialsError(f"{path}: its values are nested too deeply") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: for example an invalid date
        raise CredentialsError(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise CredentialsError(f"{path}: not a kubeconfig")
    return document


def _credentials(path: Path, cluster: dict[str, Any], user: dict[str, Any], namespace: str) -> Credentials:
    for unsupported in ("exec", "auth-provider"):
        if unsupported in user:
            raise CredentialsError(
                f"{path}: users with {unsupported!r} are not supported; use a token or a certificate"
            )
    try:
        url = urllib.parse.urlsplit(str(cluster.get("server") or ""))
    except ValueError as error:
        raise CredentialsError(f"{path}: the cluster's server: {error}") from error
    if url.scheme not in ("http", "https") or not url.hostname:
        raise CredentialsError(f"{path}: the cluster needs a server with http:// or https://")
    address = url._replace(netloc=url.netloc.rpartition("@")[2]).geturl().rstrip("/")
    password = urllib.parse.unquote(url.password or "")
    if password:  # the stand-in's kubeconfig also has it as the path (kubeconfig.py), and addresses are logged
        address = address.removesuffix(f"/{password}")
    token = str(user.get("token") or "")
    if not token and user.get("tokenFile"):
        token = _text(path.parent / str(user["tokenFile"])).strip()
    return Credentials(
        server=address,
        token=token,
        username=str(user.get("username") or urllib.parse.unquote(url.username or "")),
        password=str(user.get("password") or password),
        ca=_pem(path, cluster, "certificate-authority"),
        certificate=_pem(path, user, "client-certificate"),
        key=_pem(path, user, "client-key"),
        server_name=str(cluster.get("tls-server-name") or ""),
        is_insecure=bool(cluster.get("insecure-skip-tls-verify")),
        proxy=str(cluster.get("proxy-url") or ""),
        namespace=namespace,
    )


def _named(path: Path, document: dict[str, Any], section: str, name: str, member: str) -> dict[str, Any]:
    entries = document.get(section)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name:
            found = entry.get(member) or {}
            if isinstance(found, dict):
                return found
    raise CredentialsError(f"{path}: no {member} {name!r} in {section}")


def _pem(path: Path, section: dict[str, Any], name: str) -> str:
    """Return a certificate or key from the document, or from the file that it names."""
    data = section.get(f"{name}-data")
    if data:
        try:
            return base64.b64decode(str(data), validate=True).decode()
        except ValueError as error:  # not base64, or not text
            raise CredentialsError(f"{path}: {name}-data: {error}") from error
    return _text(path.parent / str(section[name])) if section.get(name) else ""


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise CredentialsError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CredentialsError(f"{path}: this is not text in UTF-8") from error
    except ValueError as error:  # not a valid path
        raise CredentialsError(f"{str(path)!r}: {error}") from error
