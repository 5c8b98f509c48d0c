"""The image: reproducible, with the expected content and labels. The real node (tests/e2e) shows that it runs."""

import gzip
import hashlib
import io
import json
import stat
import sys
import tarfile
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest

from deploy.image import debian, oci, sbom, wheels

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with a program, a file, a link, and a world-writable folder."""
    root = tmp_path / "tree"
    for name, mode in (("b/program", 0o755), ("a/file", 0o664)):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(name)
        (root / name).chmod(mode)
    (root / "link").symlink_to("a/file")
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    return root


class Image:
    """An archive, read by digest as a runtime does."""

    def __init__(self, archive: Path) -> None:
        with tarfile.open(archive) as tar:
            files = ((each.name, tar.extractfile(each)) for each in tar)
            self._files = {name: file.read() for name, file in files if file}
        (self.entry,) = json.loads(self._files["index.json"])["manifests"]
        self._manifest = json.loads(self._blob(self.entry["digest"]))
        self.config = json.loads(self._blob(self._manifest["config"]["digest"]))

    def _blob(self, digest: str) -> bytes:
        data = self._files["blobs/sha256/" + digest.removeprefix("sha256:")]
        assert f"sha256:{hashlib.sha256(data).hexdigest()}" == digest
        return data

    def layer(self, number: int) -> list[tarfile.TarInfo]:
        data = gzip.decompress(self._blob(self._manifest["layers"][number]["digest"]))
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            return list(tar)


def test_image_is_reproducible_and_read_only(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    config = {"Entrypoint": ["/b/program"]}
    outs = [tmp_path / "one.tar", tmp_path / "two.tar"]
    for out in outs:
        (tree / "a/file").touch()  # the file's age must not matter
        oci.write(out, "some/name:1", [oci.tree_layer(tree)], config, architecture="arm64")
    assert outs[0].read_bytes() == outs[1].read_bytes()
    image = Image(outs[0])
    assert image.entry["annotations"]["io.containerd.image.name"] == "some/name:1"
    assert (image.config["architecture"], image.config["config"]) == ("arm64", config)
    assert image.config["created"] == "2023-11-14T22:13:20Z"
    found = {each.name: (stat.filemode(each.mode), each.uid, each.mtime) for each in image.layer(0) if not each.issym()}
    assert found == {
        name: (mode, 0, 1700000000)
        for name, mode in {
            ".": "?r-xr-xr-x",
            "./a": "?r-xr-xr-x",
            "./a/file": "?r--r--r--",
            "./b": "?r-xr-xr-x",
            "./b/program": "?r-xr-xr-x",
            "./tmp": "?rwxrwxrwt",
        }.items()
    }


@pytest.mark.parametrize("architecture", wheels.PLATFORMS)
def test_locks_name_every_package_with_hashes(architecture: str) -> None:
    debs = debian.read_lock(architecture)
    assert {deb.name for deb in debs} == set(debian.PACKAGES), "make lock"
    assert all(len(deb.sha256) == 64 for deb in debs)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for lock, needed in (
        (wheels.LOCK, project["dependencies"]),
        (wheels.TRACING_LOCK, project["optional-dependencies"]["tracing"]),
    ):
        locked = [line for line in lock.read_text().splitlines() if not line.startswith("#")]
        assert all(" --hash=sha256:" in line for line in locked)
        names = {line.partition("==")[0].lower() for line in locked}
        assert {each.partition(">")[0].lower() for each in needed} <= names, "make lock"


def test_bill_of_materials_names_debian_and_python_packages(tmp_path: Path) -> None:
    status = tmp_path / "var/lib/dpkg/status.d"
    status.mkdir(parents=True)
    (status / "libc").write_text("Package: libc6\nVersion: 2.36+x\nArchitecture: amd64\nDescription: C\n more\n")
    site = next(path for path in sys.path if any(x.name == "nodeplug" for x in distributions(path=[path])))
    first, again = (sbom.document(tmp_path, Path(site), architecture="amd64") for _ in range(2))
    assert first == again
    found = json.loads(first)
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    purls = [each["purl"] for each in found["components"]]
    assert "pkg:deb/debian/libc6@2.36%2Bx?arch=amd64&distro=debian-12" in purls
    assert [purl for purl in purls if purl.startswith("pkg:pypi/typing-extensions@")]
    assert all(purl.count("@") == 1 for purl in purls)
