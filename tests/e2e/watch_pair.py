"""Opens the same watch on the stand-in API server and on a real one, and makes the frames comparable."""

import http.client
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from controlplane.apiserver.protobuf import wire
from tests.controlplane.apiserver.running import Answer
from tests.e2e.server_pair import PROTOBUF, Pair, Shown, read_value


class Watch(NamedTuple):
    """A watch: path, media type, and other parameters; versions in the query are the pair's placeholders."""

    path: str
    accept: str
    query: Mapping[str, str]


class Watched(NamedTuple):
    """The result of a watch on each server; the body of a stream is the list of its frames."""

    watch: Watch
    ours: Shown
    real: Shown


class OpenWatch:
    """A watch whose answer has begun on both servers."""

    def __init__(self, pair: Pair, watch: Watch) -> None:
        self._pair, self.watch = pair, watch
        self._answers = [self._begin(number) for number in range(len(pair.servers))]

    def read(self) -> Watched:
        """Wait until both servers have ended the watch."""
        answers = [_read(answer) for answer in self._answers]
        ours, real, _ = self._pair.shown(answers, _without_unmatched([frames(answer) for answer in answers]))
        return Watched(self.watch, ours, real)

    def _begin(self, number: int) -> http.client.HTTPResponse:
        query = {name: str(self._pair.own(number, text)) for name, text in self.watch.query.items()}
        return self._pair.servers[number].open_stream(self.watch.path, self.watch.accept, watch="true", **query)


def frames(answer: Answer) -> Any:
    """The events of a stream, or the value of another answer.

    The first timed bookmark is moved to the end, and others are dropped. Versions of bookmarks are omitted: a real
    server also counts writes of other kinds.
    """
    if answer.status != 200:
        return read_value(answer)
    found = [_without_version(event) if event["type"] == "BOOKMARK" else event for event in _events(answer)]
    bookmarks = [event for event in found if _is_timed(event)]
    return [event for event in found if not _is_timed(event)] + bookmarks[:1]


def _without_unmatched(bodies: list[Any]) -> list[Any]:
    """Drop a last bookmark that only one server has sent: a real one sends them once a second."""
    if all(isinstance(body, list) for body in bodies):
        has_one = [bool(body) and _is_timed(body[-1]) for body in bodies]
        return [body[:-1] if has_one[n] and not all(has_one) else body for n, body in enumerate(bodies)]
    return bodies


def _events(answer: Answer) -> Iterator[dict[str, Any]]:
    media_type = dict(answer.headers)["content-type"]
    if not media_type.startswith(PROTOBUF):
        for line in answer.data.splitlines(keepends=True):
            yield read_value(answer._replace(data=line))
        return
    at, plain = 0, [("content-type", PROTOBUF)]
    while at < len(answer.data):
        size = int.from_bytes(answer.data[at : at + 4], "big")
        event = {number: value for number, _, value in wire.fields(answer.data[at + 4 : at + 4 + size])}
        kind, raw = event[1], event[2]
        assert isinstance(kind, bytes)
        assert isinstance(raw, bytes)
        _, _, data = next(wire.fields(raw))
        assert isinstance(data, bytes)
        yield {"type": kind.decode(), "object": read_value(Answer(200, plain, data))}
        at += 4 + size


def _without_version(bookmark: dict[str, Any]) -> dict[str, Any]:
    shown = bookmark["object"]
    metadata = {**shown["metadata"], "resourceVersion": bool(shown["metadata"].get("resourceVersion"))}
    return {**bookmark, "object": {**shown, "metadata": metadata}}


def _is_timed(event: dict[str, Any]) -> bool:
    return event["type"] == "BOOKMARK" and "initial-events-end" not in str(event["object"])


def _read(response: http.client.HTTPResponse) -> Answer:
    with response:
        headers = [(name.lower(), value) for name, value in response.getheaders()]
        return Answer(response.status, headers, response.read())
