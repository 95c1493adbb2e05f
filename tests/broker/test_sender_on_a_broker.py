"""A sender and one real broker: what it sends is in the log, whatever cuts its connections."""

import threading
import time

import pytest
from kafka.structs import TopicPartition as KafkaTopicPartition
from support import name
from support.batches import batch_of, differences, log_of, numbered, numbers, sender
from support.cutting import CuttingProxy

from spark_kafka_group.errors import BrokerTimeoutError, RecordTooLargeError, WriteError
from spark_kafka_group.executor.writing.sender import Written
from spark_kafka_group.executor.writing.sending import routes
from spark_kafka_group.options.producing import Producing
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.values.offsets import TopicPartition

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(autouse=True)
def disconnected():
    yield
    routes.close_all()


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_records_of_many_batches_are_in_the_logs_in_order(kafka, acks):
    topic = kafka.create_topic(name("topic"), partitions=3)
    tps = [TopicPartition(topic, partition) for partition in range(3)]
    # 1. The metadata name a new partition's leader  2. that broker does not lead it yet, cannot say so to a sender
    # without acks, and closes the connection  3. what was on its way by that connection is lost, as Kafka has it.
    with sender(kafka.bootstrap_servers) as sending:
        for tp in tps:
            sending.send(tp, batch_of(tp, numbered(0, 30)))
        sending.flush()
    with sender(kafka.bootstrap_servers, Producing(acks=acks)) as sending:
        for n in range(30, 3000, 30):
            for tp in tps:
                sending.send(tp, batch_of(tp, numbered(n, n + 30)))
        offset = -1 if acks == "0" else 2999
        assert sending.flush() == dict.fromkeys(tps, Written(2970, offset))
    for tp in tps:
        found = wait_until(lambda tp=tp: len(log := log_of(kafka, tp)) >= 3000 and log, within=30)
        assert differences(numbers(found), range(3000)) == ""


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_taken_by_the_broker_and_read_by_kafka_python(kafka, codec):
    tp = TopicPartition(kafka.create_topic(name("topic")), 0)
    with sender(kafka.bootstrap_servers, Producing(compression_type=codec)) as sending:
        for n in range(0, 200, 50):
            sending.send(tp, batch_of(tp, numbered(n, n + 50), codec))
        sending.flush()
    assert numbers(log_of(kafka, tp)) == list(range(200))


@pytest.mark.soak
def test_connections_that_are_cut_all_the_time_lose_and_double_nothing(kafka):
    topic = kafka.create_topic(name("cut"), partitions=4)
    tps = [TopicPartition(topic, partition) for partition in range(4)]
    each, at_once = 50_000, 250
    with CuttingProxy(seed=7) as proxy:
        options = {"kafka.proxy.url": proxy.url, "kafka.request.timeout.ms": 5000}
        with sender(kafka.bootstrap_servers, Producing(), **options) as sending:
            for n in range(0, each, at_once):
                for tp in tps:
                    sending.send(tp, batch_of(tp, numbered(n, n + at_once, size=60)))
                if n % 2500 == 0:
                    time.sleep(0.25)  # so that many connections are cut meanwhile, most while some are busy
            written = sending.flush()
        assert proxy.cuts >= 3
    for tp in tps:
        assert differences(numbers(log_of(kafka, tp)), range(each)) == ""
        assert written[tp] == Written(each, each - 1)


def test_a_batch_that_is_too_large_for_its_topic_is_halved(kafka):
    tp = TopicPartition(kafka.create_topic(name("small"), configs={"max.message.bytes": "2000"}), 0)
    with sender(kafka.bootstrap_servers) as sending:
        for n in range(0, 600, 200):
            sending.send(tp, batch_of(tp, numbered(n, n + 200, size=50)))
        sending.flush()
    assert numbers(log_of(kafka, tp)) == list(range(600))


def test_a_record_that_is_too_large_for_its_topic_is_an_error_that_says_what_to_change(kafka):
    tp = TopicPartition(kafka.create_topic(name("small"), configs={"max.message.bytes": "2000"}), 0)
    with sender(kafka.bootstrap_servers) as sending:
        sending.send(tp, batch_of(tp, [b"x" * 3000]))
        with pytest.raises(RecordTooLargeError, match=rf"{tp}: .* raise max\.message\.bytes of topic {tp.topic}"):
            sending.flush()


def test_a_record_without_a_key_for_a_compacted_topic_is_refused_in_the_brokers_words(kafka):
    tp = TopicPartition(kafka.create_topic(name("compacted"), configs={"cleanup.policy": "compact"}), 0)
    with sender(kafka.bootstrap_servers) as sending:
        sending.send(tp, batch_of(tp, [b"1"]))
        with pytest.raises(WriteError, match=rf"{tp}: .*INVALID_RECORD: .*needs keys.*Compacted topic cannot accept"):
            sending.flush()


def test_records_that_are_deleted_meanwhile_are_no_loss(kafka):
    tp = TopicPartition(kafka.create_topic(name("deleted")), 0)
    with sender(kafka.bootstrap_servers) as sending:
        sending.send(tp, batch_of(tp, numbered(0, 50)))
        sending.flush()
        kafka.admin.delete_records({KafkaTopicPartition(*tp): 50})
        sending.send(tp, batch_of(tp, numbered(50, 100)))
        assert sending.flush() == {tp: Written(100, 99)}
    assert numbers(log_of(kafka, tp)) == list(range(50, 100))


def test_a_topic_that_is_deleted_and_made_again_fails_the_task_and_another_one_goes_on(kafka):
    tp = TopicPartition(kafka.create_topic(name("again")), 0)
    with sender(kafka.bootstrap_servers) as sending:
        sending.send(tp, batch_of(tp, numbered(0, 50)))
        sending.flush()
        kafka.delete_topic(tp.topic)
        kafka.create_topic(tp.topic)
        sending.send(tp, batch_of(tp, numbered(50, 100)))
        with pytest.raises(WriteError, match=rf"{tp}: rows that the brokers had acknowledged may be lost"):
            sending.flush()
    with sender(kafka.bootstrap_servers) as sending:
        sending.send(tp, batch_of(tp, numbered(0, 100)))
        sending.flush()
    assert set(range(100)) <= set(numbers(log_of(kafka, tp)))


def test_a_topic_that_is_deleted_for_good_is_an_error_soon(kafka):
    tp = TopicPartition(kafka.create_topic(name("gone")), 0)
    with sender(kafka.bootstrap_servers) as sending:
        sending.send(tp, batch_of(tp, numbered(0, 50)))
        sending.flush()
        kafka.delete_topic(tp.topic)
        sending.send(tp, batch_of(tp, numbered(50, 100)))
        with pytest.raises(WriteError, match=rf"topic {tp.topic} does not exist: create it"):
            sending.flush()


def test_partitions_that_are_added_meanwhile_are_written_to(kafka):
    topic = kafka.create_topic(name("growing"))
    with sender(kafka.bootstrap_servers) as sending:
        for partition in range(3):
            if partition:
                kafka.add_partitions(topic, partition + 1)
            tp = TopicPartition(topic, partition)
            sending.send(tp, batch_of(tp, numbered(0, 50)))
        sending.flush()
    assert all(numbers(log_of(kafka, TopicPartition(topic, p))) == list(range(50)) for p in range(3))


def test_a_broker_that_hangs_fails_the_task_in_time_and_closing_does_not_wait_for_it(kafka):
    tp = TopicPartition(kafka.create_topic(name("hanging")), 0)
    with sender(
        kafka.bootstrap_servers, Producing(delivery_timeout_ms=4000), **{"kafka.request.timeout.ms": 2000}
    ) as sending:
        sending.send(tp, batch_of(tp, numbered(0, 50)))
        sending.flush()
        kafka.node(0).pause()
        try:
            began = time.monotonic()
            sending.send(tp, batch_of(tp, numbered(50, 100)))
            with pytest.raises(
                BrokerTimeoutError, match=rf"{tp}: not acknowledged within kafka\.delivery\.timeout\.ms"
            ):
                sending.flush()
            sending.close()
            assert time.monotonic() - began < 12
        finally:
            kafka.node(0).resume()


def test_a_broker_that_hangs_for_a_while_is_outlived(kafka):
    tp = TopicPartition(kafka.create_topic(name("hanging")), 0)
    with sender(kafka.bootstrap_servers, **{"kafka.request.timeout.ms": 1000}) as sending:
        sending.send(tp, batch_of(tp, numbered(0, 50)))
        sending.flush()
        kafka.node(0).pause()
        threading.Timer(3, kafka.node(0).resume).start()
        for n in range(50, 1000, 50):
            sending.send(tp, batch_of(tp, numbered(n, n + 50)))
        sending.flush()
    assert differences(numbers(log_of(kafka, tp)), range(1000)) == ""


def test_tasks_of_a_worker_share_connections_and_producer(kafka):
    tp = TopicPartition(kafka.create_topic(name("tasks")), 0)
    producers, connections = set(), []
    for n in range(0, 500, 50):
        with sender(kafka.bootstrap_servers) as sending:
            sending.send(tp, batch_of(tp, numbered(n, n + 50)))
            sending.flush()
            producers.add(sending._stamping.session.producer_id)
            connections.append(dict(sending._receivers.brokers.connections()))
    assert len(producers) == 1
    assert numbers(log_of(kafka, tp)) == list(range(500))
    assert connections == [connections[0]] * 10
    assert connections[0]


@pytest.mark.soak
def test_the_only_broker_is_killed_under_load_again_and_again_and_nothing_is_lost_or_doubled():
    with KafkaCluster() as kafka:
        topic = kafka.create_topic(name("killed"), partitions=2)
        tps = [TopicPartition(topic, partition) for partition in range(2)]
        sent = 0
        with sender(kafka.bootstrap_servers, **{"kafka.request.timeout.ms": 3000}) as sending:
            for _ in range(4):
                killed = threading.Timer(0.3, kafka.node(0).kill)
                killed.start()
                while killed.is_alive():
                    for tp in tps:
                        sending.send(tp, batch_of(tp, numbered(sent, sent + 20)))
                    sent += 20
                kafka.node(0).start()
                kafka.wait_until_ready()
            written = sending.flush()
        for tp in tps:
            assert differences(numbers(log_of(kafka, tp)), range(sent)) == ""
            assert written[tp] == Written(sent, sent - 1)
