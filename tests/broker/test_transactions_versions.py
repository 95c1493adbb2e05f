"""Exactly-once batches on brokers with each way to end transactions: transaction.version 0, 1, 2, and older lines."""

import kafka.errors as kafka_errors
import pytest
from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType
from support import committed, name
from support.exactly_once_runs import (
    Run,
    all_rows,
    killed,
    read,
    rows_of,
    running_source,
    set_transaction_version,
    transaction_options,
    unstable,
)

from spark_kafka_group import BrokerTimeoutError
from spark_kafka_group.testing import wait_until
from spark_kafka_group.testing.cluster import KafkaCluster
from spark_kafka_group.transactions import deciding
from spark_kafka_group.wire.transactions.transaction_client import TransactionClient

STEPS = ("flushed", "deciding", "decided", "half ended", "ended")


def run_through_crashes(kafka, application):
    output, group = kafka.create_topic(name("output"), partitions=2), name("group")
    run = Run(transaction_options(kafka.bootstrap_servers, name("w")), output)
    for batch, where in enumerate(STEPS):
        assert killed(run.options, output, batch, where, {}) == -9
        run.batch(batch)
    run.abort(run.tasks(run.plan(), len(STEPS)))
    assert read(kafka, output) == all_rows(len(STEPS))
    assert unstable(kafka, output) == []
    run.shared = application
    with running_source(application, run, group, len(STEPS), 5):
        run.batch(len(STEPS))
    wait_until(lambda: committed(kafka, group) == {(output, 0): 5}, within=30)  # its coordinator takes the marker
    assert read(kafka, output) == all_rows(len(STEPS) + 1)


@pytest.mark.parametrize("version", [0, 1])  # it is 2 in other tests
@pytest.mark.soak
def test_rows_are_published_once_whatever_the_transaction_version(version, tmp_path):
    with KafkaCluster() as kafka:
        set_transaction_version(kafka, version)
        run_through_crashes(kafka, tmp_path)


@pytest.mark.soak  # each is downloaded first
@pytest.mark.parametrize("line", ["3.3.2", "3.9.1", "4.3.1"])
def test_rows_are_published_once_by_older_brokers(line, tmp_path):
    with KafkaCluster(version=line) as kafka:
        run_through_crashes(kafka, tmp_path)


@pytest.mark.soak
def test_a_batch_of_which_a_part_is_to_be_aborted_and_cannot_be_yet_is_written_again_as_a_whole(monkeypatch):
    """1. A partition has fewer replicas in sync than it needs. 2. Brokers abort a transaction that wrote to it. Later
    versions count no more replicas as needed than a partition has."""
    with KafkaCluster(version="3.3.2") as kafka:
        lacking, output, probed = (kafka.create_topic(name("output"), partitions=2) for _ in range(3))
        first = Run(transaction_options(kafka.bootstrap_servers, name("w"), limit_ms=15_000), lacking)
        second = Run(first.options, output)
        plan = first.plan()
        messages = [first.task(plan, 0, 0, rows_of(0, 0, 3)), second.task(plan, 0, 1, rows_of(0, 1, 3))]
        with monkeypatch.context() as patched:
            patched.setattr(deciding, "finish", stopped)
            with pytest.raises(KeyboardInterrupt):
                first.commit(messages)
        need_replicas(kafka, 2, lacking, probed)
        wait_until(lambda: refuses(kafka, probed), within=30)
        with TransactionClient(first.options.client, "tests", 30_000) as client:
            aborted = messages[0].transaction
            client.give_up(aborted.transactional_id, aborted.producer)
            assert client.describe([aborted.transactional_id])[aborted.transactional_id].is_being_aborted
        with pytest.raises(BrokerTimeoutError, match="committing .* last answer: CONCURRENT_TRANSACTIONS"):
            first.plan()
        need_replicas(kafka, 1, lacking)
        wait_until(lambda: unstable(kafka, lacking) == [], within=30)
        plan = first.plan()
        assert [*read(kafka, lacking), *read(kafka, output)] == []
        first.commit([first.task(plan, 0, 0, rows_of(0, 0, 3)), second.task(plan, 0, 1, rows_of(0, 1, 3))])
        assert read(kafka, lacking) == rows_of(0, 0, 3)
        assert read(kafka, output) == rows_of(0, 1, 3)


def stopped(*_):
    raise KeyboardInterrupt


def need_replicas(kafka, number, *topics):
    of_topic = ConfigResourceType.TOPIC
    kafka.admin.alter_configs(
        [ConfigResource(of_topic, topic, configs={"min.insync.replicas": str(number)}) for topic in topics]
    )


def refuses(kafka, topic):
    with KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, acks="all", retries=0) as producer:
        try:
            producer.send(topic, b"value").get(timeout=10)
        except kafka_errors.NotEnoughReplicasError:
            return True
    return False
