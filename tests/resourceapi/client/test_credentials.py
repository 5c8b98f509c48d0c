"""Credentials: where they are found, and the errors if they are missing."""

import base64
from pathlib import Path

import pytest
import yaml

from controlplane.apiserver.kubeconfig import write_kubeconfig
from resourceapi.client import CredentialsError, from_kubeconfig, in_cluster


def test_in_cluster_credentials_are_read_from_service_account(tmp_path: Path) -> None:
    """The service account's files, which are read again on each call."""
    for name, text in (("token", "t1\n"), ("ca.crt", "CA"), ("namespace", "ns")):
        (tmp_path / name).write_text(text)
    read = in_cluster(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"})
    found = read()
    assert (found.server, found.token, found.ca, found.namespace) == ("https://10.0.0.1:443", "t1", "CA", "ns")
    (tmp_path / "token").write_text("t2")
    assert read().token == "t2"
    ipv6 = in_cluster(tmp_path, {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"})
    assert ipv6().server == "https://[fd00::1]:443"
    with pytest.raises(CredentialsError, match="not in a cluster"):
        in_cluster(tmp_path, {})()


def test_kubeconfig_context_selects_cluster_and_user(tmp_path: Path) -> None:
    """Inline data, files beside the kubeconfig, the current context, a password in the URL."""
    (tmp_path / "ca.pem").write_text("CA")
    document = {
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "n"}},
            {"name": "two", "context": {"cluster": "d"}},
            {"name": "three", "context": {"cluster": "c", "user": "exec"}},
        ],
        "clusters": [
            {"name": "c", "cluster": {"server": "https://h:6443/", "certificate-authority": "ca.pem"}},
            {"name": "d", "cluster": {"server": "http://me:secret@h:1/base"}},
        ],
        "users": [
            {"name": "u", "user": {"client-certificate-data": base64.b64encode(b"CERT").decode(), "token": "t"}},
            {"name": "exec", "user": {"exec": {"command": "x"}}},
        ],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(document))
    one = from_kubeconfig(path)()
    assert (one.server, one.ca, one.certificate, one.token, one.namespace) == ("https://h:6443", "CA", "CERT", "t", "n")
    two = from_kubeconfig(path, "two")()
    assert (two.server, two.username, two.password) == ("http://h:1/base", "me", "secret")
    with pytest.raises(CredentialsError, match="'exec' are not supported"):
        from_kubeconfig(path, "three")()
    with pytest.raises(CredentialsError, match="no context 'four' in contexts"):
        from_kubeconfig(path, "four")()
    with pytest.raises(CredentialsError, match="missing"):
        from_kubeconfig(tmp_path / "missing")()


def test_password_is_removed_from_server_url(tmp_path: Path) -> None:
    path = tmp_path / "config"
    write_kubeconfig(path, "http://127.0.0.1:1", "secret")
    found = from_kubeconfig(path)()
    assert (found.server, found.username, found.password) == ("http://127.0.0.1:1", "nodeplug", "secret")


def test_malformed_kubeconfig_error_names_file_and_position(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(CredentialsError, match=f"^{path}: this is not text in UTF-8$"):
        from_kubeconfig(path)()
    path.write_text("contexts:\n- {name: a\nusers: [")
    with pytest.raises(CredentialsError, match=rf"^{path}:3:6: this is not YAML: [^\n]+$"):
        from_kubeconfig(path)()


_KUBECONFIG_WITH_CLUSTER = (
    "contexts: [{name: a, context: {cluster: c}}]\ncurrent-context: a\nclusters: [{name: c, cluster: {%s}}]\n"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a kubeconfig"),
        ("users: " + "[" * 1000, "nested too deeply"),
        ("since: 2020-13-45\n", "month must be in 1..12"),
        (_KUBECONFIG_WITH_CLUSTER % "server: 'https://[fd00'", "server: Invalid IPv6 URL"),
        ("current-context: a\ncontexts: 3\n", "no context 'a' in contexts"),
        (_KUBECONFIG_WITH_CLUSTER % 'server: "https://h", certificate-authority: "a\\0b"', "embedded null byte"),
        (
            _KUBECONFIG_WITH_CLUSTER % "server: https://h, certificate-authority-data: Zürich",
            "certificate-authority-data: string argument",
        ),
    ],
)
def test_invalid_kubeconfig_value_is_a_credentials_error(text: str, message: str, tmp_path: Path) -> None:
    """A daemon reads the file again every minute, and continues with its earlier credentials after an error."""
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(CredentialsError, match=message):
        from_kubeconfig(path)()
