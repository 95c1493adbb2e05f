"""GSSAPI, against a broker that takes Kerberos tickets and a KDC of MIT's; `make test-kerberos` runs it."""

import time
import uuid

import pytest
from kdc import BROKER, REALM, Realm
from secured import works

from spark_kafka_group.errors import AuthenticationError, BrokerError, OptionError
from spark_kafka_group.executor.reading.read import brokers_for
from spark_kafka_group.options import Options
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.wire.admin import GroupAdmin
from spark_kafka_group.wire.client import kerberos

pytestmark = pytest.mark.kerberos
MODULE = "com.sun.security.auth.module.Krb5LoginModule"


@pytest.fixture(scope="module")
def realm(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched, Realm(tmp_path_factory.mktemp("kdc")) as realm:
        patched.setenv("KRB5_CONFIG", str(realm.config))
        patched.delenv("KRB5CCNAME", raising=False)
        yield realm


@pytest.fixture(scope="module")
def kafka(realm):
    """A broker with a listener for tickets; its JVM has the realm's krb5.conf."""
    keytab = realm.keytab(BROKER)

    properties = {
        "listener.name.kerberos.sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.kerberos.gssapi.sasl.jaas.config": login(
            f'useKeyTab=true storeKey=true keyTab="{keytab}" principal="{BROKER}@{REALM}"'
        ),
        "sasl.kerberos.service.name": "kafka",
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={realm.config}")
        with KafkaCluster(properties=properties, listeners={"KERBEROS": "SASL_PLAINTEXT"}) as kafka:
            yield kafka


@pytest.fixture(scope="module")
def keytab(realm):
    return realm.keytab("reader")


@pytest.fixture
def topic(kafka):
    topic = kafka.create_topic(f"topic-{uuid.uuid4().hex[:10]}", partitions=3)
    for partition in range(3):
        kafka.produce(topic, [b"v%d" % n for n in range(10)], partition=partition)
    return topic


@pytest.fixture
def given(kafka, topic, group, keytab):
    kerberos.tickets_of.cache_clear()
    return {
        "kafka.bootstrap.servers": kafka.servers_of("KERBEROS"),
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "GSSAPI",
        "kafka.sasl.kerberos.service.name": "kafka",
        "kafka.sasl.jaas.config": login(f'useKeyTab=true storeKey=true keyTab="{keytab}" principal="reader@{REALM}"'),
        "kafka.group.id": group,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }


def login(options):
    return f"{MODULE} required {options};"


def test_a_keytab_authenticates_driver_executors_listener_and_tools(given, group):
    works(given, group)


def test_a_ticket_cache_authenticates_driver_executors_listener_and_tools(given, group, realm, keytab):
    cache = realm.ticket_cache("reader", keytab)
    works(given | {"kafka.sasl.jaas.config": login(f'useTicketCache=true ticketCache="{cache}"')}, group)


def test_the_service_may_be_named_in_the_login_module(given, group):
    del given["kafka.sasl.kerberos.service.name"]
    given["kafka.sasl.jaas.config"] = given["kafka.sasl.jaas.config"].replace(";", ' serviceName="kafka";')
    works(given, group)


def test_tickets_that_have_ended_are_asked_for_again(given, realm):
    brief = realm.keytab("brief", "-maxlife", "5s")
    given["kafka.sasl.jaas.config"] = login(f'useKeyTab=true keyTab="{brief}" principal="brief@{REALM}"')
    brokers = brokers_for(Options.parse(given))
    try:
        brokers.leaders([], refresh=True)
        over = time.monotonic() + 7
        wait_until(lambda: time.monotonic() > over, within=20)
        brokers.close()
        brokers.leaders([], refresh=True)
    finally:
        brokers.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            'useKeyTab=true keyTab="{keytab}" principal="nobody@TEST.EXAMPLE"',
            "nobody@.* of keytab /.*/reader.keytab",
        ),
        ('useTicketCache=true ticketCache="/nowhere/cache"', "ticket cache /nowhere/cache, for kafka@127.0.0.1, by"),
    ],
)
def test_tickets_that_cannot_be_had_end_the_query(given, keytab, options, message):
    given["kafka.sasl.jaas.config"] = login(options.replace("{keytab}", keytab))
    with pytest.raises(AuthenticationError, match=message):
        GroupAdmin(Options.parse(given))


def test_a_service_that_the_realm_does_not_know_is_named(given):
    given["kafka.sasl.kerberos.service.name"] = "kavka"
    with pytest.raises(AuthenticationError, match="not found in Kerberos database: .*, for kavka@127.0.0.1"):
        GroupAdmin(Options.parse(given))


def test_a_kdc_that_is_away_is_asked_again(given, realm, group):
    realm.stop()
    try:
        with pytest.raises(BrokerError, match="(?i)contact any KDC") as raised:
            GroupAdmin(Options.parse(given | {"kafka.request.timeout.ms": "6000"}))
        assert not isinstance(raised.value, AuthenticationError)
    finally:
        realm.start()
    works(given, group)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            'useKeyTab=true keyTab="/no/such.keytab" principal="reader"',
            r"\(/no/such.keytab\) cannot be read",
        ),
        ('useKeyTab=true principal="reader"', 'which needs keyTab="..."'),
        ("useKeyTab=yes", "must have useKeyTab=true or useKeyTab=false"),
        ("storeKey=true", "needs useKeyTab=true with keyTab and principal, or useTicketCache=true"),
    ],
)
def test_settings_that_cannot_work_are_refused(given, options, message):
    with pytest.raises(OptionError, match=message):
        Options.parse(given | {"kafka.sasl.jaas.config": login(options)})
