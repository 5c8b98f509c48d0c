"""A few of the many faults, to check that the command which tries all of them works."""

import errno

import pytest

from tests.faults.scenario import run_scenario
from tests.faults.shim import Fault, library


@pytest.mark.skipif(library() is None, reason="no C compiler")
async def test_power_cut_during_a_write_loses_no_lease() -> None:
    outcome = await run_scenario(Fault("write", "killed-after", 60, "state/ledger.sqlite3-wal"), loses_power=True)
    assert not outcome.wrong
    assert outcome.starts == 2


@pytest.mark.skipif(library() is None, reason="no C compiler")
async def test_failed_removal_of_a_temporary_socket_leaves_nothing() -> None:
    outcome = await run_scenario(Fault("unlink", str(errno.EIO), 1, "k/device-plugins/.*.tmp"))
    assert not outcome.wrong
    assert outcome.met


@pytest.mark.skipif(library() is None, reason="no C compiler")
@pytest.mark.parametrize(
    "path", ["k/device-plugins", "k/device-plugins/kubelet.sock", "state/userspace", "state/node-features"]
)
async def test_failed_stat_does_not_end_the_daemon(path: str) -> None:
    outcome = await run_scenario(Fault("stat", str(errno.EIO), 1, path))
    assert not outcome.wrong
    assert outcome.met
    assert outcome.starts == 1


@pytest.mark.skipif(library() is None, reason="no C compiler")
async def test_new_instance_killed_during_takeover_loses_no_lease() -> None:
    outcome = await run_scenario(Fault("open", "kill", 1, "state/ledger.sqlite3-wal"), at_update=True)
    assert not outcome.wrong
    assert outcome.starts == 2
