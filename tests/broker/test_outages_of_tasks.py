"""Brokers that are away in the middle of a micro-batch: its tasks wait for them and go on, however long it takes.

One outage serves all tests: of the only broker, while several tasks read.
"""

import logging
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from support import Record, name, numbered, options, produce, topic_with
from support.damage import DAMAGES, batches

from spark_kafka_group.errors import BrokerTimeoutError, CorruptRecordError
from spark_kafka_group.executor import decode
from spark_kafka_group.executor.reading.damage.on_corrupt_record import DeadLetters, LeftOut
from spark_kafka_group.executor.reading.damage.search import Search
from spark_kafka_group.executor.reading.read import brokers_for, records
from spark_kafka_group.options import Options
from spark_kafka_group.source import GroupKafkaReader, GroupKafkaStreamReader
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.values.offsets import OffsetRange, ReadTask, TopicPartition
from spark_kafka_group.wire import Brokers
from spark_kafka_group.wire.outage import TaskOutage
from spark_kafka_group.wire.writable_topics import LongWait

COUNT = 3000
BRIEF = {"kafkaConsumer.pollTimeoutMs": 2000, "kafka.request.timeout.ms": 1500, "kafka.fetch.max.wait.ms": 500}
SAY_SO = (TaskOutage, LongWait)


class Said(logging.Handler):
    """Warnings of tasks that wait."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        if record.levelno == logging.WARNING:
            self.lines.append(record.getMessage())

    def of(self, topic, text):
        return [line for line in self.lines if topic in line and text in line]

    def __enter__(self):
        for waits in SAY_SO:
            logging.getLogger(waits.__module__).addHandler(self)
        return self

    def __exit__(self, *_):
        for waits in SAY_SO:
            logging.getLogger(waits.__module__).removeHandler(self)


def of(topic, partitions=1, count=COUNT):
    return ReadTask(tuple(OffsetRange(TopicPartition(topic, p), 0, count) for p in range(partitions)))


def offsets(batches, partition=0):
    rows = [row for batch in batches for row in batch.select(["partition", "offset"]).to_pylist()]
    return [row["offset"] for row in rows if row["partition"] == partition]


def ended(batches):
    """How a read ends: its error, and how long it took."""
    began = time.monotonic()
    with pytest.raises(BrokerTimeoutError) as raised:
        list(batches)
    return str(raised.value), time.monotonic() - began


def damaged_topic(kafka):
    """Six record batches of three records, of which the broker cannot tell where the third ends."""
    topic = kafka.create_topic(name("damaged"), configs={"index.interval.bytes": "1"})
    for first in range(0, 18, 3):
        produce(kafka, topic, numbered(3, 1, first), linger_ms=1000)
    file = kafka.node(0).directory / "data" / f"{topic}-0" / f"{0:020}.log"
    log = bytearray(file.read_bytes())
    where = batches(bytes(log))
    assert [batch.base_offset for batch in where] == list(range(0, 18, 3))
    DAMAGES["length of 0"](log, where[2])
    file.write_bytes(log)
    return topic


@pytest.fixture(scope="module")
def outage():
    """Topics, what was said, and what came of each call that was under way when the broker was killed."""
    made = []

    def options_of(kafka, topic, **more):
        more = BRIEF | {"kafka.client.id": name("client")} | more  # a thread shares connections with no other
        made.append(Options.parse(options(kafka, topic) | {key: str(value) for key, value in more.items()}))
        return made[-1]

    with KafkaCluster() as kafka, Said() as said, ThreadPoolExecutor() as at_once:
        big = topic_with(kafka, [Record(p, None, b"x" * 5000) for p in (0, 1) for _ in range(COUNT)], partitions=2)
        small, limited = (topic_with(kafka, numbered(10, 1), partitions=1) for _ in range(2))
        kafka.create_topic(f"{small}-dlt")
        stream = GroupKafkaStreamReader(options_of(kafka, big, **{"kafka.max.partition.fetch.bytes": 50_000})).read(
            of(big, 2)
        )
        batch = GroupKafkaReader(options_of(kafka, big)).read(of(big))
        first, _ = [next(stream)], next(batch)
        searching, sending = options_of(kafka, small), options_of(kafka, small)
        search = Search(searching, decode.load("auto"), Brokers, {}, TaskOutage(searching, brokers_for(searching)))
        letters = DeadLetters(sending, outlives=True)
        damage = LeftOut(TopicPartition(small, 0), 3, 4, CorruptRecordError(small, 0, 3, "a flipped bit"), b"bytes")
        short = GroupKafkaStreamReader(options_of(kafka, limited, maxBrokerOutage="3s")).read(of(limited, count=10))
        began, gone = threading.Event(), threading.Event()

        def connect_for_the_search(settings):
            began.set()
            gone.wait(60)
            return Brokers(settings)

        skipping = options_of(kafka, damaged_topic(kafka), onCorruptRecord="skip")
        planned = ReadTask((OffsetRange(TopicPartition(skipping.reading.topics[0], 0), 0, 18),), epochs=(0,))
        connected = brokers_for(skipping)
        skipped = records(planned, skipping, connected, connect_for_the_search, TaskOutage(skipping, connected))
        left_out = at_once.submit(lambda: offsets(skipped))
        assert began.wait(60)
        kafka.node(0).stop()  # killed, it would cut its logs off at the damage when it starts
        gone.set()
        calls = {
            "stream": at_once.submit(lambda: first + list(stream)),
            "batch": at_once.submit(ended, batch),
            "short": at_once.submit(ended, short),
            "search": at_once.submit(search.first_from, TopicPartition(small, 0), 0, 10, 0),
            "letter": at_once.submit(letters.send, damage),
            "left_out": left_out,
        }
        try:
            wait_until(lambda: calls["batch"].done() and calls["short"].done(), within=60)
            wait_until(lambda: [len(said.of(t, "brokers are away")) for t in (big, small)] == [1, 2], within=30)
        finally:
            kafka.node(0).start()
        came = {call: future.exception(60) or future.result() for call, future in calls.items()}
        kafka.wait_until_ready()
        rows = list(GroupKafkaReader(options_of(kafka, small)).read(of(f"{small}-dlt", count=1)))
        try:
            yield SimpleNamespace(kafka=kafka, said=said, big=big, small=small, limited=limited, dead=rows, **came)
        finally:
            search.close()
            for settings in made:
                brokers_for(settings).close()


@pytest.mark.soak
def test_a_task_outlives_an_outage_that_is_longer_than_the_poll_timeout(outage):
    assert [offsets(outage.stream, p) for p in (0, 1)] == [list(range(COUNT))] * 2


def test_an_outage_is_one_warning_of_a_task_and_one_when_it_is_over(outage):
    (away,) = outage.said.of(outage.big, "brokers are away")
    assert f"{outage.big}-0, {outage.big}-1: brokers are away" in away
    assert "ECONNREFUSED" in away
    # Of the read, two searches and the dead letter; that with maxBrokerOutage had ended.
    assert len(outage.said.of("", "brokers answer again")) == 4


def test_a_search_behind_damage_outlives_an_outage(outage):
    assert outage.search.start == 0


def test_a_search_behind_damage_goes_on_with_the_leader_that_was_elected_after_the_outage(outage):
    assert outage.left_out == [*range(6), *range(9, 18)]


def test_a_dead_letter_of_a_task_outlives_an_outage(outage):
    assert outage.letter is None
    assert [value.as_py() for batch in outage.dead for value in batch.column("value")] == [b"bytes"]


def test_maxbrokeroutage_ends_a_task_with_brokers_times_and_the_last_attempt(outage):
    text, took_s = outage.short
    words = re.fullmatch(
        rf"{outage.limited}-0: brokers \({outage.kafka.bootstrap_servers}\) have not answered since 20\S+, (\d+) s "
        r"ago, in (\d+) attempts, and maxBrokerOutage is 3000 ms\. The last attempt, at 20\S+: .*ECONNREFUSED.*",
        text,
    )
    assert words, text
    assert 3 <= int(words[1]) <= took_s + 1
    assert 2 <= int(words[2]) <= 5 + took_s  # pauses grow up to kafka.reconnect.backoff.max.ms


def test_a_batch_read_fails_after_the_poll_timeout(outage):
    text, took_s = outage.batch
    assert "for 2 s (kafkaConsumer.pollTimeoutMs): node 1: " in text or "looking up leaders" in text
    assert took_s < 30
