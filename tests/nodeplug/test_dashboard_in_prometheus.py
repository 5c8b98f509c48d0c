"""The dashboard's queries and the alerts in a real Prometheus that scrapes a daemon as the PodMonitor says."""

import asyncio
import contextlib
import json
import re
import shutil
import socket
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubelet.node import Node
from tests.nodeplug.conftest import StartDaemon, pod
from tests.project.test_monitoring import ALERTS, DASHBOARD, MONITORING, RULES

_TARGET = {"node": "n1", "namespace": "nodeplug", "pod": "nodeplug-x", "container": "nodeplug"}
"""The labels of a pod from Prometheus' operator and the PodMonitor."""


def _port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _relabeling(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a relabeling rule of the PodMonitor in Prometheus' own format."""
    names = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    return {names.get(name, name): value for name, value in rule.items()}


@contextlib.asynccontextmanager
async def _prometheus(folder: Path, scraped: int) -> AsyncIterator[str]:
    (endpoint,) = yaml.safe_load((MONITORING / "podmonitor.yaml").read_text())["spec"]["podMetricsEndpoints"]
    job = {
        "job_name": "nodeplug",
        "scrape_interval": "200ms",
        "static_configs": [{"targets": [f"127.0.0.1:{scraped}"], "labels": _TARGET}],
        "metric_relabel_configs": [_relabeling(rule) for rule in endpoint["metricRelabelings"]],
    }
    config = {"scrape_configs": [job], "rule_files": ["rules.yaml"]}
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    (folder / "rules.yaml").write_text(yaml.safe_dump(RULES))
    port = _port()
    process = await asyncio.create_subprocess_exec(
        "prometheus",
        f"--config.file={folder}/prometheus.yaml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}/api/v1"
    finally:
        process.kill()
        await process.wait()


async def _result(api: str, query: str) -> list[dict[str, Any]]:
    def ask() -> list[dict[str, Any]]:
        url = f"{api}/query?{urllib.parse.urlencode({'query': query})}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return found

    return await asyncio.to_thread(ask)


async def _first(api: str, query: str) -> list[dict[str, Any]]:
    """Wait until a query has a result, and return it."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(OSError):  # Prometheus is not running yet
                if found := await _result(api, query):
                    return found
            await asyncio.sleep(0.05)  # no event reports a scrape


async def test_every_panel_and_alert_query_is_evaluated(start: StartDaemon, socket_dir: Path, tmp_path: Path) -> None:
    if not shutil.which("prometheus"):
        pytest.skip("no prometheus on this machine")
    port = _port()
    async with Node(socket_dir) as node, _prometheus(tmp_path, port) as api:
        await start(metricsAddress=f"127.0.0.1:{port}", nodeName="n1")
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
        assert (await node.admit(pod("a"))).phase == "Running"
        (lease,) = await _first(api, 'nodeplug_lease_info{lease_pod="a"}')
        labels = {
            name: lease["metric"].get(name) for name in ("node", "lease_namespace", "lease_container", "resource")
        }
        assert labels == {
            "node": "n1",
            "lease_namespace": "default",
            "lease_container": "c",
            "resource": "example.com/fuse",
        }
        assert lease["metric"]["pod"] == "nodeplug-x"
        for panel in DASHBOARD["panels"]:
            for target in panel["targets"]:
                query = re.sub(r"\$(node|resource)", ".*", target["expr"].replace("$__rate_interval", "1m"))
                if re.search("_dra_.*_bucket|> 0$", query):  # DRA is not used here, and there are no errors
                    await _result(api, query)
                else:
                    assert await _first(api, query), panel["title"]
        for alert in ALERTS:
            await _result(api, alert["expr"])
