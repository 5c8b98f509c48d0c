"""`nodeplug kubelet run` with a cluster, as run by a user."""

import asyncio
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from controlplane.apiserver import Server, write_kubeconfig
from nodeplug.commands.kubelet import kubelet
from nodeplug.commands.kubelet_cluster import (
    ClusterUnavailable,
    background,
    bundled_cluster,
    kubeconfig_cluster,
    no_cluster,
)
from resourceapi.client import ClientError, from_kubeconfig
from resourceapi.client.blocking import Client

_OBJECTS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: default}
spec:
  containers: [{name: c, image: any}]
"""


async def test_bundled_cluster_serves_loaded_manifests_and_stops(socket_dir: Path) -> None:
    (socket_dir / "objects.yaml").write_text(_OBJECTS)
    folder = socket_dir / "kubelet"
    async with bundled_cluster(folder, 0, [socket_dir / "objects.yaml"], is_wanted=True) as client:
        assert client is not None
        found = Client(from_kubeconfig(folder / "kubeconfig"))
        listed = await asyncio.to_thread(found.request, "GET", "/apis/resource.k8s.io/v1/deviceclasses")
        assert [each["metadata"]["name"] for each in listed["items"]] == ["gpu"]
        found.close()
    with pytest.raises(ClientError):
        await asyncio.to_thread(client.request, "POST", "/version")


async def test_manifest_of_an_unknown_kind_is_refused(socket_dir: Path) -> None:
    (socket_dir / "objects.yaml").write_text("kind: Nothing\napiVersion: v1\n")
    with pytest.raises(click.ClickException, match="no matches for kind"):
        async with bundled_cluster(socket_dir, 0, [socket_dir / "objects.yaml"], is_wanted=False):
            pass


async def test_port_in_use_is_refused(socket_dir: Path) -> None:
    async with Server() as server:
        port = int(server.url.rpartition(":")[2])
        with pytest.raises(ClusterUnavailable, match="cannot listen"):
            async with bundled_cluster(socket_dir, port, [], is_wanted=False):
                pass


async def test_client_is_created_from_a_kubeconfig(socket_dir: Path) -> None:
    async with Server() as server:
        write_kubeconfig(socket_dir / "config", server.url, server.token)
        async with kubeconfig_cluster(socket_dir / "config") as client:
            assert client is not None


async def test_client_is_none_without_a_cluster() -> None:
    async with no_cluster() as client:
        assert client is None


async def test_cancellation_works_while_background_task_ends() -> None:
    begun, ending, forever = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow_to_end() -> None:
        begun.set()
        try:
            await forever.wait()
        finally:
            ending.set()
            await forever.wait()

    async def user() -> None:
        async with background(slow_to_end()):
            await begun.wait()

    using = asyncio.create_task(user())
    await ending.wait()
    using.cancel()
    await asyncio.wait([using])
    assert using.cancelled()
    forever.set()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kubeconfig", "CONFIG", "--apiserver"], "leave out --apiserver"),
        (["--kubeconfig", "CONFIG", "--load", "CONFIG"], "leave out --apiserver"),
        (["--no-apiserver", "--port", "1"], "are for the API server"),
        (["--kubeconfig", "CONFIG"], "no context"),
    ],
)
def test_conflicting_options_and_invalid_kubeconfig_are_refused(
    socket_dir: Path, options: list[str], message: str
) -> None:
    config = socket_dir / "config"
    config.write_text("kind: Config\n")
    arguments = [str(config) if each == "CONFIG" else each for each in options]
    found = CliRunner().invoke(kubelet, ["run", "--dir", str(socket_dir / "kubelet"), *arguments])
    assert found.exit_code != 0
    assert message in found.output
