"""Transactions with records in a partition that has no leader: nobody ends them before it has one.

Kafka 4.3 and 4.4 write no marker to such a partition, and say that the transaction has ended (KAFKA-20734).
"""

import pytest
from support import name, partitions_of
from support.exactly_once_runs import Run, all_rows, read, transaction_options, unstable

from spark_kafka_group import BrokerTimeoutError
from spark_kafka_group.testing import wait_until
from spark_kafka_group.transactions import deciding


@pytest.fixture
def run(kafka3):
    output = kafka3.create_topic(name("output"), partitions=2, replication=1)
    return Run(transaction_options(kafka3.bootstrap_servers, name("w"), limit_ms=20_000), output)


@pytest.fixture
def node(kafka3, run):
    """The only replica of the output's first partition; it runs again at the end."""
    partitions = sorted(partitions_of(kafka3, run.topic), key=lambda found: found["partition_index"])
    node = kafka3.node(partitions[0]["leader_id"] - 1)
    yield node
    start(kafka3, node)


def kill(kafka3, run, node):
    node.kill()
    wait_until(lambda: any(found["leader_id"] < 0 for found in partitions_of(kafka3, run.topic)), within=60)


def written_and_killed(kafka3, run, node):
    messages = run.tasks(run.plan(), 0)
    kill(kafka3, run, node)
    return messages


def start(kafka3, node):
    node.start()
    kafka3.wait_until_ready()


def waited(doing):
    return pytest.raises(BrokerTimeoutError, match=f"{doing} transactions .* last answer: LEADER_NOT_AVAILABLE")


def check_rows(kafka3, run, rows):
    wait_until(lambda: unstable(kafka3, run.topic) == [], within=60)
    assert read(kafka3, run.topic) == rows


@pytest.mark.soak
def test_rows_that_were_to_be_aborted_meanwhile_are_not_published_with_the_next_batch(kafka3, run, node):
    messages = written_and_killed(kafka3, run, node)
    with waited("aborting"):
        run.abort(messages)
    with waited("aborting"):
        run.plan()
    start(kafka3, node)
    run.batch(0)
    check_rows(kafka3, run, all_rows(1))


@pytest.mark.soak
def test_rows_that_were_decided_meanwhile_are_published_by_the_next_start(kafka3, run, node):
    messages = written_and_killed(kafka3, run, node)
    with waited("committing"):
        run.commit(messages)
    start(kafka3, node)
    run.batch(1)
    messages = run.tasks(run.plan(), 2)
    run.abort(messages)
    check_rows(kafka3, run, all_rows(2))


@pytest.mark.soak
def test_an_abort_gives_up_though_requests_may_be_repeated_without_end(kafka3, run, node, monkeypatch):
    monkeypatch.setattr(deciding, "ABORTED_WITHIN_MS", 5_000)
    endless = Run(transaction_options(kafka3.bootstrap_servers, run.options.prefix, limit_ms=2**31 - 1), run.topic)
    messages = written_and_killed(kafka3, run, node)
    with waited("aborting"):
        endless.abort(messages)


@pytest.mark.soak
def test_a_start_does_not_wait_for_partitions_of_a_batch_that_is_published(kafka3, run, node):
    run.batch(0)
    wait_until(lambda: unstable(kafka3, run.topic) == [], within=60)
    kill(kafka3, run, node)
    assert run.plan().last.batch.batch == 0
