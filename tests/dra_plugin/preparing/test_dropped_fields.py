"""An API server that drops fields of slices is reported in the status for as long as it does."""

from pathlib import Path

import pytest

from controlplane.apiserver import Server
from tests.dra_plugin.preparing.cluster import ApiProxy
from tests.dra_plugin.preparing.node import node_in
from tests.dra_plugin.preparing.world import NODE
from tests.dra_plugin.publishing.slices.kit import Plain, drop_fields
from tests.running import until


async def test_warning_about_dropped_fields_lasts_while_they_are_dropped(
    socket_dir: Path,
    server: Server,
    proxy: ApiProxy,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dra_plugin.plugin._REGISTRATION_TIMEOUT", 0.0)  # no kubelet registers the driver

    def drop(spec: Plain) -> None:
        for each in spec.get("devices") or ():
            each.pop("attributes", None)

    drop_fields(server, drop)
    server.write({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    async with node_in(socket_dir, proxy.client) as node:
        await until(lambda: "some fields were dropped" in caplog.text)
        warnings = [x for x in caplog.records if "some fields were dropped" in x.getMessage()]
        assert warnings[0].__dict__["is_current"]()
        node.offer({})
        await until(lambda: not warnings[0].__dict__["is_current"]())
