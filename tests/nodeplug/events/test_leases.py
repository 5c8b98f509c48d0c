"""Events about transactions of the ledger."""

from pathlib import Path

from msgspec import structs

from checkpoint import Ledger
from checkpoint.lease import Change
from nodeplug.events.leases import observe_ledger, record_commits
from telemetry import EventLog
from tests.checkpoint.build import claimed, lease
from tests.running import until

HELD = lease("gpu-0", holder="pod/default/a/c")


def recorded(*changes: Change) -> list[tuple[str, str, str]]:
    log = EventLog()
    record_commits(log, changes)
    return [(event.kind, event.device, event.message) for event in log.since(0)]


def test_unit_that_changes_pods_has_events_for_each_step() -> None:
    new = lease("gpu-0")
    nobody = "a pod that the kubelet has not reported yet"
    again = Change(renewed=((HELD, new),))
    assert recorded(Change((), (new,)), Change(updated=((new, HELD),)), again, Change((new,))) == [
        ("allocated", "gpu-0", f"allocated to {nobody}"),
        ("holder-known", "gpu-0", "is with pod default/a, container c"),
        ("released", "gpu-0", "no longer with pod default/a, container c"),
        ("allocated", "gpu-0", f"allocated to {nobody}"),
        ("released", "gpu-0", f"no longer with {nobody}"),
    ]


def test_units_of_one_request_share_an_event() -> None:
    units = tuple(lease(f"gpu-0.{number}", shares=8) for number in range(8))
    ((kind, device, message),) = recorded(Change((), units))
    assert (kind, device) == ("allocated", "gpu-0.0,gpu-0.1,gpu-0.2,gpu-0.3,gpu-0.4")
    assert message.endswith(": 8 units")


def test_claim_is_allocated_when_it_is_prepared() -> None:
    done = claimed("gpu-0", "uid", name="mine")
    intended = structs.replace(done, phase="intended")
    repeated = structs.replace(done, granted_at=7.0)
    half = Change((), (intended,))
    assert recorded(half, Change((intended,))) == []
    whole = (Change(renewed=((intended, done),)), Change(renewed=((done, repeated),)))
    assert recorded(half, *whole, Change((repeated,))) == [
        ("allocated", "gpu-0", "allocated to claim default/mine"),
        ("released", "gpu-0", "no longer with claim default/mine"),
    ]


def test_changed_pod_uids_are_no_event() -> None:
    assert recorded(Change(updated=((HELD, structs.replace(HELD, pods=frozenset({"u"}))),))) == []


async def test_database_set_aside_is_an_event(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite3").write_bytes(b"no database" * 100)
    ledger, log = Ledger(tmp_path, "boot-1"), EventLog()
    observe_ledger(log, ledger)
    try:
        await ledger.take()
        await ledger.grant([lease("gpu-0")])
        await until(lambda: len(log.since(0)) == 2)
    finally:
        await ledger.close()
    aside, granted = log.since(0)
    assert (aside.kind, granted.kind) == ("set-aside", "allocated")
    assert f"it is kept as {ledger.set_aside[0].path.name}" in aside.message
