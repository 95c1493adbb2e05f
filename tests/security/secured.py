"""The broker of these tests, its users, and the settings of each kind of connection."""

from kafka.admin import ScramMechanism, UserScramCredentialUpsertion
from support.certificates import STORE_PASSWORD

from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.executor.reading.read import brokers_for, read
from spark_kafka_group.options import Options
from spark_kafka_group.values.commit_metadata import instance_id_of
from spark_kafka_group.values.offsets import ReadTask
from spark_kafka_group.wire.admin import GroupAdmin
from spark_kafka_group.wire.group.non_member import NonMemberCommitter

PACKAGE = "org.apache.kafka.common.security"
PASSWORD = 'p4ss "w\\rd", =x'
EVENT_HUBS_USER = "$ConnectionString"
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
        "super.users": f"User:ANONYMOUS;User:alice;User:{EVENT_HUBS_USER};User:{SCRAM_USER};User:client",
        "delegation.token.secret.key": "a-secret-of-all-brokers",
        "transaction.max.timeout.ms": "120000",
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
        "plain": jaas("plain", user_alice=PASSWORD, **{f"user_{EVENT_HUBS_USER}": PASSWORD}),
        "scram-sha-256": jaas("scram"),
        "scram-sha-512": jaas("scram"),
        "oauthbearer": jaas("oauth", unsecuredLoginStringClaim_sub="broker"),
    }
    for listener in ("sasl", "sasl_ssl", "brief"):
        mechanisms = ["scram-sha-256", "oauthbearer"] if listener == "brief" else list(modules)
        found[f"listener.name.{listener}.sasl.enabled.mechanisms"] = ",".join(mechanisms).upper()
        for mechanism in mechanisms:
            found[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = in_properties(modules[mechanism])
            if listener == "brief":
                found[f"listener.name.brief.{mechanism}.connections.max.reauth.ms"] = str(REAUTHENTICATE_MS)
    return found


LISTENERS = {
    "SSL": "SSL",
    "MTLS": "SSL",
    "ELSEWHERE": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "BRIEF": "SASL_SSL",
}


def add_user(kafka, name, password=PASSWORD):
    """A user for both kinds of SCRAM, of which a request takes one."""
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        user = UserScramCredentialUpsertion(name, mechanism, password, iterations=4096)
        assert kafka.admin.alter_user_scram_credentials([user]) == {name: None}


def options(kafka, listener, topic, group=None, **more):
    given = {
        "kafka.bootstrap.servers": kafka.servers_of(listener),
        "kafka.security.protocol": {
            "ELSEWHERE": "SSL",
            "MTLS": "SSL",
            "SASL": "SASL_PLAINTEXT",
            "BRIEF": "SASL_SSL",
        }.get(listener, listener),
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    if group is not None:
        given["kafka.group.id"] = group
    return given | {f"kafka.{name.replace('_', '.')}": value for name, value in more.items()}


def works(given, group):
    """A micro-batch that is read, committed by the listener, then by the driver, and looked at by the tools."""
    parsed = Options.parse(given)
    driver = StreamDriver(parsed)
    try:
        end = driver.latest_offset(driver.initial_offset(), None)
        tasks = driver.plan(driver.initial_offset(), end)
        rows = [
            row["value"] for ranges in tasks for batch in read(ReadTask(ranges), parsed) for row in batch.to_pylist()
        ]
        assert sorted(rows) == sorted(b"v%d" % n for n in range(10) for _ in range(3))
        generation = driver._session.member.generation
        wanted = dict.fromkeys(generation.assignment, 7)
        with NonMemberCommitter(parsed, group) as outside:
            instance_id = instance_id_of(None, end["@group"]["reader"])
            made = outside.commit(list(wanted), lambda found: wanted, "note", generation.id, instance_id)
            assert made is not None
            assert made.offsets == wanted
        assert driver.latest_offset(end, None) == end
        with GroupAdmin(parsed) as admin:
            assert {found.offset for found in admin.committed(group).values()} == {10}
            return admin.describe(group).members[0]
    finally:
        driver.stop()
        brokers_for(parsed).close()


def scram(username=SCRAM_USER, password=PASSWORD, number=512):
    return {
        "sasl_mechanism": f"SCRAM-SHA-{number}",
        "sasl_jaas_config": jaas("scram", username=username, password=password),
    }


PLAIN = {"sasl_mechanism": "PLAIN", "sasl_jaas_config": jaas("plain", username="alice", password=PASSWORD)}
UNSECURED = {"sasl_mechanism": "OAUTHBEARER", "sasl_jaas_config": jaas("oauth", unsecuredLoginStringClaim_sub="alice")}
