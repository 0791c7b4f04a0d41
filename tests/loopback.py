"""A web server on this machine alone, for tests of downloads; what it answers is up to each test."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MOST_DRIPS = 400
DRIP_SECONDS = 0.05


class Loopback(ThreadingHTTPServer):
    """Answers by path, and notes the paths that were asked for."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, Callable[[Handler], None]] = {}
        self.asked: list[str] = []
        self.is_over = threading.Event()

    def address(self, path: str, answer: Callable[[Handler], None], scheme: str = "http") -> str:
        """Where `answer` is given."""
        self.answers[path] = answer
        return f"{scheme}://127.0.0.1:{self.server_port}{path}"

    def handle_error(self, *_) -> None:
        """Clients that leave are part of the tests."""


class Handler(BaseHTTPRequestHandler):
    server: Loopback

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.server.answers[self.path](self)

    def log_message(self, *_) -> None:
        pass


@contextlib.contextmanager
def serve(certificate: str | None = None) -> Iterator[Loopback]:
    """A running server; with the path of a certificate and its key, one with TLS."""
    with Loopback() as server:
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.is_over.set()
            server.shutdown()
            thread.join(10)


def body(content: bytes, *, length: int | None = None, kind: str = "application/zip") -> Callable[[Handler], None]:
    """An answer with this content; `length` is what the header says of it."""

    def answer(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(content) if length is None else length))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def status(code: int, **headers: str) -> Callable[[Handler], None]:
    """An answer without content."""

    def answer(handler: Handler) -> None:
        handler.send_response(code)
        for name, value in {**headers, "Content-Length": "0"}.items():
            handler.send_header(name, value)
        handler.end_headers()

    return answer


def drip(first: bytes) -> Callable[[Handler], None]:
    """An answer that begins with these bytes and never ends, as a byte follows now and then."""

    def answer(handler: Handler) -> None:
        handler.wfile.write(first)
        for _ in range(MOST_DRIPS):
            if handler.server.is_over.wait(DRIP_SECONDS):
                break
            handler.wfile.write(b"x")

    return answer


def silence(handler: Handler) -> None:
    """No answer."""
    handler.server.is_over.wait(MOST_DRIPS * DRIP_SECONDS)
