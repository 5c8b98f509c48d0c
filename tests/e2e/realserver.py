"""A real API server with its etcd, without a node, for tests that need their own flags.

It uses the programs of the real node (see realnode.py), but none of its state, and needs no root.
"""

import json
import os
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

from resourceapi.client import ClientError, Credentials
from resourceapi.client.blocking import Client
from tests.e2e.realnode import HOME
from tests.ports import free_ports

BOOT = 60.0
"""Time limit in seconds until it is ready."""
_PROGRAMS = ("etcd", "kube-apiserver")


def skip_reason() -> str:
    """Return why it cannot run here; "" if it can."""
    missing = [name for name in _PROGRAMS if not (HOME / "bin" / name).exists()]
    if missing:
        return f"the real node is not built: no {', '.join(missing)} in {HOME / 'bin'}"
    return "" if shutil.which("openssl") else "openssl is not installed"


class RealServer:
    """The server, running while entered; `flags` are the API server's. Limits apply to `user`, but not to `admin`."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self._folder, self._flags = folder, flags
        self._etcd_port, self._peer_port, self._port = free_ports(3)
        self.url = f"https://127.0.0.1:{self._port}"
        self._certificates = folder / "certificates"
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "RealServer":
        key = self._folder / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        tokens = self._folder / "tokens.csv"
        tokens.write_text('admin,admin,admin,"system:masters"\nuser,user,user,""\n')
        etcd = f"http://127.0.0.1:{self._etcd_port}"
        peer = f"http://127.0.0.1:{self._peer_port}"
        self._start(
            "etcd",
            "--name=it",
            f"--data-dir={self._folder / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=it={peer}",
        )
        self._start(
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={self._certificates}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",  # as in clusters
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--endpoint-reconciler-type=none",
            *self._flags,
        )
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait(20)

    def client(self, token: str = "admin", **options: Any) -> Client:
        """Return a client; options are those of Client, and `server` is another address."""
        address = options.pop("server", self.url)
        return Client(lambda: Credentials(server=address, token=token, ca=self.ca), **options)

    @property
    def ca(self) -> str:
        """The CA certificate; raises OSError before it exists."""
        return (self._certificates / "apiserver.crt").read_text()

    def compact(self, version: str) -> None:
        """Make etcd forget the history before a resourceVersion."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._etcd_port}/v3/kv/compaction",
            json.dumps({"revision": version, "physical": True}).encode(),
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            answer.read()

    def _start(self, program: str, *arguments: str) -> None:
        with (self._folder / f"{program}.log").open("wb") as log:
            command = [str(HOME / "bin" / program), *arguments]
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=log, env={"PATH": os.environ["PATH"]}))

    def _wait(self) -> None:
        """Wait until it is ready, and has granted `user` all rights."""
        deadline = time.monotonic() + BOOT
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "user"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "user"}],
        }
        while not self._is_authorized(binding):
            assert all(process.poll() is None for process in self._processes), f"see the logs in {self._folder}"
            assert time.monotonic() < deadline, f"not ready after {BOOT} s: see the logs in {self._folder}"
            time.sleep(0.1)  # no event reports that it is ready

    def _is_authorized(self, binding: dict[str, Any]) -> bool:
        try:
            admin = self.client(attempts=1)
            admin.raw("rbac.authorization.k8s.io/v1", "clusterroles", namespaced=False).get("cluster-admin")
            admin.raw("rbac.authorization.k8s.io/v1", "clusterrolebindings", namespaced=False).apply(binding, "e2e")
            self.client("user", attempts=1).request("GET", "/api/v1/nodes")
        except (ClientError, OSError):  # OSError: there is no certificate yet
            return False
        return True
