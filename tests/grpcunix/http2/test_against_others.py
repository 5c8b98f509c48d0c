"""Our codec compared with the independent packages h2 and hpack: a few runs of `fuzz`."""

from collections.abc import Callable

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    RequestReceived,
    ResponseReceived,
    StreamEnded,
    TrailersReceived,
    WindowUpdated,
)
from h2.settings import SettingCodes

from grpcunix.http2 import ClientConnection, Ended, Limits, Message, Request, ServerConnection
from grpcunix.status import Status
from tests.grpcunix.http2 import fuzz

SIZES = [0, 1, 100, 16_379, 16_380, 70_000, 300_000]


@pytest.mark.parametrize("check", fuzz.CHECKS, ids=lambda check: check.__name__)
def test_random_input_has_the_same_result_in_h2_and_hpack(check: Callable[[int], str]) -> None:
    assert len(fuzz.run(check, range(500))) > 1  # some inputs are accepted and some refused


@pytest.mark.parametrize("size", SIZES)
def test_h2_client_is_served(size: int) -> None:
    server, client = ServerConnection(), H2Connection(H2Configuration(client_side=True, header_encoding=None))
    client.initiate_connection()
    client.send_headers(1, fuzz.GRPC_REQUEST)
    to_send = b"\0" + size.to_bytes(4, "big") + bytes(size)
    answer, trailers = b"", dict[bytes, bytes]()
    while not trailers:
        while to_send and (room := min(client.local_flow_control_window(1), client.max_outbound_frame_size)):
            client.send_data(1, to_send[:room], end_stream=len(to_send) <= room)
            to_send = to_send[room:]
        for event in server.receive(client.data_to_send()):
            assert isinstance(event, Request)
            assert event.message == bytes(size)
            server.respond(event.stream, event.message)
        while data := server.take():
            for received in client.receive_data(data):
                if isinstance(received, DataReceived):
                    answer += received.data
                    client.acknowledge_received_data(received.flow_controlled_length, 1)
                elif isinstance(received, TrailersReceived):
                    trailers = dict(received.headers)
    assert (len(answer), trailers) == (5 + size, {b"grpc-status": b"0"})


@pytest.mark.parametrize("size", SIZES)
def test_h2_server_answers_our_client(size: int) -> None:
    client, server = ClientConnection("localhost", Limits()), H2Connection(H2Configuration(client_side=False))
    server.initiate_connection()
    stream = client.request("/package.Service/Method", bytes(size), 1.0)
    request, to_send, events = b"", b"", list[Message | Ended]()
    while not any(isinstance(event, Ended) for event in events):
        while data := client.take():
            for received in server.receive_data(data):
                if isinstance(received, DataReceived):
                    request += received.data
                    server.acknowledge_received_data(received.flow_controlled_length, stream)
                elif isinstance(received, StreamEnded):
                    server.send_headers(stream, [(":status", "200"), ("content-type", "application/grpc")])
                    to_send = request
                else:
                    assert isinstance(received, RequestReceived | WindowUpdated) or not received.__dict__.get("error")
        while to_send and (room := min(server.local_flow_control_window(stream), server.max_outbound_frame_size)):
            server.send_data(stream, to_send[:room])
            to_send = to_send[room:]
            if not to_send:
                server.send_headers(stream, [("grpc-status", "0")], end_stream=True)
        events += client.receive(server.data_to_send())
    assert events == [Message(stream, bytes(size)), Ended(stream, Status.OK, "")]


def test_h2_client_without_header_table_reads_our_headers() -> None:
    server, client = ServerConnection(), H2Connection(H2Configuration(client_side=True, header_encoding=None))
    client.initiate_connection()
    client.update_settings({SettingCodes.HEADER_TABLE_SIZE: 0})
    server.receive(client.data_to_send())
    client.receive_data(server.take())  # this acknowledges the setting, after which the client's decoder enforces it
    client.send_headers(1, fuzz.GRPC_REQUEST)
    client.send_data(1, b"\0\0\0\0\0", end_stream=True)
    server.receive(client.data_to_send())
    server.respond(1, b"")
    assert any(isinstance(event, ResponseReceived) for event in client.receive_data(server.take()))


def test_h2_client_can_shrink_its_header_table_during_a_response() -> None:
    server, client = ServerConnection(), H2Connection(H2Configuration(client_side=True, header_encoding=None))
    client.initiate_connection()
    client.send_headers(1, fuzz.GRPC_REQUEST)
    client.send_data(1, b"\0\0\0\0\0", end_stream=True)
    server.receive(client.data_to_send())
    server.send_message(1, b"")
    client.receive_data(server.take())
    client.update_settings({SettingCodes.HEADER_TABLE_SIZE: 0})
    server.receive(client.data_to_send())
    server.finish(1, Status.OK)
    assert any(isinstance(event, TrailersReceived) for event in client.receive_data(server.take()))
