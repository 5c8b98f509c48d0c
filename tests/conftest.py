"""Shared by all tests."""

import fcntl
import functools
import gc
import logging
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import msgspec.inspect
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.in_memory import keep_in_memory

# Scenarios for the stand-in and for a real kubelet are no test modules; their assertions need details as well.
pytest.register_assert_rewrite("tests.kubelet.both")

# Examples are the same in each run, and have no time limit: a busy machine is not a failure.
settings.register_profile(
    "suite",
    max_examples=25,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", settings.get_profile("suite"), max_examples=2000, derandomize=False)
settings.load_profile("suite")


# Go programs that tests start, such as kubectl, are short-lived: garbage collection is a fifth of their work.
os.environ.setdefault("GOGC", "off")


def pytest_configure(config: pytest.Config) -> None:
    """Report once a condition under which many tests would fail, each with another message; use folders in memory."""
    if tempfile.gettempdir().startswith("/dev/"):
        raise pytest.UsageError("TMPDIR is below /dev, where the daemon takes files for devices: choose another folder")
    if config.option.markexpr != "e2e":  # the programs of a real node must see the folders, too
        keep_in_memory()
    if config.option.hypothesis_profile != "long":
        _keep_examples()
    # The daemon describes the types of its configuration whenever it reads the file; the tests read thousands of files.
    pytest.MonkeyPatch().setattr(msgspec.inspect, "type_info", functools.cache(msgspec.inspect.type_info))


def _keep_examples() -> None:
    """Keep hypothesis from using the constants of the loaded modules in its examples.

    With them, the examples depend on the tests that are selected, and change with any literal in any module. Each
    worker would also read all modules for them: a fifth of the time of collecting the tests.
    """
    pytest.MonkeyPatch().setattr(providers, "_get_local_constants", lambda: providers._local_constants, raising=False)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, None, None]:
    """Keep the garbage collector from checking the collected tests repeatedly: they are thousands of live objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """Restore the logging of this process after each test: commands and daemons in the process set up their own."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def socket_dir() -> Iterator[Path]:
    """A folder with a short path: a socket's path has at most 107 bytes, and pytest's own folders use most of them."""
    folder = Path(tempfile.mkdtemp(prefix="n"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Unpacks the archive of a machine once for all workers and returns its root; its content must not be changed."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    @functools.cache
    def unpack(file: Path) -> Path:
        machine = folder / file.name
        with (folder / f"{file.name}.lock").open("w") as lock, tarfile.open(file) as archive:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not machine.exists():
                # Not in Python 3.11.0 to 3.11.3; these archives have nothing that it refuses.
                archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
                # With names, each file's owner would be looked up in the user and group lists: most of the time.
                archive.extractall(folder / f"{file.name}.part", numeric_owner=True)
                (folder / f"{file.name}.part").rename(machine)
        return next(machine.glob("**/sys")).parent

    return unpack
