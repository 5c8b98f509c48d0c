"""Who we are and whom we trust: from a kubeconfig, or as a pod from its service account.

Files are read again when the client asks (every minute, and after a refusal): tokens and certificates rotate.
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

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast: a call may wait for it once a minute
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class CredentialsError(ClientError):
    """Credentials that are missing or that we cannot use; says which file and why."""


class Credentials(msgspec.Struct, frozen=True):
    """Where the server is and how to speak to it. Certificates and keys are PEM texts.

    `username` and `password` are for servers that want them; `proxy` only comes from a kubeconfig.
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
"""Reads credentials as they are now; raises CredentialsError."""


def in_cluster(folder: Path = SERVICE_ACCOUNT, environment: Mapping[str, str] = os.environ) -> Source:
    """The credentials of the pod that we run in. Never through a proxy, whatever the environment says."""

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
    """The credentials of a kubeconfig's context, the current one if none is named."""

    def read() -> Credentials:
        try:
            document = yaml.load(_text(path), _Loader)  # noqa: S506 - a safe one
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
            raise CredentialsError(f"{path}{place}: this is not YAML: {error.problem or error.context}") from error
        except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that is none, and the like
            raise CredentialsError(f"{path}: {error}") from error
        if not isinstance(document, dict):
            raise CredentialsError(f"{path}: not a kubeconfig")
        name = context or document.get("current-context") or ""
        chosen = _named(path, document, "contexts", name, "context")
        cluster = _named(path, document, "clusters", str(chosen.get("cluster")), "cluster")
        user = _named(path, document, "users", str(chosen["user"]), "user") if chosen.get("user") else {}
        return _credentials(path, cluster, user, str(chosen.get("namespace") or "default"))

    return read


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
    if password:  # the stand-in's kubeconfig repeats it as the path (kubeconfig.py), and addresses are logged
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
    """A certificate or key: in the document, or in a file that it names."""
    data = section.get(f"{name}-data")
    if data:
        try:
            return base64.b64decode(str(data), validate=True).decode()
        except ValueError as error:  # not base64, or not of a text
            raise CredentialsError(f"{path}: {name}-data: {error}") from error
    return _text(path.parent / str(section[name])) if section.get(name) else ""


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise CredentialsError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CredentialsError(f"{path}: this is not text in UTF-8") from error
    except ValueError as error:  # no path
        raise CredentialsError(f"{str(path)!r}: {error}") from error
