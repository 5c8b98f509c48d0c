"""`nodeplug check --state`, which an administrator runs before changing the configuration of a node with pods."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from checkpoint import Lease
from tests.checkpoint.build import claimed, lease, opened
from tests.hostdevices.tree import Tree
from tests.nodeplug.commands.test_check import check
from tests.nodeplug.commands.test_discover import on_a_terminal

POD = "pod/default/a/c"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    tree = Tree(tmp_path / "root")
    for name, numbers in (("fuse", "10:229"), ("kvm", "10:232"), ("tun", "10:200")):
        tree.device(f"/sys/devices/virtual/misc/{name}", group="class/misc", node=name, numbers=numbers)
    return tree.root


async def state_with_leases(folder: Path, *leases: Lease) -> Path:
    """Create the state directory of a daemon that has granted these leases."""
    ledger = await opened(folder / "state")
    await ledger.grant(leases)
    await ledger.close()
    return folder / "state"


def checked(folder: Path, root: Path, state: Path, *resources: dict[str, Any]) -> list[dict[str, Any]]:
    file = folder / "new.yaml"
    file.write_text(json.dumps({"resources": resources}))
    result = check(file, "--root", root, "--state", state, "-o", "json")
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["leases"]
    return found


def changes_and_blocks(found: Sequence[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return the change of each lease, and the devices that are withheld meanwhile."""
    return [(x["change"], [f"{each['resource']} {each['device']}" for each in x["blocks"]]) for x in found]


FUSE: dict[str, Any] = {"name": "example.com/fuse", "select": "fuse"}
FUSES = FUSE | {"shares": 2}


@pytest.mark.parametrize(
    ("held", "resources", "expected"),
    [
        (lease("misc-fuse", "example.com/fuse"), [FUSE], ("", [])),
        (lease("misc-fuse", "example.com/fuse"), [FUSE | {"api": "both"}], ("", [])),
        (
            lease("misc-fuse", "example.com/old"),
            [FUSE],
            ("example.com/old is not offered any more", ["example.com/fuse misc-fuse"]),
        ),
        (lease("misc-fuse", "example.com/old"), [], ("example.com/old is not offered any more", [])),
        (
            lease("misc-fuse", "example.com/old"),
            [FUSES | {"api": "both"}],
            ("example.com/old is not offered any more", ["example.com/fuse misc-fuse"]),
        ),
        (
            lease("misc-fuse", "example.com/fuse"),
            [FUSE | {"api": "dra"}],
            ("example.com/fuse is offered through DRA alone", ["example.com/fuse misc-fuse"]),
        ),
        (
            lease("misc-fuse", "example.com/fuse"),
            [FUSES],
            ("example.com/fuse has no misc-fuse any more", ["example.com/fuse misc-fuse"]),
        ),
        (
            lease("misc-fuse", "example.com/fuse"),
            [{"name": "example.com/all", "select": {"kind": "misc"}}, FUSE],
            ("example.com/fuse has no misc-fuse any more", ["example.com/all misc-fuse"]),
        ),
        (lease("misc-fuse.1", "example.com/fuse", shares=2), [FUSES], ("", [])),
        (
            lease("misc-fuse.1", "example.com/fuse", shares=3),
            [FUSES],
            ("misc-fuse has other shares", ["example.com/fuse misc-fuse"]),
        ),
        (
            lease("misc-fuse.2", "example.com/fuse", shares=3),
            [FUSES],
            ("example.com/fuse has no misc-fuse.2 any more", ["example.com/fuse misc-fuse"]),
        ),
        (claimed("misc-fuse", "c", "example.com/fuse"), [FUSE | {"api": "dra"}], ("", [])),
        (
            claimed("misc-fuse", "c", "example.com/fuse"),
            [FUSE],
            ("misc-fuse is not offered through DRA any more", ["example.com/fuse misc-fuse"]),
        ),
        (
            claimed("misc-fuse", "c", "example.com/old"),
            [FUSE | {"api": "dra"}],
            ("misc-fuse belongs to example.com/fuse", ["example.com/fuse misc-fuse"]),
        ),
        (
            claimed("misc-fuse", "c", "example.com/fuse"),
            [FUSES | {"api": "dra"}],
            ("misc-fuse is offered in another way", ["example.com/fuse misc-fuse"]),
        ),
        (
            claimed("misc-fuse/5a3e", "c", "example.com/fuse", exclusive="", shared="misc-fuse"),
            [FUSES | {"api": "dra"}],
            ("", []),
        ),
        (
            claimed("misc-fuse/5a3e", "c", "example.com/fuse", exclusive="", shared="misc-fuse"),
            [FUSE | {"api": "dra"}],
            ("misc-fuse is offered in another way", ["example.com/fuse misc-fuse"]),
        ),
        (claimed("misc-fuse@c", "c", "example.com/fuse", exclusive=""), [FUSE | {"api": "dra"}], ("", [])),
    ],
)
async def test_lease_change_and_withheld_devices_are_reported(
    tmp_path: Path, root: Path, held: Lease, resources: list[dict[str, Any]], expected: tuple[str, list[str]]
) -> None:
    state = await state_with_leases(tmp_path, held)
    assert changes_and_blocks(checked(tmp_path, root, state, *resources)) == [expected]


async def test_lease_withholds_only_the_leased_device(tmp_path: Path, root: Path) -> None:
    state = await state_with_leases(tmp_path, lease("misc-fuse", "example.com/a"), lease("misc-kvm", "example.com/b"))
    found = checked(tmp_path, root, state, {"name": "example.com/misc", "select": {"kind": "misc"}})
    assert changes_and_blocks(found) == [
        ("example.com/a is not offered any more", ["example.com/misc misc-fuse"]),
        ("example.com/b is not offered any more", ["example.com/misc misc-kvm"]),
    ]


async def test_each_leased_share_withholds_the_device(tmp_path: Path, root: Path) -> None:
    held = [lease(f"misc-fuse.{i}", "example.com/fuse", shares=3) for i in range(3)]
    found = checked(tmp_path, root, await state_with_leases(tmp_path, *held), FUSE)
    assert [blocks for _, blocks in changes_and_blocks(found)] == [["example.com/fuse misc-fuse"]] * 3


async def test_json_has_every_field_of_a_lease(tmp_path: Path, root: Path) -> None:
    state = await state_with_leases(tmp_path, lease("misc-fuse", "example.com/old", holder=POD))
    assert checked(tmp_path, root, state, FUSE) == [
        {
            "resource": "example.com/old",
            "api": "device-plugin",
            "unit": "misc-fuse",
            "holder": POD,
            "change": "example.com/old is not offered any more",
            "blocks": [{"resource": "example.com/fuse", "device": "misc-fuse"}],
        }
    ]


@pytest.fixture
async def state(tmp_path: Path) -> Path:
    return await state_with_leases(
        tmp_path,
        lease("misc-fuse.0", "example.com/fuse", shares=2),
        lease("misc-kvm", "example.com/old", holder=POD),
        claimed("misc-tun", "c", "example.com/tun"),
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "new.yaml"
    path.write_text(json.dumps({"resources": [FUSES, {"name": "example.com/kvm", "select": "kvm"}]}))
    return path


def test_piped_output_has_one_line_for_each_lease(file: Path, root: Path, state: Path) -> None:
    result = check(file, "--root", root, "--state", state)
    assert result.exit_code == 0, result.output
    assert [" ".join(line.split()) for line in result.stdout.splitlines() if line.startswith("leased")] == [
        "leased example.com/fuse misc-fuse.0 a pod that the kubelet has not reported yet: unchanged",
        f"leased example.com/old misc-kvm {POD}: example.com/old is not offered any more; its pod keeps it, and no"
        " other pod gets misc-kvm of example.com/kvm before it ends",
        "leased example.com/tun misc-tun claim/default/c/c: misc-tun is not offered through DRA any more; its pods keep"
        " it",
    ]


def test_terminal_output_counts_leases_and_fits_the_width(file: Path, root: Path, state: Path) -> None:
    lines = on_a_terminal(100, "check", file, "--root", root, "--state", state)
    assert all(len(line) <= 100 for line in lines)
    words = " ".join(" ".join(lines).split())
    assert "leased 3 example.com/fuse misc-fuse.0 a pod that the kubelet has not reported yet: unchanged" in words


async def test_empty_ledger_is_shown_as_nothing_leased(file: Path, root: Path, tmp_path: Path) -> None:
    state = await state_with_leases(tmp_path)
    assert check(file, "--root", root, "--state", state).stdout.splitlines()[-1].split() == ["leased", "-", "nothing"]
    assert "leased" not in check(file, "--root", root).stdout


async def test_check_does_not_lock_the_ledger_of_a_running_daemon(file: Path, root: Path, tmp_path: Path) -> None:
    ledger = await opened(tmp_path / "state")
    try:
        await ledger.grant([lease("misc-kvm", "example.com/old")])
        result = check(file, "--root", root, "--state", tmp_path / "state")
        assert "leased" in result.stdout, result.output
        await ledger.grant([lease("misc-tun", "example.com/old")])
    finally:
        await ledger.close()


def test_folder_without_a_ledger_is_refused(file: Path, root: Path, tmp_path: Path) -> None:
    result = check(file, "--root", root, "--state", tmp_path)
    assert result.exit_code == 1
    assert f"Error: {tmp_path}: there is no ledger.sqlite3 here; the path is settings.stateDirectory" in result.stderr


def test_invalid_lease_database_is_refused(file: Path, root: Path, tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite3").write_bytes(b"not a database at all" * 500)
    result = check(file, "--root", root, "--state", tmp_path)
    assert result.exit_code == 1
    assert result.stderr == (
        f"Error: cannot read the lease database {tmp_path}/ledger.sqlite3: file is not a database\n"
    )
