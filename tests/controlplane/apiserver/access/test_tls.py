"""TLS: the kubeconfig contains the certificate authority, and clients need a credential."""

import os
import shutil
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.apiserver import JournalError, Server, ServerError
from controlplane.apiserver.private_files import write_private
from resourceapi.client import Unreachable, from_kubeconfig
from resourceapi.client.blocking import Client
from tests.controlplane.apiserver.running import CLASSES, Kubectl, Running, device_class

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")


@pytest.fixture(scope="module")
def secure() -> Iterator[Running]:
    """A server with TLS."""
    with Running(tls=True, collect_after=None) as running:
        yield running


def test_client_connects_with_kubeconfig_only(secure: Running, tmp_path: Path) -> None:
    path = secure.kubeconfig(tmp_path / "kubeconfig")
    document = yaml.safe_load(path.read_text())
    cluster = document["clusters"][0]["cluster"]
    assert cluster["server"] == secure.url
    assert secure.url.startswith("https://127.0.0.1:")
    assert document["users"][0]["user"] == {"token": "secret"}
    assert 'token: "secret"' in path.read_text()  # 1e5 is a number in some versions of YAML
    with closing(Client(from_kubeconfig(path))) as client:
        made = client.raw("resource.k8s.io/v1", "deviceclasses", namespaced=False).create(device_class("tls"))
    with secure.http() as api:
        assert api.ok("GET", f"{CLASSES}/tls")["metadata"]["uid"] == made["metadata"]["uid"]


def test_kubectl_authenticates_with_kubeconfig_token(secure: Running, kubectl: str, tmp_path: Path) -> None:
    names = Kubectl(kubectl, secure.kubeconfig(tmp_path / "kubeconfig"), tmp_path).ok("get", "namespaces", "-o", "name")
    assert "namespace/default" in names


def test_certificate_is_not_trusted_with_another_authority(secure: Running, tmp_path: Path) -> None:
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(secure.url)
    with Running(tls=True, collect_after=None) as another:
        document = yaml.safe_load(another.kubeconfig(tmp_path / "kubeconfig").read_text())
    document["clusters"][0]["cluster"]["server"] = secure.url
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(document))
    with (
        closing(Client(from_kubeconfig(tmp_path / "kubeconfig"), wait=lambda _: None)) as client,
        pytest.raises(Unreachable),
    ):
        client.raw("resource.k8s.io/v1", "deviceclasses", namespaced=False).list()


def test_kubeconfig_is_valid_after_a_restart(tmp_path: Path) -> None:
    """With `data` and the same port, the server has the same address, token and authority."""
    options: dict[str, Any] = {"tls": True, "collect_after": None, "token": None, "data": tmp_path / "objects"}
    with Running(**options) as first:
        config, port = first.kubeconfig(tmp_path / "kubeconfig"), int(first.url.rpartition(":")[2])
    with Running(**options, port=port), closing(Client(from_kubeconfig(config))) as client:
        client.raw("resource.k8s.io/v1", "deviceclasses", namespaced=False).list()
    assert stat.S_IMODE(credentials_file(tmp_path).stat().st_mode) == 0o600


def credentials_file(folder: Path) -> Path:
    return folder / "objects.credentials"


async def test_credentials_file_is_reused_or_refused_if_unreadable(tmp_path: Path) -> None:
    data = tmp_path / "objects"
    async with Server(data=data, token="t"):
        assert not credentials_file(tmp_path).exists()
    async with Server(data=data) as plain:
        token = plain.token
    async with Server(data=data, token="", tls=True) as open_to_all:
        authority = open_to_all.ca
    async with Server(data=data, tls=True) as again:
        assert (again.token, again.ca) == (token, authority)
    for unreadable in (b"{", b'{"token":"\xff"}'):
        credentials_file(tmp_path).write_bytes(unreadable)
        with pytest.raises(ServerError, match=r"objects\.credentials: .*; remove the file and write the kubeconfig"):
            Server(data=data)
    credentials_file(tmp_path).unlink()
    async with Server(data=data) as another:
        assert another.token != token


async def test_credentials_are_not_read_while_another_server_locks_the_data(tmp_path: Path) -> None:
    """The file is read under the lock of the data, so no other server can still write it."""
    async with Server(data=tmp_path / "objects"):
        credentials_file(tmp_path).write_text("{")  # must not be read without the lock
        with pytest.raises(JournalError, match="locked"):
            Server(data=tmp_path / "objects")


def test_private_file_does_not_follow_symlink_of_temporary_name(tmp_path: Path) -> None:
    """Other users of the folder could guess the name of a temporary file."""
    victim = tmp_path / "victim"
    (tmp_path / f".kubeconfig.{os.getpid()}").symlink_to(victim)
    write_private(tmp_path / "kubeconfig", "secret")
    assert not victim.exists()
    assert (tmp_path / "kubeconfig").read_text() == "secret"


async def test_missing_openssl_is_an_error_and_unlocks_the_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerError, match="TLS needs the openssl program"):
        async with Server(tls=True, data=tmp_path / "objects"):
            pass
    async with Server(data=tmp_path / "objects"):
        pass  # the failed server released the file
