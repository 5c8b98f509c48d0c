"""Each right of the unit with its DRA drop-in is needed: without it some functions fail with a message.

All other functions continue. `docs/promises.md` has the table.
"""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.e2e.debian_box import DebianBox, booted, skip_reason
from tests.e2e.unit_box import USUAL, UnitBox, debian_package, made_up_sys
from tests.nodeplug.cluster import NodeCluster

pytestmark = pytest.mark.e2e
DEVICES = ["units", "units with CDI", "claims"]
LOST_FUNCTIONS: dict[tuple[str, str], tuple[list[str], str]] = {  # the functions that fail, and the message
    ("ReadWritePaths", f"{USUAL}/device-plugins"): (["units", "units with CDI"], "cannot serve: .*no permission"),
    ("ReadWritePaths", f"-{USUAL}/plugins_registry"): (["claims"], "cannot serve the registration: .*no permission"),
    ("ReadWritePaths", f"-{USUAL}/plugins"): (["claims"], "cannot serve the driver: .*no permission"),
    ("ReadWritePaths", "-/run/cdi"): (["units with CDI", "claims"], "cannot write CDI specs: .*Read-only file system"),
    ("StateDirectory", "nodeplug"): ([*DEVICES, "status"], "cannot open the lease database .*Read-only file system"),
    ("RestrictAddressFamilies", "AF_UNIX"): ([*DEVICES, "slices", "status", "events"], "Address family not supported"),
    ("RestrictAddressFamilies", "AF_NETLINK"): (["events"], "changes wait for a rescan"),
    ("RestrictAddressFamilies", "AF_INET"): (["slices", "claims"], "ResourceSlices: .*Address family not supported"),
}
NOT_TRIED = {("RestrictAddressFamilies", "AF_INET6")}
"""The cluster has no address of this family here."""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder with the same short path in the box and here, because no unit has its own /tmp there."""
    made = Path(tempfile.mkdtemp(prefix="np", dir="/srv"))
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def box(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebianBox]:
    """A box with the installed package."""
    if reason := skip_reason():
        pytest.skip(reason)
    package = debian_package(tmp_path_factory.mktemp("package"))
    (folder / "kubelet/plugins").mkdir(parents=True)
    binds = {str(folder / "kubelet"): folder / "kubelet", "/srv/package": package.parent}
    with booted(folder / "box", made_up_sys(folder / "sys"), binds, has_network=True) as started:
        done = started.run(f"dpkg -i --force-depends /srv/package/{package.name}")
        assert done.returncode == 0, done.stdout
        yield started


@pytest.fixture
async def unit(box: DebianBox, folder: Path) -> AsyncIterator[UnitBox]:
    """The installed unit, not started yet."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(NodeCluster(folder / "kubelet"))
        made = UnitBox(box, cluster, folder / "kubelet")
        await made.prepare()
        yield made


async def test_missing_right_of_the_unit_stops_only_its_functions(unit: UnitBox) -> None:
    assert LOST_FUNCTIONS.keys() | NOT_TRIED == unit.rights()
    await unit.start("")
    for function, holds in unit.functions().items():
        await unit.until(holds, function)
    await unit.stop()
    for right, (lost, words) in LOST_FUNCTIONS.items():
        await unit.start(unit.without(right))
        for function, holds in unit.functions().items():
            if function not in lost:
                await unit.until(holds, f"{function} without {right}")
        for function in lost:  # each one is still refused
            assert not await unit.functions()[function](), (right, function)
        await unit.until_logged(words)
        for function in lost:
            assert not await unit.functions()[function](), (right, function)
        await unit.stop()
