"""Build nodeplug's OCI image, without a container engine: python -m deploy.image WHEEL OUT.oci.tar.

The image contains Debian's Python (debian.lock), the libraries (requirements.lock) and the wheel, but no shell and no
package manager; only /tmp is writable. The same inputs give the same bytes. OUT.cdx.json, in the same folder, is the
bill of materials.
"""

import argparse
import platform
import shutil
import subprocess
from pathlib import Path

from deploy import licences
from deploy.image import debian, oci, sbom, wheels

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SITE = "usr/lib/nodeplug"
_CONFIG = {
    "Env": ["PATH=/usr/bin", f"PYTHONPATH=/{SITE}", "PYTHONDONTWRITEBYTECODE=1", "LANG=C.UTF-8"],
    "Entrypoint": ["/usr/bin/nodeplug"],
    "Cmd": ["run", "--config", "/etc/nodeplug/config.yaml"],
    "User": "0:0",
}
_ENTRYPOINT = "#!/usr/bin/python3\nfrom nodeplug.__main__ import main\n\nmain()\n"
_FOLDERS = ("dev", "etc", "proc", "run", "sys", "tmp", "var")


def main() -> None:
    """Build the image that the command line describes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--architecture", default="amd64", choices=sorted(wheels.PLATFORMS))
    parser.add_argument("--name", help="repository:tag; default localhost/nodeplug:VERSION")
    options = parser.parse_args()
    build(options.wheel.resolve(), options.out, options.architecture, options.name)


def build(wheel: Path, out: Path, architecture: str, name: str | None = None) -> None:
    """Write the image and its bill of materials."""
    work = ROOT / "build/image"
    system, program = _empty(work / architecture / "system"), _empty(work / architecture / "program")
    _system(work, system, architecture)
    wheels.install(architecture, program / SITE, wheel)
    shutil.copy(HERE / "find_library.py", program / SITE / "sitecustomize.py")
    copyright_file = program / "usr/share/doc/nodeplug/copyright"
    copyright_file.parent.mkdir(parents=True)
    copyright_file.write_text(licences.notices(program / SITE, f"/{SITE}"))
    entrypoint = program / "usr/bin/nodeplug"
    entrypoint.parent.mkdir(parents=True)
    entrypoint.write_text(_ENTRYPOINT)
    entrypoint.chmod(0o755)
    native = system
    if wheels.PLATFORMS[architecture] != platform.machine():
        native = _empty(work / "native")
        (own,) = (each for each, machine in wheels.PLATFORMS.items() if machine == platform.machine())
        _system(work, native, own)
    _compile(native, system, "usr/lib/python3.11")
    _compile(native, program, SITE)
    version = wheel.name.split("-")[1]
    labels = {"org.opencontainers.image.title": "nodeplug", "org.opencontainers.image.version": version}
    labels["org.opencontainers.image.licenses"] = "Apache-2.0"
    layers = [oci.tree_layer(system), oci.tree_layer(program)]
    oci.write(out, name or f"localhost/nodeplug:{version}", layers, _CONFIG, architecture=architecture, labels=labels)
    bill = out.with_name(out.name.removesuffix(".oci.tar") + ".cdx.json")
    bill.write_bytes(sbom.document(system, program / SITE, architecture=architecture))


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _system(work: Path, root: Path, architecture: str) -> None:
    apt = debian.Apt(work, architecture)
    debian.unpack([apt.fetch(deb) for deb in debian.read_lock(architecture)], root)
    licences.check_debian(root)
    for folder in _FOLDERS:
        (root / folder).mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "usr/bin/python3").symlink_to("python3.11")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/sbin/nologin\n")
    (root / "etc/group").write_text("root:x:0:\n")
    (root / "etc/os-release").write_text('NAME="Debian GNU/Linux"\nID=debian\nVERSION_ID="12"\n')


def _compile(native: Path, root: Path, folder: str) -> None:
    """Compile with the image's own Python, because the image is read-only and other Pythons can write other bytes.

    Column numbers are left out: tracebacks still have line numbers, and the daemon needs 0.3 MiB less.
    """
    command = [*debian.python(native), "-S", "-Xno_debug_ranges", "-m", "compileall", "-q"]
    environment = {"PYTHONHOME": str(native / "usr"), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    command += ["--invalidation-mode", "unchecked-hash", "-s", str(root), "-p", "/", str(root / folder)]
    subprocess.run(command, check=True, env=environment)


if __name__ == "__main__":
    main()
