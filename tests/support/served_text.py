"""A text at every address of an HTTP server, such as the metrics of a process that is not there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class ServedText:
    """`url` is http://HOST:PORT; `text` and `status` may change between two requests."""

    def __init__(self) -> None:
        self.url = ""
        self.text = ""
        self.status = 200
        self.requests = 0


@contextmanager
def served_text(text: str = "") -> Iterator[ServedText]:
    """A server on a free port."""
    served = ServedText()
    served.text = text

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.requests += 1
            body = served.text.encode()
            self.send_response(served.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
