"""A server of HTTP that answers as it is told, and one that lets those through who log in."""

from __future__ import annotations

import contextlib
import http.server
import socketserver
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

from support import serving


@contextlib.contextmanager
def endpoint(
    answer: str | Iterator[str], slowly: bytes = b"", tls: ssl.SSLContext | None = None
) -> Iterator[tuple[int, list[Any]]]:
    """The port of a server that gives one answer, or the next of several, and the requests it got. What it says
    `slowly` it begins again."""
    asked: list[Any] = []
    ended = threading.Event()

    class Answering(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            lines = []
            while line := self.rfile.readline().strip():
                lines.append(line.decode())
            length = next((int(line.split()[1]) for line in lines if line.startswith("Content-Length")), 0)
            asked.append((lines, self.rfile.read(length)))
            self.wfile.write((answer if isinstance(answer, str) else next(answer)).encode())
            with contextlib.suppress(OSError):
                while slowly and not ended.wait(0.05):
                    self.wfile.write(slowly)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answering)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    with serving(server):
        try:
            yield server.server_address[1], asked
        finally:
            ended.set()


class Front(http.server.ThreadingHTTPServer):
    """Lets requests through to another server, if they have the wanted header ``Authorization``.

    Attributes
    ----------
    asked
        Method and path of each request.
    headers
        Those of the last request.
    refuses_with
        The status for another header than the wanted one.
    instead
        What it answers itself to a request, by the method and path; None where it lets the request through.
    """

    daemon_threads = True

    def __init__(self, target: str, wants: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Through)
        self.target, self.wants, self.tls = target, wants, tls
        self.asked: list[str] = []
        self.headers: dict[str, str] = {}
        self.refuses_with = 403
        self.instead: Callable[[str], tuple[int, bytes] | None] = lambda _: None
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"{'https' if tls else 'http'}://localhost:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        pass


class _Through(http.server.BaseHTTPRequestHandler):
    server: Front

    def log_message(self, *_: object) -> None:
        pass

    def _pass_on(self) -> None:
        front = self.server
        front.asked.append(f"{self.command} {self.path}")
        front.headers = dict(self.headers)
        length = int(self.headers.get("Content-Length", 0))
        data = self.rfile.read(length) if length else None
        if front.wants is not None and self.headers.get("Authorization") != front.wants:
            status = 401 if self.headers.get("Authorization") is None else front.refuses_with
            self._answer(status, b'{"error_code": %d, "message": "User not authorized"}' % status)
            return
        own = front.instead(front.asked[-1])
        if own is not None:
            self._answer(*own)
            return
        request = urllib.request.Request(f"{front.target}{self.path}", data, method=self.command)
        request.add_header("Content-Type", self.headers.get("Content-Type", "application/json"))
        try:
            with urllib.request.urlopen(request) as answer:
                self._answer(answer.status, answer.read())
        except urllib.error.HTTPError as error:
            with error:
                self._answer(error.code, error.read())
        except OSError:
            self._answer(502, b"<html>Bad Gateway</html>")

    do_GET = do_POST = do_PUT = _pass_on  # noqa: N815

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextlib.contextmanager
def front(target: str, wants: str | None = None, tls: ssl.SSLContext | None = None) -> Iterator[Front]:
    """A :class:`Front` that serves until the block ends."""
    server = Front(target, wants, tls)
    with serving(server):
        yield server
