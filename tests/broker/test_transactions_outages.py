"""Brokers that die while a batch is decided and ended: it is published once, by those that are left."""

from concurrent.futures import ThreadPoolExecutor

import kafka.errors as kafka_errors
import pytest
from kafka.admin import ConfigResource, ConfigResourceType
from support import in_sync, name, partitions_of
from support.exactly_once_runs import Run, all_rows, begun, read, set_transaction_version, transaction_options, unstable

from spark_kafka_group import BrokerTimeoutError
from spark_kafka_group.errors import ProducerFencedError
from spark_kafka_group.options.transacting import DECISION_TOPIC
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.transactions import deciding
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.reactions import Request
from spark_kafka_group.wire.transactions.decision_log import CREATED_AS, DecisionLog
from spark_kafka_group.wire.transactions.partition_client import PartitionClient
from spark_kafka_group.wire.transactions.transaction_client import TransactionClient
from spark_kafka_group.wire.transactions.transaction_coordinators import Answered, Coordinators
from spark_kafka_group.wire.transactions.transaction_requests import Attempts


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
        return client.coordinators.node(transactional_id)


def check_values(kafka3, run, values):
    wait_until(lambda: unstable(kafka3, run.topic) == [], within=60)
    assert read(kafka3, run.topic) == values


def check_published(kafka3, run, batches):
    check_values(kafka3, run, all_rows(batches))


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

    def started(attempts):
        if not refused:
            kafka3.node(follower - 1).start()
        refused.append(attempts)
        return pause(attempts)

    replicas = wait_until(lambda: len(found := in_sync(kafka3, topic)) == 2 and found, within=30)
    (follower,) = replicas - {leader}
    with TransactionClient(run.options.client, "tests", 60_000) as client:
        producer = client.take_id(transactional_id, 60_000)
        client.add(transactional_id, producer, [tp])
        die(follower)
        wait_until(lambda: in_sync(kafka3, topic) == {leader}, within=60)
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


@pytest.fixture
def losing_an_answer(monkeypatch):
    """Has the first attempt of a call be made, its answer be lost, and something happen before the next one."""

    def lose(happens):
        attempt, lost = Coordinators._attempt, []

        def answered(self, asking, *arguments):
            found = attempt(self, asking, *arguments)
            if asking.request is not Request.INIT_PRODUCER_ID or lost:
                return found
            lost.append(found)
            happens()
            return {one: Answered(error=kafka_errors.KafkaConnectionError) for one in found}

        monkeypatch.setattr(Coordinators, "_attempt", answered)
        return lost

    return lose


def test_an_id_is_taken_though_its_coordinator_dies_before_it_has_answered(run, die, losing_an_answer):
    transactional_id = name("id")
    with TransactionClient(run.options.client, "tests", 60_000) as client:
        before = client.take_id(transactional_id, 60_000)
        lost = losing_an_answer(lambda: die(coordinator(run, transactional_id)))
        taken = client.take_id(transactional_id, 60_000, before)
        (unanswered,) = lost[0].values()
        assert taken.epoch > unanswered.response.producer_epoch > before.epoch
        client.add(transactional_id, taken, [TopicPartition(run.topic, 0)])
        assert client.commit(transactional_id, taken)


def test_an_id_that_another_process_took_meanwhile_stays_with_that(run, losing_an_answer):
    transactional_id = name("id")
    others = []
    with TransactionClient(run.options.client, "tests", 60_000) as client:
        before = client.take_id(transactional_id, 60_000)
        with TransactionClient(run.options.client, "others", 60_000) as other:
            losing_an_answer(lambda: others.append(other.take_id(transactional_id, 60_000)))
            with pytest.raises(ProducerFencedError, match="another process"):
                client.take_id(transactional_id, 60_000, before)
            other.add(transactional_id, others[0], [TopicPartition(run.topic, 0)])
            assert other.commit(transactional_id, others[0])


def ids_of_two_coordinators(run):
    first, *others = (name("id") for _ in range(20))
    with TransactionClient(run.options.client, "tests", 30_000) as client:
        client.describe([first, *others])
        node = client.coordinators.node
        other = next(one for one in others if node(one) != node(first))
        return first, other, node(other)


def test_transactions_are_aborted_though_another_ones_coordinator_is_silent(kafka3, run):
    """And no later than now: by the time when that one answers, another process may have begun by the same id."""
    tp = TopicPartition(run.topic, 0)
    first, other, node = ids_of_two_coordinators(run)
    with (
        TransactionClient(run.options.client, "tests", 60_000) as client,
        TransactionClient(run.options.client, "newer", 60_000) as newer,
        ThreadPoolExecutor(1) as pool,
    ):
        producers = {one: begun(client, one, tp) for one in (first, other)}
        assert newer.describe([first])[first].open
        kafka3.node(node - 1).pause()
        try:
            aborted = pool.submit(client.abort_all, producers)
            wait_until(lambda: not newer.describe([first])[first].open, within=10)
            since = begun(newer, first, tp, b"newer")
        finally:
            kafka3.node(node - 1).resume()
        aborted.result(60)
        assert not newer.describe([other])[other].open
        assert newer.commit(first, since)
    check_values(kafka3, run, [b"newer"])


def test_what_a_call_that_has_ended_has_looked_at_is_not_used_by_the_next_one(kafka3, run):
    tp, one = TopicPartition(run.topic, 0), name("id")
    with (
        TransactionClient(run.options.client, "tests", 3_000) as client,
        TransactionClient(run.options.client, "newer", 60_000) as newer,
    ):
        older = begun(client, one, tp)
        node = kafka3.node(client.coordinators.node(one) - 1)
        node.pause()
        try:
            with pytest.raises(BrokerTimeoutError):
                client.abort_all({one: older})
        finally:
            node.resume()
        since = begun(newer, one, tp, b"newer")
        for _ in range(3):  # the look's answer is read, at the latest now
            client.describe([name("other")])
        assert newer.commit(one, since)
    check_values(kafka3, run, [b"newer"])


@pytest.fixture(params=[1, 2])
def reluctant(request):
    """Brokers whose coordinators write nothing while one of two replicas is away; by transaction.version."""
    settings = {
        "transaction.state.log.replication.factor": "2",
        "transaction.state.log.min.isr": "2",
        "transaction.state.log.num.partitions": "1",
        "replica.lag.time.max.ms": "2000",
    }
    with KafkaCluster(nodes=3, properties=settings) as kafka:
        set_transaction_version(kafka, request.param)
        yield kafka


@pytest.mark.soak
def test_transactions_are_aborted_as_soon_as_their_coordinator_can_write_again(reluctant, monkeypatch):
    run = Run(transaction_options(reluctant.bootstrap_servers, name("w"), limit_ms=60_000), "")
    tp = TopicPartition(reluctant.create_topic(name("output"), partitions=2, replication=3), 0)
    transactional_id = name("id")

    with TransactionClient(run.options.client, "tests", 60_000) as client:
        producer = begun(client, transactional_id, tp)
        (log,) = partitions_of(reluctant, "__transaction_state")
        leader = log["leader_id"]
        (follower,) = set(log["replica_nodes"]) - {leader}
        reluctant.node(follower - 1).kill()
        wait_until(lambda: in_sync(reluctant, "__transaction_state") == {leader}, within=60)
        pauses, pause = [], Attempts.pause

        def come_back(attempts):
            pauses.append(attempts)
            if len(pauses) == 8:
                reluctant.node(follower - 1).start()
            return pause(attempts)

        monkeypatch.setattr(Attempts, "pause", come_back)
        client.abort_all({transactional_id: producer})
        assert len(pauses) >= 8
        assert not client.describe([transactional_id])[transactional_id].open
    wait_until(lambda: unstable(reluctant, tp.topic) == [], within=30)


def test_decisions_are_kept_as_safely_as_kafkas_own_transactions(kafka3, run):
    run.batch(0)
    (topic,) = kafka3.admin.describe_topics([DECISION_TOPIC])
    assert len(topic["partitions"][0]["replica_nodes"]) == 3
    settings = kafka3.admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, DECISION_TOPIC)])
    found = {name: settings["topic"][DECISION_TOPIC][name]["value"] for name in CREATED_AS}
    assert found == CREATED_AS
    assert found["unclean.leader.election.enable"] == "false"
