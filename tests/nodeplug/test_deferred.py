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
import asyncio, nodeplug.daemon, nodeplug.parts, nodeplug.config
unasked = ("nodeplug.control.", "nodeplug.page", "nodeplug.metrics", "nodeplug.status_server")
print([x for x in sys.modules if x.startswith(unasked)])
print(*(x in sys.modules for x in ("_ssl", "_hashlib", "click", "grpc", "opentelemetry", "nodeplug.tracing")))
"""


def output(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_daemon_without_dra_loads_no_tls_click_grpc_or_opentelemetry() -> None:
    assert output(_DAEMON).splitlines()[1] == "False False False False False False"


def test_daemon_loads_no_control_handlers_before_a_request() -> None:
    assert output(_DAEMON).splitlines()[0] == str([f"nodeplug.control.{x}" for x in ("running", "sockets", "server")])


def test_uuid_does_not_load_platform() -> None:
    code = "from nodeplug.deferred import _Deferred; import uuid; print(type(sys.modules['platform']) is _Deferred)"
    assert output(f"{_DAEMON}{code}").splitlines()[-1] == "True"


def test_already_loaded_module_is_unchanged() -> None:
    before = "import typing_extensions as t; has = dict(vars(t))"
    assert output(f"{before}{_DAEMON}print(vars(t) == has)").splitlines()[-1] == "True"


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="asyncio has data classes, which need the syntax trees")
def test_command_line_loads_no_deferred_module() -> None:
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
def test_running_daemon_loads_no_ast(made_up: MadeUpHost, socket_dir: Path, tmp_path: Path) -> None:
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
        output_, _ = run.communicate(timeout=60)
    assert output_ == "0 []\n"


def test_dra_plugin_does_not_load_netlink() -> None:
    code = (
        _DAEMON
        + """
import dra_plugin
from nodeplug.deferred import _Deferred
print("netlink" in sys.modules, type(sys.modules["ipaddress"]) is _Deferred)
"""
    )
    assert output(code).splitlines()[-1] == "False True"


def test_dra_plugin_does_not_load_driver_binding() -> None:
    code = (
        _DAEMON
        + "import dra_plugin; print([x for x in sys.modules if 'driver_binding' in x or 'hostdevices.usage' in x])"
    )
    assert output(code).splitlines()[-1] == "[]"


def test_dra_plugin_loads_no_validation_and_no_blocking_client() -> None:
    objects = ("validate", "strategy", "selectors", "claim_rules", "declared_rules", "slice_rules")
    unused = [*(f"resourceapi.objects.{x}" for x in objects), "resourceapi.client.blocking"]
    code = f"{_DAEMON}import dra_plugin, resourceapi.client; print([x for x in {unused} if x in sys.modules])"
    assert output(code).splitlines()[-1] == "[]"


def test_metadata_files_do_not_load_shutil(tmp_path: Path) -> None:
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
    ("use", "output_"),
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
        (
            "import yaml, resourceapi.manifests as m; print(m._Loader.__name__, m.read_yaml('a: yes'))",
            "CSafeLoader {'a': True}\n",
        ),
        ("import platform as p; print(p.system(), p.python_implementation())", "Linux CPython\n"),
        ("import hmac, ssl; print(hmac.new(b'k', b'm', 'sha256').digest_size, ssl.HAS_TLSv1_3)", "32 True\n"),
    ],
)
def test_deferred_module_works_when_used(use: str, output_: str) -> None:
    assert output(_DAEMON + "print('--')\n" + use).partition("--\n")[2] == output_


def test_api_client_loads_neither_idna_nor_random() -> None:
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
