"""Shipped third-party software: licences, their texts, and known vulnerabilities."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from deploy import audit, debian_package, licences
from deploy.image import wheels

SITE = next(Path(path) for path in sys.path if path.endswith("site-packages"))


def installed(folder: Path, name: str, metadata: str, **files: str) -> Path:
    """Create a distribution in a folder, with files of its `.dist-info`."""
    info = folder / f"{name}-1.0.dist-info"
    (info / "licenses").mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n{metadata}\n")
    for file, text in files.items():
        (info / "licenses" / file).write_text(text)
    return info


def test_every_locked_library_has_an_allowed_licence_and_its_text() -> None:
    assert list(audit.licence_problems()) == []
    assert len(audit.pinned()) > 20


def test_every_pin_is_exact_and_has_hashes() -> None:
    for lock in (wheels.LOCK, wheels.TRACING_LOCK):
        for line in lock.read_text().splitlines()[1:]:
            pin, *hashes = line.split()
            assert pin.count("==") == 1
            assert hashes
            assert all(len(x) == len("--hash=sha256:") + 64 for x in hashes)


@pytest.mark.parametrize(
    ("metadata", "files", "says"),
    [
        ("License-Expression: MIT", {"LICENSE": "text"}, []),
        ("License-Expression: GPL-3.0-only OR MIT", {"LICENSE": "text"}, []),
        ("License-Expression: MIT AND GPL-3.0-only", {"LICENSE": "text"}, ["MIT AND GPL-3.0-only, which is not"]),
        ("License-Expression: GPL-3.0-only", {"COPYING": "text"}, ["GPL-3.0-only, which is not on the list"]),
        ("License: 3-Clause BSD License", {"LICENSE": "text"}, []),
        ("Classifier: License :: OSI Approved :: MIT License", {"NOTICE": "text"}, []),
        ("License: whatever you like", {"LICENSE": "text"}, ["declares no known licence"]),
        ("License-Expression: MIT", {"LICENSE": ""}, ["has no licence text"]),
        ("", {}, ["declares no known licence", "has no licence text"]),
    ],
)
def test_library_without_allowed_licence_or_text_is_refused(
    tmp_path: Path, metadata: str, files: dict[str, str], says: list[str]
) -> None:
    installed(tmp_path, "example", metadata, **files)
    found = list(licences.problems(list(licences.libraries(tmp_path))))
    assert len(found) == len(says)
    assert all(part in words for part, words in zip(says, found, strict=True))
    if says:
        with pytest.raises(SystemExit, match="must not be shipped"):
            licences.check(tmp_path)
    else:
        licences.check(tmp_path)


def test_debian_package_not_free_or_without_copyright_is_refused(tmp_path: Path) -> None:
    status = tmp_path / "var/lib/dpkg/status.d"
    status.mkdir(parents=True)
    for name, section in (("libc6", "libs"), ("firmware", "non-free-firmware/kernel"), ("bare", "libs")):
        (status / name).write_text(f"Package: {name}\nSection: {section}\n")
    for name in ("libc6", "firmware"):
        (tmp_path / "usr/share/doc" / name).mkdir(parents=True)
        (tmp_path / "usr/share/doc" / name / "copyright").write_text("text")
    with pytest.raises(SystemExit) as refused:
        licences.check_debian(tmp_path)
    first, second = str(refused.value).splitlines()
    assert first == "bare has no copyright file"
    assert second.startswith("firmware is not of Debian's main section")


def test_debian_copyright_file_lists_bundled_libraries(tmp_path: Path) -> None:
    installed(tmp_path / "site", "example", "License-Expression: MIT", LICENSE="text of it")
    package = debian_package.write(tmp_path / "site", tmp_path, "amd64", "1.2.3")
    subprocess.run(["dpkg-deb", "-R", package, tmp_path / "root"], check=True)
    text = (tmp_path / "root/usr/share/doc/nodeplug/copyright").read_text()
    assert "example 1.0: MIT\n    example-1.0.dist-info/licenses/LICENSE\n" in text
    assert "Apache License" in text
    shipped = tmp_path / "root/opt/nodeplug/lib/example-1.0.dist-info/licenses/LICENSE"
    assert shipped.read_text() == "text of it"


def fake_pip_audit(folder: Path, text: str, code: int = 0) -> str:
    """A program that prints this text instead of pip-audit."""
    program = folder / "pip-audit"
    (folder / "answer").write_text(text)
    program.write_text(f"#!/bin/sh\ncat {folder}/answer\necho broken >&2\nexit {code}\n")
    program.chmod(0o755)
    return str(program)


def test_audit_distinguishes_vulnerabilities_from_failed_queries(tmp_path: Path) -> None:
    well = [{"name": pin.partition("==")[0], "version": "1", "vulns": []} for pin in audit.pinned()]
    assert list(audit.vulnerabilities(fake_pip_audit(tmp_path, json.dumps({"dependencies": well})))) == []

    ill = [dict(well[0], vulns=[{"id": "PYSEC-1", "fix_versions": ["2.0"]}]), *well[1:]]
    (known,) = audit.vulnerabilities(fake_pip_audit(tmp_path, json.dumps({"dependencies": ill}), 1))
    assert known == (True, f"{well[0]['name']} 1: PYSEC-1, fixed in 2.0")

    skipped = [*well[1:], {"name": well[0]["name"], "skip_reason": "not found"}]
    (unchecked,) = audit.vulnerabilities(fake_pip_audit(tmp_path, json.dumps({"dependencies": skipped})))
    assert not unchecked.is_known
    assert unchecked.message.startswith(f"advisories of 1 of {len(well)} libraries")
    assert unchecked.message.endswith(": not found")

    for program in (fake_pip_audit(tmp_path, "no JSON", 1), str(tmp_path / "nowhere")):
        (failed,) = audit.vulnerabilities(program)
        assert not failed.is_known
