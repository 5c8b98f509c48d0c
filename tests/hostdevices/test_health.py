"""Health: signals of sysfs per class, when a verdict starts and ends, and that no device is woken or opened for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hostdevices import HEALTHY, Device, Health, HealthTracker, Host, Inventory, needs_polling, scan
from hostdevices.errors import HostExhausted
from hostdevices.health import INTERVAL, RECOVER_AFTER, HealthHistory, next_health, signals
from hostdevices.readers.signals import LINK_LOSSES, ErrorCounter, Signals
from tests.descriptors import no_more_descriptors
from tests.hostdevices.machine import build_machine, interface
from tests.hostdevices.tree import Tree

BAD = Signals({"state": "its state is resetting, not live"})
GOOD = Signals()
FATAL, NONFATAL = ErrorCounter("fatal errors", 0), ErrorCounter("other errors", 10)
CONNECTX = "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0"
AMD = "/sys/devices/pci0000:c0/0000:c0:01.0/0000:c1:00.0"
DSA = "/sys/devices/pci0000:6a/0000:6a:01.0/dsa0"
QAT = "/sys/devices/pci0000:6a/0000:6b:00.0"
DRIVE = "/sys/devices/pci0000:5d/0000:5e:00.0"
USB = "/sys/devices/pci0000:00/0000:00:14.0/usb1/1-2"


class RestoringTree(Tree):
    """An existing tree, whose files are restored after the test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._originals: dict[Path, bytes | None] = {}

    def file(self, path: str, content: str | bytes | int) -> None:
        target = self.path(path)
        self._originals.setdefault(target, target.read_bytes() if target.exists() else None)
        super().file(path, content)

    def restore(self) -> None:
        for path, content in self._originals.items():
            if content is None:
                path.unlink()
            else:
                path.write_bytes(content)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of the machine with one device of every kind."""
    return build_machine(tmp_path_factory.mktemp("health") / "root").root


@pytest.fixture
def machine(built: Path) -> Iterator[Tree]:
    """The machine; tests change its files to damage devices."""
    tree = RestoringTree(built)
    yield tree
    tree.restore()


class Clock:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def faults(machine: Tree, identity: str) -> dict[str, str]:
    """The current faults of one device of the machine."""
    return dict(signals(machine.host, scan(machine.host).devices[identity]).faults)


def is_healthy_after(*samples: Signals, step: float = INTERVAL, before: HealthHistory | None = None) -> list[bool]:
    history = before or HealthHistory("/sys/devices/x")
    healthy = []
    for number, sample in enumerate(samples):
        history = next_health(history, sample, number * step)
        healthy.append(history.health.healthy)
    return healthy


def test_undamaged_machine_is_healthy(machine: Tree) -> None:
    inventory = HealthTracker().sample(machine.host, scan(machine.host))
    assert {i: d.health.reason for i, d in inventory.devices.items() if not d.health.healthy} == {}


def test_device_is_unhealthy_after_two_bad_samples() -> None:
    assert is_healthy_after(GOOD, BAD, GOOD, BAD, BAD) == [True, True, True, True, False]


def test_device_recovers_after_three_good_samples() -> None:
    assert is_healthy_after(GOOD, BAD, BAD, GOOD, GOOD, BAD, GOOD, GOOD, GOOD) == [True, True, *[False] * 6, True]


def test_fault_in_first_sample_counts_at_once() -> None:
    assert is_healthy_after(BAD, GOOD, GOOD, GOOD) == [False, False, False, True]


def test_only_growth_of_a_counter_is_a_fault() -> None:
    grown = (Signals(counters={FATAL: 7}), *[Signals(counters={FATAL: 8})] * 2)
    assert is_healthy_after(*grown) == [True, True, False]


def test_growth_of_a_counter_expires_after_a_minute() -> None:
    samples = [Signals(counters={FATAL: 7}), *[Signals(counters={FATAL: 8})] * 16]
    healthy = is_healthy_after(*samples)
    assert healthy[2:15] == [False] * 13  # counted for a minute, followed by three good samples
    assert healthy[15:] == [True] * 2


def test_growth_between_infrequent_samples_is_a_fault() -> None:
    grown = (Signals(counters={FATAL: 0}), *[Signals(counters={FATAL: 1})] * 6)
    assert is_healthy_after(*grown, step=90.0) == [True, True, False, False, False, True, True]


def test_counter_reset_is_not_growth() -> None:
    assert is_healthy_after(*(Signals(counters={FATAL: n}) for n in (7, 0, 0, 0))) == [True] * 4


@pytest.mark.parametrize(("increase", "healthy"), [(10, True), (11, False)])
def test_counter_threshold_is_per_minute(increase: int, healthy: bool) -> None:
    counts = (0, increase - 1, increase, increase)
    assert is_healthy_after(*(Signals(counters={NONFATAL: n}) for n in counts))[-1] is healthy


def test_reason_contains_counter_name_and_increase() -> None:
    history = HealthHistory("/sys/devices/x")
    for number, count in enumerate((0, 3, 3)):
        history = next_health(history, Signals(counters={LINK_LOSSES: count}), number * INTERVAL)
    assert history.health == Health(False, "3 losses of the link within a minute")


def test_reason_is_unchanged_until_another_fault_appears() -> None:
    history = HealthHistory("/sys/devices/x")
    reasons = []
    for number, sample in enumerate(("91 °C", "95 °C", "97 °C")):
        history = next_health(history, Signals({"temp1": sample}), number * INTERVAL)
        reasons.append(history.health.reason)
    assert reasons == ["91 °C"] * 3
    worse = next_health(history, Signals({"temp1": "99 °C", "fan1": "the fan stands still"}), 20.0)
    assert worse.health.reason == "99 °C; the fan stands still"


@pytest.mark.parametrize(
    ("identity", "file", "content", "reason"),
    [
        ("pci-0000-3b-00-0", f"{CONNECTX}/config", b"\xff" * 8, "does not answer on the PCI bus"),
        ("pci-0000-3b-00-0", f"{CONNECTX}/power/runtime_status", "error", "power management failed"),
        ("pci-0000-3b-00-0", f"{CONNECTX}/power_state", "D3cold", "has lost power"),
        ("nic-0000-3b-00-0", f"{CONNECTX}/net/ens1f0np0/carrier", "0", "has no carrier"),
        (
            "rdma-0000-3b-00-0",
            f"{CONNECTX}/infiniband/mlx5_0/ports/1/state",
            "1: DOWN",
            "no port is active: port 1 is DOWN",
        ),
        ("dsa-0000-6a-01-0-wq0", f"{DSA}/errors", "0x0 0x10 0x0 0x0", "reports errors: 0x0 0x10"),
        ("dsa-0000-6a-01-0-wq0", f"{DSA}/state", "disabled", "its accelerator's state is disabled"),
        ("qat-0000-6b-00-1", f"{QAT}/qat/state", "down", "its state is down, not up"),
        ("qat-0000-6b-00-1", "/sys/kernel/debug/qat_4xxx_0000:6b:00.0/heartbeat/status", "-1", "heartbeat has stopped"),
        ("nvme-0000-5e-00-0", f"{DRIVE}/nvme/nvme0/state", "dead", "its state is dead, not live"),
        ("block-eui-36344730", f"{DRIVE}/nvme/nvme0/state", "dead", "its state is dead, not running or live"),
        (
            "accel-0000-b3-00-0",
            "/sys/devices/pci0000:b0/0000:b3:00.0/status",
            "malfunction",
            "its state is malfunction",
        ),
        ("usb-0403-6001-a50285bi-a0b615c19c", f"{USB}/authorized", "0", "is not authorized"),
        ("gpu-0000-c1-00-0", f"{AMD}/hwmon/hwmon4/temp2_alarm", "1", "temp2: the sensor's alarm is on"),
        ("pci-0000-3b-00-0", f"{CONNECTX}/aer_dev_fatal", b"\x00\xff", "aer_dev_fatal: binary content"),
    ],
)
def test_damaged_file_is_a_fault_with_reason(
    identity: str, file: str, content: str | bytes, reason: str, machine: Tree
) -> None:
    assert faults(machine, identity) == {}
    machine.file(file, content)
    assert reason in "; ".join(faults(machine, identity).values())


@pytest.mark.parametrize(
    ("identity", "file", "content", "counter"),
    [
        ("pci-0000-3b-00-0", f"{CONNECTX}/aer_dev_fatal", "Undefined 0\nDLP 2\nTOTAL_ERR_FATAL 2", "fatal PCIe errors"),
        ("nic-0000-3b-00-0", f"{CONNECTX}/aer_dev_correctable", "RxErr 2\nTOTAL_ERR_COR 2", "correctable PCIe errors"),
        ("nic-0000-3b-00-0", f"{CONNECTX}/net/ens1f0np0/carrier_down_count", "2", "losses of the link"),
        ("rdma-0000-3b-00-0", f"{CONNECTX}/infiniband/mlx5_0/ports/1/counters/link_downed", "2", "losses of the link"),
        ("gpu-0000-c1-00-0", f"{AMD}/ras/umc_err_count", "ue: 2\nce: 900", "uncorrectable memory errors"),
        ("gpu-0000-c1-00-0", f"{AMD}/pcie_replay_count", "2", "PCIe replays"),
        ("qat-0000-6b-00-1", f"{QAT}/qat_ras/errors_fatal", "2", "fatal errors of the engine"),
        (
            "usb-0403-6001-a50285bi-a0b615c19c",
            f"{USB}/port/over_current_count",
            "2",
            "over-current events of the USB port",
        ),
    ],
)
def test_error_counter_is_read(identity: str, file: str, content: str, counter: str, machine: Tree) -> None:
    machine.file(file, content)
    seen = signals(machine.host, scan(machine.host).devices[identity])
    assert {found.words: value for found, value in seen.counters.items()}[counter] == 2


@pytest.mark.parametrize(("celsius", "is_fault"), [(99, False), (100, True), (104, True)])
def test_temperature_is_a_fault_from_critical_value(celsius: int, is_fault: bool, machine: Tree) -> None:
    for name, value in (("temp1_input", celsius * 1000), ("temp1_crit", 100000), ("temp1_label", "edge")):
        machine.file(f"{AMD}/hwmon/hwmon4/{name}", value)
    expected = {"temp1_input": f"edge: {celsius} °C, critical is 100 °C"} if is_fault else {}
    assert faults(machine, "gpu-0000-c1-00-0") == expected


def test_virtual_function_whose_config_ids_are_ones_is_healthy(machine: Tree) -> None:
    # The SR-IOV specification defines that a virtual function's vendor and device ids read as ones.
    machine.file("/sys/devices/pci0000:3a/0000:3b:00.2/config", b"\xff\xff\xff\xff\x06\x04\x10\x00")
    assert faults(machine, "pci-0000-3b-00-2") == {}


def test_vfio_group_is_unhealthy_when_another_driver_holds_a_member(tmp_path: Path) -> None:
    machine = build_machine(tmp_path / "root")
    driver = machine.path("/sys/devices/pci0000:40/0000:41:00.1/driver")
    driver.unlink()
    driver.symlink_to("../../../bus/pci/drivers/snd_hda_intel")
    reason = faults(machine, "vfio-0000-41-00-0")["group"]
    assert reason == "0000:41:00.1 of the same IOMMU group is held by driver snd_hda_intel"


def test_usb_device_does_not_count_errors_of_its_controller(machine: Tree) -> None:
    machine.file("/sys/devices/pci0000:00/0000:00:14.0/aer_dev_fatal", "TOTAL_ERR_FATAL 2")
    device = scan(machine.host).devices["usb-0403-6001-a50285bi-a0b615c19c"]
    assert signals(machine.host, device).counters == {}
    assert signals(machine.host, Device(id="pci-x", kind="pci", name="x", syspath=device.syspath)).counters != {}


def test_missing_carrier_of_interface_that_is_down_is_no_fault(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "root")
    syspath = interface(tree, tree.pci("0000:00:03.0"), "eth0", mac="02:00:00:00:00:01")
    tree.file(f"{syspath}/carrier", 0)
    tree.file(f"{syspath}/flags", "0x1002")
    assert faults(tree, "nic-0000-00-03-0") == {}


class ReadRecorder(Host):
    """A host that records which files are read."""

    files: list[str]

    def read_bytes(self, path: str, limit: int = 4096) -> bytes | None:
        self.files.append(path)
        return super().read_bytes(path, limit)


def read_recorder(machine: Tree) -> ReadRecorder:
    host = ReadRecorder(machine.root)
    host.files = []
    return host


def test_suspended_device_is_not_woken(machine: Tree) -> None:
    machine.file(f"{AMD}/power/runtime_status", "suspended")
    machine.file(f"{AMD}/power_state", "D3cold")
    machine.file(f"{AMD}/hwmon/hwmon4/temp1_input", 40000)
    device = scan(machine.host).devices["gpu-0000-c1-00-0"]
    host = read_recorder(machine)
    assert signals(host, device).faults == {}
    assert not [path for path in host.files if path.endswith(("/config", "_input", "_err_count", "replay_count"))]


def test_device_nodes_are_not_opened(machine: Tree) -> None:
    inventory = scan(machine.host)
    host = read_recorder(machine)
    HealthTracker().sample(host, inventory)
    assert host.files
    assert not [path for path in host.files if path.startswith("/dev/")]


def test_missing_device_node_and_its_return_count_at_once(machine: Tree) -> None:
    tracker = HealthTracker(clock=Clock())
    node = machine.path("/dev/dri/card0")
    other = machine.path("/dev/dri/renderD128")
    kept = [(path, path.read_bytes()) for path in (node, other)]
    for path, _ in kept:
        path.unlink()
    gone = tracker.sample(machine.host, scan(machine.host))
    assert gone.devices["gpu-0000-00-02-0"].health == Health(False, "it has no device node")
    for path, content in kept:
        path.write_bytes(content)
    assert tracker.sample(machine.host, scan(machine.host)).devices["gpu-0000-00-02-0"].health == HEALTHY


def test_tracker_reports_fault_and_recovery(machine: Tree) -> None:
    clock = Clock()
    tracker = HealthTracker(clock=clock)
    state = f"{DRIVE}/nvme/nvme0/state"
    seen = []
    for content in ("live", "resetting", "resetting", "live", "live", "live"):
        machine.file(state, content)
        sampled = tracker.sample(machine.host, scan(machine.host))
        seen.append(sampled.devices["nvme-0000-5e-00-0"].health.healthy)
        clock.now += INTERVAL
    assert seen == [True, True, False, False, False, True]


def test_samples_within_one_interval_count_as_one(machine: Tree) -> None:
    clock = Clock()
    tracker = HealthTracker(clock=clock)
    inventory = scan(machine.host)
    tracker.sample(machine.host, inventory)
    machine.file(f"{DRIVE}/nvme/nvme0/state", "dead")
    for _ in range(5):  # rescans in quick succession
        clock.now += 0.1
        assert tracker.sample(machine.host, inventory).devices["nvme-0000-5e-00-0"].health == HEALTHY


def test_history_restarts_when_syspath_changes(machine: Tree) -> None:
    clock = Clock()
    tracker = HealthTracker(clock=clock)
    machine.file(f"{USB}/authorized", "0")
    before = scan(machine.host)
    identity = "usb-0403-6001-a50285bi-a0b615c19c"
    assert not tracker.sample(machine.host, before).devices[identity].health.healthy
    clock.now += 0.1
    (elsewhere,) = (x for x in before.devices.values() if x.name == "1-3")
    moved = Device(id=identity, kind="usb", name="1-3", syspath=elsewhere.syspath, devnodes=elsewhere.devnodes)
    assert tracker.sample(machine.host, Inventory({identity: moved})).devices[identity].health == HEALTHY


def test_only_offered_devices_are_sampled(machine: Tree) -> None:
    inventory = scan(machine.host)
    host = read_recorder(machine)
    HealthTracker().sample(host, inventory, offered={"nvme-0000-5e-00-0", "not-here"})
    assert host.files
    assert all(path.startswith(DRIVE) for path in host.files)


def test_healthy_device_stays_the_same_object(machine: Tree) -> None:
    inventory = scan(machine.host)
    sampled = HealthTracker().sample(machine.host, inventory)
    assert all(sampled.devices[identity] is device for identity, device in inventory.devices.items())


def test_only_kinds_without_events_need_polling(machine: Tree) -> None:
    devices = scan(machine.host).devices.values()
    assert needs_polling(x for x in devices if x.kind == "nic")
    assert not needs_polling(x for x in devices if x.kind in ("misc", "tty", "video", "usb", "block"))
    assert needs_polling([Device(id="pair", kind="group", name="pair", children=("misc-kvm", "gpu-0000-c1-00-0"))])
    assert not needs_polling([Device(id="pair", kind="group", name="pair", children=("misc-kvm", "misc-tun"))])


def test_samples_without_descriptors_do_not_count_as_good(machine: Tree) -> None:
    """An unreadable file counts as missing, and a missing file is no fault: three such samples would be a recovery."""
    host, clock = machine.host, Clock()
    tracker = HealthTracker(clock=clock)
    inventory = scan(host)
    identity = "usb-0403-6001-a50285bi-a0b615c19c"

    def sampled() -> Health:
        clock.now += INTERVAL
        return tracker.sample(host, inventory, [identity]).devices[identity].health

    machine.file(f"{USB}/authorized", "0")
    assert not sampled().healthy
    for _ in range(RECOVER_AFTER):
        with no_more_descriptors(), pytest.raises(HostExhausted):
            sampled()
    assert not sampled().healthy
    machine.file(f"{USB}/authorized", "1")
    assert [sampled().healthy for _ in range(RECOVER_AFTER)] == [False, False, True]
