"""Brokers that die while a batch is decided and ended: it is published once, by those that are left."""

import pytest
from exactly_once_runs import Run, all_rows, read, transaction_options, unstable
from kafka.admin import ConfigResource, ConfigResourceType
from support import name

from spark_kafka_group import BrokerTimeoutError
from spark_kafka_group.driver.transactions import deciding
from spark_kafka_group.offsets import TopicPartition
from spark_kafka_group.options.transacting import DECISION_TOPIC
from spark_kafka_group.testing import wait_until
from spark_kafka_group.wire.transactions.attempts import Attempts
from spark_kafka_group.wire.transactions.decision_log import CREATED_AS, DecisionLog
from spark_kafka_group.wire.transactions.partition_client import PartitionClient
from spark_kafka_group.wire.transactions.transaction_client import TransactionClient


@pytest.fixture
def run(kafka3):
    output = kafka3.create_topic(name("output"), partitions=2)
    return Run(transaction_options(kafka3.bootstrap_servers, name("w"), limit_ms=60_000), output)


@pytest.fixture
def die(kafka3):
    """Kills a node; it is started again at the end."""
    dead = []

    def kill(number):
        dead.append(kafka3.node(number - 1))
        dead[-1].kill()

    yield kill
    for node in dead:
        node.start()
    kafka3.wait_until_ready()


def coordinator(run, transactional_id):
    with TransactionClient(run.options.client, "tests", 30_000) as client:
        client.describe([transactional_id])
        return client._coordinators[transactional_id]


def check_published(kafka3, run, batches):
    wait_until(lambda: unstable(kafka3, run.topic) == [], within=60)
    assert read(kafka3, run.topic) == all_rows(batches)


@pytest.mark.soak
def test_a_batch_is_published_if_a_coordinator_dies_after_the_decision(kafka3, run, die, monkeypatch):
    run.batch(0)
    messages = run.tasks(run.plan(), 1)
    finish = deciding.finish

    def dying(client, decisions, decision):
        die(coordinator(run, decision.transactions[0].transactional_id))
        return finish(client, decisions, decision)

    monkeypatch.setattr(deciding, "finish", dying)
    run.commit(messages)
    check_published(kafka3, run, 2)


@pytest.mark.soak
def test_a_batch_is_published_if_the_leader_of_the_decision_topic_dies_before_the_decision(
    kafka3, run, die, monkeypatch
):
    run.batch(0)
    messages = run.tasks(run.plan(), 1)
    append = DecisionLog.append

    def dying(self, *arguments, **named):
        die(kafka3.leader(DECISION_TOPIC))
        return append(self, *arguments, **named)

    monkeypatch.setattr(DecisionLog, "append", dying)
    run.commit(messages)
    check_published(kafka3, run, 2)


@pytest.mark.soak
def test_a_batch_is_published_if_the_drivers_own_coordinator_dies_while_it_decides(kafka3, run, die, monkeypatch):
    run.batch(0)
    messages = run.tasks(run.plan(), 1)
    commit, prefix = TransactionClient.commit, run.options.prefix

    def dying(self, transactional_id, producer):
        if transactional_id == prefix:
            die(coordinator(run, prefix))
        return commit(self, transactional_id, producer)

    monkeypatch.setattr(TransactionClient, "commit", dying)
    run.commit(messages)
    check_published(kafka3, run, 2)


def test_a_decision_waits_for_replicas_that_are_not_in_sync(kafka3, run, die, monkeypatch):
    topic = kafka3.create_topic(name("decisions"), partitions=2, replication=2, configs={"min.insync.replicas": "2"})
    tp, transactional_id = TopicPartition(topic, 0), name("id")
    leader = kafka3.leader(topic)
    refused = []

    def in_sync():
        (found,) = kafka3.admin.describe_topics([topic])
        return next((one["isr_nodes"] for one in found["partitions"] if one["partition_index"] == 0), [])

    def started(attempts):
        if not refused:
            kafka3.node(follower - 1).start()
        refused.append(attempts)
        return pause(attempts)

    wait_until(lambda: len(in_sync()) == 2, within=30)
    (follower,) = set(in_sync()) - {leader}
    with TransactionClient(run.options.client, "tests", 60_000) as client:
        producer = client.take(transactional_id, 60_000)
        client.add(transactional_id, producer, [tp])
        die(follower)
        wait_until(lambda: in_sync() == [leader], within=60)
        with (
            TransactionClient(run.options.client, "tests", 3_000) as impatient,
            pytest.raises(
                BrokerTimeoutError, match="last answer: NOT_ENOUGH_REPLICAS: fewer replicas are in sync than"
            ),
        ):
            PartitionClient(impatient).write(tp, b"key", b"value", transactional_id, producer, 0)
        with monkeypatch.context() as patched:
            pause = Attempts.pause
            patched.setattr(Attempts, "pause", started)
            PartitionClient(client).write(tp, b"key", b"value", transactional_id, producer, 0)
        assert refused
        assert client.commit(transactional_id, producer)
    assert read(kafka3, topic) == [b"value"]


def test_decisions_are_kept_as_safely_as_kafkas_own_transactions(kafka3, run):
    run.batch(0)
    (topic,) = kafka3.admin.describe_topics([DECISION_TOPIC])
    assert len(topic["partitions"][0]["replica_nodes"]) == 3
    settings = kafka3.admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, DECISION_TOPIC)])
    found = {name: settings["topic"][DECISION_TOPIC][name]["value"] for name in CREATED_AS}
    assert found == CREATED_AS
    assert found["unclean.leader.election.enable"] == "false"
