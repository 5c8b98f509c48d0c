"""A server that says what a test tells it to."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec


class Scripted:
    """An HTTP server that answers each path as a test says and knows no other; all answers wait for the gate."""

    def __init__(self, answers: dict[str, object]) -> None:
        self.asked: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                scripted.asked.append(self.path)
                scripted.gate.wait()
                status, body = 404, b"404 page not found\n"
                if self.path in answers:
                    found = answers[self.path]
                    status, body = 200, found if isinstance(found, bytes) else msgspec.json.encode(found)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
                """Nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = False  # closing waits for their ends
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> "Scripted":
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
