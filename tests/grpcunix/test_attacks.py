"""Attacks on a server in another process: their cost is bounded, and other clients are served. See `attacks`."""

import pytest

from grpcunix.http2 import frames
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.grpcunix.attacks import ATTACKS, DEVICES, request, target


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_costs_little_memory_and_other_clients_are_served(name: str) -> None:
    is_cut_off = name.startswith("flood") or name == "reset calls"
    with target("builtin") as found:
        outcome = ATTACKS[name](found, 30 if is_cut_off else 0.2)  # it ends when the attacker is disconnected
        assert outcome.memory < (30 if name == "10,000 connections" else 10)
        assert outcome.answers  # all were answered; for their delays, run `attacks`
        assert outcome.is_closed == is_cut_off


def test_slow_reader_gets_the_whole_list_and_other_clients_are_served() -> None:
    with target("builtin") as found, found.connect() as reader, reader.makefile("rb") as file:
        reader.sendall(frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: 1_000}) + request(1, "ListAndWatch"))
        listed, answered = bytearray(), 0
        while len(listed) < 5 or len(listed) < 5 + int.from_bytes(listed[1:5], "big"):
            word, _, stream = frames.HEADER.unpack(file.read(9))
            payload = file.read(word >> 8)
            if word & 0xFF == frames.DATA:
                listed += payload
                reader.sendall(frames.window_update(0, len(payload)) + frames.window_update(stream, len(payload)))
                if len(listed) > 10_000 * answered:
                    found.answer()
                    answered += 1
        assert len(api.ListAndWatchResponse.FromString(bytes(listed[5:])).devices) == DEVICES
