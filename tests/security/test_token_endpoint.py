"""A token endpoint that misbehaves: what is said, and that the client's secret goes nowhere else."""

import contextlib
import socketserver
import threading

import pytest

from spark_kafka_group.errors import AuthenticationError, BrokerError
from spark_kafka_group.security import Secret
from spark_kafka_group.security.credentials import ClientCredentials
from spark_kafka_group.wire.tokens import tokens_of

HUSH = "hush-7f3a"


@contextlib.contextmanager
def endpoint(answer):
    """The port of a server that gives one answer, and the requests it got."""
    asked = []

    class Answering(socketserver.StreamRequestHandler):
        def handle(self):
            lines = []
            while line := self.rfile.readline().strip():
                lines.append(line.decode())
            length = next((int(line.split()[1]) for line in lines if line.startswith("Content-Length")), 0)
            asked.append((lines, self.rfile.read(length)))
            self.wfile.write(answer.encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server.server_address[1], asked
        server.shutdown()
        thread.join()


def asking(url):
    return tokens_of(ClientCredentials(url, "client", Secret(HUSH), None)).token


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
def test_a_redirect_is_not_followed_and_said(status):
    with endpoint('HTTP/1.1 200 OK\r\n\r\n{"access_token": "t"}') as (elsewhere, asked_elsewhere):
        to = f"http://127.0.0.1:{elsewhere}/{HUSH}"
        with endpoint(f"HTTP/1.1 {status}\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n") as (port, asked):
            told = f"redirects .HTTP {status[:3]}., which is not followed, as that would send the client's"
            with pytest.raises(AuthenticationError, match=told) as raised:
                asking(f"http://127.0.0.1:{port}/token")()
    assert HUSH not in str(raised.value)
    assert len(asked) == 1
    assert asked_elsewhere == []


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        (f"{HUSH}\r\n\r\n", BrokerError, r"what it answers is not HTTP \(BadStatusLine\)"),
        ("", BrokerError, "no token: Remote end closed connection"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", BrokerError, r"is not HTTP \(IncompleteRead\)"),
        ("HTTP/1.1 200 OK\r\n" + "X: y\r\n" * 101 + "\r\n", BrokerError, r"is not HTTP \(HTTPException\)"),
        ("HTTP/1.1 200 OK\r\n\r\nhush-7f3a", AuthenticationError, "is no JSON with access_token and expires_in"),
        ("HTTP/1.1 400 No\r\nContent-Length: 99\r\n\r\n{", AuthenticationError, "for client client: HTTP 400$"),
        ('HTTP/1.1 503 No\r\n\r\n{"error": "later"}', BrokerError, "no token: HTTP 503 later$"),
    ],
)
def test_an_answer_that_is_none_is_said_without_what_it_is(answer, error, told):
    with endpoint(answer) as (port, _), pytest.raises(error, match=told) as raised:
        asking(f"http://127.0.0.1:{port}/token")()
    assert type(raised.value) is error
    assert HUSH not in str(raised.value)


@pytest.mark.parametrize("url", [f"https://me:{HUSH}@idp/token", f"http://idp/a {HUSH}", f"http://127.0.0.1:{HUSH}/"])
def test_a_url_that_no_option_would_take_is_not_shown_either(url):
    with pytest.raises(BrokerError) as raised:
        asking(url)()
    assert HUSH not in str(raised.value)
