"""onCorruptRecord on a broker whose segment files were damaged while it was stopped: tasks, drivers and queries.

Tasks read and leave out the same offsets as of a log in memory with the same damage (``decode/test_left_out.py``).
"""

import json
from types import SimpleNamespace

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition as KafkaTopicPartition
from pyspark.errors.exceptions.captured import StreamingQueryException
from support import committed, options
from support.damage import DAMAGES, PARTLY_READ, batches

from spark_kafka_group import BrokerError, CorruptRecordError, OptionError
from spark_kafka_group.executor.reading import fetcher
from spark_kafka_group.executor.reading.read import brokers_for, read
from spark_kafka_group.options import Options
from spark_kafka_group.source import GroupKafkaDataSource
from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.values.offsets import OffsetRange, ReadTask, TopicPartition

COUNT, SIZE = 12, 3
"""Record batches of a log, and records of each."""
END = COUNT * SIZE
BAD = 5
EACH = {"index.interval.bytes": "1"}
"""The broker has an index entry for every record batch, and finds each."""
KINDS = {f"damaged-{number}": damage for number, damage in enumerate(DAMAGES)}
MODULO, SPARSE, TINY = "modulo", "sparse", "tiny"
RETRIED = f"{MODULO}-retry-60000"


@pytest.fixture(scope="module")
def broken():
    """A broker with logs of twelve batches on its disk, one of them damaged, by topic."""
    with KafkaCluster() as kafka:
        for topic in KINDS:
            kafka.create_topic(topic, configs=EACH)
        kafka.create_topic(MODULO, partitions=4, configs=EACH)
        kafka.create_topic(RETRIED, configs=EACH)
        kafka.create_topic(SPARSE, configs={"index.interval.bytes": "300"})
        kafka.create_topic(TINY, configs=EACH)
        logs = dict.fromkeys([*KINDS, SPARSE, TINY, RETRIED], 0) | {MODULO: 3}
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, linger_ms=60_000, acks="all")
        for number in range(COUNT):
            for topic, partition in logs.items():
                for i in range(SIZE):
                    value = b"%04d" % (number * SIZE + i)
                    producer.send(topic, value, partition=partition, timestamp_ms=1_700_000_000_000)
            producer.flush()  # one batch each
        producer.close()
        node = kafka.node(0)
        node.stop()
        written = {}
        for topic, partition in logs.items():
            file = node.directory / "data" / f"{topic}-{partition}" / f"{0:020}.log"
            log = bytearray(file.read_bytes())
            where = batches(bytes(log))
            assert [batch.base_offset for batch in where] == list(range(0, END, SIZE))
            DAMAGES[KINDS.get(topic, "length of 0" if topic == SPARSE else "wrong checksum")](log, where[BAD])
            file.write_bytes(log)
            written[topic] = bytes(log[where[BAD].start : where[BAD].end])
        node.start()
        kafka.wait_until_ready()
        yield SimpleNamespace(kafka=kafka, written=written)


@pytest.fixture
def task(broken, monkeypatch, caplog):
    """Reads as a task does; returns offsets of rows, the gaps, and the error."""
    monkeypatch.setattr(fetcher, "SILENT_AFTER_S", 0.6)
    used = []

    def run(topic, start=0, end=END, partition=0, **more):
        settings = Options.parse(options(broken.kafka, topic, **{"kafka.fetch.max.wait.ms": 100} | more))
        used.append(settings)
        caplog.clear()
        rows, error = [], None
        try:
            for batch in read(ReadTask((OffsetRange(TopicPartition(topic, partition), start, end),)), settings):
                rows += [(row["offset"], int(row["value"])) for row in batch.to_pylist()]
        except (CorruptRecordError, BrokerError) as raised:
            error = raised
        logged = [record.args[0] for record in caplog.records if record.getMessage().find("left out, as") > 0]
        assert all(offset == value for offset, value in rows)
        return SimpleNamespace(
            rows=[offset for offset, _ in rows], left_out=[(t.first, t.following - 1) for t in logged], error=error
        )

    yield run
    for settings in used:
        brokers_for(settings).close()


def expected(first, last):
    return [offset for offset in range(END) if not first <= offset <= last]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="one response"),
        pytest.param({"kafka.max.partition.fetch.bytes": 1}, id="many responses"),
    ],
)
@pytest.mark.soak
def test_each_kind_of_damage_fails_where_it_is_or_is_left_out_alone(broken, task, more):
    for topic, damage in KINDS.items():
        first = SIZE * BAD + (damage in PARTLY_READ)
        failed = task(topic, **more)
        assert failed.rows == list(range(first)), damage
        assert isinstance(failed.error, CorruptRecordError), damage
        assert str(failed.error).startswith(f"{topic}-0: offset {first}: "), damage
        assert "Set onCorruptRecord=skip" in str(failed.error), damage
        skipped = task(topic, onCorruptRecord="skip", **more)
        assert (skipped.left_out, skipped.error) == ([(first, SIZE * BAD + SIZE - 1)], None), damage
        assert skipped.rows == expected(first, SIZE * BAD + SIZE - 1), damage
        before = task(topic, end=SIZE * BAD, **more)
        assert (before.rows, before.error) == (list(range(SIZE * BAD)), None), damage
        within = task(topic, start=SIZE * BAD - 1, end=SIZE * BAD, **more)
        assert (within.rows, within.error) == ([SIZE * BAD - 1], None), damage
        after = task(topic, start=SIZE * BAD + SIZE, end=SIZE * BAD + SIZE + 1, onCorruptRecord="skip", **more)
        passed_over = damage == "length of two batches"  # which the broker does
        assert (after.rows, after.left_out) == ([] if passed_over else [SIZE * BAD + SIZE], []), damage


@pytest.mark.soak
def test_what_a_broker_with_few_index_entries_cannot_find_is_read_unless_responses_are_too_small(task):
    for start in (0, SIZE * BAD):
        assert task(SPARSE, start=start, onCorruptRecord="skip").left_out == [(SIZE * BAD, SIZE * BAD + SIZE - 1)]
    found = task(SPARSE, onCorruptRecord="skip", **{"kafka.max.partition.fetch.bytes": 1})
    ((first, last),) = found.left_out
    assert first == SIZE * BAD
    assert SIZE * BAD + SIZE - 1 <= last < END - SIZE
    assert (last + 1) % SIZE == 0
    assert found.rows == expected(first, last)


def dead_letters(kafka, topic):
    """Records of a topic: partition, key, value, headers."""
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers)
    try:
        tps = [KafkaTopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic))]
        consumer.assign(tps)
        consumer.seek_to_beginning(*tps)
        ends, found = consumer.end_offsets(tps), []
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            found += [record for records in consumer.poll(200).values() for record in records]
        return [(r.partition, r.key, r.value, {k: v.decode(errors="replace") for k, v in r.headers}) for r in found]
    finally:
        consumer.close()


def test_dead_letters_are_the_bytes_of_the_batch_and_say_where_they_were(broken, task):
    by_damage = {damage: topic for topic, damage in KINDS.items()}
    lengths = ["length of 0", "length of two batches", "length beyond all batches"]
    for damage in ["wrong checksum", "length of a record", *lengths]:
        topic = by_damage[damage]
        broken.kafka.create_topic(f"{topic}-dlt")
        first, last = SIZE * BAD + (damage in PARTLY_READ), SIZE * BAD + SIZE - 1
        found = task(topic, onCorruptRecord="deadLetter", **{"kafka.group.id": "billing"})
        assert (found.rows, found.left_out, found.error) == (expected(first, last), [(first, last)], None), damage
        ((partition, key, value, headers),) = dead_letters(broken.kafka, f"{topic}-dlt")
        assert (partition, key, value) == (0, None, broken.written[topic]), damage
        assert headers["__connect.errors.topic"] == topic
        assert headers["__connect.errors.partition"] == "0"
        assert headers["__connect.errors.offset"] == str(first)
        assert headers["groupkafka.next.offset"] == str(last + 1)
        assert headers["__connect.errors.connector.name"] == "billing"
        assert headers["__connect.errors.exception.class.name"] == "spark_kafka_group.errors.CorruptRecordError"
        assert headers["__connect.errors.exception.message"].startswith(f"{topic}-0: offset ")


def test_a_dead_letter_goes_to_its_partition_of_as_many_as_there_are_and_again_when_the_task_does(broken, task):
    broken.kafka.create_topic(f"{MODULO}-dlt", partitions=2)
    for _ in range(2):
        assert task(MODULO, partition=3, onCorruptRecord="deadLetter").error is None
    found = dead_letters(broken.kafka, f"{MODULO}-dlt")
    assert [(partition, headers["__connect.errors.partition"]) for partition, _, _, headers in found] == [(1, "3")] * 2
    assert task(RETRIED, onCorruptRecord="deadLetter", retryTopics="60000").error is None
    *_, (partition, _, _, headers) = sorted(dead_letters(broken.kafka, f"{MODULO}-dlt"), key=lambda letter: -letter[0])
    assert (partition, headers["__connect.errors.topic"]) == (0, RETRIED)


def test_without_a_dead_letter_topic_that_takes_it_nothing_after_the_damage_is_read(broken, task):
    found = task(TINY, onCorruptRecord="deadLetter", **{"kafka.request.timeout.ms": 5000})
    assert found.rows == []
    assert isinstance(found.error, BrokerError)
    assert f"offsets {SIZE * BAD} to {SIZE * BAD + SIZE - 1}, which cannot be read" in str(found.error)
    assert f"topic {TINY}-dlt does not exist" in str(found.error)

    reader = GroupKafkaDataSource(options(broken.kafka, TINY, onCorruptRecord="deadLetter")).reader(None)
    with pytest.raises(OptionError, match=f"onCorruptRecord .deadLetter. .*does not have {TINY}-dlt"):
        reader.partitions()
    stream = GroupKafkaDataSource(options(broken.kafka, TINY, onCorruptRecord="deadLetter")).streamReader(None)
    with pytest.raises(OptionError, match=f"{TINY}-dlt"):
        stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    stream.stop()

    broken.kafka.create_topic(f"{TINY}-dlt", configs={"max.message.bytes": "100"})
    found = task(TINY, onCorruptRecord="deadLetter")
    assert found.rows == []
    assert f"{TINY}-dlt-0" in str(found.error)
    assert f"raise max.message.bytes of topic {TINY}-dlt" in str(found.error)
    assert reader.partitions()
    pattern = {"subscribePattern": f"^{TINY}.*", "onCorruptRecord": "deadLetter", "startingOffsets": "earliest"}
    settings = {"kafka.bootstrap.servers": broken.kafka.bootstrap_servers} | pattern
    assert GroupKafkaDataSource(settings).reader(None).partitions()  # which finds the dead-letter topic as well


def test_a_query_that_skips_reads_everything_else_and_commits_past_it(spark, broken, group, run):
    by_damage = {damage: topic for topic, damage in KINDS.items()}
    topics = [by_damage[damage] for damage in ("wrong checksum", "length of 0", "length beyond the log", "magic 9")]
    both = options(broken.kafka, ",".join(topics), group, onCorruptRecord="skip")
    stream = spark.readStream.format("groupkafka").options(**both).load()
    query, found = run(stream.selectExpr("topic", "offset", "cast(cast(value as string) as int)"), place="skips")
    query.awaitTermination()
    rows = sorted(row for rows in found for row in rows)
    kept = expected(SIZE * BAD, SIZE * BAD + SIZE - 1)
    assert rows == sorted((topic, offset, offset) for topic in topics for offset in kept)
    assert committed(broken.kafka, group) == {(topic, 0): END for topic in topics}


def test_a_query_that_fails_names_the_offset_and_commits_nothing_of_the_batch(spark, broken, group, run):
    topic = next(topic for topic, damage in KINDS.items() if damage == "wrong checksum")
    small = options(broken.kafka, topic, group, maxOffsetsPerTrigger=10)
    stream = spark.readStream.format("groupkafka").options(**small).load()
    query, found = run(stream.select("offset"))
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination()
    assert f"{topic}-0: offset {SIZE * BAD}: the batch at offset {SIZE * BAD} is damaged" in str(raised.value)
    assert "Set onCorruptRecord=skip" in str(raised.value)
    assert sorted(offset for rows in found for (offset,) in rows) == list(range(10))
    assert json.loads(query.lastProgress.sources[0].endOffset)[topic] == {"0": 10}
    assert committed(broken.kafka, group) == {(topic, 0): 10}
