"""Go programs that tests build, and keep until their sources change."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest


def built(sources: Path, name: str) -> Path:
    """Return the folder of the programs of a module in `sources`; it is `name` in the user's cache.

    Skips the test without Go, or if the proxy does not provide a needed module.
    """
    cache = Path.home() / ".cache" / name
    go = shutil.which("go")
    if go is None:
        pytest.skip("needs Go in PATH")
    digest = hashlib.sha256()
    for file in sorted(path for path in sources.rglob("*") if path.is_file()):
        digest.update(file.read_bytes())
    folder = cache / digest.hexdigest()[:16]
    if not folder.is_dir():
        shutil.rmtree(cache, ignore_errors=True)  # built from older sources
        draft = folder.with_suffix(".draft")
        draft.mkdir(parents=True)
        environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"}
        command = [go, "build", "-trimpath", "-o", str(draft), "./..."]
        done = subprocess.run(command, cwd=sources, env=environment, capture_output=True, text=True, check=False)
        if done.returncode and ("dial tcp" in done.stderr or "proxy" in done.stderr):
            pytest.skip(f"needs Go's module proxy once: {done.stderr.strip().splitlines()[-1]}")
        assert done.returncode == 0, done.stderr
        draft.rename(folder)
    return folder
