"""failOnDataLoss: losses, by the conditions of Spark's own source, and how a query goes on."""

import itertools
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import recorders
from kafka import KafkaProducer
from kafka.structs import TopicPartition as KafkaTopicPartition
from support import Record, commit_for, name, produce
from support.triggers import batch, by_partition, read, send

from spark_kafka_group.driver.positions import lookup
from spark_kafka_group.errors import GroupKafkaError
from spark_kafka_group.executor.reading.read import read as read_task
from spark_kafka_group.options import Options
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.offsets import OffsetRange, ReadTask, TopicPartition

pytestmark = pytest.mark.usefixtures("patience")

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
    kafka.admin.delete_records({KafkaTopicPartition(topic, partition): before})


def produce_to_each(kafka, values):
    """Values by topic, with one producer, as each takes a while."""
    with KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, acks="all") as producer:
        sent = [producer.send(topic, b"%d" % value) for topic, some in values.items() for value in some]
        producer.flush()
        for future in sent:
            future.get(timeout=30)


def recreate(kafka, topic, values=()):
    """Delete the topic and make one of the same name."""
    kafka.delete_topic(topic)
    topic_holding(kafka, values, topic)


def loss(condition, topic=""):
    """The error of Spark's condition, with advice."""
    what, todo = (
        rf"\[KAFKA_DATA_LOSS\.{condition}\]",
        "Set failOnDataLoss=false to go on with the records that are left; or start",
    )
    return pytest.raises(GroupKafkaError, match=rf"(?s)({what}.*{topic}|{topic}.*{what}).*{todo}")


@pytest.fixture
def warned(caplog):
    """Checks that a query which goes on has warned of the loss, by Spark's condition, and counted it in its progress.

    ``warned(stream, condition, topic, times, offsets)``: `offsets` is how many, as far as the driver can know.
    """

    def check(stream, condition, topic, times=1, offsets=0):
        shown = stream.reader.reportLatestOffset()["@group"]
        assert (shown["dataLosses"], shown["offsetsLost"]) == (times, offsets)
        found = [m for m in caplog.messages if m.startswith(f"KAFKA_DATA_LOSS.{condition}: ") and topic in m]
        assert len(found) == times
        assert all("as failOnDataLoss is false" in message for message in found)

    return check


def offsets_of(batches):
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


def at_once(*streams):
    """The result or error of each stream's next trigger: a loss is checked for seconds before it counts."""
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

    def test_records_that_expire_before_a_stream_reads_them_are_a_loss(self, kafka, topic, start, stream_of, warned):
        with loss("COULD_NOT_READ_OFFSET_RANGE", topic):
            stream_of(kafka, {"subscribe": topic}, **start).trigger()
        stream = stream_of(kafka, {"subscribe": topic}, **start, **GOES_ON)
        assert stream.trigger() == list(range(20, 50))
        assert stream.trigger() is None
        send(kafka, topic, 0, [50])
        assert stream.trigger() == [50]
        warned(stream, "COULD_NOT_READ_OFFSET_RANGE", topic, offsets=20)

    def test_records_that_expire_before_a_batch_read_reads_them_are_a_loss(self, kafka, topic, start):
        settings = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic} | start
        with loss("COULD_NOT_READ_OFFSET_RANGE", topic):
            read(*batch(settings))
        assert read(*batch(settings | {"failOnDataLoss": "false"})) == list(range(20, 50))

    @pytest.mark.parametrize(("before", "left"), [(30, range(30, 50)), (50, [])], ids=["some", "all"])
    def test_records_that_expire_after_the_batch_was_planned_are_a_loss(
        self, kafka, topic, stream_of, before, left, warned, caplog
    ):
        for more in ({}, GOES_ON):
            stream = stream_of(kafka, {"subscribe": topic}, **EARLIEST, **more)
            stream.end, stream.tasks = stream.plan()
            if not more:
                strict = stream
        remove_records(kafka, topic, before)
        with loss("COULD_NOT_READ_OFFSET_RANGE", topic):
            read(strict.reader, strict.tasks)
        assert read(stream.reader, stream.tasks) == list(left)
        assert f"KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE: {topic}-0: " in caplog.text
        assert f"; skipping 20 to {before - 1}, as failOnDataLoss is false" in caplog.text
        caplog.clear()
        stream.offset = stream.end
        send(kafka, topic, 0, [50])
        assert stream.trigger() == [50]
        warned(stream, "COULD_NOT_READ_OFFSET_RANGE", topic, times=0)  # the driver does not know of it

    @pytest.mark.parametrize("more", [{}, GOES_ON], ids=["fail", "go on"])
    def test_records_that_expire_while_a_task_reads_them_are_a_loss(self, kafka, more, caplog):
        topic = name("loss")
        kafka.create_topic(topic)
        produce(kafka, topic, [Record(0, None, bytes(100_000)) for _ in range(100)])
        small = {"kafka.max.partition.fetch.bytes": 200_000}
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic} | small | more
        task = ReadTask((OffsetRange(TopicPartition(topic, 0), 0, 100),))
        batches = read_task(task, Options.parse({option: str(value) for option, value in options.items()}))
        found = offsets_of([next(batches)])
        assert found == list(range(len(found)))
        assert len(found) < 60
        remove_records(kafka, topic, before=80)
        if more:
            found += offsets_of(batches)
            last, first = next((a, b) for a, b in itertools.pairwise(found) if b != a + 1)
            assert (first, found) == (80, [*range(last + 1), *range(80, 100)])
            assert f"{topic}-0: the log holds offsets 80 to 100; skipping {last + 1} to 79" in caplog.text
            return
        with loss("COULD_NOT_READ_OFFSET_RANGE", topic) as failed:
            for batch in batches:
                found += offsets_of([batch])
        assert found == list(range(failed.value.offset))
        assert f"{topic}-0: offset {len(found)}: " in str(failed.value)


@pytest.mark.parametrize("committed", [30, 50], ids=["some are left", "none"])
def test_an_interrupted_batch_whose_records_expired_is_a_loss_although_the_group_has_them_committed(
    kafka, group, stream_of, committed
):
    """Nobody knows whether the rows are in the sink. A new checkpoint, or failOnDataLoss=false, goes on."""
    topic = topic_holding(kafka, range(50))
    stream = stream_of(kafka, {"subscribe": topic}, **EARLIEST, **{"kafka.group.id": group})
    end, _ = stream.plan()
    stream.reader.stop()
    commit_for(kafka, group, {(topic, 0): committed})  # as another member that has read them, or an operator
    remove_records(kafka, topic, before=committed)
    stream.restart()
    with loss("COULD_NOT_READ_OFFSET_RANGE", topic):
        read(stream.reader, stream.reader.partitions(stream.offset, end))
    stream.restart(**GOES_ON)
    assert read(stream.reader, stream.reader.partitions(stream.offset, end)) == list(range(committed, 50))
    stream.reader.stop()
    new = stream_of(kafka, {"subscribe": topic}, **{"kafka.group.id": group})
    send(kafka, topic, 0, [50])
    assert new.trigger() == list(range(committed, 51))


def test_records_that_expired_are_no_loss_once_they_were_read(kafka, stream_of):
    topic = topic_holding(kafka, range(10))
    stream = stream_of(kafka, {"subscribe": topic}, **EARLIEST)
    assert stream.trigger() == list(range(10))
    remove_records(kafka, topic, before=10)
    stream.restart()
    send(kafka, topic, 0, [10])
    assert stream.trigger() == [10]


class TestRecreatedTopics:
    """PARTITION_OFFSET_CHANGED."""

    def test_a_topic_that_is_recreated_between_two_runs_is_a_loss(self, kafka, stream_of, warned):
        prefix = name("loss")
        one, other = topic_holding(kafka, [1, 3], f"{prefix}-good"), topic_holding(kafka, [2, 4], f"{prefix}-bad")
        streams = [stream_of(kafka, {"subscribePattern": f"{prefix}-.*"}, **EARLIEST, **more) for more in ({}, GOES_ON)]
        for stream in streams:
            assert stream.trigger() == [1, 2, 3, 4]
            stream.restart()
        recreate(kafka, other, [6])
        with loss("PARTITION_OFFSET_CHANGED", other):
            streams[0].trigger()
        assert streams[1].trigger() == [6]
        assert streams[1].offset[one] == {"0": 2}
        warned(streams[1], "PARTITION_OFFSET_CHANGED", f"{other}-0: offset 2: topic {other} was deleted and made again")

    def test_a_topic_that_is_recreated_while_the_tasks_of_a_batch_run_is_a_loss(self, kafka, stream_of, warned):
        topic = topic_holding(kafka, range(1, 11))
        stream = stream_of(kafka, {"subscribe": topic}, **EARLIEST, **GOES_ON)
        stream.offset, tasks = stream.plan()
        recreate(kafka, topic)
        assert read(stream.reader, tasks) == []
        assert stream.trigger() is None
        send(kafka, topic, 0, [100, 101])
        assert wait_until(stream.trigger, within=20) == [100, 101]
        warned(stream, "PARTITION_OFFSET_CHANGED", f"{topic}-0: offset 10: ")


def test_a_start_after_the_end_of_the_log_is_a_loss(kafka, stream_of, warned):
    topic = topic_holding(kafka, range(10))
    start = {"startingOffsets": by_partition(topic, {0: 50})}
    stops, goes_on = (stream_of(kafka, {"subscribe": topic}, **start, **more) for more in ({}, GOES_ON))
    error, none = at_once(stops, goes_on)
    with loss("PARTITION_OFFSET_CHANGED", topic):
        raise error
    assert none is None
    send(kafka, topic, 0, [10])
    assert goes_on.trigger() == [10]
    warned(goes_on, "PARTITION_OFFSET_CHANGED", f"{topic}-0: offset 50: the log ends at 10")


class TestTopicsDeleted:
    """PARTITIONS_DELETED, with kafka.group.id PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PRESENT."""

    def test_topics_in_place_of_a_deleted_one_are_read_from_their_first_record(self, kafka, stream_of, warned):
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
        warned(stream, "PARTITIONS_DELETED", f"{topic}-0 (read up to 4)")
        topic_holding(kafka, [4, 5, 6], f"{prefix}-bad")
        stream.wait_for(4, 5, 6)

    def test_a_deleted_topic_is_an_error_that_names_its_partitions(self, kafka, group, stream_of, warned):
        topic, other = topic_holding(kafka, [1]), topic_holding(kafka, [2])
        both = {"subscribe": f"{topic},{other}"}
        named = {"kafka.group.id": group}, GOES_ON | {"kafka.group.id": f"{group}-2"}
        streams = [stream_of(kafka, both, **EARLIEST, **more) for more in ({}, *named)]
        for stream in streams:
            assert stream.trigger() == [1, 2]
            stream.restart()
        kafka.delete_topic(other)
        conditions = "PARTITIONS_DELETED", "PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PRESENT"
        *errors, none = at_once(*streams)
        for condition, error in zip(conditions, errors, strict=True):
            with loss(condition, f"{other}-0"):
                raise error
        assert none is None
        warned(streams[-1], conditions[1], f"{other}-0 (read up to 1)")


@pytest.mark.parametrize("more", [{}, GOES_ON], ids=["fail", "go on"])
def test_a_partition_added_whose_first_records_are_gone_is_a_loss(kafka, stream_of, more, warned):
    topic = topic_holding(kafka, [0])
    stream = stream_of(kafka, {"subscribe": topic}, **EARLIEST, **more)
    assert stream.trigger() == [0]
    kafka.add_partitions(topic, 2)
    send(kafka, topic, 1, range(10, 15))
    remove_records(kafka, topic, before=2, partition=1)
    if more:
        stream.wait_for(12, 13, 14)
        warned(stream, "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO", f"{topic}-1", offsets=2)
        return
    with loss("ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO", f"{topic}-1"):
        wait_until(stream.trigger, within=20)


@pytest.mark.parametrize("more", [{}, GOES_ON], ids=["fail", "go on"])
def test_a_partition_added_and_deleted_before_it_was_looked_at_is_a_loss(kafka, stream_of, more, warned):
    prefix = name("loss")
    topic = topic_holding(kafka, [0], f"{prefix}-kept")
    pattern = {"subscribePattern": f"{prefix}-.*", "rebalanceListener": "recorders:Deleting"}
    stream = stream_of(kafka, pattern, **EARLIEST, **({"kafka.request.timeout.ms": 3000} | more))
    assert stream.trigger() == [0]
    brief = f"{prefix}-brief"
    recorders.doomed[brief] = kafka.delete_topic
    topic_holding(kafka, [1], brief)
    found = []

    def met():
        found.extend(stream.trigger() or [])
        return brief not in recorders.doomed

    if more:
        wait_until(met, within=20)
        warned(stream, "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS", f"{brief}-0 was added, and deleted before")
        send(kafka, topic, 0, [2])
        assert (stream.trigger(), found) == ([2], [])
        return
    with loss("INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS", f"{brief}-0"):
        wait_until(met, within=20)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("steps", [25, 150])
@pytest.mark.soak
def test_topics_that_come_and_go_at_random_never_fail_a_query_that_goes_on(kafka, stream_of, monkeypatch, steps):
    monkeypatch.setattr(lookup, "PAUSE_S", 0.02)  # one broker does not tell two things
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
                recreate(kafka, chance.choice(topics))
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
