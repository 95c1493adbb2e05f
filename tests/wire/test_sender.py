"""A sender and brokers that fail in every way: each record is in its log once, in order, or the task fails."""

import time
import uuid

import pytest
from support.batches import batch_of, numbered, numbers, sender
from support.scripted_logs import ScriptedLogs

from spark_kafka_group.errors import BrokerError, BrokerTimeoutError, RecordTooLargeError, WriteError
from spark_kafka_group.executor.writing.sender import Written
from spark_kafka_group.executor.writing.sending import routes
from spark_kafka_group.executor.writing.sending.stamping import Transaction
from spark_kafka_group.options.producing import Producing
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.offsets import TopicPartition

ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 0)
BRIEF = {
    "kafka.request.timeout.ms": 1000,
    "kafka.retry.backoff.ms": 10,
    "kafka.socket.connection.setup.timeout.ms": 500,
}
PASSING = [
    "NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "UNKNOWN_TOPIC_OR_PARTITION", "NETWORK_EXCEPTION", "KAFKA_STORAGE_ERROR",
    "CORRUPT_MESSAGE", "CONCURRENT_TRANSACTIONS",
]  # fmt: skip
AFTER_WRITING = ["written, REQUEST_TIMED_OUT", "written, NOT_ENOUGH_REPLICAS_AFTER_APPEND", "lost", "half", "garbage"]


@pytest.fixture
def broker():
    with ScriptedLogs({"orders": 3, "bills": 1}, nodes=2) as broker:
        yield broker
    routes.close_all()


@pytest.fixture
def sender_of(broker):
    """Makes senders and closes them."""
    made = []

    def make(transaction=None, producing=None, **more):
        made.append(sender(broker.bootstrap_servers, Producing(**(producing or {})), transaction, **(BRIEF | more)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def send(sender, tp, first, end, at_once=10):
    for n in range(first, end, at_once):
        sender.send(tp, batch_of(tp, numbered(n, min(end, n + at_once))))


def sent_and_flushed(sending):
    send(sending, ORDERS, 0, 10)
    sending.flush()


def test_batches_of_several_partitions_are_written_in_order_with_sequence_numbers(broker, sender_of):
    sending = sender_of()
    for n in range(0, 100, 10):
        send(sending, ORDERS, n, n + 10)
        send(sending, BILLS, n, n + 10)
    assert sending.flush() == {ORDERS: Written(100, 99), BILLS: Written(100, 99)}
    assert numbers(broker.values(ORDERS)) == numbers(broker.values(BILLS)) == list(range(100))
    assert [request[ORDERS] for request in broker.requests if ORDERS in request] == list(range(0, 100, 10))
    assert (sending.records, sending.held_bytes) == (200, 0)
    assert broker.transactional_ids == {None}


def test_a_flush_without_records_is_empty_and_asks_nobody(broker, sender_of):
    assert sender_of().flush() == {}
    assert broker.open == 0


@pytest.mark.parametrize("error", PASSING)
def test_an_error_that_passes_is_outlived_in_order(broker, sender_of, error):
    sending = sender_of()
    broker.faults.extend(["", error, error])
    send(sending, ORDERS, 0, 100)
    sending.flush()
    assert numbers(broker.values(ORDERS)) == list(range(100))


@pytest.mark.parametrize("fault", AFTER_WRITING)
@pytest.mark.parametrize("before", [0, 1, 6])
def test_a_batch_that_was_written_without_the_sender_knowing_is_written_once(broker, sender_of, fault, before):
    sending = sender_of()
    broker.faults.extend([""] * before + [fault, "", fault])
    send(sending, ORDERS, 0, 120)
    sending.flush()
    assert numbers(broker.values(ORDERS)) == list(range(120))


def test_a_connection_that_is_cut_again_and_again_loses_and_doubles_nothing(broker, sender_of):
    sending = sender_of()
    broker.faults.extend(["cut", "lost", "", "half", "cut", "", "", "lost", "lost", "", "", "", "cut"] * 3)
    for n in range(0, 300, 10):
        for tp in (ORDERS, BILLS):
            send(sending, tp, n, n + 10)
    sending.flush()
    assert numbers(broker.values(ORDERS)) == numbers(broker.values(BILLS)) == list(range(300))


def test_a_batch_that_is_known_without_its_offset_is_acknowledged(broker, sender_of):
    sending = sender_of()
    broker.faults.append("written, DUPLICATE_SEQUENCE_NUMBER")
    send(sending, ORDERS, 0, 10)
    assert sending.flush() == {ORDERS: Written(10, -1)}
    assert numbers(broker.values(ORDERS)) == list(range(10))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ("TOPIC_AUTHORIZATION_FAILED", "needs the ACL operation Write on Topic orders"),
        ("INVALID_RECORD", "may be compacted, which needs keys"),
        ("INVALID_TIMESTAMP", "message.timestamp.before.max.ms"),
        ("UNSUPPORTED_COMPRESSION_TYPE", "set kafka.compression.type"),
        ("CLUSTER_AUTHORIZATION_FAILED", "IdempotentWrite"),
        ("INVALID_REQUIRED_ACKS", "set kafka.acks to all"),
        ("POLICY_VIOLATION", "a policy of the cluster's"),
        ("UNSUPPORTED_FOR_MESSAGE_FORMAT", "message.format.version"),
        ("UNKNOWN", "UNKNOWN_SERVER_ERROR"),
        ("INVALID_PRODUCER_EPOCH", "another attempt"),
        ("PRODUCER_FENCED", "another attempt"),
        ("TRANSACTION_ABORTABLE", "are to be written again"),
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", "may be lost"),
    ],
)
def test_a_refusal_names_partition_and_error_and_what_to_change(broker, sender_of, error, text):
    sending = sender_of()
    broker.faults.append(error)
    send(sending, ORDERS, 0, 10)
    with pytest.raises(WriteError, match=r"^orders-0: .*") as raised:
        sending.flush()
    assert error in str(raised.value)
    assert text in str(raised.value)
    with pytest.raises(WriteError):
        send(sending, BILLS, 0, 10)  # a sender that has failed stays so
    assert broker.values(ORDERS) == []


@pytest.mark.parametrize("count", [1, 3])
def test_a_batch_that_is_too_large_is_halved_until_it_fits_and_what_follows_stays_in_order(broker, sender_of, count):
    sending = sender_of()
    broker.most_bytes = 300
    for n in range(0, 100 * count, 100):
        sending.send(ORDERS, batch_of(ORDERS, numbered(n, n + 100)))
        send(sending, ORDERS, 1000 + n, 1000 + n + 2)
    sending.flush()
    expected = [range(n, n + 100) for n in range(0, 100 * count, 100)]
    values = numbers(broker.values(ORDERS))
    assert values == [v for n, large in enumerate(expected) for v in [*large, 1000 + 100 * n, 1001 + 100 * n]]
    assert sending.held_bytes == 0
    assert list(sending.halvings) == ["orders"]
    assert 2 <= sending.halvings["orders"] <= 2 * count  # of 987 bytes; the later ones were made as large as the first
    sending.close()
    assert sender_of().halvings == sending.halvings


def test_one_record_that_is_too_large_says_what_to_change(broker, sender_of):
    sending = sender_of()
    broker.most_bytes = 300
    sending.send(ORDERS, batch_of(ORDERS, [b"1", b"x" * 500]))
    with pytest.raises(
        RecordTooLargeError, match=r"orders-0: a record batch of one record, of \d+ bytes.*max\.message\.b"
    ):
        sending.flush()
    assert broker.values(ORDERS) in ([], [b"1"])


def test_a_log_that_ends_before_what_was_acknowledged_fails_the_task(broker, sender_of):
    sending = sender_of()
    send(sending, ORDERS, 0, 50)
    sending.flush()
    log = broker.logs[ORDERS]
    del log.values[20:]
    log.batches.clear()
    send(sending, ORDERS, 50, 60)
    with pytest.raises(
        WriteError, match=r"orders-0: rows .* may be lost: the next ones are at offset 20, though .* 49"
    ):
        sending.flush()


def test_a_log_that_lacks_the_last_batches_of_the_producer_fails_the_task(broker, sender_of):
    sending = sender_of()
    send(sending, ORDERS, 0, 50)
    sending.flush()
    log = broker.logs[ORDERS]
    del log.values[30:]
    log.batches.pop()
    log.batches.pop()
    send(sending, ORDERS, 50, 60)
    with pytest.raises(WriteError, match=r"may be lost.*OUT_OF_ORDER_SEQUENCE_NUMBER.*run again"):
        sending.flush()


def interrupted(broker, sending, count):
    """So many batches are written without an answer, and the broker is killed: it knows the last one again."""
    send(sending, ORDERS, 0, 10)
    sending.flush()
    broker.faults.extend(["mute"] * (count - 1) + ["lost"] + ["cut"] * 100)
    send(sending, ORDERS, 10, 100)
    wait_until(lambda: len(broker.values(ORDERS)) == 10 + 10 * count, within=10)
    broker.forget_all_but_the_last()
    broker.faults.clear()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_batches_that_a_killed_broker_wrote_and_knows_no_more_are_not_written_again(broker, sender_of, count):
    sending = sender_of()
    interrupted(broker, sending, count)
    assert sending.flush() == {ORDERS: Written(100, 99)}
    assert numbers(broker.values(ORDERS)) == list(range(100))
    assert (sending.records, sending.held_bytes) == (100, 0)


def test_where_it_cannot_be_asked_what_was_written_the_task_fails(broker, sender_of):
    broker.may_describe = False
    sending = sender_of()
    interrupted(broker, sending, 3)
    with pytest.raises(WriteError, match=r"may be lost.*OUT_OF_ORDER_SEQUENCE_NUMBER"):
        sending.flush()


@pytest.mark.parametrize("metadata_takes_s", [0.0, 0.3])
def test_a_topic_that_was_made_again_fails_a_task_that_had_written_to_it(broker, sender_of, metadata_takes_s):
    broker.topic_ids["orders"] = uuid.uuid4()
    sending = sender_of()
    send(sending, ORDERS, 0, 10)
    sending.flush()
    broker.topic_ids["orders"] = uuid.uuid4()
    broker.metadata_takes_s = metadata_takes_s  # longer than a batch that was refused waits
    broker.logs[ORDERS].values += [b"another's"] * 100  # so that offsets show nothing
    broker.faults.append("NOT_LEADER_FOR_PARTITION")
    send(sending, ORDERS, 10, 20)
    with pytest.raises(WriteError, match=r"orders-0: .* may be lost: topic orders was deleted and made again"):
        sending.flush()


def test_a_topic_that_was_made_again_before_a_task_wrote_to_it_is_no_loss(broker, sender_of):
    broker.topic_ids["orders"] = uuid.uuid4()
    sending = sender_of()
    send(sending, BILLS, 0, 10)
    sending.flush()
    broker.topic_ids["orders"] = uuid.uuid4()
    send(sending, ORDERS, 0, 10)
    sending.flush()
    assert numbers(broker.values(ORDERS)) == list(range(10))


def test_a_producer_whose_records_were_deleted_begins_to_count_anew(broker, sender_of):
    broker.forgets = True
    sending = sender_of()
    send(sending, ORDERS, 0, 50)
    sending.flush()
    log = broker.logs[ORDERS]
    log.values.clear()
    log.batches.clear()
    log.first_offset = 50
    send(sending, ORDERS, 50, 150)
    assert sending.flush() == {ORDERS: Written(150, 149)}
    assert numbers(broker.values(ORDERS)) == list(range(50, 150))


def test_a_producer_that_was_forgotten_though_its_records_should_be_there_fails_the_task(broker, sender_of):
    broker.forgets = True
    sending = sender_of()
    send(sending, ORDERS, 0, 50)
    sending.flush()
    broker.logs[ORDERS].batches.clear()
    send(sending, ORDERS, 50, 60)
    with pytest.raises(WriteError, match=r"may be lost.*UNKNOWN_PRODUCER_ID"):
        sending.flush()


def test_sequence_numbers_begin_again_after_the_last_one(broker, sender_of):
    sending = sender_of()
    send(sending, ORDERS, 0, 10)
    sending.flush()
    sending._boxes[ORDERS]._sequence_of_0 = (1 << 31) - 35
    broker.logs[ORDERS].batches.clear()
    broker.faults.extend(["", "lost", "", "lost", "cut"])
    send(sending, ORDERS, 10, 100)
    sending.flush()
    assert numbers(broker.values(ORDERS)) == list(range(100))
    sequences = [request[ORDERS] for request in broker.requests]
    assert max(sequences) >= (1 << 31) - 35
    assert sequences[-1] == 55


def test_the_next_task_of_a_worker_goes_on_as_the_same_producer(broker, sender_of):
    connections = []
    for first in (0, 50):
        with sender_of() as sending:
            send(sending, ORDERS, first, first + 50)
            sending.flush()
            connections += sending.brokers.connections()
    assert broker.asked_for_ids == 1
    assert broker.requests[-1] == {ORDERS: 90}
    assert connections[0] == connections[1]


def test_after_a_task_that_failed_there_is_another_producer(broker, sender_of):
    broker.faults.append("INVALID_RECORD")
    failing = sender_of()
    send(failing, ORDERS, 0, 10)
    with pytest.raises(WriteError):
        failing.flush()
    failing.close()
    with sender_of() as sending:
        send(sending, ORDERS, 0, 10)
        sending.flush()
    assert broker.asked_for_ids == 2
    assert numbers(broker.values(ORDERS)) == list(range(10))


def test_what_is_not_acknowledged_in_time_fails_with_the_last_error(broker, sender_of):
    sending = sender_of(producing={"delivery_timeout_ms": 1500})
    broker.faults.extend(["NOT_ENOUGH_REPLICAS"] * 10_000)
    send(sending, ORDERS, 0, 10)
    began = time.monotonic()
    with pytest.raises(
        BrokerTimeoutError,
        match=r"orders-0: not acknowledged within kafka\.delivery\.timeout\.ms \(1500\): NOT_ENOUGH_",
    ):
        sending.flush()
    assert 1.4 <= time.monotonic() - began < 10


def test_a_broker_that_says_nothing_is_given_up_and_the_one_that_leads_by_then_gets_the_records(broker, sender_of):
    sending = sender_of()
    send(sending, ORDERS, 0, 20)
    sending.flush()
    broker.silence(1)
    send(sending, ORDERS, 20, 100)
    sending.flush()
    assert numbers(broker.values(ORDERS)) == list(range(100))


def test_brokers_that_are_all_silent_end_the_task_in_time(broker, sender_of):
    sending = sender_of(producing={"delivery_timeout_ms": 3000})
    send(sending, ORDERS, 0, 20)
    sending.flush()
    broker.silence(1, 2)
    began = time.monotonic()
    send(sending, ORDERS, 20, 40)
    with pytest.raises(BrokerTimeoutError, match=r"kafka\.delivery\.timeout\.ms \(3000\)"):
        sending.flush()
    sending.close()
    assert time.monotonic() - began < 10


def test_brokers_that_go_away_and_come_back_are_outlived(broker, sender_of):
    sending = sender_of()
    send(sending, ORDERS, 0, 50)
    broker.go_away()
    send(sending, ORDERS, 50, 100)
    broker.come_back()
    sending.flush()
    assert numbers(broker.values(ORDERS)) == list(range(100))


def test_brokers_that_cannot_be_reached_at_first_are_an_error_in_time(broker, sender_of):
    broker.go_away()
    sending = sender_of(producing={"delivery_timeout_ms": 1000})
    with pytest.raises(BrokerTimeoutError, match="orders-0: "):
        send(sending, ORDERS, 0, 10)


def test_no_more_requests_are_under_way_than_allowed_and_a_full_buffer_holds_the_task_up(broker, sender_of):
    broker.takes_s["Produce"] = 0.05
    sending = sender_of(producing={"buffer_memory": 1000, "max_in_flight_requests_per_connection": 2})
    most = 0
    for n in range(0, 100, 10):
        send(sending, ORDERS, n, n + 10)
        most = max(most, sending.held_bytes)
        assert all(connection.in_flight <= 2 for _, connection in sending.brokers.connections())
    assert most <= 1000
    sending.flush()
    assert numbers(broker.values(ORDERS)) == list(range(100))


def test_a_buffer_that_stays_full_fails_with_its_limit(broker, sender_of):
    sending = sender_of(producing={"buffer_memory": 200, "max_block_ms": 500}, **{"kafka.request.timeout.ms": 30_000})
    send(sending, ORDERS, 0, 10)
    sending.flush()
    broker.silence(1, 2)
    with pytest.raises(
        BrokerTimeoutError, match=r"kafka\.buffer\.memory \(200 bytes\) is full.*max\.block\.ms \(500\)"
    ):
        send(sending, ORDERS, 10, 100)


def test_a_batch_that_is_larger_than_the_buffer_is_sent_alone(broker, sender_of):
    sending = sender_of(producing={"buffer_memory": 100})
    send(sending, ORDERS, 0, 100, at_once=50)
    sending.flush()
    assert numbers(broker.values(ORDERS)) == list(range(100))


def test_requests_are_no_larger_than_allowed_though_each_has_a_batch(broker, sender_of):
    broker.takes_s["Produce"] = 0.05
    sending = sender_of(producing={"max_request_size": 400})
    for n in range(0, 60, 10):
        for partition in range(3):
            send(sending, TopicPartition("orders", partition), n, n + 10)
    sending.flush()
    assert {len(request) for request in broker.requests} <= {1, 2}
    assert all(numbers(broker.values(TopicPartition("orders", p))) == list(range(60)) for p in range(3))


def test_a_pause_that_a_broker_asks_for_is_kept(broker, sender_of):
    broker.faults.append("throttle")
    sending = sender_of()
    send(sending, ORDERS, 0, 10)
    sending.flush()
    began = time.monotonic()
    send(sending, ORDERS, 10, 20)
    sending.flush()
    assert time.monotonic() - began >= 0.25


def test_without_idempotence_batches_have_no_numbers(broker, sender_of):
    sending = sender_of(producing={"enable_idempotence": False})
    broker.faults.extend(["NOT_LEADER_FOR_PARTITION", "", "cut"])
    send(sending, ORDERS, 0, 50)
    sending.flush()
    assert set(numbers(broker.values(ORDERS))) == set(range(50))
    assert {request[ORDERS] for request in broker.requests} == {-1}
    assert broker.asked_for_ids == 0


def test_a_topic_that_does_not_exist_is_an_error_soon(broker, sender_of, monkeypatch):
    monkeypatch.setattr(routes, "GONE_AFTER_S", 0.5)
    sending = sender_of()
    missing = TopicPartition("missing", 0)
    send(sending, missing, 0, 10)
    with pytest.raises(WriteError, match="missing-0: topic missing does not exist: create it"):
        sending.flush()


def test_a_partition_that_does_not_exist_is_an_error_that_says_how_many_there_are(broker, sender_of, monkeypatch):
    monkeypatch.setattr(routes, "GONE_AFTER_S", 0.5)
    sending = sender_of()
    send(sending, TopicPartition("orders", 9), 0, 10)
    with pytest.raises(WriteError, match="orders-9: topic orders has 3 partitions: add partitions"):
        sending.flush()


def test_a_partition_that_appears_is_written_to(broker, sender_of):
    sending = sender_of()
    added = TopicPartition("orders", 3)
    send(sending, added, 0, 10)
    broker.topics["orders"] = 4
    sending.flush()
    assert numbers(broker.values(added)) == list(range(10))


def test_the_right_to_write_is_named_where_a_producer_id_is_refused(broker, sender_of):
    broker.refuses_ids = "CLUSTER_AUTHORIZATION_FAILED"
    with pytest.raises(BrokerError, match=r"CLUSTER_AUTHORIZATION_FAILED: this user needs .* Write on Topic orders"):
        send(sender_of(), ORDERS, 0, 10)


def test_time_in_which_a_caller_does_something_else_counts_for_no_limit(broker, sender_of):
    broker.takes_s["Produce"] = 0.3
    sending = sender_of(producing={"delivery_timeout_ms": 2500})
    send(sending, ORDERS, 0, 10)
    time.sleep(4)  # longer than both limits: the answer has come long ago
    sending.flush()
    assert numbers(broker.values(ORDERS)) == list(range(10))
    assert len(broker.requests) == 1


def test_in_a_transaction_partitions_are_added_before_their_first_batches(broker, sender_of):
    added = []

    def before_first(tps):
        added.append((set(tps), len(broker.requests)))

    class Producer:
        producer_id, epoch = 7, 3

    sending = sender_of(Transaction("ours-1", Producer(), before_first))
    send(sending, ORDERS, 0, 30)
    sending.flush()
    broker.faults.append("lost")
    send(sending, BILLS, 0, 10)
    sending.flush()
    assert [tps for tps, _ in added] == [{ORDERS}, {BILLS}]
    assert added[0][1] == 0
    assert numbers(broker.values(ORDERS)) == list(range(30))
    assert numbers(broker.values(BILLS)) == list(range(10))
    assert broker.transactional_ids == {"ours-1"}
    assert broker.asked_for_ids == 0
    assert {known[0] for known in broker.logs[ORDERS].batches} == {7}


def test_a_hook_that_fails_fails_the_task_and_nothing_is_sent(broker, sender_of):
    class Producer:
        producer_id, epoch = 7, 3

    def before_first(tps):
        raise BrokerError("fenced")

    sending = sender_of(Transaction("ours-1", Producer(), before_first))
    with pytest.raises(BrokerError, match="fenced"):  # here, or once the leader is known
        sent_and_flushed(sending)
    with pytest.raises(BrokerError, match="fenced"):
        sending.flush()
    assert broker.requests == []


@pytest.mark.parametrize("clean", [True, False], ids=["nothing", "something"])
def test_closing_a_sender_does_not_wait_for_what_is_under_way(broker, sender_of, clean):
    sending = sender_of()
    send(sending, ORDERS, 0, 10)
    sending.flush()
    broker.silence(1, 2)
    if not clean:
        send(sending, ORDERS, 10, 20)
    began = time.monotonic()
    sending.close()
    sending.close()
    assert time.monotonic() - began < 1
    with pytest.raises(RuntimeError):
        sending.flush()
