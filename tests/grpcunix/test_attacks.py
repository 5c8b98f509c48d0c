"""Attacks on a server in a process of its own: what they cost is bounded, and others are served. See `attacks`."""

import pytest

from tests.grpcunix.attacks import ATTACKS, target


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_costs_little_and_others_are_served(name: str) -> None:
    with target("builtin") as found:
        outcome = ATTACKS[name](found, 0.2)
        assert outcome.memory < 10
        assert outcome.answers  # each of them came; how soon is for who runs `attacks` by hand
        assert outcome.is_closed == (name.startswith("flood") or name == "calls that are reset")
