"""Objects in a file: acknowledged writes survive every kind of exit, and versions continue."""

import asyncio
import http.client
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from controlplane.apiserver import JournalError, Server, ServerError, controllers
from tests.controlplane.apiserver.running import CLASSES, Http, Running, device_class, wait_until_deleted
from tests.leaks import LeakCheck
from tests.small_disk import fill, mounted


def test_objects_and_versions_survive_a_restart(tmp_path: Path) -> None:
    """Definitions and their objects survive, too. Watchers with older versions must list again."""
    data = tmp_path / "objects"
    with Running(data=data) as running, running.http() as api:
        made = api.ok("POST", CLASSES, device_class())
        api.ok("POST", CLASSES, device_class("gone"))
        last = int(api.ok("DELETE", f"{CLASSES}/gone")["metadata"]["resourceVersion"])
    with Running(data=data) as running, running.http() as api:
        assert api.ok("GET", f"{CLASSES}/gpu") == made
        listed = api.ok("GET", CLASSES)
        assert [item["metadata"]["name"] for item in listed["items"]] == ["gpu"]
        assert int(listed["metadata"]["resourceVersion"]) >= last
        with api.watch(CLASSES, resourceVersion=made["metadata"]["resourceVersion"], timeoutSeconds="1") as events:
            assert [event["object"]["code"] for event in events] == [410]


def test_acknowledged_writes_survive_sigkill(tmp_path: Path) -> None:
    """SIGKILL while four clients write as fast as possible."""
    data = tmp_path / "objects"
    options = ["--data", str(data), "--kubeconfig", str(tmp_path / "config"), "--no-token"]
    command = [sys.executable, "-m", "nodeplug", "apiserver", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    url = process.stdout.readline().split()[-1]
    acknowledged: list[str] = []
    enough = threading.Event()

    def write(writer: int) -> None:
        with Http(url, "") as api:
            for index in range(100_000):
                name = f"w{writer}-{index}"
                try:
                    if api.send("POST", CLASSES, device_class(name)).status != 201:
                        return
                except (OSError, ValueError, http.client.HTTPException):
                    return  # the server is gone
                acknowledged.append(name)
                if len(acknowledged) > 150:
                    enough.set()

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    was_enough = enough.wait(30)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert was_enough
    for thread in threads:
        thread.join()
    with Running(data=data) as running, running.http() as api:
        found = {item["metadata"]["name"] for item in api.ok("GET", CLASSES)["items"]}
    assert set(acknowledged) <= found


@pytest.mark.parametrize("is_full", [False, True])
def test_pending_garbage_collection_is_completed_after_restart(tmp_path: Path, is_full: bool) -> None:
    """With a full disk, the work is done together with the first change that fits."""
    (tmp_path / "disk").mkdir()
    with mounted(tmp_path / "disk", "size=2m") as disk:
        data = disk / "objects"
        with Running(data=data, collect_after=None) as running, running.http() as api:
            owner = api.ok("POST", CLASSES, device_class("owner"))["metadata"]
            reference = {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "DeviceClass",
                "name": "owner",
                "uid": owner["uid"],
            }
            api.ok("POST", CLASSES, device_class("child", ownerReferences=[reference]))
            api.ok("DELETE", f"{CLASSES}/owner")
        has_failed = threading.Event()
        log = logging.getLogger(controllers.__name__)

        def seen(_: logging.LogRecord) -> bool:
            has_failed.set()
            return True

        log.addFilter(seen)
        rest = fill(disk) if is_full else None
        try:
            with Running(data=data, collect_after=0.0) as running, running.http() as api:
                if rest is not None:
                    assert has_failed.wait(30)
                    rest.unlink()
                    api.ok("POST", CLASSES, device_class("other"))
                wait_until_deleted(api, "child")
        finally:
            log.removeFilter(seen)


def test_file_of_another_format_is_refused_and_closed(tmp_path: Path) -> None:
    """The error has the file's name and the reason, and the file is closed."""
    other = tmp_path / "other"
    other.write_text("no database " * 100)
    since = LeakCheck()
    with pytest.raises(JournalError, match="other: file is not a database"):
        Server(data=other)
    assert not since.descriptors()


async def test_second_server_on_same_file_is_refused(tmp_path: Path) -> None:
    """A second server is refused while the first one runs."""
    async with Server(data=tmp_path / "objects", token=""):
        with pytest.raises(JournalError, match="locked"):
            await asyncio.to_thread(Server, data=tmp_path / "objects")


async def test_server_closes_its_file_when_port_is_in_use(tmp_path: Path) -> None:
    async with Server(token="") as other:
        port = int(other.url.rpartition(":")[2])
        with pytest.raises(ServerError, match="cannot listen"):
            async with Server(port=port, data=tmp_path / "objects", token=""):
                pass
    async with Server(data=tmp_path / "objects", token="") as server:
        assert server.url
