"""The kubeconfig with which clients connect to the server.

Go clients send a user's token over TLS only, and aiohttp refuses a user's token in addition to one in the address. So
without TLS the token is only in the address: as a password, which Go clients and Python's aiohttp and httpx send, and
at the beginning of the path for the official Python client, which sends no password. `kubectl get --raw` drops the
path.
"""

import base64
from pathlib import Path

import yaml

from controlplane.apiserver.private_files import write_private

NAME = "nodeplug"


class _Quoted(str):
    """A text that is written in quotes, because some YAML parsers would read a number or a date otherwise."""


class _Dumper(yaml.SafeDumper):
    """Writes quoted texts in quotes."""


_Dumper.add_representer(
    _Quoted, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style='"')
)


def write_kubeconfig(path: Path, url: str, token: str, ca: str = "", name: str = NAME) -> None:
    """Write a kubeconfig with one cluster, user and context, readable by the owner only. Raises OSError.

    `ca` is the certificate, as PEM text, of the authority that issued the server's certificate.
    """
    is_sent = bool(token) and url.startswith("https:")
    user = {"token": _Quoted(token)} if is_sent else {}
    scheme, _, address = url.partition("://")
    cluster = {"server": f"{scheme}://{name}:{token}@{address}/{token}" if token and not is_sent else url}
    if ca:
        cluster["certificate-authority-data"] = base64.b64encode(ca.encode()).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    write_private(path, yaml.dump(document, Dumper=_Dumper, sort_keys=False))
