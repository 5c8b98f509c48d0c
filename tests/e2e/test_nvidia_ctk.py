"""NVIDIA's toolkit names no file of a driver that containers of ours lack: `nvidia-ctk cdi generate` on a made-up one.

It needs no node and no GPU, but a C compiler, root, Go, and once the modules of its proxy. Without devices the toolkit
has one mode only, `management`, which leaves graphics out. It loads libnvidia-ml.so.1 to ask for GPUs and reads sonames
through section headers, so the libraries are what a linker makes.
"""

import json
import os
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostdevices.tree import Folder
from tests.userspace.driver_root import put
from userspace.nvidia import find, sockets

pytestmark = pytest.mark.e2e
TOOLKIT = "v1.20.0"
CACHE = Path.home() / ".cache" / "nodeplug-nvidia-ctk" / TOOLKIT
VERSION = "570.133.20"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
NUMBERED = {  # what the driver installs: names without the version, and the number of their sonames
    1: "cuda cudadebugger nvcuvid nvidia-encode nvidia-ml nvidia-cfg nvidia-opencl nvidia-ptxjitcompiler nvidia-fbc"
    " nvidia-opticalflow nvidia-ngx nvidia-allocator nvidia-vksc-core nvoptix GLESv1_CM_nvidia",
    2: "GLESv2_nvidia",
    4: "nvidia-nvvm",
    0: "GLX_nvidia EGL_nvidia",
}
UNNUMBERED = (  # their sonames are their names
    "glcore eglcore glsi glvkspirv rtcore tls gpucomp gtk3 gtk2 wayland-client pkcs11 pkcs11-openssl3 compiler present"
)
OTHERS = {
    f"vdpau/libvdpau_nvidia.so.{VERSION}": "libvdpau_nvidia.so.1",
    "libnvidia-egl-gbm.so.1.1.2": "libnvidia-egl-gbm.so.1",
    "libnvidia-egl-wayland.so.1.1.18": "libnvidia-egl-wayland.so.1",
    "libnvidia-nvvm70.so.4": "libnvidia-nvvm70.so.4",
    "libc.so.6": "libc.so.6",
}
TOOLS = (
    "smi debugdump persistenced cuda-mps-control cuda-mps-server imex imex-ctl modprobe settings xconfig powerd"
    " bug-report.sh ngx-updater"
)
FILES = (
    "etc/vulkan/icd.d/nvidia_icd.json",
    "etc/vulkan/implicit_layer.d/nvidia_layers.json",
    "etc/OpenCL/vendors/nvidia.icd",
    "usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
    "usr/share/nvidia/nvoptix.bin",
    f"lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",
    f"lib/firmware/nvidia/{VERSION}/gsp_tu10x.bin",
)
SERVICES = ("run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket")
NO_GPUS = """
int nvmlInit(void) { return 9; }
int nvmlInit_v2(void) { return 9; }
int nvmlShutdown(void) { return 9; }
const char *nvmlErrorString(int code) { return "Driver Not Loaded"; }
"""


@pytest.fixture(scope="module")
def toolkit() -> Path:
    """The program."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("needs Go in PATH")
    program = CACHE / "nvidia-ctk"
    if not program.exists():
        source = f"github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk@{TOOLKIT}"
        environment = os.environ | {"GOBIN": str(CACHE)}
        done = subprocess.run([go, "install", source], env=environment, capture_output=True, text=True, check=False)
        if done.returncode and ("dial tcp" in done.stderr or "proxy" in done.stderr):
            pytest.skip(f"needs Go's module proxy once: {done.stderr.strip().splitlines()[-1]}")
        assert done.returncode == 0, done.stderr
    return program


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A root with the files of a driver of today."""
    compiler = shutil.which("cc")
    if compiler is None or os.geteuid() != 0:
        pytest.skip("needs a C compiler, and root to make device nodes")
    root = tmp_path_factory.mktemp("driver")
    sonames = {f"lib{x}.so.{VERSION}": f"lib{x}.so.{n}" for n, names in NUMBERED.items() for x in names.split()}
    sonames |= {(name := f"libnvidia-{x}.so.{VERSION}"): name for x in UNNUMBERED.split()} | OTHERS
    for name, soname in sonames.items():
        path = root / LIBRARIES / name
        path.parent.mkdir(parents=True, exist_ok=True)
        command = (compiler, "-shared", "-nostdlib", f"-Wl,-soname,{soname}", "-x", "c", "-o", str(path), "-")
        subprocess.run(command, input=NO_GPUS if "-ml" in name else "", text=True, check=True)
        if path.name != soname:
            (path.parent / soname).symlink_to(path.name)
    for path in (*(root / f"usr/bin/nvidia-{tool}" for tool in TOOLS.split()), *(root / file for file in FILES)):
        put(path, b"{}")
        path.chmod(0o755)
    (root / "dev").mkdir()
    for node in ("nvidia0", "nvidiactl"):
        os.mknod(root / "dev" / node, stat.S_IFCHR | 0o666, os.makedev(195, 0))
    listening = [socket.socket(socket.AF_UNIX) for _ in SERVICES]
    for service, place in zip(listening, SERVICES, strict=True):
        (root / place).parent.mkdir(parents=True)
        service.bind(str(root / place))
    yield root
    for service in listening:
        service.close()


def edits_of(toolkit: Path, root: Path) -> list[dict[str, Any]]:
    """What the toolkit would edit in containers."""
    roots = [f"--driver-root={root}", f"--dev-root={root}", "--nvidia-cdi-hook-path", "/usr/bin/nvidia-cdi-hook"]
    command = [str(toolkit), "cdi", "generate", "--mode=management", "--format=json", *roots]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    spec = json.loads(done.stdout)
    return [spec["containerEdits"], *(device["containerEdits"] for device in spec["devices"])]


def test_every_file_and_link_of_the_toolkits_is_ours_too(toolkit: Path, driver: Path) -> None:
    edits = edits_of(toolkit, driver)
    files = {mount["hostPath"].removeprefix(str(driver)) for each in edits for mount in each.get("mounts", ())}
    hooks = [hook["args"] for each in edits for hook in each.get("hooks", ())]
    pairs = [x.split("::") for args in hooks if "create-symlinks" in args for x in args if "::" in x]
    links = {Path(path).name: target for target, path in pairs}
    assert (len(files), len(links)) == (46, 23)  # two of them are sockets

    root = Folder(str(driver))
    ours = find(root, str(driver), VERSION)
    found = {path.removeprefix(str(driver)) for path in ours.files.values()}
    assert files <= {*found, *sockets(root)}
    assert links.items() <= {Path(path).name: target for path, target in ours.links.items()}.items()
    assert all("egl" in x or x.startswith(("/etc/", "/usr/share/")) for x in found - files), "graphics"
