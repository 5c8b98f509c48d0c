"""Our containers have every driver file that NVIDIA's toolkit lists: `nvidia-ctk cdi generate` with made-up drivers.

Needs no node and no GPU, but a C compiler, root, Go, and its module proxy once. The toolkit queries a made-up NVML
(nvidia_driver.c) with one GPU, and reads sonames from section headers, so that the libraries are made by a linker.
The complete lists, including graphics, are compared for the driver layouts of distributions.
"""

import contextlib
import json
import os
import shutil
import socket
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hostdevices.tree import Folder
from tests.userspace.driver_root import put
from userspace.nvidia import find, sockets

pytestmark = pytest.mark.e2e
TOOLKIT = "v1.20.0"
CACHE = Path.home() / ".cache" / "nodeplug-nvidia-ctk" / TOOLKIT
NUMBERED = {  # the driver's files: names without the version, and the numbers of their sonames
    1: "cuda cudadebugger nvcuvid nvidia-encode nvidia-ml nvidia-cfg nvidia-opencl nvidia-ptxjitcompiler nvidia-fbc"
    " nvidia-opticalflow nvidia-ngx nvidia-allocator nvidia-vksc-core nvoptix GLESv1_CM_nvidia"
    " nvidia-sandboxutils",
    2: "GLESv2_nvidia",
    4: "nvidia-nvvm",
    0: "GLX_nvidia EGL_nvidia",
}
UNNUMBERED = (  # their file names are their sonames
    "glcore eglcore glsi glvkspirv rtcore tls gpucomp gtk3 gtk2 wayland-client pkcs11 pkcs11-openssl3 compiler present"
    " vulkan-producer"
)
OTHERS = {
    "libnvidia-egl-gbm.so.1.1.2": "libnvidia-egl-gbm.so.1",
    "libnvidia-egl-wayland.so.1.1.18": "libnvidia-egl-wayland.so.1",
    "libnvidia-egl-wayland2.so.1.0.0": "libnvidia-egl-wayland2.so.1",
    "libnvidia-egl-xcb.so.1.0.1": "libnvidia-egl-xcb.so.1",
    "libnvidia-nvvm70.so.4": "libnvidia-nvvm70.so.4",
    "libc.so.6": "libc.so.6",
}
TOOLS = (
    "smi debugdump persistenced cuda-mps-control cuda-mps-server imex imex-ctl modprobe settings xconfig powerd"
    " bug-report.sh ngx-updater"
)
FILES = (
    "etc/vulkan/implicit_layer.d/nvidia_layers.json",
    "etc/OpenCL/vendors/nvidia.icd",
    "usr/share/vulkan/icd.d/nvidia_icd.json",
    "usr/share/vulkan/icd.d/nvidia_icd.x86_64.json",
    "usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    *(f"usr/share/egl/egl_external_platform.d/{x}.json" for x in ("10_nvidia_wayland", "15_nvidia_gbm")),
    "usr/share/egl/egl_external_platform.d/20_nvidia_xcb.json",
    "usr/share/nvidia/nvoptix.bin",
    "lib/firmware/nvidia/VERSION/gsp_ga10x.bin",
    "lib/firmware/nvidia/VERSION/gsp_tu10x.bin",
)
FOR_X_SERVERS = (
    "etc/X11/xorg.conf.d/10-nvidia.conf",
    "usr/share/X11/xorg.conf.d/nvidia-drm-outputclass.conf",
    "usr/lib/xorg/modules/drivers/nvidia_drv.so",
    "usr/lib/xorg/modules/extensions/libglxserver_nvidia.so.VERSION",
)
OF_32_BITS = ("usr/lib/i386-linux-gnu/libcuda.so.VERSION", "usr/lib32/libnvidia-ml.so.VERSION")
SERVICES = ("run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket")
SOURCE = Path(__file__).with_name("nvidia_driver.c")


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


class Driver:
    """A driver of a version, with its libraries in a folder of its root."""

    def __init__(self, root: Path, version: str, folder: str) -> None:
        self.root, self.version = root, version
        self.libraries = root / folder
        compiler = shutil.which("cc")
        if compiler is None or os.geteuid() != 0:
            pytest.skip("needs a C compiler, and root to make device nodes")
        sonames = {f"lib{x}.so.{version}": f"lib{x}.so.{n}" for n, names in NUMBERED.items() for x in names.split()}
        sonames |= {(name := f"libnvidia-{x}.so.{version}"): name for x in UNNUMBERED.split()} | OTHERS
        sonames[f"vdpau/libvdpau_nvidia.so.{version}"] = "libvdpau_nvidia.so.1"
        for name, soname in sonames.items():
            self._link(compiler, self.libraries / name, soname)
        (self.libraries / "gbm").mkdir()
        (self.libraries / "gbm/nvidia-drm_gbm.so").symlink_to("../libnvidia-allocator.so.1")
        for file in (*(f"usr/bin/nvidia-{tool}" for tool in TOOLS.split()), *FILES, *FOR_X_SERVERS, *OF_32_BITS):
            path = root / file.replace("VERSION", version)
            put(path, b"{}")
            path.chmod(0o755)
        (root / "dev").mkdir()
        for node in ("nvidia0", "nvidiactl"):
            os.mknod(root / "dev" / node, stat.S_IFCHR | 0o666, os.makedev(195, 0))

    def _link(self, compiler: str, path: Path, soname: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        source = SOURCE if "-ml" in path.name or "-sandboxutils" in path.name else os.devnull
        options = ("-shared", "-fPIC", "-w", f"-Wl,-soname,{soname}", f'-DVERSION="{self.version}"')
        subprocess.run([compiler, *options, "-x", "c", source, "-o", path], check=True)
        if path.name != soname:
            (path.parent / soname).symlink_to(path.name)


def edits_of(toolkit: Path, root: Path) -> list[dict[str, Any]]:
    """The container edits from the toolkit."""
    roots = [f"--driver-root={root}", f"--dev-root={root}", "--nvidia-cdi-hook-path", "/usr/bin/nvidia-cdi-hook"]
    command = [str(toolkit), "--quiet", "cdi", "generate", "--mode=nvml", "--format=json", *roots]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    spec = json.loads(done.stdout)
    return [spec["containerEdits"], *(device["containerEdits"] for device in spec["devices"])]


@pytest.mark.parametrize(
    ("root", "folder", "version"),
    [
        ("", "usr/lib/x86_64-linux-gnu", "570.133.20"),  # Ubuntu
        ("", "usr/lib64", "580.65.06"),  # RHEL, SLES
        ("", "usr/lib/x86_64-linux-gnu/nvidia/current", "535.261.03"),  # Debian
        ("", "usr/lib/aarch64-linux-gnu", "550.54.14"),
        ("run/nvidia/driver", "usr/lib/x86_64-linux-gnu", "470.256.02"),  # a driver in a container
    ],
)
def test_containers_have_every_file_and_link_of_the_toolkit(
    toolkit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str, folder: str, version: str
) -> None:
    driver = Driver(tmp_path / root, version, folder)
    monkeypatch.chdir(driver.root)  # short, because a socket's path has at most 107 bytes
    with contextlib.ExitStack() as services:
        for place in SERVICES:
            service = services.enter_context(socket.socket(socket.AF_UNIX))
            (driver.root / place).parent.mkdir(parents=True)
            service.bind(place)
        edits = edits_of(toolkit, driver.root)
        prefix = str(driver.root)
        ours = find(Folder(prefix), prefix, version)
        found = {path.removeprefix(prefix) for path in (*ours.files.values(), *sockets(Folder(prefix)))}
    files = {mount["hostPath"].removeprefix(prefix) for each in edits for mount in each.get("mounts", ())}
    assert files > {"/run/nvidia-persistenced/socket", "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json"}
    assert len(files) > 60
    lacking = files - found - {*SERVICES}
    assert lacking <= {f"/{x.replace('VERSION', version)}" for x in FOR_X_SERVERS}
    assert all("egl" in x for x in found - files), "platforms that the toolkit does not know yet"
    assert not any("i386" in x or "lib32" in x for x in files | found)

    hooks = [hook["args"] for each in edits for hook in each.get("hooks", ())]
    pairs = [x.split("::") for args in hooks if "create-symlinks" in args for x in args if "::" in x]
    theirs = {path.removeprefix(f"/{folder}/"): target for target, path in pairs if "libglxserver" not in path}
    assert len(theirs) > 20
    names = {path.removeprefix("/usr/local/nvidia/lib64/").removeprefix("vdpau/"): x for path, x in ours.links.items()}
    assert {path.removeprefix("vdpau/"): target for path, target in theirs.items()}.items() <= names.items()
