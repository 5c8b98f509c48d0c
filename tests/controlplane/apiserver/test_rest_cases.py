"""Recorded requests to a real API server, sent to our server: the answers must be equal."""

import importlib.util
import json
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from resourceapi.objects.release import RELEASES
from tests.cases import recorded_at
from tests.controlplane.apiserver.running import Running

_CASES = recorded_at("rest")
_SKIP_REASONS = {
    "discovery": "serverAddressByClientCIDRs says where the server listens",
    "watch/changes": "ages in the rows of later tables depend on when it is asked",
}
"""The scenarios that differ, with the reason; docs/apiserver.md has the same list."""


def _scenarios() -> list[dict[str, Any]]:
    file = _CASES / "cases.json"
    found: list[dict[str, Any]] = json.loads(file.read_text())["cases"] if file.exists() else []
    return found


@pytest.fixture(scope="module")
def replay() -> types.ModuleType:
    """The replay program that belongs to the recorded scenarios."""
    if not _scenarios():
        pytest.skip(f"no recorded scenarios at {_CASES}")
    spec = importlib.util.spec_from_file_location("rest_replay", _CASES / "rest_replay.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def target(replay: types.ModuleType) -> Iterator[Any]:
    """Our server without a garbage collector, because the real server was recorded without controllers."""
    with _served(replay) as server:
        yield server


@pytest.fixture(scope="module")
def without_prototype(replay: types.ModuleType) -> Iterator[Any]:
    """Our server without the prototype's kinds, because scenarios about definitions use the same group."""
    with _served(replay, definitions=()) as server:
        yield server


@contextmanager
def _served(replay: types.ModuleType, **options: Any) -> Iterator[Any]:
    with Running(collect_after=None, release=RELEASES["1.36"], **options) as running:
        running.server.store.load(1_000_000, ())  # the replay would confuse a small version with other equal numbers
        server = replay.Server(running.url, running.server.token)
        yield server
        if server.conn is not None:
            server.conn.close()


@pytest.mark.parametrize("scenario", _scenarios(), ids=lambda scenario: scenario["name"])
def test_recorded_scenario_gets_recorded_answers(
    replay: types.ModuleType, target: Any, without_prototype: Any, scenario: dict[str, Any]
) -> None:
    """Status, headers and bodies of all answers agree, except for times, uids and versions."""
    if scenario["name"] in _SKIP_REASONS:
        pytest.skip(_SKIP_REASONS[scenario["name"]])
    if scenario["name"].startswith("crd/"):
        target = without_prototype
        scenario = {**scenario, "steps": [{"wait": 0} if "wait" in each else each for each in scenario["steps"]]}
    differences = list(replay.differences(scenario["answers"], replay.run(target, scenario)))
    assert not differences, "\n".join(differences)
