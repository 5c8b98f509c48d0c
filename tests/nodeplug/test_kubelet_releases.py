"""A node's kubelet is upgraded and downgraded while a daemon and its pods run."""

import sqlite3
from contextlib import closing
from pathlib import Path

from kubelet import Node, Version, container
from kubelet.pods import pod
from tests.nodeplug.conftest import StartDaemon, ended

NAME = "example.com/fuse"


async def test_pods_keep_devices_across_kubelet_releases(start: StartDaemon, socket_dir: Path, tmp_path: Path) -> None:
    first = pod("first", container("c", {NAME: 1}), uid="1")
    second = pod("second", container("c", {NAME: 1}), uid="2")
    async with Node(socket_dir, kubernetes="1.34") as node:
        daemon = await start()
        await node.until(lambda: node.allocatable().get(NAME) == 2, 30)
        assert (await node.admit(first)).phase == "Running"
        had = node.allocations("first", "c")
    releases: tuple[Version, ...] = ("1.37", "1.35", "1.36", "1.34")
    for release in releases:
        async with Node(socket_dir, kubernetes=release) as node:
            await node.until(lambda: node.allocatable().get(NAME) == 2, 30)
            assert (await node.admit(first)).phase == "Running"
            assert node.allocations("first", "c") == had
            assert (await node.admit(second)).phase == "Running"  # it gets the other unit
            assert node.allocations("second", "c") != had
    with closing(sqlite3.connect(tmp_path / "state/ledger.sqlite3")) as reader:
        assert reader.execute("select unit from lease order by unit").fetchall() == [("misc-fuse.0",), ("misc-fuse.1",)]
    daemon.terminate()
    _, log = await ended(daemon)
    assert '"level":"error"' not in log
