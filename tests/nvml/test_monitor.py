"""NVML in a separate process, with a made-up library that shows a driver's faults."""

import asyncio
import ctypes
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pynvml
import pytest

from hostdevices import Device, Inventory, scan
from nodeplug.config import Settings
from nvml import NvmlMonitor, Timings, child
from nvml import library as library_module
from tests.hostdevices.tree import Tree
from tests.nvml.library import LibraryControl, build_library
from tests.running import running
from tests.threads import no_more_threads

GPU, FIRST, SECOND = "gpu-0000-81-00-0", "gpu-0000-81-00-0-gi1-ci0", "gpu-0000-81-00-0-gi2-ci0"
FAST = Timings(interval=0.05, silence=60.0, retry=0.05, first_report=60.0)
SHORT_SILENCE = Timings(interval=0.05, silence=2.0, retry=0.05, first_report=60.0)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    build_library(path)
    return path


class Driver(LibraryControl):
    """A machine with a GPU of two MIG instances, and a controllable driver."""

    def __init__(self, folder: Path, library: Path) -> None:
        super().__init__(folder / "commands")
        self.tree = tree = Tree(folder / "host")
        of_driver = "/proc/driver/nvidia"
        self.add("0000:81:00.0", 3)
        tree.file(f"{of_driver}/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  x")
        for instance in (1, 2):
            access = f"{of_driver}/capabilities/gpu3/mig/gi{instance}/ci0/access"
            tree.file(access, f"DeviceFileMinor: {instance}")
        tree.node("/dev/nvidiactl", "195:255")
        self.library = tree.root / "run/nvidia/driver/usr/lib64/libnvidia-ml.so.1"
        self.library.parent.mkdir(parents=True)
        shutil.copy(library, self.library)
        self.inventory: Inventory = scan(tree.host)

    def add(self, address: str, minor: int) -> None:
        """Add a GPU."""
        self.tree.pci(address, vendor="10de", pci_class="030200", driver="nvidia")
        facts = f"Model: A100\nGPU UUID: GPU-???\nDevice Minor: {minor}"
        self.tree.file(f"/proc/driver/nvidia/gpus/{address}/information", facts)
        self.tree.node(f"/dev/nvidia{minor}", f"195:{minor}")


@pytest.fixture
def driver(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver(tmp_path, library)
    monkeypatch.setenv("FAKE_NVML", str(made.path))
    return made


class MonitorView:
    """A monitor, with the daemon's view of it."""

    def __init__(self, driver: Driver, timings: Timings = FAST) -> None:
        self._driver = driver
        self.monitor = NvmlMonitor(driver.tree.host, "/run/nvidia/driver", Settings().ignored_xids, timings)
        self._changed = asyncio.Event()
        self.monitor.observe(self._changed.set)

    async def now(self) -> Inventory:
        return await asyncio.to_thread(self.monitor.enrich, self._driver.inventory)

    async def until(self, condition: Callable[[Inventory], object]) -> Inventory:
        async with asyncio.timeout(60):
            while not condition(found := await self.now()):
                await self._changed.wait()
                self._changed.clear()
            return found


@asynccontextmanager
async def monitoring(driver: Driver, timings: Timings = FAST) -> AsyncIterator[MonitorView]:
    view = MonitorView(driver, timings)
    async with running(view.monitor.run()):
        yield view


def reason(device: str) -> Callable[[Inventory], str]:
    return lambda inventory: inventory.devices[device].health.reason


def facts(device: Device) -> list[object]:
    return [device.attributes.get(x) for x in ("uuid", "profile", "memory", "placement", "parentUUID")]


async def test_first_inventory_has_the_attributes_from_nvml(driver: Driver) -> None:
    async with monitoring(driver) as view:
        found = await view.now()
    assert facts(found.devices[GPU]) == ["GPU-8a56a4bc", None, 80 << 30, None, None]
    assert facts(found.devices[FIRST]) == ["MIG-1", "1g.10gb", 10 << 30, "0:2", "GPU-8a56a4bc"]
    assert facts(found.devices[SECOND]) == ["MIG-2", "2g.10gb", 10 << 30, "4:2", "GPU-8a56a4bc"]
    assert found.devices[GPU].health.healthy
    assert {x for x in found.devices if found.devices[x] != driver.inventory.devices[x]} == {GPU, FIRST, SECOND}


async def test_xid_stays_until_the_driver_is_reloaded_and_ignored_xid_does_not_count(driver: Driver) -> None:
    async with monitoring(driver) as view:
        await view.now()
        driver.set_commands("xid 31")
        driver.set_commands("xid 94 1")  # of one GPU instance only
        found = await view.until(reason(FIRST))
        assert reason(FIRST)(found) == "its driver has reported XID 94"
        assert found.devices[SECOND].health.healthy
        driver.set_commands("xid 79")
        found = await view.until(reason(SECOND))
        assert reason(FIRST)(found) == "its driver has reported XID 94; its driver has reported XID 79"
        assert reason(GPU)(found) == reason(FIRST)(found)
        driver.set_commands()
        driver.tree.file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  x")
        driver.inventory = scan(driver.tree.host)  # the module was loaded again, and the GPU was reset
        await view.until(lambda x: x.devices[GPU].health.healthy and "memory" in x.devices[GPU].attributes)


async def test_new_memory_errors_make_the_gpu_unhealthy(driver: Driver) -> None:
    driver.set_commands("errors 7")  # from before the start
    async with monitoring(driver) as view:
        assert (await view.now()).devices[GPU].health.healthy
        driver.set_commands("errors 9")
        found = await view.until(reason(GPU))
        assert reason(GPU)(found) == reason(SECOND)(found) == "2 uncorrectable memory errors within a minute"


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        (["lost"], "it has fallen off the bus, or cannot be reached"),
        (["fading"], "it has fallen off the bus, or cannot be reached"),  # amid a report
        (["gone", "deaf"], "it has fallen off the bus, or cannot be reached"),
        (["reset"], "it has to be reset before it can be used again"),
    ],
)
async def test_lost_gpu_is_unhealthy_at_once_and_keeps_its_attributes(
    driver: Driver, faults: list[str], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Resources select GPUs by their UUIDs. The other GPUs are queried as before."""
    driver.add("0000:82:00.0", 4)
    driver.inventory = scan(driver.tree.host)
    driver.set_commands("gpus 2")
    slow = Timings(interval=0.05, silence=60.0, retry=3600.0, first_report=60.0)
    async with monitoring(driver, slow) as view:
        before = await view.now()
        driver.set_commands("gpus 2", *faults)
        found = await view.until(reason(GPU))
        assert reason(GPU)(found) == reason(FIRST)(found) == words
        assert [facts(found.devices[x]) for x in (GPU, FIRST)] == [facts(before.devices[x]) for x in (GPU, FIRST)]
        driver.set_commands("gpus 2")
        await view.until(lambda x: x.devices[GPU].health.healthy)
    assert "nodeplug tries again" not in caplog.text


@pytest.mark.parametrize(
    ("links", "hives"),
    [
        ((), ["", "", "", ""]),
        (("0 1", "0 1", "1 0", "1 0", "2 3", "3 2"), ["81", "81", "83", "83"]),  # bridges
        (("0 1", "1 2", "2 1"), ["81", "81", "81", ""]),  # a link that only one end reports
        (("0 8", "1 9", "3 8"), ["81", "81", "", "81"]),  # switches; the links of the third GPU are down
        (("0 8", "1 7"), ["", "", "", ""]),  # links to no GPU of this machine
    ],
)
async def test_gpus_connected_by_nvlink_share_a_hive(driver: Driver, links: tuple[str, ...], hives: list[str]) -> None:
    for number in (1, 2, 3):
        driver.add(f"0000:{0x81 + number:x}:00.0", 3 + number)
    driver.inventory = scan(driver.tree.host)
    driver.set_commands("gpus 4", *(f"link {each}" for each in links))
    async with monitoring(driver) as view:
        found = await view.now()
    gpus = [found.devices[f"gpu-0000-{0x81 + number:x}-00-0"] for number in range(4)]
    assert [x.attributes.get("hive", "") for x in gpus] == [x and f"0000:{x}:00.0" for x in hives]
    assert "hive" not in found.devices[FIRST].attributes  # MIG instances have no NVLink


async def test_gpu_in_mig_mode_is_partitioned_without_an_instance(driver: Driver) -> None:
    driver.add("0000:82:00.0", 4)
    driver.inventory = scan(driver.tree.host)
    driver.set_commands("gpus 2", "mig")
    async with monitoring(driver) as view:
        await view.until(lambda x: x.devices["gpu-0000-82-00-0"].attributes.get("partitioned"))
        driver.set_commands("gpus 2")
        found = await view.until(lambda x: "partitioned" not in x.devices["gpu-0000-82-00-0"].attributes)
    assert found.devices[GPU].attributes["partitioned"] is True


async def test_nvlinks_between_gpus_are_counted_but_not_published(driver: Driver) -> None:
    for number in (1, 2, 3):
        driver.add(f"0000:{0x81 + number:x}:00.0", 3 + number)
    driver.inventory = scan(driver.tree.host)
    driver.set_commands(
        "gpus 4", *(f"link {x}" for x in ("0 1", "0 1", "1 0", "1 0", "0 2", "0 8", "0 9", "3 8", "2 7"))
    )
    async with monitoring(driver) as view:
        found = await view.now()
        gpus = [found.devices[f"gpu-0000-{0x81 + number:x}-00-0"] for number in range(4)]
        assert [dict(x.links) for x in gpus] == [
            {"0000:82:00.0": 2, "0000:83:00.0": 1, "0000:84:00.0": 1},  # through switches: the smaller number of links
            {"0000:81:00.0": 2},
            {"0000:81:00.0": 1},  # one end's report is enough; the link to a missing GPU does not count
            {"0000:81:00.0": 1},
        ]
        assert found.devices[FIRST].links == ()
        assert not any("link" in name.lower() for x in gpus for name in x.attributes)
        driver.set_commands("gpus 4", "link 0 1", "link 1 0")  # all other links are down
        await view.until(lambda x: x.devices[gpus[0].id].links == (("0000:82:00.0", 1),))


async def test_hung_or_crashed_library_changes_no_device(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    async with monitoring(driver, SHORT_SILENCE) as view:
        before = await view.now()
        for fault, words in (("hang", "has not answered for 2 s"), ("crash", "ended without a message")):
            driver.set_commands(fault)
            found = await view.until(lambda x, words=words: any(words in y.reason for y in x.problems))  # type: ignore[misc]
            assert found.devices == before.devices
            driver.set_commands("rows")
            await view.until(reason(GPU))  # the library answers again
            driver.set_commands()
            await view.until(lambda x: x.devices[GPU].health.healthy)
    assert "GPUs keep their last state" in caplog.text


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("no library", "there is no libnvidia-ml.so.1 below /run/nvidia/driver; set settings.driverRoot"),
        ("no elf", "cannot be loaded: "),
        ("no driver", "says: Driver Not Loaded"),
    ],
)
async def test_missing_library_or_driver_is_reported(driver: Driver, fault: str, words: str) -> None:
    if fault == "no library":
        driver.library.unlink()
    elif fault == "no elf":
        driver.library.write_text("x")
    else:
        driver.set_commands("init 9")
    async with monitoring(driver) as view:
        found = await view.now()
        assert found.devices == driver.inventory.devices
        assert words in next(x.reason for x in found.problems if x.where == "NVML")


async def test_missing_library_is_not_reported_without_gpus(driver: Driver) -> None:
    shutil.rmtree(driver.tree.root / "proc/driver")
    driver.inventory = scan(driver.tree.host)
    driver.library.unlink()
    async with monitoring(driver) as view:
        assert await view.now() == driver.inventory


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (library_module.Pci, pynvml.nvmlPciInfo_t),
        (library_module.Memory, pynvml.c_nvmlMemory_t),
        (library_module.Event, pynvml.c_nvmlEventData_t),
        (library_module.GpuInstance, pynvml.c_nvmlGpuInstanceInfo_t),
    ],
)
def test_structures_match_pynvml(ours: Any, theirs: Any) -> None:
    assert ctypes.sizeof(ours) == ctypes.sizeof(theirs)
    last, its_last = ours._fields_[-1][0], theirs._fields_[-1][0]
    nested = ctypes.sizeof(ctypes.c_uint) if its_last == "placement" else 0  # ours has start and size directly
    assert getattr(ours, last).offset == getattr(theirs, its_last).offset + nested


def test_constants_match_pynvml() -> None:
    assert pynvml.nvmlEventTypeXidCriticalError == child.XID
    assert child.REMOTE_IS_SWITCH == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
    assert child.MAX_LINKS >= pynvml.NVML_NVLINK_MAX_LINKS
    uncorrected = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    assert tuple(x.value for x in child.UNCORRECTED_SINCE_LOADED) == uncorrected
    names = ("TIMEOUT", "FUNCTION_NOT_FOUND", "GPU_IS_LOST", "RESET_REQUIRED")
    assert [getattr(library_module, x) for x in names] == [getattr(pynvml, f"NVML_ERROR_{x}") for x in names]


def test_daemon_does_not_import_the_library_module() -> None:
    code = "import nvml, sys; print('nvml.library' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "False\n"


async def test_child_process_is_started_again_after_a_thread_shortage(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    async with monitoring(driver) as view:
        reading = asyncio.ensure_future(view.now())
        await asyncio.sleep(0)  # its thread has started
        with no_more_threads():
            found = await reading
        assert "cannot be started: can't start new thread" in next(x.reason for x in found.problems)
        await view.until(lambda x: not x.problems)
    assert caplog.text.count("can't start new thread") == 1
