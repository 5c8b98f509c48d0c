"""Devices that vfio-pci is bound to while a claim has them: whole IOMMU groups, restored after any crash."""

import shutil
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dra_plugin.driver import ClaimFailed
from dra_plugin.preparing.binding_record import BindRefused
from dra_plugin.preparing.claim_record import record_of
from dra_plugin.preparing.driver_binding import Drivers
from hostdevices import Device, Host
from hostdevices.errors import HostExhausted
from hostdevices.scan import scan
from hostdevices.tree import Machine as LiveTree
from resources.assignment import Assignment, assign
from resources.resource import DraOptions, DriverBinding, Resource
from resources.selector import AllOf, Attribute, Kinds
from tests.checkpoint.build import lease
from tests.descriptors import no_more_descriptors
from tests.deviceplugin.host import MadeUpHost
from tests.dra_plugin.preparing.world import World, claim, ref, result, uid
from tests.hostdevices.machine import interface
from tests.hostdevices.pci_kernel import VFIO, PciKernel
from tests.threads import no_more_threads

GPU, SOUND, NIC = "0000:41:00.0", "0000:41:00.1", "0000:42:00.0"
BEFORE = {GPU: ("nouveau", ""), SOUND: ("snd_hda_intel", ""), NIC: ("ixgbevf", "")}
BOUND = {GPU: (VFIO, VFIO), SOUND: (VFIO, VFIO), NIC: ("ixgbevf", "")}
STEPS = 6  # writes to /sys that bind, or restore, the two functions of the card
CARD = claim(result("pci-0000-41-00-0"))


def bound(name: str, driver: str, *, iommufd: bool = False, **options: Any) -> Resource:
    selector = AllOf((Kinds(("pci",)), Attribute("driver", (driver,))))
    dra = DraOptions(bind=DriverBinding(iommufd=iommufd))
    return Resource(f"example.com/{name}", selector, api="dra", dra=dra, **options)


class _Bus(MadeUpHost):
    """A host with a PCI bus: a graphics card and its audio function behind a bridge, and a network function."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, "fuse")
        self.kernel = kernel = PciKernel(root)
        card = kernel.function(GPU, 7, "nouveau", vendor="10de", pci_class="030000", boot_vga=0)
        kernel.made.child(card, "drm/card1", group="class/drm", node="dri/card1", numbers="226:1")
        kernel.function(SOUND, 7, "snd_hda_intel", vendor="10de", pci_class="040300")
        kernel.made.iommu_group(7, kernel.made.pci("0000:40:01.0", pci_class="060400", driver="pcieport"))
        function = kernel.function(NIC, 8, "ixgbevf", pci_class="020000")
        interface(kernel.made, function, "eth7", mac="02:00:00:00:00:07")
        kernel.made.file("/sys/devices/pci0000:00/0000:42:00.0/net/eth7/flags", "0x1002")

    @property
    def host(self) -> Host:
        return self.kernel.host


class Machine(World):
    """A node that passes functions to virtual machines."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.made_up: _Bus = _Bus(folder / "bus")
        self.kernel = self.made_up.kernel
        self.resources = [bound("gpu", "nouveau"), bound("nic", "ixgbevf", iommufd=True)]

    def scan(self, **_: Device) -> None:
        """Scan the host, as the daemon does."""
        assignment = self.assigned()
        devices = self.original_devices()
        self.presence.update(devices, [x for each in assignment.devices.values() for x in each], self.ledger.devices())
        self.offer(assignment.devices)

    def original_devices(self) -> dict[str, Device]:
        return dict(self.preparer.hardware.with_original_devices(scan(self.made_up.host).devices))

    def assigned(self) -> Assignment:
        return assign(structs.replace(scan(self.made_up.host), devices=self.original_devices()), self.resources)


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    made = Machine(tmp_path)
    async with made:
        yield made


async def test_iommu_group_is_bound_for_a_claim_and_restored_afterwards(machine: Machine) -> None:
    prepared = await machine.prepare(CARD)
    assert machine.kernel.drivers() == BOUND
    inside = machine.container(prepared)
    assert list(inside.nodes) == ["/dev/vfio/7", "/dev/vfio/vfio"]
    (lease,) = machine.ledger.leases()
    assert lease.exclusive >= {"pci-0000-41-00-0", "pci-0000-41-00-1"}
    writes = len(machine.kernel.writes)
    assert await machine.prepare(CARD) == prepared
    assert len(machine.kernel.writes) == writes  # nothing is written if the state is right
    await machine.unprepare(CARD)
    assert machine.kernel.drivers() == BEFORE
    assert (machine.units(), machine.files()) == ([], [])
    assert machine.kernel.writes == [
        *(
            f"{step} {x}".replace("driver_override " + x, "driver_override vfio-pci")
            for x in (GPU, SOUND)
            for step in ("driver_override", "unbind", "drivers_probe")
        ),
        *(y for x in (GPU, SOUND) for y in ("driver_override", f"unbind {x}", f"bind {x}")),
    ]


async def test_bound_device_keeps_its_offer_and_attributes(machine: Machine) -> None:
    """Although its resource selects another driver, its child is gone, and its IOMMU group could be offered."""
    before = machine.assigned().devices
    machine.resources.insert(0, Resource("example.com/vfio", Kinds(("vfio",)), api="dra"))
    await machine.prepare(CARD)
    for _ in range(2):
        machine.scan()
        assert {**machine.assigned().devices, "example.com/vfio": ()} == {**before, "example.com/vfio": ()}
        offered = machine.offers.find("pci-0000-41-00-0")
        assert offered is not None
        assert offered.device.health.healthy
        assert offered.device.attributes["driver"] == "nouveau"
        await machine.restart()
    assert machine.kernel.drivers() == BOUND
    await machine.unprepare(CARD)
    assert machine.original_devices() == scan(machine.made_up.host).devices


async def test_iommufd_adds_the_nodes_of_the_functions(machine: Machine) -> None:
    wanted = claim(result("pci-0000-42-00-0"))
    assert (
        list(machine.container(await machine.prepare(wanted)).nodes) == ["/dev/iommu", "/dev/vfio/devices/vfio0"][::-1]
    )
    assert scan(machine.made_up.host).devices.get("nic-eth7") is None
    await machine.unprepare(wanted)
    assert machine.kernel.drivers() == BEFORE
    machine.kernel.has_cdevs = False
    assert "has no node for iommufd" in await machine.refusal(wanted)
    assert machine.kernel.drivers() == BEFORE


@pytest.mark.parametrize("then", ["prepared again", "unprepared", "rebooted"])
async def test_binding_is_recovered_after_a_crash_at_any_step_of_preparing(machine: Machine, then: str) -> None:
    for writes in range(STEPS):
        machine.kernel.left = writes
        await machine.refusal(CARD)
        assert machine.units() == (["pci-0000-41-00-0"] if writes else [])  # leased until it is undone
        await _restart(machine, f"boot-{writes}" if then == "rebooted" else "this-boot")
        if then != "unprepared":
            await machine.prepare(CARD)
            assert machine.kernel.drivers() == BOUND
        await machine.unprepare(CARD)
        assert machine.kernel.drivers() == BEFORE
        assert (machine.units(), machine.files()) == ([], [])


@pytest.mark.parametrize("then", ["unprepared", "prepared again", "rebooted"])
async def test_binding_is_recovered_after_a_crash_at_any_step_of_unpreparing(machine: Machine, then: str) -> None:
    for writes in range(STEPS):
        prepared = await machine.prepare(CARD)
        machine.kernel.left = writes
        assert isinstance((await machine.failures(ref(CARD)))[CARD.metadata.uid], ClaimFailed)
        assert machine.units() == ["pci-0000-41-00-0"]
        await _restart(machine, f"boot-{writes}" if then == "rebooted" else "this-boot")
        if then == "prepared again":
            assert await machine.prepare(CARD) == prepared
            assert machine.kernel.drivers() == BOUND
        await machine.unprepare(CARD)
        assert machine.kernel.drivers() == BEFORE
        assert (machine.units(), machine.files()) == ([], [])


async def _restart(machine: Machine, boot_id: str) -> None:
    await machine.end()
    machine.kernel.left = None
    is_rebooted = boot_id != "this-boot"
    if is_rebooted:
        machine.kernel.reboot()
    await machine.begin(boot_id)
    assert not (is_rebooted and machine.kernel.writes)  # after a reboot nothing of before is redone or undone


async def test_current_drivers_are_recorded_before_binding_after_a_reboot(machine: Machine) -> None:
    await machine.prepare(CARD)
    await machine.end()
    machine.kernel.takes[GPU] = "nvidia"  # another driver since the boot
    machine.kernel.load("nvidia")
    machine.kernel.reboot()
    machine.resources[0] = bound("gpu", "nvidia")
    await machine.begin("next-boot")
    machine.kernel.left = 4
    await machine.refusal(CARD)
    await machine.end()
    machine.kernel.left = None
    await machine.begin("next-boot")
    await machine.unprepare(CARD)
    assert machine.kernel.drivers() == {**BEFORE, GPU: ("nvidia", "")}


async def test_vfio_binding_stays_after_a_lost_ledger(machine: Machine) -> None:
    machine.resources[0] = bound("gpu", "*")
    await machine.restart()
    await machine.prepare(CARD)
    await machine.end()
    shutil.rmtree(machine.state)
    await machine.begin()
    await machine.preparer.lost.restore(CARD)
    assert machine.units() == ["pci-0000-41-00-0"]
    await machine.unprepare(CARD)
    assert machine.kernel.drivers() == BOUND  # vfio-pci stays, because an administrator could have bound it
    assert machine.units() == []


async def test_blocked_unbind_is_an_error_until_it_returns(machine: Machine) -> None:
    await machine.prepare(CARD)
    (lease,) = machine.ledger.leases()
    record = record_of(lease)
    assert record is not None
    assert record.allocated[0].binding is not None
    drivers = Drivers(machine.made_up.host, timeout=0.05)
    machine.kernel.held.clear()
    for _ in range(2):
        with pytest.raises(BindRefused, match=r"unbinding the driver of 0000:41:00\.0"):
            drivers.restore(record.allocated[0].binding)
    machine.kernel.held.set()
    drivers._blocked[GPU].join()
    await machine.unprepare(CARD)
    assert machine.kernel.drivers() == BEFORE


async def test_nothing_is_bound_without_a_free_thread(machine: Machine) -> None:
    with no_more_threads():  # the thread of the write, or that of the worker: a worker that was busy can still be busy
        assert "can't start new thread" in await machine.refusal(CARD)
    assert machine.kernel.drivers() == BEFORE
    await machine.unprepare(CARD)  # on a slow disk, its lease could not be undone without a thread, either
    assert (machine.units(), machine.files()) == ([], [])


async def test_binding_stays_without_a_free_thread(machine: Machine) -> None:
    await machine.prepare(CARD)
    record = record_of(machine.ledger.leases()[0])
    assert record is not None
    assert record.allocated[0].binding is not None
    words = rf"driver of {GPU} cannot be changed: can't start new thread"
    with no_more_threads(), pytest.raises(HostExhausted, match=words):
        Drivers(machine.made_up.host).restore(record.allocated[0].binding)
    assert machine.kernel.drivers() == BOUND
    await machine.unprepare(CARD)
    assert machine.kernel.drivers() == BEFORE


async def test_vfio_binding_by_an_administrator_is_kept(machine: Machine) -> None:
    kernel = machine.kernel
    kernel.takes[GPU] = VFIO  # bound by an administrator, with driverctl
    kernel.reboot()
    machine.resources = [bound("gpu", VFIO)]
    machine.scan()
    assert await machine.prepare(CARD)
    await machine.unprepare(CARD)
    assert kernel.drivers() == {**BEFORE, GPU: (VFIO, "")}


async def test_claim_ends_when_the_original_driver_was_unloaded(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    await machine.prepare(CARD)
    machine.kernel.unload("snd_hda_intel")
    await machine.unprepare(CARD)
    assert "does not get back its driver snd_hda_intel" in caplog.text
    assert machine.kernel.drivers() == {**BEFORE, SOUND: ("", "")}
    assert machine.units() == []


async def test_unplugged_function_is_unhealthy_and_its_claim_ends(machine: Machine) -> None:
    wanted = claim(result("pci-0000-42-00-0"))
    await machine.prepare(wanted)
    (machine.kernel.made.root / "sys/bus/pci/devices" / NIC).unlink()
    machine.scan()
    assert "pci-0000-42-00-0" not in machine.original_devices()
    offered = machine.offers.find("pci-0000-42-00-0")
    assert offered is not None
    assert not offered.device.health.healthy
    await machine.unprepare(wanted)
    assert machine.units() == []


def _up(machine: Machine) -> None:
    machine.kernel.made.file("/sys/devices/pci0000:00/0000:42:00.0/net/eth7/flags", "0x1003")


def _uplink(machine: Machine) -> None:
    machine.kernel.made.file("/proc/net/route", "Iface\tDestination\neth7\t00000000\t01020304\t0003\t0\t0\t0\t00000000")


def _enslaved(machine: Machine) -> None:
    machine.kernel.made.link("/sys/class/net/eth7/master", "/sys/class/net/eth7")


def _in_a_pod(machine: Machine) -> None:
    machine.kernel.made.path("/sys/class/net/eth7").unlink()
    shutil.rmtree(machine.kernel.made.path("/sys/devices/pci0000:00/0000:42:00.0/net"))


def _virtual_functions(machine: Machine) -> None:
    machine.kernel.made.link("/sys/devices/pci0000:00/0000:42:00.0/virtfn0", "/sys/devices/pci0000:00/0000:41:00.0")


def _unloaded(machine: Machine) -> None:
    machine.kernel.unload(VFIO)


def _no_iommu(machine: Machine) -> None:
    machine.kernel.made.path("/sys/bus/pci/devices/0000:42:00.0/iommu_group").unlink()


def _gone(machine: Machine) -> None:
    machine.kernel.made.path("/sys/bus/pci/devices/0000:42:00.0").unlink()


def _no_iommufd(machine: Machine) -> None:
    machine.kernel.made.path("/dev/iommu").unlink()


def _another_group(machine: Machine) -> None:
    machine.kernel.made.iommu_group(8, machine.kernel.made.pci("0000:43:00.0"))


def _bridge(machine: Machine) -> None:
    machine.kernel.made.iommu_group(8, machine.kernel.made.pci("0000:00:1f.0", pci_class="060100", driver="lpc_ich"))


def _read_only(machine: Machine) -> None:
    machine.kernel.left = 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_up, "0000:42:00.0 is in use: its interface eth7 is up"),
        (_uplink, "carries the node's own traffic"),
        (_enslaved, "eth7 is part of another one"),
        (_in_a_pod, "0000:42:00.0 is in use: its interface is in another network namespace"),
        (_virtual_functions, "its virtual functions would end"),
        (_unloaded, r"has no driver vfio-pci; load it \(modprobe vfio-pci\)"),
        (_no_iommu, "is in no IOMMU group; is the IOMMU switched on"),
        (_gone, "the function 0000:42:00.0 is gone"),
        (_no_iommufd, "there is no /dev/iommu; load its kernel module"),
        (_another_group, "group changed since the last scan: 0000:42:00.0, 0000:43:00.0"),
        (_bridge, "the bridge 0000:00:1f.0 of the same IOMMU group is held by driver lpc_ich"),
        (_read_only, "the driver of 0000:42:00.0 cannot be changed: Resource temporarily unavailable"),
    ],
)
async def test_unbindable_function_is_refused_without_changes(machine: Machine, change: Any, words: str) -> None:
    change(machine)
    with pytest.raises(AssertionError, match=words):
        await machine.prepare(claim(result("pci-0000-42-00-0")))
    assert machine.kernel.writes == []
    assert (machine.units(), machine.files()) == ([], [])


async def test_function_with_console_or_open_node_is_in_use(machine: Machine) -> None:
    kernel = machine.kernel
    kernel.made.path("/proc/77/fd").mkdir(parents=True)
    kernel.made.path("/proc/77/fd/3").symlink_to("/dev/dri/card1")
    kernel.made.file("/proc/77/comm", "Xorg")
    assert "Xorg (process 77) has /dev/dri/card1 open" in await machine.refusal(CARD)
    kernel.made.file("/sys/devices/pci0000:00/0000:41:00.0/boot_vga", 1)
    assert "the node's console is on it" in await machine.refusal(CARD)
    assert kernel.drivers() == BEFORE


async def test_mounted_multipath_disk_is_in_use(machine: Machine) -> None:
    """With native multipath of NVMe, the disk is below the subsystem, in /sys/devices/virtual."""
    made = machine.kernel.made
    function = machine.kernel.function("0000:44:00.0", 9, "nvme", pci_class="010802")
    controller = made.child(function, "nvme/nvme0", group="class/nvme", node="nvme0", state="live")
    subsystem = "/sys/devices/virtual/nvme-subsystem/nvme-subsys0"
    made.device(f"{subsystem}/nvme0n1", group="class/block", node="nvme0n1", kind="b", numbers="259:0", wwid="eui.1")
    made.link(f"{subsystem}/nvme0", controller)
    made.file("/proc/1/mountinfo", "36 35 259:0 / / rw - ext4 /dev/nvme0n1 rw")
    machine.resources = [bound("disk", "nvme", dangerous=True)]
    machine.offers.configure(machine.resources)
    machine.scan()
    refusal = await machine.refusal(claim(result("pci-0000-44-00-0")))
    assert "0000:44:00.0 is in use: a file system on nvme0n1 is mounted" in refusal


async def test_binding_is_refused_when_use_cannot_be_checked(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an unreadable /proc would mean that no process has the node open."""
    kernel = machine.kernel
    kernel.made.path("/proc/77/fd").mkdir(parents=True)
    kernel.made.path("/proc/77/fd/3").symlink_to("/dev/dri/card1")
    plain = kernel.names

    def names(path: str) -> list[str]:
        with no_more_descriptors() if path.startswith("/proc") else nullcontext():
            return plain(path)

    monkeypatch.setattr(kernel, "names", names)
    assert "Too many open files" in await machine.refusal(CARD)
    assert kernel.drivers() == BEFORE
    assert (machine.units(), machine.files()) == ([], [])


@pytest.mark.parametrize("path", [f"/sys/bus/pci/devices/{GPU}", "/sys/bus/pci/drivers/nouveau/bind"])
async def test_claim_does_not_end_without_a_file_descriptor(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """The function or its driver: the claim ends only once the driver is bound again."""
    await machine.prepare(CARD)
    plain, wanting = machine.kernel.resolve, [path]

    def resolve(asked: str) -> str | None:
        if asked not in wanting:
            return plain(asked)
        wanting.clear()
        with no_more_descriptors():  # a made-up tree needs no descriptor, the machine's own does
            return LiveTree().resolve("/sys")

    monkeypatch.setattr(machine.kernel, "resolve", resolve)
    assert isinstance((await machine.failures(ref(CARD)))[CARD.metadata.uid], ClaimFailed)
    assert machine.units() == ["pci-0000-41-00-0"]
    await machine.unprepare(CARD)
    assert machine.kernel.drivers() == BEFORE


async def test_function_in_use_after_a_crash_is_not_bound(machine: Machine) -> None:
    """A daemon died between the lease and the binding; the interface came up meanwhile."""
    nic = claim(result("pci-0000-42-00-0"))
    machine.kernel.left = 1
    await machine.refusal(nic)
    await machine.end()
    machine.kernel.left = None
    _up(machine)
    await machine.begin()
    assert machine.kernel.drivers()[NIC][0] == "ixgbevf"
    assert "0000:42:00.0 is in use: its interface eth7 is up" in await machine.refusal(nic)
    await machine.unprepare(nic)
    assert machine.kernel.drivers() == BEFORE
    assert machine.units() == []


async def test_replaced_card_is_not_bound_for_the_old_claim(machine: Machine) -> None:
    await machine.prepare(CARD)
    machine.kernel.reboot()  # a newly inserted card has its own driver
    machine.kernel.made.file("/sys/devices/pci0000:00/0000:41:00.0/device", "0x73bf")
    assert "another device than the claim was allocated" in await machine.refusal(CARD)
    machine.scan()
    assert machine.kernel.drivers() == BEFORE
    await machine.unprepare(CARD)
    assert machine.kernel.drivers() == BEFORE
    assert machine.units() == []


async def test_held_group_member_is_refused_with_its_holder(machine: Machine) -> None:
    await machine.ledger.grant([lease("pci-0000-41-00-1", "example.com/sound", holder="pod/default/a/c")])
    assert "pod/default/a/c" in await machine.refusal(CARD)
    assert machine.kernel.drivers() == BEFORE


async def test_iommu_group_has_one_owner(machine: Machine) -> None:
    machine.resources.insert(0, Resource("example.com/sound", AllOf((Kinds(("pci",)), Attribute("class", ("0403*",))))))
    assignment = machine.assigned()
    assert assignment.devices["example.com/gpu"] == ()
    reason = next(x.reason for x in assignment.rest if x.device.id == "pci-0000-41-00-0")
    assert reason == (
        "example.com/gpu: pci-0000-41-00-1 of the same IOMMU group is unavailable: example.com/sound owns it"
    )
    machine.resources = [bound("all", "*")]
    (card, nic) = (x for x in machine.assigned().devices["example.com/all"])
    assert (card.functions, nic.functions) == ((GPU, SOUND), ())


async def test_claims_of_different_groups_are_independent(machine: Machine) -> None:
    nic = claim(result("pci-0000-42-00-0"), uid=uid(2), name="other")
    await machine.prepare(CARD)
    await machine.prepare(nic)
    await machine.unprepare(CARD)
    assert machine.kernel.drivers() == {**BEFORE, NIC: (VFIO, VFIO)}
    machine.scan()
    await machine.unprepare(nic)
    assert machine.kernel.drivers() == BEFORE
