"""failOnDataLoss: what counts as a loss, by the names that Spark's own source has for it, and how a query goes on."""

import itertools
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from kafka import KafkaProducer
from kafka.structs import TopicPartition
from support import name
from triggers import batch, by_partition, read, send

from spark_kafka_group.driver import session
from spark_kafka_group.errors import GroupKafkaError
from spark_kafka_group.testing import wait_until

EARLIEST = {"startingOffsets": "earliest"}
GOES_ON = {"failOnDataLoss": "false", "kafkaConsumer.pollTimeoutMs": 2000, "kafka.request.timeout.ms": 3000}


def topic_holding(kafka, values, topic=None):
    """A topic of one partition."""
    topic = topic or name("loss")
    kafka.create_topic(topic)
    send(kafka, topic, 0, values)
    return topic


def remove_records(kafka, topic, before, partition=0):
    """As retention does."""
    kafka.admin.delete_records({TopicPartition(topic, partition): before})


def produce_to_each(kafka, values):
    """Values by topic, with one producer, as each takes a while."""
    with KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, acks="all") as producer:
        sent = [producer.send(topic, b"%d" % value) for topic, some in values.items() for value in some]
        producer.flush()
        for future in sent:
            future.get(timeout=30)


def make_anew(kafka, topic, values=()):
    """Delete the topic and make one of the same name."""
    kafka.delete_topic(topic)
    topic_holding(kafka, values, topic)


def loss(condition, topic=""):
    """The error that Spark's condition is."""
    return pytest.raises(
        GroupKafkaError, match=rf"(?s)KAFKA_DATA_LOSS\.{condition}\b.*{topic}|{topic}.*\.{condition}\b"
    )


def at_once(*streams):
    """What the next trigger of each stream gives, or raises: a loss is doubted for seconds before it is believed."""
    with ThreadPoolExecutor() as pool:
        futures = [pool.submit(stream.trigger) for stream in streams]
    return [future.exception() or future.result() for future in futures]


class TestRecordsThatExpired:
    """COULD_NOT_READ_OFFSET_RANGE."""

    @pytest.fixture
    def topic(self, kafka):
        topic = topic_holding(kafka, range(50))
        remove_records(kafka, topic, before=20)
        return topic

    @pytest.fixture
    def start(self, topic):
        return {"startingOffsets": by_partition(topic, {0: 0})}

    def test_before_a_stream_reads_them(self, kafka, topic, start, stream_of):
        with loss("COULD_NOT_READ_OFFSET_RANGE", topic):
            stream_of(kafka, {"subscribe": topic}, **start).trigger()
        stream = stream_of(kafka, {"subscribe": topic}, **start, **GOES_ON)
        assert stream.trigger() == list(range(20, 50))
        assert stream.trigger() is None
        send(kafka, topic, 0, [50])
        assert stream.trigger() == [50]

    def test_before_a_batch_read_reads_them(self, kafka, topic, start):
        settings = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic} | start
        with loss("COULD_NOT_READ_OFFSET_RANGE", topic):
            read(*batch(settings))
        assert read(*batch(settings | {"failOnDataLoss": "false"})) == list(range(20, 50))

    @pytest.mark.parametrize(("before", "left"), [(30, range(30, 50)), (50, [])], ids=["some", "all"])
    def test_after_the_batch_was_planned(self, kafka, topic, stream_of, before, left):
        for more in ({}, GOES_ON):
            stream = stream_of(kafka, {"subscribe": topic}, **EARLIEST, **more)
            stream.end, stream.tasks = stream.plan()
            if not more:
                strict = stream
        remove_records(kafka, topic, before)
        with loss("COULD_NOT_READ_OFFSET_RANGE", topic):
            read(strict.reader, strict.tasks)
        assert read(stream.reader, stream.tasks) == list(left)
        stream.offset = stream.end
        send(kafka, topic, 0, [50])
        assert stream.trigger() == [50]


def test_records_that_expired_are_no_loss_once_they_were_read(kafka, stream_of):
    topic = topic_holding(kafka, range(10))
    stream = stream_of(kafka, {"subscribe": topic}, **EARLIEST)
    assert stream.trigger() == list(range(10))
    remove_records(kafka, topic, before=10)
    stream.restart()
    send(kafka, topic, 0, [10])
    assert stream.trigger() == [10]


class TestTopicsMadeAnew:
    """PARTITION_OFFSET_CHANGED."""

    def test_between_two_runs(self, kafka, stream_of):
        prefix = name("loss")
        one, other = topic_holding(kafka, [1, 3], f"{prefix}-good"), topic_holding(kafka, [2, 4], f"{prefix}-bad")
        streams = [stream_of(kafka, {"subscribePattern": f"{prefix}-.*"}, **EARLIEST, **more) for more in ({}, GOES_ON)]
        for stream in streams:
            assert stream.trigger() == [1, 2, 3, 4]
            stream.restart()
        make_anew(kafka, other, [6])
        with loss("PARTITION_OFFSET_CHANGED", other):
            streams[0].trigger()
        assert streams[1].trigger() == [6]
        assert streams[1].offset[one] == {"0": 2}

    def test_while_the_tasks_of_a_batch_run(self, kafka, stream_of):
        topic = topic_holding(kafka, range(1, 11))
        stream = stream_of(kafka, {"subscribe": topic}, **EARLIEST, **GOES_ON)
        stream.offset, tasks = stream.plan()
        make_anew(kafka, topic)
        assert read(stream.reader, tasks) == []
        assert stream.trigger() is None
        send(kafka, topic, 0, [100, 101])
        assert wait_until(stream.trigger, within=20) == [100, 101]


def test_a_start_after_the_end_of_the_log(kafka, stream_of):
    topic = topic_holding(kafka, range(10))
    start = {"startingOffsets": by_partition(topic, {0: 50})}
    stops, goes_on = (stream_of(kafka, {"subscribe": topic}, **start, **more) for more in ({}, GOES_ON))
    error, none = at_once(stops, goes_on)
    with loss("PARTITION_OFFSET_CHANGED", topic):
        raise error
    assert none is None
    send(kafka, topic, 0, [10])
    assert goes_on.trigger() == [10]


class TestTopicsDeleted:
    """PARTITIONS_DELETED, with kafka.group.id PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PRESENT."""

    def test_others_that_match_the_pattern_are_read_from_their_first_record(self, kafka, stream_of):
        prefix = name("loss")
        topic = topic_holding(kafka, [-1], f"{prefix}-seems")
        pattern = {"subscribePattern": f"{prefix}-.*"}
        stream = stream_of(kafka, pattern, startingOffsets="latest", **GOES_ON)
        assert stream.trigger() is None
        send(kafka, topic, 0, [1, 2, 3])
        assert stream.trigger() == [1, 2, 3]
        kafka.delete_topic(topic)
        before = stream.offset
        assert stream.trigger() is None  # and the checkpoint does not forget what there was
        assert stream.offset == before
        topic_holding(kafka, [4, 5, 6], f"{prefix}-bad")
        stream.wait_for(4, 5, 6)

    def test_is_an_error_that_names_them(self, kafka, group, stream_of):
        topic, other = topic_holding(kafka, [1]), topic_holding(kafka, [2])
        both = {"subscribe": f"{topic},{other}"}
        streams = [stream_of(kafka, both, **EARLIEST, **more) for more in ({}, {"kafka.group.id": group})]
        for stream in streams:
            assert stream.trigger() == [1, 2]
            stream.restart()
        kafka.delete_topic(other)
        conditions = "PARTITIONS_DELETED", "PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PRESENT"
        for condition, error in zip(conditions, at_once(*streams), strict=True):
            with loss(condition, f"{other}-0"):
                raise error


@pytest.mark.parametrize("more", [{}, GOES_ON], ids=["fail", "go on"])
def test_a_partition_added_whose_first_records_are_gone(kafka, stream_of, more):
    topic = topic_holding(kafka, [0])
    stream = stream_of(kafka, {"subscribe": topic}, **EARLIEST, **more)
    assert stream.trigger() == [0]
    kafka.add_partitions(topic, 2)
    send(kafka, topic, 1, range(10, 15))
    remove_records(kafka, topic, before=2, partition=1)
    if more:
        stream.wait_for(12, 13, 14)
        return
    with loss("ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO", f"{topic}-1"):
        wait_until(stream.trigger, within=20)


@pytest.mark.parametrize("steps", [25, pytest.param(250, marks=pytest.mark.soak)])
def test_topics_that_come_and_go_at_random_never_fail_a_query_that_goes_on(kafka, stream_of, monkeypatch, steps):
    monkeypatch.setattr(session, "DOUBTED_PAUSE_S", 0.02)  # one broker does not tell two things
    prefix, chance = name("stress"), random.Random(7)
    kept = topic_holding(kafka, [], f"{prefix}-kept")
    stream = stream_of(kafka, {"subscribePattern": f"{prefix}-.*"}, **EARLIEST, **GOES_ON)
    values = itertools.count()  # so that what is read twice shows
    topics, sent, fleeting, found = [], [], [], []
    for step in range(steps):
        match chance.randrange(7):
            case 0 | 1:
                topics.append(topic_holding(kafka, [], f"{prefix}-{step}"))
            case 2 if topics:
                kafka.delete_topic(topics.pop(chance.randrange(len(topics))))
            case 3 if topics:
                make_anew(kafka, chance.choice(topics))
            case _:
                some = {topic: list(itertools.islice(values, chance.randrange(1, 10))) for topic in [kept, *topics]}
                produce_to_each(kafka, some)
                sent += some.pop(kept)
                fleeting += itertools.chain(*some.values())
        found += stream.trigger() or []

    def complete():
        found.extend(stream.trigger() or [])
        return set(sent) <= set(found)

    wait_until(complete, within=30)
    assert len(found) == len(set(found))
    assert set(found) <= {*sent, *fleeting}
    assert [value for value in found if value in set(sent)] == sent
    assert set(found) & set(fleeting)
