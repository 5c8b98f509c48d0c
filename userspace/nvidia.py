"""The files of one version of NVIDIA's driver on a host: libraries, tools, firmware, and loaders' configuration.

The driver's own libraries are found by its version at their end (`libcuda.so.550.54.14`). Others have versions of their
own (EGL's platforms). Where containers see them:

    /usr/local/nvidia/lib64, .../bin      libraries and tools: LD_LIBRARY_PATH and PATH of CUDA images have these
    /etc/vulkan, /usr/share/{glvnd,egl}   what Vulkan's and EGL's loaders read, at the same paths
    /lib/firmware/nvidia/VERSION          firmware, where the libraries look for it

32-bit libraries, X servers' modules and configuration, and the pipes of MPS are not included.

Source: NVIDIA driver README, "Installed components"; CUDA images' environment; Vulkan and libglvnd loaders' documents.
"""

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from hostdevices.tree import Folder
from userspace.elf import NotElf, soname

LIBRARIES, TOOLS = "/usr/local/nvidia/lib64", "/usr/local/nvidia/bin"

_MACHINES = ("x86_64-linux-gnu", "aarch64-linux-gnu")
LIBRARY_FOLDERS = (
    "/usr/lib64",
    *(f"/usr/lib/{machine}{below}" for machine in _MACHINES for below in ("", "/nvidia/current")),
    "/usr/lib",
    "/lib64",
    *(f"/lib/{machine}" for machine in _MACHINES),
)
_TOOL_FOLDERS = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/bin", "/sbin")
_TOOLS = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
)
_OTHER_LIBRARIES = re.compile(r"libnvidia-(egl-(gbm|wayland2?|xcb|xlib)|nvvm70)\.so\.[0-9.]+")
_VERSIONED_LIBRARY = re.compile(r"libcuda\.so\.([0-9]+(?:\.[0-9]+)+)")
_SHARED = (  # below the host's /etc or /usr/share, and the folder in containers
    ("vulkan/icd.d", re.compile(r"nvidia_icd[a-z0-9_.]*\.json"), "/etc"),
    ("vulkan/implicit_layer.d", re.compile(r"nvidia_layers\.json"), "/etc"),
    ("OpenCL/vendors", re.compile(r"nvidia\.icd"), "/etc"),
    ("glvnd/egl_vendor.d", re.compile(r"[0-9]*_?nvidia\.json"), "/usr/share"),
    ("egl/egl_external_platform.d", re.compile(r"[0-9]*_?nvidia_[a-z0-9]+\.json"), "/usr/share"),
    ("nvidia", re.compile(r"nvoptix\.bin"), "/usr/share"),
)
_FIRMWARE = re.compile(r"gsp[a-z0-9_]*\.bin")
SOCKET_FOLDERS = ("/run/nvidia-persistenced", "/run/nvidia-fabricmanager")
_EXTRA_NAMES = {  # names that programs use although no library has them as its soname
    "libcuda.so.1": "libcuda.so",
    "libnvidia-opticalflow.so.1": "libnvidia-opticalflow.so",
}
_UNVERSIONED_NAME = re.compile(r"(libnvidia-vulkan-producer\.so)\.[0-9.]+")
_GBM = f"{LIBRARIES}/gbm/nvidia-drm_gbm.so", "libnvidia-allocator.so.1"  # in the folder that GBM_BACKENDS_PATH names
_INDIRECT = {"libGLX_nvidia.so.0": "libGLX_indirect.so.0"}


class InstalledDriver(Struct, frozen=True):
    """A driver's files: the host's path of each by its path in the container, and the links beside them."""

    version: str
    files: Mapping[str, str]
    links: Mapping[str, str]


def versions(root: Folder) -> tuple[str, ...]:
    """Return the versions of the drivers with libraries below `root`, sorted; dangling links do not count."""
    found = ((folder, _VERSIONED_LIBRARY.fullmatch(name)) for folder in LIBRARY_FOLDERS for name in root.names(folder))
    return tuple(sorted({x[1] for folder, x in found if x and root.resolve(f"{folder}/{x[0]}") is not None}))


def sockets(root: Folder) -> Iterator[str]:
    """Yield the existing sockets of the driver's services; programs use the same paths in containers."""
    for folder in SOCKET_FOLDERS:
        if "socket" in root.names(folder):
            yield f"{folder}/socket"


def folders(version: str) -> Iterator[str]:
    """Yield all folders that can contain files of a driver."""
    yield from LIBRARY_FOLDERS
    yield from (f"{folder}/vdpau" for folder in LIBRARY_FOLDERS)
    yield from _TOOL_FOLDERS
    yield from (f"{place}/{below}" for below, _, _ in _SHARED for place in ("/etc", "/usr/share"))
    yield f"/lib/firmware/nvidia/{version}"


def find(root: Folder, prefix: str, version: str) -> InstalledDriver:
    """Return the driver's files of a version below `root`, which is `prefix` on this machine. Raises OSError."""
    files: dict[str, str] = {}
    links: dict[str, str] = {}

    def add_file(folder: str, name: str, inside: str) -> str:
        """Add a file, following links below the root; return its path."""
        real = root.resolve(f"{folder}/{name}")
        if real is not None and f"{inside}/{name}" not in files:
            files[f"{inside}/{name}"] = f"{prefix}{real}"
            return f"{prefix}{real}"
        return ""

    for folder in (y for x in LIBRARY_FOLDERS for y in (x, f"{x}/vdpau")):
        for name in sorted(root.names(folder)):
            if not (name.endswith(f".so.{version}") or _OTHER_LIBRARIES.fullmatch(name)):
                continue
            if root.target(f"{folder}/{name}") is not None and _OTHER_LIBRARIES.fullmatch(name):
                continue  # the link with the name of its soname
            if source := add_file(folder, name, LIBRARIES):
                links.update(_links(source, name))
    for name in _TOOLS:
        for folder in _TOOL_FOLDERS:
            add_file(folder, name, TOOLS)
    for below, pattern, place in _SHARED:
        for folder in (f"/etc/{below}", f"/usr/share/{below}"):
            for name in sorted(filter(pattern.fullmatch, root.names(folder))):
                add_file(folder, name, f"{place}/{below}")
    firmware = f"/lib/firmware/nvidia/{version}"
    for name in sorted(filter(_FIRMWARE.fullmatch, root.names(firmware))):
        add_file(firmware, name, firmware)
    return InstalledDriver(version, files, {path: to for path, to in links.items() if path not in files})


def _links(source: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield the links by which programs find a library."""
    if plain := _UNVERSIONED_NAME.fullmatch(name):
        yield f"{LIBRARIES}/{plain[1]}", name
    try:
        known_as = soname(source)
    except NotElf:
        return  # the library is present, but its soname is unknown
    if known_as in ("", name):
        return
    yield f"{LIBRARIES}/{known_as}", name
    if known_as in _EXTRA_NAMES:
        yield f"{LIBRARIES}/{_EXTRA_NAMES[known_as]}", known_as
    if known_as == _GBM[1]:
        yield _GBM[0], f"../{known_as}"
    if known_as in _INDIRECT:
        yield f"{LIBRARIES}/{_INDIRECT[known_as]}", name
