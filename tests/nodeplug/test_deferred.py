"""TLS is imported at its first use."""

import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deviceplugin.host import MadeUpHost

_DAEMON = """
import sys
from nodeplug.deferred import defer_unused
defer_unused()
import asyncio, nodeplug.daemon, nodeplug.fronts, nodeplug.config
unasked = ("nodeplug.control.", "nodeplug.page", "nodeplug.metrics", "nodeplug.status_server")
print([x for x in sys.modules if x.startswith(unasked)])
print(*(x in sys.modules for x in ("_ssl", "_hashlib", "click", "grpc", "opentelemetry", "nodeplug.tracing")))
"""


def output(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_a_daemon_without_dra_carries_neither_tls_nor_a_command_line_nor_grpcio_nor_traces() -> None:
    assert output(_DAEMON).splitlines()[1] == "False False False False False False"


def test_a_daemon_that_nobody_asks_does_not_carry_what_answers() -> None:
    assert output(_DAEMON).splitlines()[0] == str([f"nodeplug.control.{x}" for x in ("running", "sockets", "server")])


def test_a_daemon_has_uuids_without_what_tells_platforms_apart() -> None:
    code = "from nodeplug.deferred import _Deferred; import uuid; print(type(sys.modules['platform']) is _Deferred)"
    assert output(f"{_DAEMON}{code}").splitlines()[-1] == "True"


def test_what_is_loaded_before_stays_as_it_is() -> None:
    before = "import typing_extensions as t; has = dict(vars(t))"
    assert output(f"{before}{_DAEMON}print(vars(t) == has)").splitlines()[-1] == "True"


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="asyncio has data classes, which need the syntax trees")
def test_the_command_itself_loads_nothing_of_it_before_the_daemon_does() -> None:
    code = """
import contextlib, sys
from nodeplug.__main__ import main
from nodeplug.deferred import _MODULES, _Deferred
sys.argv[1:] = ["run", "--config", "/nowhere"]
with contextlib.suppress(SystemExit):
    main()
print([x for x in _MODULES if type(sys.modules[x]) is not _Deferred])
"""
    assert output(code) == "[]\n"


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="asyncio has data classes, which need the syntax trees")
def test_a_daemon_that_runs_until_a_signal_carries_no_syntax_trees(
    made_up: MadeUpHost, socket_dir: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    settings = f"kubeletRoot: {socket_dir}, stateDirectory: {tmp_path}/state, cdiDirectory: {tmp_path}/cdi"
    config.write_text(f"settings: {{{settings}}}\nresources: [{{name: example.com/fuse, select: fuse}}]\n")
    code = f"""
import sys
from pathlib import Path
from nodeplug.process import run
code = run(Path({str(config)!r}), Path({str(made_up.root)!r}))
print(code, [x for x in ("ast", "dis") if x in sys.modules])
"""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdout=pipe, stderr=pipe, text=True) as run:
        assert run.stderr is not None
        next(line for line in run.stderr if "waiting for the kubelet" in line)
        run.send_signal(signal.SIGTERM)
        shown, _ = run.communicate(timeout=60)
    assert shown == "0 []\n"


def test_claims_whose_interfaces_stay_need_nothing_that_moves_them() -> None:
    code = (
        _DAEMON
        + """
import dra_plugin
from nodeplug.deferred import _Deferred
print("netlink" in sys.modules, type(sys.modules["ipaddress"]) is _Deferred)
"""
    )
    assert output(code).splitlines()[-1] == "False True"


def test_claims_whose_devices_keep_their_drivers_need_nothing_that_changes_them() -> None:
    code = (
        _DAEMON
        + "import dra_plugin; print([x for x in sys.modules if 'driver_binding' in x or 'hostdevices.usage' in x])"
    )
    assert output(code).splitlines()[-1] == "[]"


def test_a_daemon_with_dra_carries_neither_an_api_servers_rules_nor_a_client_for_threads() -> None:
    objects = ("validate", "strategy", "selectors", "claim_rules", "declared_rules", "slice_rules")
    unused = [*(f"resourceapi.objects.{x}" for x in objects), "resourceapi.client.blocking"]
    code = f"{_DAEMON}import dra_plugin, resourceapi.client; print([x for x in {unused} if x in sys.modules])"
    assert output(code).splitlines()[-1] == "[]"


def test_a_claims_metadata_come_and_go_without_libraries_for_compression(tmp_path: Path) -> None:
    code = (
        _DAEMON
        + f"""
from pathlib import Path
from nodeplug.deferred import _Deferred
from dra_plugin.preparing.metadata_files import MetadataFolder, RequestMetadata
folder = MetadataFolder(Path({str(tmp_path)!r}), "nodeplug.dev")
folder.write("uid", RequestMetadata("gpu", {{"metadata": {{"uid": "uid"}}}}))
folder.remove("uid")
print(list(Path({str(tmp_path)!r}).iterdir()), type(sys.modules["shutil"]) is _Deferred)
"""
    )
    assert output(code).splitlines()[-1] == "[] True"


@pytest.mark.parametrize(
    ("use", "shown"),
    [
        ("import ssl; print(ssl.create_default_context().verify_mode.name)", "CERT_REQUIRED\n"),
        (
            "from ssl import SSLContext; import asyncio.sslproto as p, ssl; print(ssl.SSLContext is SSLContext)",
            "True\n",
        ),
        ("import asyncio.sslproto as p; print(p.SSLProtocol is asyncio.sslproto.SSLProtocol)", "True\n"),
        (
            "import inspect; from typing_extensions import TypedDict, get_type_hints; print(inspect.isclass(len))",
            "False\n",
        ),
        ("import platform as p; print(p.system(), p.python_implementation())", "Linux CPython\n"),
        ("import hmac, ssl; print(hmac.new(b'k', b'm', 'sha256').digest_size, ssl.HAS_TLSv1_3)", "32 True\n"),
    ],
)
def test_whoever_uses_it_has_it(use: str, shown: str) -> None:
    assert output(_DAEMON + "print('--')\n" + use).partition("--\n")[2] == shown


def test_a_client_of_the_api_server_needs_no_names_of_other_scripts_and_no_module_of_chance() -> None:
    code = """
import socket, sys
from nodeplug.deferred import defer_unused
defer_unused()
import asyncio
from resourceapi.client.backoff import delay
from resourceapi.client.wire import dial
async def main():
    with socket.create_server(("127.0.0.1", 0)) as server:
        (await dial("localhost", server.getsockname()[1])).close()
asyncio.run(main())
assert 0.5 <= delay(1) <= 0.625
print([x for x in ("random", "encodings.idna", "unicodedata") if x in sys.modules])
"""
    assert output(code) == "[]\n"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no arenas")
def test_threads_allocate_from_one_arena() -> None:
    """Each further arena would reserve 64 MiB of address space."""
    code = """
import threading
from nodeplug.process import _share_one_arena
def mapped():
    return int(open("/proc/self/statm").read().split()[0]) * 4 // 1024
_share_one_arena()
before, ends = mapped(), threading.Event()
for _ in range(3):
    began = threading.Event()
    threading.Thread(target=lambda: (bytearray(5000), began.set(), ends.wait()), daemon=True).start()
    began.wait()
print(mapped() - before - 3 * 8 < 64)
"""
    assert output(code) == "True\n"
