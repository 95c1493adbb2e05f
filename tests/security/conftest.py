"""One broker with a listener for each way to be safe, and users with and without rights."""

import uuid

import pytest
from certificates import STORE_PASSWORD, Authority
from kafka.admin import ScramMechanism, UserScramCredentialUpsertion

from spark_kafka_group.testing import KafkaCluster

PACKAGE = "org.apache.kafka.common.security"
PASSWORD = 'p4ss "w\\rd", =x'
SCRAM_USER = "alice=of,wonderland"
REAUTHENTICATE_MS = 2_000


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def jaas(kind, **options):
    """A login module of Kafka's."""
    module = {"plain": "plain.Plain", "scram": "scram.Scram", "oauth": "oauthbearer.OAuthBearer"}[kind]
    given = "".join(f" {name}={quoted(value)}" for name, value in options.items())
    return f"{PACKAGE}.{module}LoginModule required{given};"


def in_properties(text):
    return text.replace("\\", "\\\\")


def settings(authority):
    """The broker's."""
    found = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:alice;User:{SCRAM_USER};User:client",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/",
    }
    tls = {"ssl": "broker", "mtls": "broker", "elsewhere": "elsewhere", "sasl_ssl": "broker", "brief": "broker"}
    for listener, name in tls.items():
        prefix = f"listener.name.{listener}.ssl"
        found |= {
            f"{prefix}.keystore.location": authority.path(f"{name}.p12"),
            f"{prefix}.keystore.password": STORE_PASSWORD,
            f"{prefix}.keystore.type": "PKCS12",
            f"{prefix}.truststore.location": authority.certificate,
            f"{prefix}.truststore.type": "PEM",
            f"{prefix}.client.auth": "required" if listener == "mtls" else "none",
        }
    modules = {
        "plain": jaas("plain", user_alice=PASSWORD),
        "scram-sha-256": jaas("scram"),
        "scram-sha-512": jaas("scram"),
        "oauthbearer": jaas("oauth", unsecuredLoginStringClaim_sub="broker"),
    }
    for listener in ("sasl", "sasl_ssl", "brief"):
        mechanisms = ["scram-sha-256"] if listener == "brief" else list(modules)
        found[f"listener.name.{listener}.sasl.enabled.mechanisms"] = ",".join(mechanisms).upper()
        for mechanism in mechanisms:
            found[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = in_properties(modules[mechanism])
    found["listener.name.brief.scram-sha-256.connections.max.reauth.ms"] = str(REAUTHENTICATE_MS)
    return found


LISTENERS = {
    "SSL": "SSL",
    "MTLS": "SSL",
    "ELSEWHERE": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "BRIEF": "SASL_SSL",
}


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    """The CA of the broker and its clients."""
    made = Authority(tmp_path_factory.mktemp("certificates"), "ca")
    made.sign("broker", san="IP:127.0.0.1,DNS:localhost")
    made.sign("elsewhere", san="DNS:elsewhere.example")
    made.sign("client")
    return made


@pytest.fixture(scope="session")
def stranger(tmp_path_factory):
    """A CA that the broker does not know."""
    made = Authority(tmp_path_factory.mktemp("certificates"), "stranger")
    made.sign("client")
    return made


@pytest.fixture(scope="session")
def kafka(authority):
    """Instead of the one that all tests share, a broker that is safe; its tests administer it without TLS and SASL."""
    with KafkaCluster(properties=settings(authority), listeners=LISTENERS) as kafka:
        for name in ("alice", SCRAM_USER):
            add_user(kafka, name)
        yield kafka


def add_user(kafka, name, password=PASSWORD):
    """A user for both kinds of SCRAM, of which a request takes one."""
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        user = UserScramCredentialUpsertion(name, mechanism, password, iterations=4096)
        assert kafka.admin.alter_user_scram_credentials([user]) == {name: None}


@pytest.fixture(scope="session")
def records(kafka):
    """A topic with 30 records in 3 partitions."""
    topic = kafka.create_topic(f"topic-{uuid.uuid4().hex[:10]}", partitions=3)
    for partition in range(3):
        kafka.produce(topic, [b"v%d" % n for n in range(10)], partition=partition)
    return topic
