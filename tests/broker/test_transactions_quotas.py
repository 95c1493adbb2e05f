"""Transactions of a client whose quota is used up: brokers answer with a throttle time, of up to a second each."""

import contextlib
import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import kafka.errors as kafka_errors
import pytest
from kafka.protocol.admin import AlterClientQuotasRequest
from support import name
from support.exactly_once_runs import begun, unstable

from spark_kafka_group import BrokerTimeoutError
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.reactions import Request
from spark_kafka_group.wire.transactions.decision_log import DecisionLog
from spark_kafka_group.wire.transactions.partition_client import PartitionClient
from spark_kafka_group.wire.transactions.transaction_client import TransactionClient
from spark_kafka_group.wire.transactions.transaction_coordinators import Coordinators
from spark_kafka_group.wire.transactions.transaction_requests import describe

pytestmark = pytest.mark.soak


@pytest.fixture
def run(run_of):
    return run_of(**{"kafka.client.id": name("throttled")})


@pytest.fixture
def used_up(kafka, run, caplog):
    """A context in which a neighbour uses up the quota of requests of this run's clients."""

    @contextlib.contextmanager
    def in_context():
        stopped = threading.Event()

        def use_up():
            with TransactionClient(run.options.client, "tests", 60_000) as neighbour:
                while not stopped.is_set():
                    neighbour.describe([name("id")])

        with ThreadPoolExecutor(1) as pool:
            set_quota(kafka, run, "request_percentage", 0.2)
            neighbour = pool.submit(use_up)
            try:
                wait_until(lambda: "throttled by broker (1000 ms)" in caplog.text, within=60)
                yield
            finally:
                stopped.set()
            neighbour.result(90)

    return in_context


def set_quota(kafka, run, of, value):
    entry = AlterClientQuotasRequest.EntryData
    request = AlterClientQuotasRequest(
        entries=[entry(
            entity=[entry.EntityData(
                entity_type="client-id", entity_name=f"{run.options.client.connection.client_id}-tests"
            )],
            ops=[entry.OpData(key=of, value=float(value), remove=False)],
        )],
        validate_only=False,
    )  # fmt: skip
    manager = kafka.admin._manager
    (found,) = manager.run(manager.send, request).entries
    assert found.error_code == 0


def test_decisions_are_read_though_a_quota_of_bytes_is_used_up(kafka, run):
    value = os.urandom(3000)
    with TransactionClient(run.options.client, "tests", 30_000) as client:
        decisions = DecisionLog(client, name("decisions"))
        decisions.prepare()
        decisions.append(run.options.prefix, value, client.take_id(run.options.prefix, 60_000), 0)
        set_quota(kafka, run, "consumer_byte_rate", 500)  # bytes a second, of the last ten
        assert [decisions.last(run.options.prefix) for _ in range(3)] == [(0, value)] * 3


def test_the_end_of_a_log_is_looked_up_though_a_neighbour_uses_up_the_quota_of_requests(output, run, used_up):
    """Records are another matter: brokers answer Fetch without any while the quota is used up."""
    with used_up(), TransactionClient(run.options.client, "tests", 30_000) as client:
        assert [PartitionClient(client).end_offset(TopicPartition(output, number)) for number in (0, 1)] == [0, 0]


def test_an_id_is_taken_though_a_neighbour_uses_up_the_quota_of_requests(run, used_up):
    one = name("id")
    with TransactionClient(run.options.client, "tests", 20_000) as client:
        producer = client.take_id(one, 60_000)
        with used_up():
            for _ in range(3):
                producer = client.take_id(one, 60_000, producer)


@pytest.mark.parametrize("commit", [True, False])
def test_transactions_are_ended_though_a_neighbour_uses_up_the_quota_of_requests(kafka, output, run, used_up, commit):
    tp, ids = TopicPartition(output, 0), [name("id") for _ in range(5)]
    with TransactionClient(run.options.client, "tests", 60_000) as client:
        producers = {one: begun(client, one, tp) for one in ids}
        with used_up():
            if commit:
                assert all(client.commit_all(producers, {one: [tp] for one in ids}).values())
            else:
                client.abort_all(producers)
        assert not any(found.open for found in client.describe(ids).values())
    assert unstable(kafka, output) == []


def test_a_process_that_was_replaced_leaves_its_successor_alone_while_a_quota_of_requests_is_used_up(
    kafka, output, run, run_of, used_up, monkeypatch
):
    """1. It looks at the id, and the answer has a throttle time. 2. The successor takes the id, and begins. 3. The
    throttle time is over."""
    one, tp, looked, sent = name("id"), TopicPartition(output, 0), threading.Event(), Coordinators._sent
    with (
        TransactionClient(run.options.client, "tests", 60_000) as older,
        TransactionClient(run_of().options.client, "tests", 60_000) as newer,
        ThreadPoolExecutor(1) as pool,
    ):
        producer = begun(newer, one, tp)

        async def noticed(coordinators, asking, request, *message):
            answered = await sent(coordinators, asking, request, *message)
            if coordinators is older.coordinators and request is Request.DESCRIBE_TRANSACTION:
                looked.set()
            return answered

        with used_up():
            monkeypatch.setattr(Coordinators, "_sent", noticed)
            aborted = pool.submit(older.abort_all, {one: producer})
            assert looked.wait(60)
            successor = begun(newer, one, tp, b"of the successor")
            aborted.result(90)
        assert newer.commit(one, successor)
    assert unstable(kafka, output) == []


@pytest.mark.parametrize(("count", "connections"), [(5, 1), (20, 3)])
def test_no_request_for_an_id_waits_behind_another_one(output, run, monkeypatch, count, connections):
    """A broker answers one after the other, and a look would be as old as all throttle times of those before."""
    tp, ids, sent = TopicPartition(output, 0), [name("id") for _ in range(count)], Coordinators._sent
    under_way, most = Counter(), Counter()

    async def counted(coordinators, asking, request, message, node_id):
        under_way[node_id] += 1
        most[node_id] = max(most[node_id], under_way[node_id])
        answered = await sent(coordinators, asking, request, message, node_id)
        under_way[node_id] -= 1
        return answered

    with TransactionClient(run.options.client, "tests", 60_000) as client:
        producers = {one: begun(client, one, tp) for one in ids}
        with monkeypatch.context() as patched:
            patched.setattr(Coordinators, "_sent", counted)
            client.abort_all(producers)
        assert not any(found.open for found in client.describe(ids).values())
    assert set(most.values()) == {1}
    assert len(most) == connections


def test_a_request_that_waits_for_its_throttle_time_is_not_sent_once_its_call_has_ended(run, used_up, monkeypatch):
    one = name("id")
    with used_up(), TransactionClient(run.options.client, "tests", 60_000) as client:
        client.take_id(one, 60_000)
        node_id, sent, send = client.coordinators.node(one), [], client.manager.send
        wait_until(lambda: client.manager.throttles(node_id) or client.describe([one]) is None, within=30)
        monkeypatch.setattr(client.manager, "send", lambda *args, **more: sent.append(args) or send(*args, **more))
        with pytest.raises(kafka_errors.KafkaTimeoutError):
            client.send(describe([one]), node_id, 50)
        client.run(30_000, lambda: client.manager.unthrottled(node_id))
        client.run(1_000, lambda: client.manager._net.sleep(0.1))
        assert sent == []


def test_an_error_says_that_a_quota_of_requests_is_used_up(output, run, used_up):
    one = name("id")
    with TransactionClient(run.options.client, "tests", 60_000) as client:
        producer = begun(client, one, TopicPartition(output, 0))
    with (
        used_up(),
        TransactionClient(run.options.client, "tests", 600) as client,
        pytest.raises(BrokerTimeoutError, match="request_percentage"),
    ):
        client.abort_all({one: producer})
