"""Every way to be safe, on each kind of connection: the driver's, an executor's, the listener's and the tools'."""

import http.server
import json
import logging
import socket
import threading
import time
import urllib.parse
import uuid
from pathlib import Path

import pytest
from kafka.protocol.consumer import JoinGroupRequest, OffsetCommitRequest
from secured import (
    PLAIN,
    REAUTHENTICATE_MS,
    SCRAM_USER,
    UNSECURED,
    add_user,
    in_properties,
    jaas,
    options,
    scram,
    works,
)
from support import committed
from support.certificates import KEY_PASSWORD, STORE_PASSWORD

from spark_kafka_group.driver.backlog.log_samples import LogSamples
from spark_kafka_group.driver.backlog.long_poll import LongPoll
from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.errors import AuthenticationError
from spark_kafka_group.executor.reading.read import brokers_for
from spark_kafka_group.options import Options
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition


@pytest.fixture
def ways(authority):
    """Settings by name: the listener, and options besides security.protocol."""
    trust = {"ssl_truststore_location": authority.certificate}
    inside = {
        "ssl_truststore_certificates": Path(authority.certificate).read_text(),
        "ssl_truststore_type": "PEM",
        "ssl_keystore_key": Path(authority.path("client.key")).read_text(),
        "ssl_keystore_certificate_chain": Path(authority.path("client.crt")).read_text(),
    }
    stores = {
        "ssl_truststore_location": authority.truststore("PKCS12"),
        "ssl_truststore_password": STORE_PASSWORD,
        "ssl_keystore_location": authority.path("client.p12"),
        "ssl_keystore_password": STORE_PASSWORD,
        "ssl_keystore_type": "JKS",  # Java's default, which reads PKCS12 too
    }
    jks = {
        "ssl_truststore_location": authority.truststore("JKS"),
        "ssl_truststore_password": STORE_PASSWORD,
        "ssl_keystore_location": authority.jks("client", KEY_PASSWORD),
        "ssl_keystore_password": STORE_PASSWORD,
        "ssl_key_password": KEY_PASSWORD,
    }
    encrypted = {"ssl_keystore_location": authority.encrypted("client"), "ssl_key_password": KEY_PASSWORD}
    return {
        "SSL": ("SSL", trust),
        "SSL, any name": ("ELSEWHERE", trust | {"ssl_endpoint_identification_algorithm": ""}),
        "SSL, one suite": ("SSL", trust | {"ssl_cipher_suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"}),
        "mTLS, PKCS12": ("MTLS", stores),
        "mTLS, JKS": ("MTLS", jks),
        "mTLS, PEM with a password": ("MTLS", trust | encrypted),
        "mTLS, in the options": ("MTLS", inside),
        "PLAIN": ("SASL", PLAIN),
        "SCRAM-SHA-256": ("SASL", scram(number=256)),
        "SCRAM-SHA-512 over TLS": ("SASL_SSL", trust | scram()),
        "PLAIN over TLS 1.2": ("SASL_SSL", trust | PLAIN | {"ssl_protocol": "TLSv1.2"}),
        "OAUTHBEARER, unsecured": ("SASL", UNSECURED),
        "OAUTHBEARER, a class over TLS": (
            "SASL_SSL",
            trust | {"sasl_mechanism": "OAUTHBEARER", "sasl_login_callback_handler_class": "test_connections:Tokens"},
        ),
    }


NAMES = (
    "SSL", "SSL, any name", "SSL, one suite", "mTLS, PKCS12", "mTLS, JKS", "mTLS, PEM with a password",
    "mTLS, in the options", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512 over TLS", "PLAIN over TLS 1.2",
    "OAUTHBEARER, unsecured", "OAUTHBEARER, a class over TLS",
)  # fmt: skip


@pytest.mark.parametrize("way", NAMES)
def test_all_connections_work(kafka, records, group, ways, way):
    listener, more = ways[way]
    works(options(kafka, listener, records, group, **more), group)


@pytest.fixture
def delegation_token(kafka, tmp_path):
    """Id and HMAC of a token of SCRAM_USER, made by Kafka's tool."""
    config = tmp_path / "admin.properties"
    config.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.jaas.config={in_properties(scram()['sasl_jaas_config'])}\n"
    )

    def tool(*action):
        return kafka.run_tool(
            "org.apache.kafka.tools.DelegationTokenCommand", "--bootstrap-server", kafka.servers_of("SASL"),
            "--command-config", str(config), *action,
        )  # fmt: skip

    token_id, mac = tool("--create", "--max-life-time-period", "-1").strip().splitlines()[-1].split()[:2]
    # The controller answers before the broker has read the token from the metadata log.
    wait_until(lambda: token_id in tool("--describe", "--owner-principal", f"User:{SCRAM_USER}"), 30)
    return token_id, mac


def test_a_delegation_token_authenticates_driver_executors_listener_and_tools(kafka, records, group, delegation_token):
    token_id, mac = delegation_token
    of_token = jaas("scram", username=token_id, password=mac, tokenauth="true")
    given = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": of_token}
    works(options(kafka, "SASL", records, group, **given), group)
    wrong = given | {"sasl_jaas_config": jaas("scram", username=token_id, password="d3Jvbmc=", tokenauth="true")}
    with pytest.raises(AuthenticationError, match=f"delegation token {token_id} with this HMAC .*has expired"):
        works(options(kafka, "SASL", records, group, **wrong), group)
    without = given | {"sasl_jaas_config": of_token.replace('tokenauth="true"', "")}
    with pytest.raises(AuthenticationError):
        works(options(kafka, "SASL", records, group, **without), group)


def unsecured(**claims):
    from spark_kafka_group.wire.client.tokens import _base64url

    return f"{_base64url({'alg': 'none'})}.{_base64url({'iat': 1, 'exp': 2**33} | claims)}."


class Tokens:
    """Tokens of the user's own."""

    def token(self):
        return unsecured(sub="alice")

    def extensions(self):
        return {"traceId": "1"}


@pytest.fixture
def endpoint(token_endpoint):
    """A token endpoint that knows one client, and keeps its requests."""
    asked = []

    class Endpoint(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            asked.append((self.headers["Authorization"], form))
            known = self.headers["Authorization"] == "Basic Ymlja2VyOnMzY3JldA=="  # bicker:s3cret
            answer = (
                {"access_token": unsecured(sub="alice"), "expires_in": 300} if known else {"error": "invalid_client"}
            )
            self.send_response(200 if known else 401)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_):
            pass

    port = token_endpoint.getsockname()[1]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Endpoint, bind_and_activate=False)
    server.socket.close()
    server.socket = token_endpoint.dup()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{port}/token", asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_token_is_asked_for_once_and_used_by_all_connections(kafka, records, group, endpoint):
    url, asked = endpoint
    more = {
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_jaas_config": jaas("oauth", clientId="bicker", clientSecret="s3cret", scope="kafka read"),
        "sasl_oauthbearer_token_endpoint_url": url,
    }
    works(options(kafka, "SASL", records, group, **more), group)
    assert asked == [("Basic Ymlja2VyOnMzY3JldA==", {"grant_type": ["client_credentials"], "scope": ["kafka read"]})]


@pytest.mark.parametrize(
    "mechanism", ["PLAIN", *(pytest.param(name, marks=pytest.mark.soak) for name in ("SCRAM-SHA-256", "OAUTHBEARER"))]
)
def test_sasl_over_tls_through_spark(kafka, records, group, authority, endpoint, spark, tmp_path, mechanism):
    url, asked = endpoint
    ways = {
        "PLAIN": PLAIN,
        "SCRAM-SHA-256": scram(number=256),
        "OAUTHBEARER": {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_jaas_config": jaas("oauth", clientId="bicker", clientSecret="s3cret"),
            "sasl_oauthbearer_token_endpoint_url": url,
        },
    }
    trust = {"ssl_truststore_location": authority.certificate}
    given = options(kafka, "SASL_SSL", records, group, **trust, **ways[mechanism])
    query = (
        spark.readStream.format("groupkafka")
        .options(**given)
        .load()
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "rows"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    rows = spark.read.parquet(str(tmp_path / "rows")).select("value").collect()
    assert sorted(bytes(row.value) for row in rows) == sorted(b"v%d" % n for n in range(10) for _ in range(3))
    assert committed(kafka, group) == {(records, partition): 10 for partition in range(3)}
    if mechanism == "OAUTHBEARER":
        assert len(asked) >= 2, "by the reader beside the driver and by a worker"


def test_a_token_in_a_file_is_looked_at_for_each_connection(kafka, records, group, tmp_path, monkeypatch):
    file = tmp_path / "a token"
    file.write_text(unsecured(sub="alice") + "\n")
    monkeypatch.setenv("SPARK_KAFKA_GROUP_OAUTH_ALLOWED_URLS", f"https://idp/token, {file.as_uri()}")
    more = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token_endpoint_url": file.as_uri()}
    works(options(kafka, "SASL", records, group, **more), group)


def test_an_executors_connection_is_replaced_before_its_authentication_is_over(kafka, records, authority, caplog):
    trust = {"ssl_truststore_location": authority.certificate}
    parsed = Options.parse(options(kafka, "BRIEF", records, **trust, **scram(number=256)))
    brokers = brokers_for(parsed)
    try:
        first = brokers.connection(1)
        assert brokers.connection(1) is first
        wait_until(lambda: first.stale, within=REAUTHENTICATE_MS / 1000)
        assert brokers.connection(1) is not first
    finally:
        brokers.close()


@pytest.mark.parametrize("waited", [0.5, 1.0])
def test_a_connection_of_lookups_is_as_old_for_records_as_it_is(kafka, records, authority, waited):
    trust = {"ssl_truststore_location": authority.certificate}
    brokers = brokers_for(Options.parse(options(kafka, "BRIEF", records, **trust, **scram(number=256))))
    tp = TopicPartition(records, 0)
    lifetime_s = REAUTHENTICATE_MS / 1000
    try:
        brokers.leaders([tp], refresh=True)
        looked_up_over = brokers._client._manager._conns[1]
        until_s = looked_up_over._reauth.authenticated_at + lifetime_s
        wait_until(lambda: time.monotonic() > until_s - lifetime_s * (1 - waited), within=lifetime_s)
        connection = brokers.connection(1)
        over_s = until_s if waited < 1 else time.monotonic() + lifetime_s
        wait_until(lambda: connection.stale or time.monotonic() > over_s, within=2 * lifetime_s)
        assert time.monotonic() < over_s
        connection = brokers.connection(1)
        connection.send({tp: 0})
        assert [found.error for found in connection.receive()] == [None]
    finally:
        brokers.close()


def test_a_connection_of_lookups_that_is_busy_is_not_used_for_records(kafka, records, authority):
    """1. The connection of lookups is being authenticated again. 2. It is needed for records."""
    trust = {"ssl_truststore_location": authority.certificate}
    brokers = brokers_for(Options.parse(options(kafka, "BRIEF", records, **trust, **scram(number=256))))
    tp = TopicPartition(records, 0)
    try:
        brokers.leaders([tp], refresh=True)
        manager = brokers._client._manager
        manager.call_soon(manager._conns[1]._reauth._run)
        connection = brokers.connection(1)
        connection.send({tp: 0})
        assert [found.error for found in connection.receive()] == [None]
    finally:
        brokers.close()


@pytest.mark.parametrize("kind", [JoinGroupRequest, OffsetCommitRequest])
def test_a_request_that_waits_for_an_authentication_which_is_refused_goes_over_a_new_connection(
    kafka, authority, caplog, kind
):
    """1. Time to authenticate the coordinator's connection again. 2. A request waits for it. 3. It succeeds, for so
    short a time that it is due once more within a second. 4. The broker refuses that: ILLEGAL_SASL_STATE.
    """
    topic = kafka.create_topic(f"topic-{uuid.uuid4().hex[:10]}")
    kafka.produce(topic, [b"v"])
    trust = {"ssl_truststore_location": authority.certificate}
    driver = StreamDriver(Options.parse(options(kafka, "BRIEF", topic, f"group-{topic}", **trust, **scram(number=256))))
    try:
        start = driver.initial_offset()
        end = driver.latest_offset(start, None)
        driver.plan(start, end)
        manager = driver._session.member.client._manager
        (conn,) = (conn for name, conn in manager._conns.items() if str(name).startswith("coordinator-"))
        authenticate, send = conn._sasl_authenticate, conn.send_request

        async def twice():
            await authenticate()
            await authenticate()

        def sent(request, *how, **more):
            if isinstance(request, kind) and not conn._reauth.is_reauthenticating:
                conn._sasl_authenticate = twice
                conn._reauth._reauthenticating = True
                manager.call_soon(conn._reauth._run)
            return send(request, *how, **more)

        conn.send_request = sent
        kafka.produce(topic, [b"v"])
        after = driver.latest_offset(end, None)
        assert "re-authentication failed" in caplog.text
        assert "IllegalSaslState" in caplog.text
        assert conn.closed
        assert after["@group"]["generation"] > end["@group"]["generation"]
        assert after[topic] == {"0": 2}
    finally:
        driver.stop()


def test_logs_are_sampled_again_once_a_login_that_was_refused_is_right(kafka, records, caplog):
    backlog = [OffsetRange(TopicPartition(records, partition), 0, 10) for partition in range(3)]
    samples = LogSamples(Options.parse(options(kafka, "SASL", records, **scram())))

    def sampled():
        caplog.clear()
        samples._samples.clear()
        samples._brokers.drop_all()
        samples.share(backlog, 100, 0)
        return "logs cannot be sampled" not in caplog.text

    try:
        with caplog.at_level(logging.INFO, "spark_kafka_group"):
            assert sampled()
            add_user(kafka, SCRAM_USER, "another")
            assert not sampled(), "it is refused"
            add_user(kafka, SCRAM_USER)
            assert sampled()
    finally:
        add_user(kafka, SCRAM_USER)
        samples.close()


def test_logs_are_watched_again_once_a_login_that_was_refused_is_right(kafka, records, monkeypatch):
    monkeypatch.setattr("spark_kafka_group.driver.backlog.long_poll.AGAIN_AFTER_ERROR_S", 0.0)
    ends = {TopicPartition(records, partition): 10 for partition in range(3)}
    watch = LongPoll(Options.parse(options(kafka, "SASL", records, **scram())), lambda: 0.0)
    try:
        watch.start(ends, 0.0)
        assert watch.nothing_new()
        add_user(kafka, SCRAM_USER, "another")
        (node_id,) = watch._asked
        watch._brokers.connection(node_id)._sock.shutdown(socket.SHUT_RDWR)
        assert not watch.nothing_new()
        watch.start(ends, 0.0)
        assert not watch.nothing_new(), "it is refused"
        add_user(kafka, SCRAM_USER)
        watch.start(ends, 0.0)
        assert watch.nothing_new()
    finally:
        add_user(kafka, SCRAM_USER)
        watch.close()
