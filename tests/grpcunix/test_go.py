"""grpc-go as client of our server and as server of our channel: the benchmarks' probe acts as the kubelet."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROBE = Path(os.environ.get("NODEPLUG_BASELINES", Path.home() / ".cache/nodeplug-baselines")) / "probe"


@pytest.mark.skipif(not PROBE.exists(), reason="the baselines are not built (NODEPLUG_BASELINES)")
def test_grpc_go_client_has_every_call_answered() -> None:
    sizes = [
        "-resources",
        "3",
        "-devices",
        "500",
        "-calls",
        "100",
        "-throughput",
        "300ms",
        "-idle",
        "0",
        "-settle",
        "0",
    ]
    plugin = [sys.executable, "-m", "bench.bare_plugin", "{dir}", "builtin", "3", "500"]
    done = subprocess.run(
        [str(PROBE), *sizes, "-skip-restart", "--", *plugin], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["allocate_sequential"]["errors"], found["throughput"]["errors"]) == (0, 0)
