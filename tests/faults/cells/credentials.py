"""Credentials that end while a query runs: tokens of a few seconds and their endpoint, and certificates."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from support.certificates import STORE_PASSWORD, Authority

from faults.cells.registry import MINUTES, OPERATOR, Cell, add, cell
from faults.evidence import GROUPKAFKA, KAFKA
from faults.scene import Scene
from spark_kafka_group.testing import KafkaCluster

USER = "query"
LASTS_S = 10.0

# Tokens

LISTENER = "SASL"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
TOKEN_LIFE_S = 4.0
CHECKED_AGAIN_MS = 3_000
OF_BROKER = {
    "listener.name.sasl.sasl.enabled.mechanisms": "OAUTHBEARER",
    "listener.name.sasl.oauthbearer.sasl.jaas.config": f'{MODULE} required unsecuredLoginStringClaim_sub="broker";',
    "listener.name.sasl.oauthbearer.connections.max.reauth.ms": str(CHECKED_AGAIN_MS),
}
GRANTS, REFUSES, FAILS, SILENT = "grants", "refuses", "fails", "silent"


def token() -> str:
    """A token without signature, which brokers accept unless they are configured otherwise."""
    now = time.time()
    parts = {"alg": "none"}, {"sub": USER, "iat": now, "exp": now + TOKEN_LIFE_S}
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    return ".".join((*encoded, ""))


class Endpoint:
    """A token endpoint. A context manager.

    Attributes
    ----------
    manner
        How it answers.
    granted
        How many tokens it gave.
    """

    def __init__(self) -> None:
        self.manner = GRANTS
        self.granted = 0
        self._port = 0
        self._server: http.server.ThreadingHTTPServer | None = None

    def __enter__(self) -> Endpoint:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.manner = GRANTS
        self.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/token"

    def open(self) -> None:
        """Listen, at the same port as before."""
        endpoint = self

        class Answering(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                while endpoint.manner == SILENT:
                    time.sleep(0.05)
                status = {GRANTS: 200, REFUSES: 401, FAILS: 503}[endpoint.manner]
                answer = {"access_token": token(), "expires_in": TOKEN_LIFE_S} if status == 200 else {}
                endpoint.granted += status == 200
                body = json.dumps(answer).encode()
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass  # the client has gone

        self._server = Server(("127.0.0.1", self._port), Answering)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="token endpoint", daemon=True).start()

    def close(self) -> None:
        """Refuse connections."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


def of_tokens() -> KafkaCluster:
    """A broker that checks tokens, again and again; the load goes by a listener without them."""
    return KafkaCluster(properties=OF_BROKER, listeners={LISTENER: "SASL_PLAINTEXT"})


def with_tokens(scene: Scene) -> None:
    """Each process of the query gets its tokens from an endpoint; with Spark's source it makes them itself."""
    scene.servers = scene.kafka.servers_of(LISTENER)
    scene.own_options |= {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "OAUTHBEARER"}
    if scene.source == KAFKA:  # Java's client takes tokens without signature from itself only
        claims = f'unsecuredLoginStringClaim_sub="{USER}" unsecuredLoginLifetimeSeconds="{TOKEN_LIFE_S:.0f}"'
        scene.own_options |= {"kafka.sasl.jaas.config": f"{MODULE} required {claims};"}
        return
    endpoint = scene.closing.enter_context(Endpoint())
    scene.room["endpoint"] = endpoint
    scene.environment |= {"SPARK_KAFKA_GROUP_OAUTH_ALLOWED_URLS": endpoint.url}
    scene.own_options |= {
        "kafka.sasl.oauthbearer.token.endpoint.url": endpoint.url,
        "kafka.sasl.jaas.config": f'{MODULE} required clientId="{USER}" clientSecret="a-secret";',
    }


@cell(
    OPERATOR, "tokens of 4 s expire, and are fetched anew, while the broker checks them every 3 s",
    brokers=of_tokens, prepare=with_tokens,
)  # fmt: skip
def tokens_expire(scene: Scene) -> None:
    endpoint: Endpoint | None = scene.room.get("endpoint")
    before = endpoint.granted if endpoint is not None else 0
    with scene.fault("tokens expire twice"):
        time.sleep(2 * TOKEN_LIFE_S)  # the fault itself
        if endpoint is not None:
            scene.wait(lambda: endpoint.granted >= before + 4)


@contextlib.contextmanager
def away(endpoint: Endpoint) -> Iterator[None]:
    """It refuses connections."""
    endpoint.close()
    try:
        yield
    finally:
        endpoint.open()


def answering(manner: str) -> Callable[[Endpoint], contextlib.AbstractContextManager[None]]:
    """It answers like this."""

    @contextlib.contextmanager
    def change(endpoint: Endpoint) -> Iterator[None]:
        endpoint.manner = manner
        try:
            yield
        finally:
            endpoint.manner = GRANTS

    return change


def endpoint_cell(
    name: str, what: str, change: Callable[[Endpoint], contextlib.AbstractContextManager[None]], may_end: bool = False
) -> None:
    """A cell: the endpoint gives no tokens for a while."""

    def happen(scene: Scene) -> None:
        scene.pause()
        with scene.fault(f"{what} for {LASTS_S:.0f} s", may_end), change(scene.room["endpoint"]):
            time.sleep(LASTS_S)  # the fault itself

    lasting = f"{what} for {LASTS_S:.0f} s"
    add(Cell(OPERATOR, name, lasting, happen, sources=(GROUPKAFKA,), brokers=of_tokens, prepare=with_tokens))


endpoint_cell("token-endpoint-away", "the token endpoint refuses connections, and tokens expire,", away)
endpoint_cell("token-endpoint-fails", "the token endpoint answers 503, and tokens expire,", answering(FAILS))
endpoint_cell("token-endpoint-silent", "the token endpoint says nothing, and tokens expire,", answering(SILENT))
endpoint_cell("token-endpoint-refuses", "the token endpoint answers 401, and tokens expire,", answering(REFUSES), True)


# Certificates

TLS_LISTENER = "MTLS"
LASTING_S, BRIEF_S = 86_400.0, 60.0
"""A query has to start while its certificate is valid."""


@contextlib.contextmanager
def of_certificates() -> Iterator[KafkaCluster]:
    """A broker that asks for certificates; the load goes by a listener without them."""
    with contextlib.ExitStack() as stack:
        authority = Authority(Path(stack.enter_context(tempfile.TemporaryDirectory())), "ca")
        authority.sign("broker", san="IP:127.0.0.1")
        prefix = f"listener.name.{TLS_LISTENER.lower()}.ssl"
        settings = {
            f"{prefix}.keystore.location": authority.path("broker.p12"),
            f"{prefix}.keystore.password": STORE_PASSWORD,
            f"{prefix}.keystore.type": "PKCS12",
            f"{prefix}.truststore.location": authority.certificate,
            f"{prefix}.truststore.type": "PEM",
            f"{prefix}.client.auth": "required",
        }
        cluster = stack.enter_context(KafkaCluster(properties=settings, listeners={TLS_LISTENER: "SSL"}))
        cast(Any, cluster).authority = authority
        yield cluster


def with_a_certificate(scene: Scene) -> None:
    """The query shows a certificate, which is at the same path always."""
    authority = cast(Any, scene.kafka).authority
    renew(scene, LASTING_S)
    scene.servers = scene.kafka.servers_of(TLS_LISTENER)
    scene.own_options |= {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": authority.certificate,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.keystore.location": authority.path("query.pem"),
        "kafka.ssl.keystore.type": "PEM",
    }


def renew(scene: Scene, seconds: float) -> float:
    """Put a new certificate in place of the one that is there; returns when it expires."""
    cast(Any, scene.kafka).authority.sign_for("query", seconds)
    return time.time() + seconds


def expires(scene: Scene) -> None:
    """A query runs with a certificate that has expired, and the broker asks for it."""
    until = scene.room["until"]
    scene.wait(lambda: time.time() > until + 1, within=2 * BRIEF_S)
    (node,) = scene.kafka.nodes
    node.kill()  # connections that are open are not checked
    node.start()
    scene.kafka.wait_until_ready()


def brief(scene: Scene) -> None:
    """Start the query again, with a certificate that expires soon; all its processes have read it at the end."""
    query = scene.query
    scene.left += query.stop()
    scene.room["until"] = renew(scene, BRIEF_S)
    query.start()
    query.wait_for(lambda: query.checkpoint.done_since(query.began_ms) > 0)


@cell(
    OPERATOR, "the query's certificate expires; it had been replaced before, at the same path", count=MINUTES,
    at_once=5, brokers=of_certificates, prepare=with_a_certificate,
)  # fmt: skip
def certificate_replaced_before(scene: Scene) -> None:
    brief(scene)
    with scene.fault("a certificate expires that was replaced before", may_end=True):
        renew(scene, LASTING_S)
        expires(scene)


@cell(
    OPERATOR, "the query's certificate expires, the query ends, and then it is replaced", count=MINUTES,
    at_once=5, brokers=of_certificates, prepare=with_a_certificate,
)  # fmt: skip
def certificate_replaced_after(scene: Scene) -> None:
    brief(scene)
    with scene.fault("a certificate expires, and is replaced once the query has ended", may_end=True):
        expires(scene)
        scene.wait(lambda: not scene.query.running)
        renew(scene, LASTING_S)
