"""A token endpoint, or a token's file, that misbehaves: clear errors, and no secret goes elsewhere."""

import contextlib
import os
import socketserver
import ssl
import threading
import time

import pytest
from proxies import Proxy
from support import serving
from support.http_answers import endpoint

from spark_kafka_group.errors import AuthenticationError, BrokerError
from spark_kafka_group.options.security import Secret
from spark_kafka_group.options.security.credentials import ClientCredentials, TokenFile
from spark_kafka_group.wire.client import tokens
from spark_kafka_group.wire.client.tokens import tokens_of

HUSH = "hush-7f3a"


def asking(url):
    return tokens_of(ClientCredentials(url, "client", Secret(HUSH), None)).token


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
def test_a_redirect_is_not_followed_and_said(status):
    with endpoint('HTTP/1.1 200 OK\r\n\r\n{"access_token": "t"}') as (elsewhere, asked_elsewhere):
        to = f"http://127.0.0.1:{elsewhere}/{HUSH}"
        with endpoint(f"HTTP/1.1 {status}\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n") as (port, asked):
            message = f"redirects .HTTP {status[:3]}., and redirects are not followed, as the client's secret"
            with pytest.raises(AuthenticationError, match=message) as raised:
                asking(f"http://127.0.0.1:{port}/token")()
    assert HUSH not in str(raised.value)
    assert len(asked) == 1
    assert asked_elsewhere == []


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (f"{HUSH}\r\n\r\n", BrokerError, r"its answer is not HTTP \(BadStatusLine\)"),
        ("", BrokerError, "no token: Remote end closed connection"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", BrokerError, r"is not HTTP \(IncompleteRead\)"),
        ("HTTP/1.1 200 OK\r\n" + "X: y\r\n" * 101 + "\r\n", BrokerError, r"is not HTTP \(HTTPException\)"),
        ("HTTP/1.1 200 OK\r\n\r\nhush-7f3a", AuthenticationError, "is not JSON with access_token and expires_in"),
        ("HTTP/1.1 400 No\r\nContent-Length: 99\r\n\r\n{", AuthenticationError, "for client client: HTTP 400$"),
        ('HTTP/1.1 503 No\r\n\r\n{"error": "later"}', BrokerError, "no token: HTTP 503 later$"),
    ],
)
def test_an_answer_that_is_none_is_said_without_what_it_is(answer, error, message):
    with endpoint(answer) as (port, _), pytest.raises(error, match=message) as raised:
        asking(f"http://127.0.0.1:{port}/token")()
    assert type(raised.value) is error
    assert HUSH not in str(raised.value)


@pytest.mark.parametrize("url", [f"https://me:{HUSH}@idp/token", f"http://idp/a {HUSH}", f"http://127.0.0.1:{HUSH}/"])
def test_a_url_that_no_option_would_take_is_not_shown(url):
    with pytest.raises(BrokerError) as raised:
        asking(url)()
    assert HUSH not in str(raised.value)


OK = "HTTP/1.1 200 OK\r\n"
ONE_LINE = f"{tokens.ENDPOINT}: "


@pytest.mark.parametrize(
    ("answer", "slowly"),
    [("", b"x"), (OK, b"X: y\r\n"), (OK + "X: ", b"y"), (OK + "\r\n", b" "), ("HTTP/1.1 400 No\r\n\r\n", b" ")],
    ids=["status", "headers", "header", "body", "refusal"],
)
def test_an_answer_that_comes_slowly_has_one_deadline(monkeypatch, answer, slowly):
    monkeypatch.setattr(tokens, "ENDPOINT_TIMEOUT_S", 0.4)
    with endpoint(answer, slowly) as (port, _):
        began = time.monotonic()
        with pytest.raises(BrokerError, match="it has not answered within 0.4 s|no token for client client: HTTP 400"):
            asking(f"http://127.0.0.1:{port}/token")()
        assert time.monotonic() - began < 30


def test_a_tls_handshake_that_comes_slowly_has_one_deadline_with_the_answer(monkeypatch):
    monkeypatch.setattr(tokens, "ENDPOINT_TIMEOUT_S", 0.4)

    class Slow(socketserver.BaseRequestHandler):
        def handle(self):
            with contextlib.suppress(OSError):
                self.request.sendall(b"\x16\x03\x03\x40\x00")  # of a record of 16 KiB
                while True:
                    self.request.sendall(b"\x02")
                    time.sleep(0.05)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Slow)
    with serving(server):
        began = time.monotonic()
        with pytest.raises(BrokerError, match="no token: "):
            asking(f"https://127.0.0.1:{server.server_address[1]}/token")()
        assert time.monotonic() - began < 30


@pytest.mark.parametrize("through", ["straight", "proxy"])
def test_an_endpoint_with_a_trusted_certificate_is_asked_also_through_a_proxy(monkeypatch, authority, through):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(authority.path("broker.pem"))
    with endpoint(f'{OK}\r\n{{"access_token": "t"}}', tls=tls) as (port, asked), Proxy("http") as proxy:
        if through == "proxy":
            monkeypatch.setenv("https_proxy", proxy.url())
        with pytest.raises(BrokerError, match="CERTIFICATE_VERIFY_FAILED"):
            asking(f"https://localhost:{port}/token")()
        monkeypatch.setenv("SSL_CERT_FILE", authority.certificate)
        assert asking(f"https://localhost:{port}/token")() == "t"
        assert len(asked) == 1
        assert len(proxy.targets) == (2 if through == "proxy" else 0)


def test_threads_that_wait_for_a_token_share_what_came_of_it(monkeypatch):
    monkeypatch.setattr(tokens, "ENDPOINT_TIMEOUT_S", 1.0)
    result = []

    def ask():
        with pytest.raises(BrokerError) as raised:
            token()
        result.append(str(raised.value))

    with endpoint(OK, b"X: y\r\n") as (port, asked):
        token = asking(f"http://127.0.0.1:{port}/token")
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(asked) == 1
        assert result == [f"{tokens.ENDPOINT}: no token: it has not answered within 1 s"] * 4
        ask()  # later is another time
        assert len(asked) == 2


def test_an_answer_without_end_is_not_read_to_its_end(monkeypatch):
    message = "its answer has more than 1048576 bytes: check that the URL is right"
    for status, error in (("200 OK", message), ("403 No", "no token for client client: HTTP 403$")):
        with endpoint(f"HTTP/1.1 {status}\r\n\r\n{HUSH}", b" " * 1_000_000) as (port, _):
            with pytest.raises(AuthenticationError, match=error) as raised:
                asking(f"http://127.0.0.1:{port}/token")()
            assert HUSH not in str(raised.value)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ('{"access_token": null}', "access_token in its answer is not text"),
        ('{"access_token": 7}', "access_token in its answer is not text"),
        ('{"access_token": ""}', "the token is empty"),
        ('{"access_token": "hush-7f3a\\u0001auth=x"}', "no token: letters, digits and -"),
        ('{"access_token": "hush-7f3a\\n"}', "no token: letters, digits and -"),
        ('{"access_token": "hush-7f3a\\ud800"}', "no token: letters, digits and -"),
        ('{"expires_in": 9}', "not JSON with access_token and expires_in"),
        ("[" * 200_000, "not JSON with access_token and expires_in"),
        ('"hush-7f3a', "not JSON with access_token and expires_in"),
        *(
            (f'{{"access_token": "hush-7f3a", "expires_in": {given}}}', "not a number of seconds from 0 to 3153600000")
            for given in ("NaN", "Infinity", "-1", "1e300", "9" * 400, '"nan"', "1700000000000")
        ),
        *(
            (f'{{"access_token": "hush-7f3a", "expires_in": {given}}}', "not JSON with access_token and expires_in")
            for given in ("true", "[1]", '"soon"', "9" * 5_000)
        ),
    ],
)  # fmt: skip
def test_an_answer_without_a_token_that_can_be_used_is_one_clear_error(answer, message):
    with (
        endpoint(f"{OK}\r\n{answer}") as (port, _),
        pytest.raises(AuthenticationError, match=f"^{ONE_LINE}.*{message}") as raised,
    ):
        asking(f"http://127.0.0.1:{port}/token")()
    assert HUSH not in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("given", ["300", '"300"', "0", "1.5", "null"])
def test_times_that_endpoints_give_are_taken(given):
    with endpoint(f'{OK}\r\n{{"access_token": "a.b-c_~+/==", "expires_in": {given}}}') as (port, _):
        assert asking(f"http://127.0.0.1:{port}/token")() == "a.b-c_~+/=="


@pytest.mark.parametrize("word", [f"bad {HUSH}", HUSH, "x" * 65, "a\\nb", ""])
def test_an_endpoints_word_for_what_is_wrong_is_shown_only_if_it_is_one(word):
    with (
        endpoint(f'HTTP/1.1 401 No\r\n\r\n{{"error": "{word}"}}') as (port, _),
        pytest.raises(AuthenticationError, match="no token for client client: HTTP 401$"),
    ):
        asking(f"http://127.0.0.1:{port}/token")()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the token is empty"),
        (b" \n", "the token is empty"),
        (b"\x7fELF\x00\xff\xfe" * 100, "no token: letters, digits and -"),
        (b"hush-7f3a\nhush-7f3a", "no token: letters, digits and -"),
        (b'{"access_token": "hush-7f3a"}', "no token: letters, digits and -"),
        (b"h" * ((1 << 20) + 1), "has more than 1048576 bytes: check that it is the right file"),
    ],
)
def test_a_file_without_a_token_is_one_clear_error(tmp_path, content, message):
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(AuthenticationError, match=message) as raised:
        tokens_of(TokenFile(str(file))).token()
    assert HUSH not in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_what_is_no_file_is_not_read_for_ever(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    cases = {
        tmp_path / "pipe": "it is not a file", "/dev/zero": "it is not a file", tmp_path: "Is a directory",
        tmp_path / "none": "No such file", "/a\0b": "not a valid path",
    }  # fmt: skip
    for path, message in cases.items():
        with pytest.raises(AuthenticationError, match=f"cannot be read: .*{message}"):
            tokens_of(TokenFile(str(path))).token()


class Talkative:
    """Of a user's own, whose errors have secrets in them."""

    def token(self):
        return "t"

    def extensions(self):
        raise ValueError(HUSH)


def test_what_a_class_of_a_users_own_raises_is_not_shown():
    from spark_kafka_group.options.security.credentials import OwnTokens

    made = tokens_of(OwnTokens("test_token_endpoint:Talkative"))
    with pytest.raises(AuthenticationError, match=r"Talkative.extensions\(\) raised ValueError$"):
        made.extensions()
