"""The client with a server that is busy, forgets, disconnects and rejects tokens: a socket that follows a script."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from resourceapi.client import Refused, from_kubeconfig
from resourceapi.client.blocking import Client

Answer = tuple[int, dict[str, str], Any]
Script = Callable[[BaseHTTPRequestHandler], Answer]


@contextmanager
def _serving(script: Script) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, headers, body = script(self)
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _kubeconfig(path: Path, url: str, user: dict[str, Any]) -> Path:
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(document))
    return path


def _status(code: int, reason: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "reason": reason, "message": "no", "code": code}


def _lines(*events: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def _thing(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


def test_busy_server_is_retried_after_its_retry_after(tmp_path: Path) -> None:
    """429 with Retry-After is retried, also for writes; 503 without it only for reads."""
    answers: list[Answer] = [
        (429, {"Retry-After": "7"}, _status(429, "TooManyRequests")),
        (200, {}, {"metadata": {"name": "x"}}),
        (503, {}, _status(503, "ServiceUnavailable")),
        (200, {}, {"metadata": {"name": "x"}}),
        (503, {}, _status(503, "ServiceUnavailable")),
    ]
    waited: list[float] = []
    with _serving(lambda _: answers.pop(0)) as url:
        client = Client(from_kubeconfig(_kubeconfig(tmp_path / "k", url, {})), wait=waited.append)
        things = client.raw("v1", "things", namespaced=False)
        things.create({"metadata": {"name": "x"}})
        assert 7.0 <= waited.pop() <= 8.75
        things.get("x")
        assert 0.5 <= waited.pop() <= 0.625
        with pytest.raises(Refused) as refused:
            things.create({"metadata": {"name": "x"}})
        client.close()
    assert refused.value.code == 503


def test_list_restarts_without_pages_if_next_page_is_expired(tmp_path: Path) -> None:
    """After a 410 between pages, the whole list is fetched at once. A 410 for the first page is an error."""
    first = {"kind": "ThingList", "metadata": {"continue": "t"}, "items": [_thing("gone", 1)]}
    whole = {"kind": "ThingList", "metadata": {"resourceVersion": "9"}, "items": [_thing("a", 8), _thing("b", 9)]}
    gone: Answer = (410, {}, _status(410, "Expired"))
    answers: list[Answer] = [(200, {}, first), gone, (200, {}, whole), gone]
    paths: list[str] = []

    def script(request: BaseHTTPRequestHandler) -> Answer:
        paths.append(request.path)
        return answers.pop(0)

    with _serving(script) as url:
        client = Client(from_kubeconfig(_kubeconfig(tmp_path / "k", url, {})))
        things = client.raw("v1", "things", namespaced=False)
        page = things.list(label_selector="x")
        with pytest.raises(Refused):
            things.list()
        client.close()
    assert ([item["metadata"]["name"] for item in page.items], page.version) == (["a", "b"], "9")
    assert [path.partition("?")[2] for path in paths] == [
        "labelSelector=x&limit=500",
        "labelSelector=x&limit=500&continue=t",
        "labelSelector=x",
        "limit=500",
    ]


def test_token_file_is_read_again_after_401(tmp_path: Path) -> None:
    """The file has a new token. The request is repeated once."""
    token, seen = tmp_path / "token", []

    def script(request: BaseHTTPRequestHandler) -> Answer:
        seen.append(request.headers.get("Authorization"))
        if seen[-1] != "Bearer new":
            token.write_text("new" if len(seen) == 1 else "wrong")
            return (401, {}, _status(401, "Unauthorized"))
        return (200, {}, {"metadata": {"name": "x"}})

    token.write_text("old")
    with _serving(script) as url:
        client = Client(from_kubeconfig(_kubeconfig(tmp_path / "k", url, {"tokenFile": "token"})))
        things = client.raw("v1", "things", namespaced=False)
        things.get("x")
        assert seen == ["Bearer old", "Bearer new"]
        client.close()


def test_unreadable_credentials_after_401_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The replaced kubeconfig is invalid. The server's answer alone would not show the cause."""
    with _serving(lambda request: (401, {}, _status(401, "Unauthorized"))) as url:
        path = _kubeconfig(tmp_path / "k", url, {"token": "t"})
        client = Client(from_kubeconfig(path), attempts=1)
        things = client.raw("v1", "things", namespaced=False)
        with pytest.raises(Refused):
            things.get("x")
        path.write_text("apiVersion: v1")
        for _ in range(2):
            with pytest.raises(Refused, match="Unauthorized"):
                things.get("x")
        client.close()
    (message,) = [x for x in caplog.messages if "used as they were" in x]
    assert message == f"credentials of {url} are used as they were: {path}: no context '' in contexts"


def test_watch_continues_from_last_version_and_lists_after_410(tmp_path: Path) -> None:
    """After the end of a stream, a lost connection and a bookmark. After 410 it lists again."""
    versions: list[str] = []
    lists = [(1, ["a"]), (9, ["b"])]
    streams = [
        _lines({"type": "ADDED", "object": _thing("b", 2)}, {"type": "BOOKMARK", "object": _thing("", 5)}),
        _lines({"type": "MODIFIED", "object": _thing("b", 6)}) + b'{"type": "DELE',
        _lines({"type": "ERROR", "object": _status(410, "Expired")}),
        _lines({"type": "DELETED", "object": _thing("b", 10)}),
    ]

    def script(request: BaseHTTPRequestHandler) -> Answer:
        if "watch=true" not in request.path:
            version, names = lists.pop(0)
            metadata = {"resourceVersion": str(version)}
            return (200, {}, {"kind": "ThingList", "metadata": metadata, "items": [_thing(name, 1) for name in names]})
        versions.append(request.path.partition("resourceVersion=")[2].partition("&")[0])
        return (200, {}, streams.pop(0))

    with _serving(script) as url:
        client = Client(from_kubeconfig(_kubeconfig(tmp_path / "k", url, {})), wait=lambda _: None)
        with client.raw("v1", "things", namespaced=False).watch() as watch:
            events = iter(watch)
            found = [next(events) for _ in range(5)]
        client.close()
    assert [event.type for event in found] == ["LISTED", "ADDED", "MODIFIED", "LISTED", "DELETED"]
    assert versions == ["1", "5", "6", "9"]


def test_watch_lists_again_if_server_is_behind_its_version(tmp_path: Path) -> None:
    lists = [100, 7]
    too_large = {**_status(504, "Timeout"), "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}}

    def script(request: BaseHTTPRequestHandler) -> Answer:
        if "watch=true" not in request.path:
            metadata = {"resourceVersion": str(lists.pop(0))}
            return (200, {}, {"kind": "ThingList", "metadata": metadata, "items": []})
        if "resourceVersion=100" in request.path:
            return (504, {"Retry-After": "0"}, too_large)
        return (200, {}, _lines({"type": "ADDED", "object": _thing("b", 8)}))

    with _serving(script) as url:
        client = Client(from_kubeconfig(_kubeconfig(tmp_path / "k", url, {})), attempts=1, wait=lambda _: None)
        with client.raw("v1", "things", namespaced=False).watch() as watch:
            events = iter(watch)
            assert [next(events).type for _ in range(3)] == ["LISTED", "LISTED", "ADDED"]
        client.close()


def test_forbidden_watch_ends_with_the_refusal(tmp_path: Path) -> None:
    """A retry after 403 cannot succeed."""
    with _serving(lambda _: (403, {}, _status(403, "Forbidden"))) as url:
        client = Client(from_kubeconfig(_kubeconfig(tmp_path / "k", url, {})), wait=lambda _: None)
        with client.raw("v1", "things", namespaced=False).watch() as watch, pytest.raises(Refused):
            next(iter(watch))
        client.close()


def test_proxy_environment_variables_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server is inside the cluster network."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with _serving(lambda _: (200, {}, {"metadata": {"name": "x"}})) as url:
        client = Client(from_kubeconfig(_kubeconfig(tmp_path / "k", url, {})))
        client.raw("v1", "things", namespaced=False).get("x")
        client.close()


def test_watch_reports_failed_attempts(tmp_path: Path) -> None:
    """A busy server, and a stream without events: both are retried after a delay."""
    answers: list[Answer] = [
        (503, {"Retry-After": "0"}, _status(503, "ServiceUnavailable")),
        (200, {}, {"kind": "ThingList", "metadata": {"resourceVersion": "1"}, "items": []}),
        (200, {}, b""),
    ]
    failures: list[str] = []

    def note(error: Exception) -> None:
        failures.append(str(error))
        if not answers:
            watch.close()

    with _serving(lambda _: answers.pop(0)) as url:
        client = Client(from_kubeconfig(_kubeconfig(tmp_path / "k", url, {})), attempts=1, wait=lambda _: None)
        watch = client.raw("v1", "things", namespaced=False).watch(on_failure=note)
        assert [event.type for event in watch] == ["LISTED"]
        client.close()
    assert failures == ["503 ServiceUnavailable: no", "watch /api/v1/things: ended at once"]
