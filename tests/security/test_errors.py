"""Errors when broker and query do not fit: at once where they would recur, and without secrets."""

import logging
import time

import pytest
from secured import PASSWORD, PLAIN, UNSECURED, jaas, options, scram
from support.certificates import STORE_PASSWORD

from spark_kafka_group.errors import AuthenticationError, BrokerError, BrokerTimeoutError
from spark_kafka_group.executor.reading.read import brokers_for, read
from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import OffsetRange, ReadTask, TopicPartition
from spark_kafka_group.wire import GroupClient
from spark_kafka_group.wire.client import wrong_addresses
from spark_kafka_group.wire.group.non_member import NonMemberCommitter

WRONG = "wr0ng-s3cret"
SECRETS = (WRONG, PASSWORD, STORE_PASSWORD, "eyJ")


@pytest.fixture
def cases(authority, stranger):
    """By name: listener, security.protocol, settings, and the error's text."""
    trust = {"ssl_truststore_location": authority.certificate}
    unknown = {"ssl_truststore_location": stranger.certificate}
    wrong_plain = PLAIN | {"sasl_jaas_config": jaas("plain", username="alice", password=WRONG)}
    expired = jaas("oauth", unsecuredLoginStringClaim_sub="alice", unsecuredLoginLifetimeSeconds="-100")
    keystore = {"ssl_keystore_location": stranger.path("client.pem")}
    return {
        "PLAIN": (
            "SASL",
            "SASL_PLAINTEXT",
            wrong_plain,
            r"user alice with this password \(PLAIN\): .*see username and",
        ),
        "SCRAM": ("SASL_SSL", "SASL_SSL", trust | scram("alice", WRONG), r"user alice with this .*SCRAM-SHA-512"),
        "no such user": ("SASL", "SASL_PLAINTEXT", scram("nobody"), "user nobody with this password"),
        "token": (
            "SASL",
            "SASL_PLAINTEXT",
            UNSECURED | {"sasl_jaas_config": expired},
            "does not take the token .*invalid_token",
        ),
        "mechanism": ("BRIEF", "SASL_SSL", trust | PLAIN, "does not have kafka.sasl.mechanism PLAIN: take one of"),
        "SASL, where is none": ("SSL", "SASL_SSL", trust | PLAIN, "takes no SASL: set kafka.security.protocol to SSL"),
        "untrusted": ("SSL", "SSL", unknown, "certificate is not trusted: .*kafka.ssl.truststore.location"),
        "system's trust": ("SSL", "SSL", {}, "certificate is not trusted: .*kafka.ssl.truststore.location"),
        "name": ("ELSEWHERE", "SSL", trust, "for another name: .*kafka.ssl.endpoint.identification.algorithm"),
        "no client certificate": ("MTLS", "SSL", trust, "wants a client certificate .*kafka.ssl.keystore.location"),
        "strange client certificate": ("MTLS", "SSL", trust | keystore, "client certificate that it trusts"),
        "TLS to plaintext": ("SASL", "SSL", trust, "kafka.security.protocol SSL"),
        "plaintext to TLS": ("SSL", "PLAINTEXT", {}, "is a TLS listener: set kafka.security.protocol to SSL"),
        "SASL to TLS": ("SASL_SSL", "SASL_PLAINTEXT", PLAIN, "TLS listener: set kafka.security.protocol to SASL_SSL"),
        "plaintext to SASL": ("SASL", "PLAINTEXT", {}, "kafka.security.protocol PLAINTEXT"),
    }


PASSING = ("TLS to plaintext", "plaintext to SASL")
"""A broker that is stopped ends connections in the same way."""
NAMES = (
    "PLAIN", "SCRAM", "no such user", "token", "mechanism", "SASL, where is none", "untrusted", "system's trust",
    "name", "no client certificate", "strange client certificate", "TLS to plaintext", "plaintext to TLS",
    "SASL to TLS", "plaintext to SASL",
)  # fmt: skip


@pytest.mark.parametrize("case", NAMES)
def test_what_cannot_pass_ends_at_once_and_says_what_to_change(kafka, records, group, cases, case, caplog):
    listener, protocol, more, result = cases[case]
    within_ms = 1_000 if case in PASSING else 30_000
    given = options(
        kafka, listener, records, group, security_protocol=protocol, request_timeout_ms=str(within_ms), **more
    )
    parsed = Options.parse(given | {"kafkaConsumer.pollTimeoutMs": str(within_ms)})
    expected = BrokerTimeoutError if case in PASSING else AuthenticationError
    task = ReadTask((OffsetRange(TopicPartition(records, 0), 0, 1),))
    calls = [
        lambda: GroupClient(parsed, group),
        lambda: NonMemberCommitter(parsed, group),
        lambda: list(read(task, parsed)),
    ]
    try:
        for call in calls:
            before = time.monotonic()
            with pytest.raises(expected, match=result) as raised:
                call()
            assert (
                time.monotonic() - before < 20
            )  # not for the request timeout of 30 s, nor for the 120 s of a silent log
            assert not any(secret in str(raised.value) for secret in SECRETS)
    finally:
        brokers_for(parsed).close()
    if case not in PASSING:  # what kafka-python says of it is not left out as an outage is
        assert [r for r in caplog.records if r.name.startswith("kafka.") and r.levelno >= logging.WARNING]
        assert "no broker can be reached" not in caplog.text


@pytest.mark.parametrize("case", PASSING)
def test_a_listener_for_another_protocol_is_given_up_soon(kafka, records, group, cases, case, monkeypatch):
    monkeypatch.setattr(wrong_addresses, "NO_LISTENER_S", 0.3)
    listener, protocol, more, _ = cases[case]
    given = options(kafka, listener, records, group, security_protocol=protocol, **more)
    with pytest.raises(BrokerError, match=f"closes connections of kafka.security.protocol {protocol}") as raised:
        GroupClient(Options.parse(given), group)
    assert not isinstance(raised.value, BrokerTimeoutError)
    assert "Correct kafka.bootstrap.servers, or set kafka.security.protocol to" in str(raised.value)
