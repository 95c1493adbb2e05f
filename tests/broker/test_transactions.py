"""Transactions on a real broker: rows of read_committed, its end, and why it waits."""

import contextlib
import itertools
import json
import random
import time

import pytest
from support import commit_for, committed, name, options
from support.transactions import Writer, consumed, log_end

from spark_kafka_group import BrokerTimeoutError, OptionError, ReadError
from spark_kafka_group.driver import batch_read, planner
from spark_kafka_group.executor.reading.read import brokers_for, read
from spark_kafka_group.options import Options
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.values.offsets import OffsetRange, ReadTask, TopicPartition
from spark_kafka_group.wire import GroupClient

pytestmark = pytest.mark.usefixtures("patience")

COMMITTED = {"kafka.isolation.level": "read_committed"}
UNCOMMITTED = {"kafka.isolation.level": "read_uncommitted"}
SMALL = {"kafka.max.partition.fetch.bytes": 1, "kafka.fetch.max.bytes": 1024}
"""Every fetch returns one record batch."""


@pytest.fixture
def topic(kafka):
    """With one partition."""
    return kafka.create_topic(name("transactions"), partitions=1)


@pytest.fixture
def writer(kafka, topic):
    """A transactional producer."""
    with Writer(kafka, topic) as writer:
        yield writer


@pytest.fixture
def rows_of():
    """Reads ranges as an executor does: offsets and values."""
    used = []

    def rows(kafka, topic, tasks, **more):
        settings = Options.parse(options(kafka, topic, **more))
        used.append(settings)
        batches = itertools.chain.from_iterable(read(ReadTask(tuple(task)), settings) for task in tasks)
        return [(row["offset"], row["value"]) for batch in batches for row in batch.to_pylist()]

    yield rows
    for settings in used:
        brokers_for(settings).close()


@pytest.fixture
def query_of(kafka, topic, group, driver_of, rows_of):
    """A query, one trigger at a time."""

    class Triggered:
        def __init__(self, **more):
            self.driver = driver_of(kafka, topic, group, **more)
            self.offset = self.driver.initial_offset()
            self.more = more
            self.planned = ()

        def trigger(self, limit=None):
            """The values of the next batch; None when there is none."""
            start, self.offset = self.offset, self.driver.latest_offset(self.offset, limit)
            if self.offset == start:
                return None
            self.planned = self.driver.plan(start, self.offset)
            return [int(value) for _, value in rows_of(kafka, topic, self.planned, **self.more)]

        @property
        def end(self):
            return self.offset.get(topic, {}).get("0")

    return Triggered


def span(topic, start, end):
    return OffsetRange(TopicPartition(topic, 0), start, end)


# As Spark's own suite has it, KafkaMicroBatchSourceSuite: values are offsets, three of them a batch


def test_batches_of_three_offsets_under_read_committed(kafka, topic, group, writer, query_of):
    query = query_of(**COMMITTED)
    assert query.trigger(3) is None
    writer.write(*range(5))
    assert query.trigger(3) is None  # nothing that is not committed
    writer.commit()
    assert query.trigger(3) == [0, 1, 2]
    assert query.trigger(3) == [3, 4]  # 5 is the marker
    writer.write(*range(6, 11)).abort()
    assert query.trigger(3) == []
    assert query.trigger(3) == []
    writer.write(*range(12, 17)).commit()
    assert committed(kafka, group) == {(topic, 0): 9}  # of a batch that had no rows, proven when the next was planned
    assert query.trigger(3) == [12, 13, 14]
    assert committed(kafka, group) == {(topic, 0): 12}
    assert query.trigger(3) == [15, 16]
    for values in [(18,), (20,), (22, 23)]:
        writer.write(*values).commit()
    assert query.trigger(3) == [18, 20]
    assert query.trigger(3) == [22, 23]
    assert query.trigger(3) == []  # 24 is a marker
    assert query.trigger(3) is None
    assert committed(kafka, group) == {(topic, 0): 25}


def test_batches_of_three_offsets_under_read_uncommitted(kafka, topic, group, writer, query_of):
    query = query_of(**UNCOMMITTED)
    assert query.trigger(3) is None
    writer.write(*range(5))
    assert query.trigger(3) == [0, 1, 2]
    writer.commit()
    assert query.trigger(3) == [3, 4]
    writer.write(*range(6, 11)).abort()
    assert query.trigger(3) == [6, 7, 8]
    assert query.trigger(3) == [9, 10]
    writer.write(*range(12, 17)).commit()
    assert query.trigger(3) == [12, 13, 14]
    assert query.trigger(3) == [15, 16]
    for values in [(18,), (20,), (22, 23)]:
        writer.write(*values).commit()
    assert query.trigger(3) == [18, 20]
    assert query.trigger(3) == [22, 23]
    assert query.trigger(3) == []
    assert committed(kafka, group) == {(topic, 0): 24}


# Ends


def test_an_open_transaction_hides_what_follows_until_it_has_ended(kafka, topic, group, writer, query_of):
    query = query_of(**COMMITTED)
    with Writer(kafka, topic) as other:
        other.write(0, 1).commit()
        writer.write(3)
        other.write(4, 5).commit()
        kafka.produce(topic, [b"7"], partition=0)
        assert (log_end(kafka, topic), log_end(kafka, topic, "read_committed")) == (8, 3)
        assert query.trigger() == [0, 1]
        assert query.trigger() is None
        shown = query.driver.report_latest_offset()
        assert shown[topic] == {"0": 3}
        assert shown["@group"]["lag"] == 0
        assert kafka.describe_group(group)[0].lag == 5  # Kafka's own tool knows no isolation level
        # What is asked for now ends there as well, for good.
        now = query_of(**COMMITTED)
        now.driver.prepare_available_now()
        writer.abort()
        assert query.trigger() == [4, 5, 7]
        assert query.end == 9
    query.driver.latest_offset(query.offset, None)
    query.driver.stop()
    now.offset = query.offset
    assert now.trigger() is None


def test_available_now_ends_at_the_offset_that_was_stable_when_it_started(topic, writer, query_of):
    writer.write(0, 1).commit()
    writer.write(3)
    query = query_of(**COMMITTED)
    query.driver.prepare_available_now()
    writer.commit()
    assert query.trigger() == [0, 1]
    assert query.trigger() is None


def test_latest_is_the_last_stable_offset(topic, writer, query_of):
    writer.write(0, 1).commit()
    writer.write(3)
    query = query_of(startingOffsets="latest", **COMMITTED)
    assert query.trigger() is None
    writer.commit()
    assert query.trigger() == [3]


def test_a_batch_read_ends_at_the_last_stable_offset(kafka, topic, writer, rows_of):
    writer.write(0, 1).commit()
    writer.write(3).abort()
    writer.write(5)
    for level, end, values in [(COMMITTED, 5, [b"0", b"1"]), (UNCOMMITTED, 6, [b"0", b"1", b"3", b"5"])]:
        tasks = batch_read.plan(Options.parse(options(kafka, topic, **level)))
        assert tasks == [(span(topic, 0, end),)]
        assert [value for _, value in rows_of(kafka, topic, tasks, **level)] == values


def test_a_group_beyond_the_last_stable_offset_has_nothing_to_read_yet_and_has_lost_nothing(
    kafka, topic, group, writer
):
    writer.write(0, 1)
    commit_for(kafka, group, {(topic, 0): 2})
    settings = Options.parse(options(kafka, topic, group, startingOffsets="group", **COMMITTED))
    with contextlib.closing(GroupClient(settings, group)) as client:
        tps = client.partitions(settings.reading.subscription)
        planned = batch_read.batch_ranges(settings, client, tps, client.committed(tps))
        assert planned == (
            [span(topic, 2, 2)],
            frozenset(),
        )


def test_an_end_beyond_the_last_stable_offset_is_an_error_at_once(kafka, topic, writer):
    writer.write(0, 1).commit()
    writer.write(3)
    ending = options(kafka, topic, endingOffsets=json.dumps({topic: {"0": 4}}))
    with pytest.raises(OptionError, match=rf"{topic}-0: endingOffsets \(4\) is beyond the last stable offset \(3\)"):
        batch_read.plan(Options.parse(ending | COMMITTED))
    assert batch_read.plan(Options.parse(ending)) == [(span(topic, 0, 4),)]
    writer.abort()
    assert batch_read.plan(Options.parse(ending | COMMITTED)) == [(span(topic, 0, 4),)]


def test_a_batch_planned_uncommitted_and_read_again_committed_says_what_it_waits_for(
    kafka, topic, group, writer, query_of, driver_of, rows_of
):
    writer.write(0, 1).commit()
    writer.write(3)
    query = query_of()
    start = query.offset
    assert query.trigger() == [0, 1, 3]
    query.driver.stop()
    quick = {**COMMITTED, "kafkaConsumer.pollTimeoutMs": "1500"}
    tasks = driver_of(kafka, topic, group, **quick).plan(start, query.offset)
    assert tasks == query.planned
    batches = read(ReadTask(tasks[0]), Options.parse(options(kafka, topic, **quick)))
    began = time.monotonic()
    assert next(batches).column("value").to_pylist() == [b"0", b"1"]
    with pytest.raises(ReadError) as raised:
        next(batches)
    assert 1.4 < time.monotonic() - began < 60
    assert str(raised.value).startswith(
        f"{topic}-0: offset 3: kafka.isolation.level=read_committed reads up to the last stable offset, 3, where a "
        f"transaction is open, and the range to read ends at 4. Wait until the transaction has ended"
    )
    writer.commit()
    assert rows_of(kafka, topic, tasks, **quick) == [(0, b"0"), (1, b"1"), (3, b"3")]


def test_a_position_beyond_the_last_stable_offset_waits_and_is_no_lost_log(kafka, topic, writer, query_of, caplog):
    writer.write(0, 1)
    query = query_of()
    assert query.trigger() == [0, 1]
    assert query.trigger() is None
    query.driver.stop()
    restarted = query_of(**COMMITTED)
    restarted.offset = query.offset
    began = time.monotonic()
    assert restarted.trigger() is None
    assert restarted.trigger() is None
    assert time.monotonic() - began < 5  # a log that was cut is looked at for 5 s
    assert caplog.text.count(f"{topic}-0: position 2 is beyond the last stable offset") == 1
    assert restarted.driver.report_latest_offset()["@group"]["lag"] == 0
    writer.write(2).commit()
    assert restarted.trigger() == [2]
    assert restarted.end == 4


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_offsets_that_a_producer_commits_in_a_transaction_are_waited_for_and_named(
    kafka, topic, group, writer, query_of, level
):
    from kafka.structs import OffsetAndMetadata
    from kafka.structs import TopicPartition as KafkaTopicPartition

    kafka.produce(topic, [b"%d" % n for n in range(10)], partition=0)
    writer.producer.begin_transaction()
    writer.producer.send_offsets_to_transaction({KafkaTopicPartition(topic, 0): OffsetAndMetadata(4, "", -1)}, group)
    quick = {"startingOffsets": "group", "kafka.auto.offset.reset": "earliest", "kafka.default.api.timeout.ms": "2000"}
    quick["kafka.isolation.level"] = level  # of records
    query, began = query_of(**quick), time.monotonic()
    with pytest.raises(
        BrokerTimeoutError, match="UNSTABLE_OFFSET_COMMIT.*transaction that commits offsets of the group"
    ):
        query.trigger()
    assert time.monotonic() - began < 60
    query.driver.stop()
    writer.producer.commit_transaction()
    wait_until(lambda: committed(kafka, group) == {(topic, 0): 4}, within=30)
    assert query_of(**quick).trigger() == list(range(4, 10))


# Every range of a log in which much happened


def written_at_random(kafka, topic, seed, steps):
    """Transactions of three producers, and records without, until all have ended."""
    rng, number = random.Random(seed), itertools.count()
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(Writer(kafka, topic, compression_type=c)) for c in (None, "lz4", "gzip")]
        for _ in range(steps):
            writer, what = rng.choice(writers), rng.random()
            if what < 0.6:
                writer.write(*(next(number) for _ in range(rng.randint(1, 4))))
            elif what < 0.7:
                kafka.produce(topic, [b"%d" % next(number)], partition=0)
            elif writer.open:
                rng.choice([writer.commit, writer.abort])()
        for writer in writers:
            if writer.open:
                rng.choice([writer.commit, writer.abort])()


@pytest.fixture(scope="module")
def random_log(kafka):
    """A topic with some hundred offsets of interleaved transactions."""
    topic = kafka.create_topic(name("random"), partitions=1)
    written_at_random(kafka, topic, seed=7, steps=90)
    return topic


@pytest.mark.parametrize("level", [COMMITTED, UNCOMMITTED], ids=["committed", "uncommitted"])
@pytest.mark.parametrize("fetch", [{}, SMALL], ids=["one fetch", "a batch a fetch"])
def test_all_of_a_log_is_what_kafka_pythons_consumer_gets(kafka, random_log, rows_of, level, fetch):
    expected = consumed(kafka, random_log, level["kafka.isolation.level"])
    end = log_end(kafka, random_log)
    assert len(expected) > 30
    for decoder in ("c", "python"):
        found = rows_of(kafka, random_log, [[span(random_log, 0, end)]], decoder=decoder, **level, **fetch)
        assert found == expected


def test_any_range_and_any_parts_of_it_show_what_was_committed(kafka, random_log, rows_of):
    """Ranges begin, end, and are cut at records, at markers, and within transactions of every kind."""
    expected = consumed(kafka, random_log, "read_committed")
    end = log_end(kafka, random_log)
    shown = {offset for offset, _ in expected}
    hidden = sorted(set(range(end)) - shown)
    assert len(hidden) > 30
    rng = random.Random(1)
    cuts = [(offset, offset + 1) for offset in rng.sample(hidden, 10)]
    cuts += [tuple(sorted(rng.sample(range(end + 1), 2))) for _ in range(30)]
    for start, stop in cuts:
        wanted = [row for row in expected if start <= row[0] < stop]
        whole = span(random_log, start, stop)
        assert rows_of(kafka, random_log, [[whole]], **COMMITTED) == wanted
        parts = planner.divide([whole], 3)
        assert rows_of(kafka, random_log, [[part] for part in parts], **COMMITTED, **SMALL) == wanted


def test_ranges_end_although_their_last_offsets_were_compacted_away(rows_of):
    configs = {"cleanup.policy": "compact", "segment.ms": "300", "min.cleanable.dirty.ratio": "0.0001",
               "delete.retention.ms": "0"}  # fmt: skip
    with KafkaCluster(properties={"log.cleaner.backoff.ms": "200"}) as kafka:
        topic = kafka.create_topic(name("compacted"), partitions=1, configs=configs)
        kafka.produce(topic, [(b"%d" % (n % 2), b"%d" % n) for n in range(10)], partition=0)
        with Writer(kafka, topic) as writer:
            for _ in range(3):
                writer.write(7).abort()
        kafka.produce(topic, [(b"0", None)] * 3, partition=0)
        end = log_end(kafka, topic)
        assert end == 19

        def cleaned():
            kafka.produce(topic, [(b"later", b"")], partition=0)  # a segment is rolled when the next record comes
            return [offset for offset, _ in consumed(kafka, topic, "read_uncommitted") if offset < end] == [9]

        wait_until(cleaned, within=60)
        for level in (COMMITTED, UNCOMMITTED):
            for start, stop in [(0, end), (0, 5), (9, end), (10, end), (end - 1, end)]:
                found = rows_of(kafka, topic, [[span(topic, start, stop)]], **level)
                assert found == ([(9, b"9")] if start <= 9 < stop else [])


def test_all_of_a_log_is_what_javas_consumer_gets(kafka, random_log):
    records = consumed(kafka, random_log, "read_committed")
    printed = kafka.run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", kafka.bootstrap_servers,
        "--topic", random_log, "--from-beginning", "--timeout-ms", "60000", "--max-messages", str(len(records)),
        "--command-property", "isolation.level=read_committed", "--formatter-property", "print.offset=true",
    )  # fmt: skip
    lines = [line.split("\t") for line in printed.splitlines() if line.startswith("Offset:")]
    java = [(int(at.removeprefix("Offset:")), value.encode()) for at, value in lines]
    assert java == records
