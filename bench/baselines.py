"""The programs for comparison.

A Go plugin, a probe that acts as the kubelet, and upstream's allocator are not part of this project. The Go driver is
that of `examples/go` (`go build -o $NODEPLUG_BASELINES/dra-driver ./dra-driver` there).

`$NODEPLUG_BASELINES` is the folder of the built programs.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from bench.table import LeftOut

FOLDER = Path(os.environ.get("NODEPLUG_BASELINES", Path.home() / ".cache/nodeplug-baselines"))


def program(name: str) -> Path:
    """Return the path of `goplugin`, `probe`, `allocbench` or `dra-driver`. Raises `LeftOut` if it is not built."""
    path = FOLDER / name
    if not path.exists():
        raise LeftOut(f"no {name} in {FOLDER}; build the baselines (Go) and set NODEPLUG_BASELINES to their folder")
    return path


def probe(size: list[str], command: list[str]) -> Any:
    """Run the probe as the kubelet of a plugin; return its measurements. Raises `LeftOut` without the probe."""
    done = subprocess.run(
        [str(program("probe")), *size, "-log", "/dev/null", "--", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"probe: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)
