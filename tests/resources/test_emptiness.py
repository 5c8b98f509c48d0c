"""Why a resource has no device: the reason of the device that comes nearest."""

import json
from pathlib import Path

import pytest

from hostdevices import Host, scan
from hostdevices.readers import READERS, paths_reader
from nodeplug.config import loads
from resources.assignment import assign
from resources.emptiness import empty_reason
from tests.hostdevices.machine import build_machine


@pytest.mark.parametrize(
    ("select", "needs_option", "kinds"),
    [
        ("nvme", True, "nvme"),
        ("block", True, "block"),
        ("loop", True, "block"),
        ("uinput", True, "misc"),
        ({"kind": ["rtc", "watchdog"]}, True, "rtc or watchdog"),
        ({"any": ["nvme", "watchdog"]}, True, "nvme or watchdog"),
        ({"all": ["watchdog", {"attributes": {"model": "x"}}]}, True, "watchdog"),
        ({"any": ["nvme", "kvm"]}, False, "misc or nvme"),
        ({"kind": ["block", "gpu"]}, False, "block or gpu"),
        ("kvm", False, "misc"),
    ],
)
def test_reason_mentions_dangerous_if_all_selected_kinds_need_it(
    select: object, needs_option: bool, kinds: str, tmp_path: Path
) -> None:
    for name in ("sys", "proc", "dev"):
        (tmp_path / name).mkdir()
    resource = {"name": "x/y", "select": select}
    for options, is_mentioned in (({}, needs_option), ({"dangerous": True}, False)):
        config = loads(json.dumps({"resources": [resource | options]}).encode())
        inventory = scan(Host(tmp_path), READERS)
        reason = empty_reason(config.resources[0], inventory, assign(inventory, config.resources))
        words = "; it also needs `dangerous: true`, without which no resource gets such devices"
        assert reason == f"no device here: no device of kind {kinds} exists" + words * is_mentioned


@pytest.mark.parametrize(
    ("select", "unassigned_reason"),
    [
        ("kvm", ": misc-kvm belongs to x/first, which is earlier in the file"),
        (
            {"path": "/dev/snd"},
            ": /dev/snd is a folder; `group: {folder: /dev/snd}` allocates all nodes in it as one device",
        ),
        ("nvme", "only a resource with `dangerous: true` may offer it"),
        (
            "nvidia-gpu",
            ": gpu-0000-81-00-0: it is partitioned (MIG, SR-IOV), and its parts are devices of their own",
        ),
        ({"kind": "usb", "attributes": {"vendor": "ffff"}}, "not ffff (and 2 more)"),
        ({"preset": "kvm", "attributes": {"speed": 5}}, ": misc-kvm: it has no attribute speed"),
        ({"path": "/dev/nothing"}, "no device here: no device node matches /dev/nothing"),
        ({"path": ["/dev/ttyX*", "/dev/no/*"]}, "no device here: no device node matches /dev/ttyX* or /dev/no/*"),
        ({"path": "/dev/nothing", "attributes": {"vendor": "10c4"}}, "no device here"),
        ("coral-usb", "no device here"),
    ],
)
def test_reason_is_that_of_the_nearest_device(select: object, unassigned_reason: str, tmp_path: Path) -> None:
    resources = [{"name": "x/first", "select": "kvm"}, {"name": "x/second", "select": select}]
    config = loads(json.dumps({"resources": resources}).encode())
    inventory = scan(build_machine(tmp_path).host, (*READERS, paths_reader(config.path_globs)))
    reason = empty_reason(config.resources[1], inventory, assign(inventory, config.resources))
    assert reason.startswith("no device here")
    assert unassigned_reason in reason


def test_reason_is_own_refusal_when_a_later_resource_has_the_device(tmp_path: Path) -> None:
    """MIG instances without a known UUID."""
    resources = [{"name": "x/first", "select": "mig", "ids": "uuid"}, {"name": "x/second", "select": "mig"}]
    config = loads(json.dumps({"resources": resources}).encode())
    inventory = scan(build_machine(tmp_path).host, READERS)
    assignment = assign(inventory, config.resources)
    assert len(assignment.devices["x/second"]) == 2
    reason = empty_reason(config.resources[0], inventory, assignment)
    assert "-gi1-ci0: it has no uuid, which `ids: uuid` uses as its id" in reason
    assert reason.endswith("from NVIDIA's library) (and 1 more)")
