"""A made-up driver root; its libraries are real ELF files of a few hundred bytes."""

import struct
from pathlib import Path

ETC, SHARE = "/etc/vulkan/icd.d/nvidia_icd.json", "/usr/share/glvnd/egl_vendor.d/10_nvidia.json"


def library(soname: str) -> bytes:
    """A 64-bit shared object whose dynamic section contains only its soname."""
    strings = b"\0" + soname.encode() + b"\0"
    start, base = 64 + 2 * 56, 0x1000
    entries = [(5, base + start + 48), (14, 1), (0, 0)] if soname else [(0, 0)] * 3
    dynamic = b"".join(struct.pack("<qQ", *entry) for entry in entries)
    size = start + len(dynamic) + len(strings)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 4, 0, base, base, size, size, 4096)
    linked = struct.pack("<IIQQQQQQ", 2, 4, start, base + start, base + start, len(dynamic), len(dynamic), 8)
    return header + load + linked + dynamic + strings


def put(path: Path, content: bytes = b"") -> None:
    """Replace a file, as a package manager does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def install(root: Path, version: str, libraries: str = "usr/lib/x86_64-linux-gnu") -> None:
    """Install a driver below `root`."""
    folder = root / libraries
    for name, soname in {
        f"libcuda.so.{version}": "libcuda.so.1",
        f"libnvidia-ml.so.{version}": "libnvidia-ml.so.1",
        f"libnvidia-ptxjitcompiler.so.{version}": "libnvidia-ptxjitcompiler.so.1",
        f"libnvidia-glcore.so.{version}": f"libnvidia-glcore.so.{version}",
        f"libGLX_nvidia.so.{version}": "libGLX_nvidia.so.0",
        f"vdpau/libvdpau_nvidia.so.{version}": "libvdpau_nvidia.so.1",
        "libnvidia-egl-gbm.so.1.1.1": "libnvidia-egl-gbm.so.1",
        "libc.so.6": "libc.so.6",
    }.items():
        put(folder / name, library(soname))
    for link in ("libcuda.so.1", "libnvidia-egl-gbm.so.1"):
        (folder / link).unlink(missing_ok=True)
    (folder / "libcuda.so.1").symlink_to(f"libcuda.so.{version}")
    (folder / "libnvidia-egl-gbm.so.1").symlink_to("libnvidia-egl-gbm.so.1.1.1")
    put(root / "usr/lib/nvidia/current/nvidia-smi", b"#!")
    (root / "usr/bin").mkdir(parents=True, exist_ok=True)
    (root / "usr/bin/nvidia-smi").unlink(missing_ok=True)
    (root / "usr/bin/nvidia-smi").symlink_to("/usr/lib/nvidia/current/nvidia-smi")  # an absolute link
    put(root / "usr/bin/nvidia-modprobe", b"setuid")
    put(root / f"lib/firmware/nvidia/{version}/gsp_ga10x.bin", b"firmware")
    for path in (ETC, SHARE):
        put(root / path[1:], b"{}")


def remove(root: Path, version: str) -> None:
    """Remove a driver's libraries, as an upgrade does."""
    for path in root.rglob(f"*.so.{version}"):
        path.unlink()
