"""A request over HTTP: one deadline for all of it, and a limit for its answer.

urllib's timeout is one for each read: a server that sends a byte now and then would keep the caller for ever, and that
may be the thread that sends heartbeats.
"""

from __future__ import annotations

import http.client
import queue
import socket
import ssl
import threading
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_kafka_group.wire.broker_connection import Deadline

LARGEST = 1 << 20  # bytes that an answer may have, if nothing else is said; tokens have some thousand


class TooLargeError(Exception):
    """Raised when an answer has too many bytes."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, as that would send credentials to another place: a redirect is an answer like another."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True)
class Way:
    """How a server is reached."""

    within_s: float  # of the request with all of its answer
    connect_within_s: float | None = None  # of connecting, the proxy and TLS left aside
    context: ssl.SSLContext | None = None  # the system's certificates, where it is None. Threads do not share it.
    proxy: str | None = None  # ``http://host:port``; that of the environment, if it names one, where it is None
    largest: int = LARGEST  # bytes of the answer


def send(url: str, way: Way, headers: Mapping[str, str], data: bytes | None = None) -> bytes:
    """The body of the answer to a GET, or a POST with `data`. Raises urllib.error.HTTPError without success (see
    :func:`body`), OSError when it is late, http.client.HTTPException when it is not HTTP, TooLargeError."""
    request = urllib.request.Request(url, data=data, headers=dict(headers))
    proxies = [] if way.proxy is None else [urllib.request.ProxyHandler({"http": way.proxy, "https": way.proxy})]
    opener = urllib.request.build_opener(_NoRedirects, *proxies, *_handlers(way))
    with opener.open(request, timeout=way.within_s) as response:
        return body(response, way.largest)


def body(response: Any, largest: int = LARGEST) -> bytes:
    """The body of an answer. Raises OSError, http.client.HTTPException, TooLargeError."""
    found: bytes = response.read(largest + 1)
    if len(found) > largest:
        raise TooLargeError
    if response.length:  # announced bytes that have not come
        raise http.client.IncompleteRead(found, response.length)
    return found


def _handlers(way: Way) -> list[urllib.request.BaseHandler]:
    """Of HTTP and HTTPS, whose sockets wait until the deadline and no longer."""
    deadline = Deadline(way.within_s)
    plain, tls = (
        type(kind.__name__, (_Timed, kind), {"deadline": deadline}) for kind in (socket.socket, ssl.SSLSocket)
    )

    def connected(address: tuple[str, int], *_: Any) -> socket.socket:
        share_s = deadline.left_s if way.connect_within_s is None else min(deadline.left_s, way.connect_within_s)
        return _connected(address, plain, Deadline(share_s))

    class EndpointConnection(http.client.HTTPConnection):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self._create_connection = connected

    class TlsConnection(http.client.HTTPSConnection):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self._create_connection = connected

    class Http(urllib.request.HTTPHandler):
        def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(EndpointConnection, request)

    class Https(urllib.request.HTTPSHandler):
        def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
            context = way.context or ssl.create_default_context()
            context.sslsocket_class = tls
            return self.do_open(TlsConnection, request, context=context)

    return [Http(), Https()]


class _Timed:
    """A socket, each of whose calls has the time that is left for all."""

    deadline: Deadline

    def _wait_for_the_rest(self) -> None:
        left_s = self.deadline.left_s
        if not left_s:
            raise TimeoutError("timed out")
        self.settimeout(left_s)  # type: ignore[attr-defined]

    def do_handshake(self, *args: Any) -> None:
        self._wait_for_the_rest()
        super().do_handshake(*args)  # type: ignore[misc]

    def recv_into(self, *args: Any) -> int:
        self._wait_for_the_rest()
        return super().recv_into(*args)  # type: ignore[misc,no-any-return]

    def sendall(self, *args: Any) -> None:
        self._wait_for_the_rest()
        super().sendall(*args)  # type: ignore[misc]


def _connected(address: tuple[str, int], kind: Any, deadline: Deadline) -> socket.socket:
    """A connection to the first of a name's addresses that takes one; each has its share of the time left."""
    addresses = _addresses(*address, deadline)
    problem: OSError = OSError("this name has no address")
    for number, (family, sort, protocol, _, place) in enumerate(addresses):
        sock: socket.socket = kind(family, sort, protocol)
        try:
            sock.settimeout(max(deadline.left_s, 0.001) / (len(addresses) - number))
            sock.connect(place)
        except OSError as error:
            sock.close()
            problem = error
        else:
            return sock
    raise problem


def _addresses(host: str, port: int, deadline: Deadline) -> list[Any]:
    """The addresses of a name. The system's resolver has no time limit, so at the deadline its thread is abandoned."""
    found: queue.SimpleQueue[list[Any] | Exception] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            found.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            found.put(error)

    threading.Thread(target=look_up, name="groupkafka-name-lookup", daemon=True).start()
    try:
        answer = found.get(timeout=deadline.left_s)
    except queue.Empty:
        raise TimeoutError("no name server answers") from None
    if isinstance(answer, UnicodeError):
        raise http.client.InvalidURL
    if isinstance(answer, Exception):
        raise answer
    return answer
