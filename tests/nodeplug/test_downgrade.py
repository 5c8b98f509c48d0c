"""An older program with the state of a newer one: it cannot read the ledger, and pods keep their devices."""

import sqlite3
from contextlib import closing

from checkpoint.migrations import MIGRATIONS
from tests.controlplane.scheduler.kit import claim, request
from tests.nodeplug.cluster import using
from tests.nodeplug.machine import Machine

_FUTURE = (
    "ALTER TABLE lease ADD COLUMN colour TEXT NOT NULL DEFAULT ''",
    f"INSERT INTO migration VALUES ({len(MIGRATIONS) + 1}, 'of the future', 0)",
)


async def test_ledger_of_a_newer_version_is_set_aside_and_its_leases_restored(machine: Machine) -> None:
    cluster = machine.cluster
    await machine.classes()
    newer = await machine.start()
    await machine.until_published()
    with_unit = using("unit")
    with_unit["spec"]["containers"][0]["resources"] = {"limits": {"example.com/fuse": "1"}}
    await cluster.create(with_unit)
    await cluster.create(claim("c", request(deviceClassName="kvm.example.com")), using("p", ["x"], claims={"x": "c"}))
    for pod in ("unit", "p"):
        await cluster.advance_clock(1.0, "Pod", pod, "Running")
    leases = [lease[:2] for lease in machine.leases()]
    assert leases == [("device-plugin", "misc-fuse"), ("dra", "misc-kvm")]
    newer.terminate()
    await newer.wait()
    with closing(sqlite3.connect(machine.state / "ledger.sqlite3", isolation_level=None)) as connection:
        for statement in _FUTURE:
            connection.execute(statement)

    await machine.start()
    await machine.until(lambda: any(machine.state.glob("ledger.sqlite3.newer-*")))
    await machine.until(lambda: (machine.state / "ledger.sqlite3").exists())

    def has_leases() -> bool:
        with closing(sqlite3.connect(machine.state / "ledger.sqlite3")) as connection:
            found = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'lease'").fetchall()
        return bool(found) and [lease[:2] for lease in machine.leases()] == leases

    await machine.until(has_leases)
