"""Each right of the shipped role is needed: without it one function fails with a message, and all others work."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeAlias

import pytest
from msgspec import to_builtins

from resourceapi.manifests import read_documents
from tests.controlplane.scheduler.kit import Json, claim, request, slice_
from tests.deviceplugin.host import MadeUpHost
from tests.nodeplug.cluster import NODE, NodeCluster, using
from tests.nodeplug.machine import Machine
from tests.nodeplug.test_run_with_its_role import KVM, RESOURCES, SHIPPED, use_node_token
from tests.running import running

_SLICES, _CLAIMS = "resourceslices", "resourceclaims"
_DEVICES = "changing status.devices requires"
Right: TypeAlias = tuple[str, str]
LOST_FUNCTIONS: dict[Right, tuple[str, str]] = {  # the function that fails, and the daemon's message
    (_SLICES, "list"): ("published", f'cannot list resource \\"{_SLICES}\\"'),
    (_SLICES, "create"): ("published", f'cannot create resource \\"{_SLICES}\\"'),
    ("nodes", "get"): ("published", 'cannot get resource \\"nodes\\"'),
    (_SLICES, "update"): ("changed", f'cannot update resource \\"{_SLICES}\\"'),
    (_SLICES, "delete"): ("published", f'cannot delete resource \\"{_SLICES}\\"'),  # superfluous slices go first
    (_SLICES, "watch"): ("", f'cannot watch resource \\"{_SLICES}\\"'),  # others' changes are found by lists only
    (_SLICES, "get"): ("", ""),  # after a conflict: tests/dra_plugin/publishing has it
    (_CLAIMS, "get"): ("prepared", f'cannot get resource \\"{_CLAIMS}\\"'),
    (f"{_CLAIMS}/status", "patch"): ("status", f'cannot patch resource \\"{_CLAIMS}/status\\"'),
    (f"{_CLAIMS}/driver", "associated-node:patch"): ("status", _DEVICES),
}


def shipped() -> list[Json]:
    found = to_builtins(read_documents(SHIPPED.read_bytes()))
    assert isinstance(found, list)
    return found


def rules(manifests: list[Json]) -> list[Json]:
    (found,) = (each["rules"] for each in manifests if each["kind"] == "ClusterRole")
    assert isinstance(found, list)
    return found


def test_every_right_of_the_role_has_a_case() -> None:
    rights = {(resource, verb) for rule in rules(shipped()) for resource in rule["resources"] for verb in rule["verbs"]}
    assert rights == LOST_FUNCTIONS.keys()


@pytest.mark.parametrize("right", LOST_FUNCTIONS, ids=" ".join)
async def test_missing_right_is_logged_and_stops_only_its_function(
    right: Right, tmp_path: Path, socket_dir: Path
) -> None:
    resource, verb = right
    lost_function, words = LOST_FUNCTIONS[right]
    async with AsyncExitStack() as stack:
        cluster = NodeCluster(socket_dir, authorization="RBAC")
        manifests = shipped()
        for rule in rules(manifests):
            if rule["resources"] == [resource]:
                rule["verbs"].remove(verb)
        rules(manifests)[:] = [rule for rule in rules(manifests) if rule["verbs"]]
        for manifest in manifests:
            cluster.server.write(manifest)
        await stack.enter_async_context(cluster)
        machine = Machine(tmp_path, cluster, MadeUpHost(tmp_path / "host", "fuse", "kvm"), socket_dir)
        stack.push_async_callback(machine.end)
        await machine.classes()
        await cluster.until(lambda: cluster.get("Node", NODE))
        await cluster.create(slice_(NODE, "stray", driver="nodeplug.dev", name="stray"))  # left by an earlier daemon
        use_node_token(machine, NODE)
        process = await machine.start(resources=RESOURCES)
        log: list[str] = []

        async def listen() -> None:
            assert process.stderr is not None
            while line := await process.stderr.readline():
                log.append(line.decode())

        await stack.enter_async_context(running(listen()))

        async def is_logged() -> bool:
            return any(words in line for line in log)

        async def until(holds: Callable[[], Awaitable[bool]]) -> None:
            async with asyncio.timeout(30):
                while not await holds():
                    await cluster.clock.advance(1.0)
                    await asyncio.sleep(0.05)  # the daemon is another process

        for function, (act, holds) in functions(machine, tmp_path / "config0.yaml").items():
            await act()
            if function == lost_function or (function == "status" and lost_function == "prepared"):
                await until(is_logged)
                assert not await holds()
                if lost_function == "published":
                    return
            else:
                await until(holds)
        if words:
            await until(is_logged)
        else:
            assert not any("orbidden" in line for line in log)


def functions(
    machine: Machine, config: Path
) -> dict[str, tuple[Callable[[], Awaitable[object]], Callable[[], Awaitable[bool]]]]:
    """Return the daemon's functions in the cluster: a trigger, and a check of the result."""
    cluster = machine.cluster

    async def nothing() -> None:
        return

    async def published() -> bool:
        return {"misc-fuse", "misc-kvm"} <= (await machine.published()).keys()

    async def claimed() -> None:
        await cluster.create(claim("c", request(deviceClassName=KVM)), using("p", ["mine"], claims={"mine": "c"}))

    async def prepared() -> bool:
        return bool((await cluster.get("Pod", "p")).get("status", {}).get("phase") == "Running")

    async def has_status() -> bool:
        return bool((await cluster.get("ResourceClaim", "c")).get("status", {}).get("devices"))

    async def delete_slices() -> None:
        for each in await cluster.all("ResourceSlice"):
            await cluster.delete("ResourceSlice", each["metadata"]["name"])

    async def is_stray_slice_deleted() -> bool:
        return not await cluster.get("ResourceSlice", "stray")

    async def configure() -> None:
        content = json.loads(config.read_text())
        content["resources"] = [x | {"dra": {"attributes": {"example.com/x": "y"}}} for x in content["resources"]]
        config.write_text(json.dumps(content))

    async def changed() -> bool:
        return any("example.com/x" in x.get("attributes", {}) for x in (await machine.published()).values())

    return {
        "published": (nothing, published),
        "prepared": (claimed, prepared),
        "status": (nothing, has_status),
        "tidied": (nothing, is_stray_slice_deleted),
        "changed": (configure, changed),
        "put back": (delete_slices, published),
    }
