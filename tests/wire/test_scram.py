"""A server that asks for SCRAM with too few iterations gets no proof of the password."""

import base64
import logging

import pytest
from support.scripted import CODES, ScriptedBroker

from spark_kafka_group.errors import AuthenticationError
from spark_kafka_group.executor.reading.read import brokers_for, read
from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import OffsetRange, ReadTask, TopicPartition
from spark_kafka_group.wire import GroupClient
from spark_kafka_group.wire.admin import GroupAdmin
from spark_kafka_group.wire.client import scram, security_configs

PACKAGE, USER = "org.apache.kafka.common.security", 'username="billing" password="hush-7f3a"'
MODULES = {
    "PLAIN": f"{PACKAGE}.plain.PlainLoginModule required {USER};",
    "SCRAM-SHA-256": f"{PACKAGE}.scram.ScramLoginModule required {USER};",
    "SCRAM-SHA-512": f"{PACKAGE}.scram.ScramLoginModule required {USER};",
    "OAUTHBEARER": f'{PACKAGE}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="billing";',
}


class Pretender(ScriptedBroker):
    """Knows no password, and says how often the client has to hash its own."""

    iterations = "1"

    def _SaslHandshake(self, message):
        return {"error_code": 0, "mechanisms": [message.mechanism]}

    def _SaslAuthenticate(self, message):
        first = bytes(message.auth_bytes)
        if not first.startswith(b"n,,"):
            return {"error_code": CODES["SASL_AUTHENTICATION_FAILED"], "error_message": "no"}
        nonce = first.decode().rpartition("r=")[2]
        salt = base64.b64encode(b"salt").decode()
        return {"error_code": 0, "auth_bytes": f"r={nonce}0,s={salt},i={self.iterations}".encode()}

    def proofs(self):
        """How often the client's proof has come."""
        with self._lock:
            sent = [bytes(m.auth_bytes) for m in self._received if m.name == "SaslAuthenticateRequest"]
        assert sent, "no client has authenticated"
        return sum(b",p=" in message for message in sent)


@pytest.fixture
def calls():
    """Clients that connect: kafka-python's, and those of tasks, by name."""

    def tasks(options):
        list(read(ReadTask((OffsetRange(TopicPartition("orders", 0), 0, 1),)), options))

    return {"driver": lambda options: GroupClient(options, "billing"), "tools": GroupAdmin, "tasks": tasks}


def options(broker, mechanism):
    given = {
        "kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders", "kafka.request.timeout.ms": "5000",
        "kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": MODULES[mechanism],
    }  # fmt: skip
    return Options.parse(given)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("who", ["driver", "tools", "tasks"])
def test_who_asks_for_too_few_iterations_gets_no_proof(calls, who, mechanism):
    with Pretender({"orders": 1}) as broker:
        parsed = options(broker, mechanism)
        try:
            for broker.iterations in ("1", "4095", "0", "-1", " 1 "):
                with pytest.raises(AuthenticationError, match=r"iterations, and fewer than 4096 are refused.*servers"):
                    calls[who](parsed)
            assert broker.proofs() == 0
            broker.iterations = "4096"
            with pytest.raises(AuthenticationError, match="does not take user billing with this password"):
                calls[who](parsed)
            assert broker.proofs() > 0
        finally:
            brokers_for(parsed).close()


@pytest.mark.parametrize(
    ("message", "refused"),
    [
        (b"r=a,s=b,i=4095", True), (b"r=a,s=b,i=4096", False), (b"r=a,s=b,i=1,i=4096", False),
        (b"r=a,s=b,i=4096,i=1", True), (b"v=b", False), (b"", False), (b"i=", False), (b"\xff", False),
    ],
)  # fmt: skip
def test_the_number_that_kafka_python_would_take_is_looked_at(message, refused):
    assert (scram.why_not(message) is not None) is refused


@pytest.mark.parametrize("mechanism", MODULES)
def test_credentials_without_tls_are_warned_of_once(caplog, mechanism):
    security_configs._warn_of_plaintext.cache_clear()
    caplog.set_level(logging.INFO)
    with Pretender({"orders": 1}) as broker:
        for _ in range(2):
            with pytest.raises(AuthenticationError):
                GroupClient(options(broker, mechanism), "billing")
    (warning,) = [r.getMessage() for r in caplog.records if "SASL_PLAINTEXT" in r.getMessage()]
    assert "Set it to SASL_SSL" in warning
    assert mechanism in warning
    assert "in the clear" not in caplog.text  # kafka-python's own, for each connection
