"""A web server that receives alerts and returns the answers that a test sets."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import Any


class Receiver:
    """Keeps each call's path, headers and JSON; ``answers`` are used up, then it is 204."""

    def __init__(self) -> None:
        self.calls: Queue[tuple[str, dict[str, str], dict[str, Any]]] = Queue()
        self.answers: list[int] = []
        self.open = threading.Event()
        """Calls are answered only while this is set."""
        self.open.set()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/hook/secret-path"

    def next(self) -> dict[str, Any]:
        return self.calls.get(timeout=30)[2]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.calls.put((self.path, dict(self.headers), json.loads(body)))
                receiver.open.wait(30)
                status = receiver.answers.pop(0) if receiver.answers else 204
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    thread = threading.Thread(target=receiver.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.open.set()
        receiver.server.shutdown()
        receiver.server.server_close()
        thread.join()
