"""Debian packages of pinned versions, for any architecture. Uses apt without changing this machine's own packages.

The lock contains each package's architecture, version and SHA-256; `python -m deploy.image.lock` writes it.
"""

import hashlib
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

PACKAGES = (
    "gcc-12-base",
    "libbz2-1.0",
    "libc6",
    "libexpat1",
    "libffi8",
    "libgcc-s1",
    "liblzma5",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libsqlite3-0",
    "libssl3",
    "libstdc++6",
    "libuuid1",
    "media-types",
    "python3.11-minimal",
    "zlib1g",
)
"""Python, and the libraries that its modules load."""

LOCK = Path(__file__).with_name("debian.lock")


class Deb(NamedTuple):
    """A line of the lock."""

    architecture: str
    name: str
    version: str
    sha256: str


def read_lock(architecture: str) -> list[Deb]:
    """Return the Debian packages of the image for this architecture."""
    lines = (line.split() for line in LOCK.read_text().splitlines() if not line.startswith("#"))
    return [deb for deb in (Deb(*line) for line in lines) if deb.architecture == architecture]


class Apt:
    """apt with this machine's sources but separate package lists, for any architecture."""

    def __init__(self, folder: Path, architecture: str) -> None:
        """Keep lists and packages in `folder`."""
        self._folder = folder.resolve() / f"apt-{architecture}"
        state, cache = self._folder / "state", self._folder / "cache"
        self._options = [
            f"-oDir::State={state}",
            f"-oDir::State::status={state}/status",
            f"-oDir::Cache={cache}",
            f"-oAPT::Architecture={architecture}",
            f"-oAPT::Architectures={architecture}",
            "-oAPT::Sandbox::User=root",
            "-oAcquire::Languages=none",
        ]
        self._has_lists = False

    def newest(self, names: tuple[str, ...]) -> dict[str, tuple[str, str]]:
        """Return version and SHA-256 of each package that the sources have now."""
        self._update()
        show = ["apt-cache", *self._options, "show", "--no-all-versions", *names]
        found = {}
        for entry in subprocess.run(show, check=True, capture_output=True, text=True).stdout.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in entry.splitlines() if line[:1].strip() and ": " in line)
            if fields:
                found[fields["Package"]] = fields["Version"], fields["SHA256"]
        return found

    def fetch(self, deb: Deb) -> Path:
        """Return the package's file, downloaded if necessary.

        Raises SystemExit if the sources do not have this version any more, or have a different file for it.
        """
        file = self._folder / "debs" / deb.sha256 / f"{deb.name}.deb"
        if file.exists():
            return file
        self._update()
        file.parent.mkdir(parents=True, exist_ok=True)
        command = ["apt-get", "-qq", *self._options, "download", f"{deb.name}={deb.version}"]
        done = subprocess.run(command, cwd=file.parent, check=False, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(
                f"{deb.name} {deb.version} is in {LOCK.name}, but this machine's apt sources, which must be "
                f"Debian 12's, do not have it; if Debian has a newer one, `make lock` pins it:\n{done.stderr}"
            )
        (got,) = file.parent.glob("*.deb")
        if hashlib.sha256(got.read_bytes()).hexdigest() != deb.sha256:
            got.unlink()
            raise SystemExit(f"{deb.name} {deb.version} is not the file of {LOCK.name}: its SHA-256 differs")
        return got.rename(file)

    def _update(self) -> None:
        if self._has_lists:
            return
        for folder in ("state/lists/partial", "cache/archives/partial"):
            (self._folder / folder).mkdir(parents=True, exist_ok=True)
        (self._folder / "state/status").touch()
        subprocess.run(["apt-get", "-qq", *self._options, "update"], check=True)
        self._has_lists = True


def unpack(debs: list[Path], root: Path) -> None:
    """Unpack packages below `root`, without their documentation but with their licences.

    Lists the packages in var/lib/dpkg/status.d, where scanners find them in images without dpkg.
    """
    status = root / "var/lib/dpkg/status.d"
    status.mkdir(parents=True)
    for deb in debs:
        subprocess.run(["dpkg-deb", "-x", deb, root], check=True)
        control = subprocess.run(["dpkg-deb", "-f", deb], check=True, capture_output=True, text=True).stdout
        (status / deb.stem).write_text(control)
    for path in sorted(root.glob("usr/share/doc/*/*")):
        if path.name != "copyright" and not path.parent.is_symlink():
            path.unlink()
    unused = ("usr/share/man", "usr/share/lintian", "usr/share/doc-base", "usr/share/binfmts", "usr/share/apps", "etc")
    gconv = [str(path.relative_to(root)) for path in root.glob("usr/lib/*/gconv")]
    stdlib = ("lib2to3", "pydoc_data", "distutils", "ensurepip")
    subprocess.run(
        ["rm", "-rf", *unused, *gconv, *(f"usr/lib/python3.11/{name}" for name in stdlib)], cwd=root, check=True
    )


def python(root: Path) -> list[str]:
    """Return the command that runs the Python below `root` with only the libraries there.

    `root` must be of this machine's architecture.
    """
    (loader,) = root.glob("lib/*-linux-gnu/ld-linux-*.so.*")
    libraries = [str(path) for above in ("lib", "usr/lib") for path in root.glob(f"{above}/*-linux-gnu")]
    return [str(loader), "--library-path", os.pathsep.join(libraries), str(root / "usr/bin/python3.11")]
