"""A sender over TLS, while authentications come to an end, and without rights."""

import time

import pytest
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from secured import REAUTHENTICATE_MS, add_user, options, scram
from support import name
from support.batches import ENCODER, batch_of, log_of, numbered, numbers

from spark_kafka_group.errors import GroupKafkaError, WriteError
from spark_kafka_group.executor.writing.sender import Sender
from spark_kafka_group.executor.writing.sending import routes
from spark_kafka_group.options import Options
from spark_kafka_group.options.producing import Producing
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.offsets import TopicPartition


@pytest.fixture(autouse=True)
def disconnected():
    yield
    routes.close_all()


@pytest.fixture
def tp(kafka):
    return TopicPartition(kafka.create_topic(name("written")), 0)


def sender(kafka, listener, **more):
    return Sender(Options.parse(options(kafka, listener, "unused", **more)).client, Producing(), ENCODER)


def test_large_requests_go_over_tls(kafka, authority, tp):
    with sender(kafka, "SSL", ssl_truststore_location=authority.certificate) as sending:
        for n in range(0, 200, 10):
            sending.send(tp, batch_of(tp, numbered(n, n + 10, size=90_000)))
        sending.flush()
    assert numbers(log_of(kafka, tp, max_poll_records=50)) == list(range(200))


@pytest.mark.soak
def test_connections_are_replaced_before_their_authentications_are_over(kafka, authority, tp):
    trust = {"ssl_truststore_location": authority.certificate}
    with sender(kafka, "BRIEF", **trust, **scram(number=256)) as sending:
        used, problems, sent = set(), set(), 0
        ends = time.monotonic() + 3 * REAUTHENTICATE_MS / 1000
        while time.monotonic() < ends:
            sending.send(tp, batch_of(tp, numbered(sent, sent + 10)))
            sent += 10
            used |= {connection for _, connection in sending.brokers.connections()}
            problems |= {box.problem for box in sending._boxes.values()}
        sending.flush()
    assert len(used) >= 3
    assert problems == {""}
    assert numbers(log_of(kafka, tp)) == list(range(sent))


def allow(kafka, user, topic, operation):
    pattern = ResourcePattern(ResourceType.TOPIC, topic)
    kafka.admin.create_acls([ACL(f"User:{user}", "*", operation, ACLPermissionType.ALLOW, pattern)])


def test_the_right_to_write_to_the_topic_is_all_that_is_needed_and_an_error_names_it(kafka, tp):
    user, other = name("user"), kafka.create_topic(name("other"))
    add_user(kafka, user)

    def written():
        with sender(kafka, "SASL", **scram(user)) as sending:
            sending.send(tp, batch_of(tp, numbered(0, 10)))
            sending.flush()

    with pytest.raises(GroupKafkaError, match=rf"AUTHORIZATION_FAILED: .*ACL operation Write on Topic {tp.topic}"):
        written()  # not even a producer id
    allow(kafka, user, other, ACLOperation.WRITE)
    allow(kafka, user, tp.topic, ACLOperation.DESCRIBE)

    def refused():
        try:
            written()
        except WriteError as error:
            return "the broker refuses the records" in str(error) and str(error)
        except GroupKafkaError:  # brokers have not heard of the rights yet
            return None
        raise AssertionError("written without the right")

    assert f"TOPIC_AUTHORIZATION_FAILED: this user needs the ACL operation Write on Topic {tp.topic}" in wait_until(
        refused, within=20
    )
    allow(kafka, user, tp.topic, ACLOperation.WRITE)

    def succeeded():
        try:
            written()
        except GroupKafkaError:
            return False
        return True

    wait_until(succeeded, within=20)
    assert numbers(log_of(kafka, tp)) == list(range(10))
