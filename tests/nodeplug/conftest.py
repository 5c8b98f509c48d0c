"""`nodeplug run` as a process, alone or on a machine in a cluster."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import kubelet.pods
from kubelet import Pod, container
from tests.deviceplugin.host import MadeUpHost
from tests.nodeplug.machine import Machine, in_cluster

StartDaemon = Callable[..., Awaitable[Process]]


@pytest.fixture
def made_up(tmp_path: Path) -> MadeUpHost:
    return MadeUpHost(tmp_path / "host", "fuse", "kvm")


@pytest.fixture
async def start(made_up: MadeUpHost, socket_dir: Path, tmp_path: Path) -> AsyncIterator[StartDaemon]:
    """Start the daemon with its own configuration; a process that still runs after the test is killed."""
    running: list[Process] = []

    async def begin(
        resources: object = None,
        environment: dict[str, str] | None = None,
        path: Path | None = None,
        stderr: int = PIPE,
        **settings: Any,
    ) -> Process:
        base = {
            "kubeletRoot": str(socket_dir),
            "stateDirectory": str(tmp_path / "state"),
            "cdiDirectory": str(tmp_path / "cdi"),
            "lockWaitSeconds": 0,
        }
        default = [{"name": "example.com/fuse", "select": "fuse", "shares": 2}]
        if path is None:
            path = tmp_path / f"config{len(running)}.yaml"
            path.write_text(json.dumps({"settings": base | settings, "resources": resources or default}))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nodeplug", "run", "--config", str(path), "--root", str(made_up.root)),
            stderr=stderr,
            env=os.environ | (environment or {}),
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def pod(name: str) -> Pod:
    return kubelet.pods.pod(name, container("c", {"example.com/fuse": 1}))


async def ended(process: Process) -> tuple[int, str]:
    _, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, errors.decode()


async def until_logged(process: Process, text: str) -> None:
    """Wait until the process has logged a text."""
    assert process.stderr is not None
    async with asyncio.timeout(30):
        async for line in process.stderr:
            if text in line.decode():
                return
    raise AssertionError(f"ended without {text!r}")


@pytest.fixture
async def machine(tmp_path: Path, socket_dir: Path) -> AsyncIterator[Machine]:
    async with in_cluster(tmp_path, MadeUpHost(tmp_path / "host", "fuse", "kvm"), socket_dir) as made:
        yield made
