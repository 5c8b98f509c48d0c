"""Programs in Go that tests build, and keep as long as their sources are the same."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest


def built(sources: Path, name: str) -> Path:
    """Return the folder of the programs of a module in `sources`; it lies as `name` in the user's cache.

    Skips the test without Go, and where a module is needed that its proxy does not give.
    """
    cache = Path.home() / ".cache" / name
    go = shutil.which("go")
    if go is None:
        pytest.skip("needs Go in PATH")
    told = hashlib.sha256()
    for file in sorted(path for path in sources.rglob("*") if path.is_file()):
        told.update(file.read_bytes())
    folder = cache / told.hexdigest()[:16]
    if not folder.is_dir():
        shutil.rmtree(cache, ignore_errors=True)  # of older sources
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
