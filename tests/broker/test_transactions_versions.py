"""Exactly-once batches on brokers with each way to end transactions: transaction.version 0, 1 and 2, and Kafka 3."""

import pytest
from exactly_once_runs import (
    Run,
    all_rows,
    killed,
    read,
    running_source,
    set_transaction_version,
    transaction_options,
    unstable,
)
from support import committed, name

from spark_kafka_group.testing import wait_until
from spark_kafka_group.testing.cluster import KafkaCluster

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


@pytest.mark.soak
@pytest.mark.parametrize("version", [0, 1])  # it is 2 in other tests
def test_rows_are_published_once_whatever_the_transaction_version(version, tmp_path):
    with KafkaCluster() as kafka:
        set_transaction_version(kafka, version)
        run_through_crashes(kafka, tmp_path)


@pytest.mark.soak  # each is downloaded first
@pytest.mark.parametrize("line", ["3.3.2", "3.9.1"])
def test_rows_are_published_once_by_brokers_of_kafka_3(line, tmp_path):
    with KafkaCluster(version=line) as kafka:
        run_through_crashes(kafka, tmp_path)
