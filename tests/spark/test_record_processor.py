"""RecordProcessor in real queries: handlers' records, the topics of failures, and commits."""

import os
import re
import signal
import sys
import threading
import time
import urllib.request
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from kafka import KafkaConsumer
from kafka.partitioner import murmur2
from kafka.structs import TopicPartition
from pyspark.errors import PySparkException
from support import Record, committed, name, numbered, options, produce, topic_with, wait_for_markers

from spark_kafka_group import (
    GroupKafkaListener,
    MissingPackageError,
    OptionError,
    Processed,
    ProducerRecord,
    RecordProcessor,
    group_batch,
)
from spark_kafka_group.errors import BrokerError
from spark_kafka_group.testing import wait_until


def noted_in(directory, fails=lambda number, tries: False):
    """A handler that writes down each record it is given; those chosen fail."""

    def handler(record):
        number = int(record.value[1:])
        path = f"{directory}/{record.topic}"
        file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.write(file, f"{number}\n".encode())
        os.close(file)
        if fails(number, record):
            raise ValueError(f"{number} is poison")

    return handler


def handled(directory, topic):
    """How often each record was given to the handler."""
    path = Path(directory, topic)
    return Counter(map(int, path.read_text().split())) if path.exists() else Counter()


def everything_in(kafka, topic, isolation_level="read_uncommitted"):
    """All records of a topic."""
    wait_for_markers(kafka)
    consumer = KafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest", group_id=None,
        isolation_level=isolation_level,
    )  # fmt: skip
    try:
        tps = [TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic)]
        consumer.assign(tps)
        ends = consumer.end_offsets(tps)
        found = []
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            for records in consumer.poll(timeout_ms=500).values():
                found += records
        return found
    finally:
        consumer.close()


@pytest.fixture
def stream(spark, kafka, group, tmp_path):
    """Run a processor over a topic's records up to now; returns the counts of each micro-batch."""

    def run(processor, topic, **more):
        settings = options(kafka, topic, group, includeHeaders="true") | more
        df = spark.readStream.format("groupkafka").options(**settings).load()
        query = processor.start(df, str(tmp_path / "checkpoint"), availableNow=True)
        query.awaitTermination()
        return [Processed.of(p.observedMetrics["processing"]) for p in query.recentProgress if p.numInputRows]

    return run


@pytest.mark.parametrize(
    "poison_per_mille", [50, *(pytest.param(each, marks=pytest.mark.soak) for each in (0, 1, 1000))]
)
def test_every_record_is_done_or_a_dead_letter_and_then_committed(kafka, group, stream, tmp_path, poison_per_mille):
    topic = topic_with(kafka, numbered(2000, 4), partitions=4)
    kafka.create_topic(f"{topic}-dlt", partitions=2)
    processor = RecordProcessor(
        noted_in(tmp_path, fails=lambda number, _: number % 1000 < poison_per_mille),
        ordering="key", max_local_retries=1, retry_backoff_ms=(1, 2), dead_letter_topic="{topic}-dlt",
        options=options(kafka, topic, group),
    )  # fmt: skip
    result = stream(processor, topic, maxOffsetsPerTrigger="1000")
    poison = 2 * poison_per_mille
    assert [t.records for t in result] == [1000, 1000]
    assert all(t.records == t.done + t.retried + t.dead for t in result)
    assert (sum(t.done for t in result), sum(t.dead for t in result)) == (2000 - poison, poison)
    assert sum(t.tries_again for t in result) == poison
    assert all(t.latency_p50_ms <= t.latency_p99_ms and 0 < t.most_in_flight <= 3200 for t in result)
    seen = handled(tmp_path, topic)
    assert seen == {n: 2 if n % 1000 < poison_per_mille else 1 for n in range(2000)}
    dead = everything_in(kafka, f"{topic}-dlt")
    assert sorted((r.key, r.value) for r in dead) == sorted(
        (b"k%d" % n, b"v%d" % n) for n in range(2000) if n % 1000 < poison_per_mille
    )
    for record in dead:
        headers = dict(record.headers)
        assert headers["__connect.errors.topic"] == topic.encode()
        number = int(record.value[1:])
        assert int(headers["__connect.errors.partition"]) == number % 4
        assert record.partition == number % 4 % 2
        assert headers["__connect.errors.exception.message"] == f"{number} is poison".encode()
    assert sum(committed(kafka, group).values()) == 2000


@pytest.mark.soak
def test_without_a_dead_letter_topic_the_query_stops_and_nothing_is_lost(kafka, group, stream, tmp_path):
    topic = topic_with(kafka, numbered(300, 3))
    failing = RecordProcessor(
        noted_in(tmp_path / "a", fails=lambda n, _: n == 250), max_local_retries=0, cell_records=10
    )
    (tmp_path / "a").mkdir()
    with pytest.raises(
        PySparkException, match=rf"{topic}-1: offset 83: the handler .* failed: ValueError: 250 is poison"
    ):
        stream(failing, topic)
    assert set(committed(kafka, group).values()) <= {0}
    (tmp_path / "b").mkdir()
    [result] = stream(RecordProcessor(noted_in(tmp_path / "b")), topic)
    assert result.done == 300
    assert handled(tmp_path / "b", topic) == dict.fromkeys(range(300), 1)


def test_finished_cells_commit_nothing_and_after_a_kill_the_micro_batch_is_handled_again(spark, kafka, group, tmp_path):
    topic = topic_with(kafka, numbered(100, 1), partitions=1)
    go = tmp_path / "go"
    note = noted_in(tmp_path)

    def handler(record):
        if record.offset == 50 and not go.exists():
            (tmp_path / f"{os.getpid()}.pid").touch()
            while not go.exists():
                time.sleep(0.01)
        note(record)

    processor = RecordProcessor(handler, ordering="unordered", threads=4, cell_records=10, window_cells=4)
    settings = options(kafka, topic, group)
    df = spark.readStream.format("groupkafka").options(**settings).load()

    def start():
        return processor.start(df, str(tmp_path / "checkpoint"), processingTime="100 milliseconds")

    # The cells before that of the held record are done, and those behind it as far as the window goes.
    done = {*range(50), *range(60, 90)}
    query = start()
    wait_until(lambda: done <= handled(tmp_path, topic).keys() and list(tmp_path.glob("*.pid")), within=60)
    assert max(handled(tmp_path, topic)) < 90
    assert committed(kafka, group) == {}
    (held_in,) = tmp_path.glob("*.pid")
    os.kill(int(held_in.stem), signal.SIGKILL)
    with pytest.raises(PySparkException):
        query.awaitTermination(60)
    assert committed(kafka, group) == {}

    go.touch()
    query = start()
    wait_until(lambda: committed(kafka, group) == {(topic, 0): 100}, within=60)
    query.stop()
    times = handled(tmp_path, topic)
    assert {n for n, seen in times.items() if seen == 2} >= done
    assert times.keys() == set(range(100))
    assert {times[n] for n in range(90, 100)} == {1}


@pytest.mark.soak
def test_a_dead_letter_topic_that_refuses_stops_the_query_and_nothing_is_committed(kafka, group, stream, tmp_path):
    topic = topic_with(kafka, [Record(0, os.urandom(2000), b"v%d" % n) for n in range(20)], partitions=1)
    kafka.create_topic(f"{topic}-dlt", partitions=1, configs={"max.message.bytes": "1000"})
    processor = RecordProcessor(
        noted_in(tmp_path, fails=lambda n, _: n == 7), max_local_retries=0, dead_letter_topic=f"{topic}-dlt",
        options=options(kafka, topic),
    )  # fmt: skip
    with pytest.raises(PySparkException, match=f"{topic}-dlt-0: a record batch of one record, .* max.message.bytes"):
        stream(processor, topic)
    assert set(committed(kafka, group).values()) <= {0}
    assert everything_in(kafka, f"{topic}-dlt") == []


def test_a_handler_that_ends_its_process_stops_the_query_and_the_next_one_reads_the_same(
    kafka, group, stream, tmp_path
):
    topic = topic_with(kafka, numbered(200, 2), partitions=2)

    def handler(record):
        if record.value == b"v150" and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os._exit(9)
        noted(record)

    noted = noted_in(tmp_path)
    processor = RecordProcessor(handler, cell_records=5, window_cells=4, threads=4)
    with pytest.raises(PySparkException):
        stream(processor, topic)
    assert set(committed(kafka, group).values()) <= {0}
    [result] = stream(processor, topic)
    assert result.done == 200
    assert set(handled(tmp_path, topic)) == set(range(200))
    assert sum(committed(kafka, group).values()) == 200


def test_handlers_that_hang_are_given_up_and_their_records_are_dead_letters(kafka, group, stream, tmp_path):
    topic = topic_with(kafka, numbered(100, 2), partitions=2)
    kafka.create_topic(f"{topic}-dlt", partitions=2)

    def handler(record):
        noted(record)
        while record.value in (b"v7", b"v58") and not (tmp_path / "over").exists():
            time.sleep(0.05)

    noted = noted_in(tmp_path)
    processor = RecordProcessor(
        handler, threads=4, stall_timeout_ms=500, max_local_retries=1, retry_backoff_ms=(1, 2),
        dead_letter_topic="{topic}-dlt", options=options(kafka, topic, group),
    )  # fmt: skip
    try:
        [result] = stream(processor, topic)
    finally:
        (tmp_path / "over").touch()  # those that were abandoned end as well
    assert (result.records, result.done, result.dead, result.stalled) == (100, 98, 2, 4)
    assert handled(tmp_path, topic) == {n: 2 if n in (7, 58) else 1 for n in range(100)}
    letters = everything_in(kafka, f"{topic}-dlt")
    assert sorted(letter.value for letter in letters) == [b"v58", b"v7"]
    for letter in letters:
        raised = dict(letter.headers)["__connect.errors.exception.class.name"]
        assert raised == b"spark_kafka_group.errors.HandlerStalledError"
    assert sum(committed(kafka, group).values()) == 100


@pytest.mark.soak
def test_several_tasks_handle_one_partition_each_its_part_in_order(spark, kafka, tmp_path):
    topic = topic_with(kafka, numbered(300, 1), partitions=1)

    def handler(record):
        file = os.open(f"{tmp_path}/{os.getpid()}-{threading.get_native_id()}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.write(file, f"{record.offset}\n".encode())
        os.close(file)

    df = spark.read.format("groupkafka").options(**options(kafka, topic, minPartitions=3)).load()
    assert RecordProcessor(handler, threads=1).run(df).done == 300
    parts = sorted([int(line) for line in path.read_text().splitlines()] for path in tmp_path.iterdir())
    assert parts == [list(range(start, start + 100)) for start in (0, 100, 200)]


def test_a_batch_read_is_handled_and_committed_by_group_batch(spark, kafka, group, tmp_path):
    topic = topic_with(kafka, numbered(500, 3))

    async def handler(record):
        noted(record)

    noted = noted_in(tmp_path)
    with group_batch(spark, options(kafka, topic, group)) as batch:
        result = RecordProcessor(handler, ordering="unordered", threads=50).run(batch.df.where("partition < 2"))
    assert (result.records, result.done) == (334, 334)
    assert handled(tmp_path, topic) == {n: 1 for n in range(500) if n % 3 < 2}
    assert sum(committed(kafka, group).values()) == 500
    assert RecordProcessor(handler).run(batch.df.where("false")) == Processed(0, 0, 0, 0, 0, 0, 0, 0.0, None, None)


def test_what_does_not_fit_is_said_before_data_moves(spark, kafka, group, tmp_path):
    topic = topic_with(kafka, numbered(3, 3))
    settings = options(kafka, topic, group)
    plain = spark.readStream.format("groupkafka").options(**settings).load()
    with pytest.raises(OptionError, match="lacks partition, offset, timestamp, timestampType"):
        RecordProcessor(print).start(plain.select("key", "value", "topic"), str(tmp_path))
    for typed, kind in ({"valueFormat": "json", "valueSchema": "id INT"}, "struct<id:int>"), (
        {"valueFormat": "string"}, "string",  # which has lost bytes that are no UTF-8: retry topics get them
    ):  # fmt: skip
        df = spark.readStream.format("groupkafka").options(**settings, **typed).load()
        with pytest.raises(OptionError, match=f"column value is {kind}: leave valueFormat out"):
            RecordProcessor(print).start(df, str(tmp_path))
    dead = RecordProcessor(print, dead_letter_topic="{topic}-dlt", options=settings)
    with pytest.raises(OptionError, match="includeHeaders"):
        dead.start(plain, str(tmp_path))
    with_headers = spark.readStream.format("groupkafka").options(**settings, includeHeaders=True).load()
    with pytest.raises(OptionError, match=f"does not have: {topic}-dlt"):
        dead.start(with_headers, str(tmp_path))
    with pytest.raises(OptionError, match=r"cannot be sent to executors.*keep them in a global"):
        RecordProcessor(partial(print, threading.Lock()))
    with pytest.raises(OptionError, match="handler must be a function"):
        RecordProcessor("shop.charge:charge")
    assert committed(kafka, group) == {}


def test_without_pandas_the_error_says_how_to_install_it(spark, monkeypatch):
    values = ["null key", "null value", "'t' topic", "0 partition", "0L offset", "now() timestamp", "0 timestampType"]
    records = spark.range(1).selectExpr(*values)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'pandas>=2.2'$"):
        RecordProcessor(print).run(records)


def test_the_listener_has_what_handlers_did_and_shows_it_to_prometheus(spark, kafka, group, tmp_path):
    topic = topic_with(kafka, numbered(300, 3))
    kafka.create_topic(f"{topic}-dlt", partitions=3)
    settings = options(kafka, topic, group, includeHeaders="true")
    processor = RecordProcessor(
        noted_in(tmp_path, fails=lambda number, _: number % 100 == 1), max_local_retries=1, retry_backoff_ms=(1, 2),
        dead_letter_topic="{topic}-dlt", options=settings,
    )  # fmt: skip
    listener = GroupKafkaListener(spark, prometheus_port=0, prometheus_address="127.0.0.1").attach()
    df = spark.readStream.format("groupkafka").options(**settings).load()

    def done():
        return listener.metrics()["handling"][0]["records-done-total"] if "handling" in listener.metrics() else None

    query = processor.start(df, str(tmp_path / "checkpoint"), query_name="handling", processingTime="100 milliseconds")
    try:
        wait_until(lambda: done() == 297, within=60)
        produce(kafka, topic, numbered(300, 3, first=300))
        wait_until(lambda: done() == 594, within=60)
        [result] = listener.metrics()["handling"]
        assert (result["records-dead-total"], result["records-retried-total"], result["handler-retries-total"]) == (
            6,
            0,
            6,
        )
        assert 0 < result["records-in-flight-max"] <= 300
        assert result["handler-latency-p50"] <= result["handler-latency-p99"]
        shown = urllib.request.urlopen(f"http://127.0.0.1:{listener.prometheus_port}/metrics").read().decode()
        assert re.search(
            rf'kafka_consumer_records_dead_total{{group="{group}",query="handling",source="0"}} 6.0', shown
        )
    finally:
        query.stop()
        listener.close()


def test_a_record_that_fails_comes_back_from_its_retry_topics_when_it_is_due(spark, kafka, group, tmp_path):
    topic = topic_with(kafka, numbered(60, 3))
    for made in (f"{topic}-retry-300", f"{topic}-retry-600", f"{topic}-dlt"):
        kafka.create_topic(made, partitions=3)

    def handler(record):
        """7 fails once, 17 twice, 27 always; each notes when it was tried, and how old its record was."""
        number = int(record.value[1:])
        file = os.open(f"{tmp_path}/tried-{number}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.write(file, f"{record.topic} {time.time() * 1000 - record.timestamp}\n".encode())
        os.close(file)
        if {7: "retry-", 17: "retry-600", 27: "never"}.get(number, "") not in record.topic:
            raise ValueError(number)

    settings = options(kafka, topic, group, includeHeaders="true", retryTopics="300,600")
    processor = RecordProcessor(
        handler, ordering="key", max_local_retries=0, retry_topics=[300, 600], dead_letter_topic="{topic}-dlt",
        options=settings, error_headers="spring",
    )  # fmt: skip
    df = spark.readStream.format("groupkafka").options(**settings).load()
    query = processor.start(df, str(tmp_path / "checkpoint"))
    try:
        wait_until(lambda: len(everything_in(kafka, f"{topic}-dlt")) == 1, within=60)
        wait_until(lambda: sum(committed(kafka, group).values()) == 60 + 3 + 2, within=30)
    finally:
        query.stop()
    tried = {n: [line.split() for line in (tmp_path / f"tried-{n}").read_text().splitlines()] for n in range(60)}
    assert {n: [t for t, _ in tries] for n, tries in tried.items() if len(tries) > 1} == {
        7: [topic, f"{topic}-retry-300"],
        17: [topic, f"{topic}-retry-300", f"{topic}-retry-600"],
        27: [topic, f"{topic}-retry-300", f"{topic}-retry-600"],
    }
    for tries in tried.values():
        for read_from, age_ms in tries[1:]:
            assert float(age_ms) >= int(read_from.rpartition("-")[2])
    [dead] = everything_in(kafka, f"{topic}-dlt")
    assert (dead.key, dead.value, dead.partition) == (b"k27", b"v27", 0)
    result = dict(dead.headers)
    assert result["kafka_dlt-original-topic"] == topic.encode()
    assert result["retry_topic-attempts"] == b"\0\0\0\4"
    processed = [Processed.of(p.observedMetrics["processing"]) for p in query.recentProgress if p.numInputRows]
    assert sum(t.records for t in processed) == sum(t.done + t.retried + t.dead for t in processed) == 65
    assert (sum(t.retried for t in processed), sum(t.dead for t in processed)) == (5, 1)
    with pytest.raises(OptionError, match="the query must read the topics that failed records go to"):
        RecordProcessor(handler, retry_topics=[300], options=settings)


def test_records_that_a_handler_returns_are_in_their_topics_when_the_batch_is_committed(kafka, group, stream):
    topic = topic_with(kafka, numbered(300, 3))
    out = kafka.create_topic(name("out"), partitions=4)
    other = kafka.create_topic(name("other"), partitions=2)

    def handler(record):
        number = int(record.value[1:])
        if number % 3 == 0:
            return ProducerRecord(
                f"{number} Größe", record.key, headers=[("from", b"%d" % record.offset), ("no", None)]
            )
        if number % 3 == 1:
            return [ProducerRecord(None, topic=other, partition=copy) for copy in range(2)]
        return None

    processor = RecordProcessor(handler, options=options(kafka, topic), write_options={"topic": out})
    [result] = stream(processor, topic)
    assert (result.records, result.done) == (300, 300)
    found = everything_in(kafka, out)
    assert sorted((r.key, r.value.decode(), r.headers) for r in found) == sorted(
        (b"k%d" % n, f"{n} Größe", [("from", b"%d" % (n // 3)), ("no", None)]) for n in range(0, 300, 3)
    )
    assert all(r.partition == (murmur2(r.key) & 0x7FFFFFFF) % 4 for r in found)
    assert Counter((r.key, r.value, r.partition) for r in everything_in(kafka, other)) == {
        (None, None, 0): 100, (None, None, 1): 100,
    }  # fmt: skip
    assert sum(committed(kafka, group).values()) == 300


def test_what_handlers_return_is_written_by_its_format_and_what_does_not_fit_is_a_dead_letter(kafka, stream):
    topic, out = topic_with(kafka, numbered(30, 3)), kafka.create_topic(name("out"))
    dead = kafka.create_topic(f"{topic}-dlt")

    def handler(record):
        number = int(record.value[1:])
        return ProducerRecord({"id": number if number % 10 else "ten"}, {"k": number})

    processor = RecordProcessor(
        handler, dead_letter_topic="{topic}-dlt", options=options(kafka, topic),
        write_options={
            "topic": out, "keyFormat": "json", "valueFormat": "protobuf",
            "valueSchema": 'syntax = "proto3"; message M { int32 id = 1; }',
        },
    )  # fmt: skip
    [result] = stream(processor, topic)
    assert (result.done, result.dead, result.tries_again) == (27, 3, 0)
    assert sorted((r.key, r.value) for r in everything_in(kafka, out)) == sorted(
        (b'{"k":%d}' % n, bytes([8, n])) for n in range(30) if n % 10
    )
    assert {int(r.value[1:]) for r in everything_in(kafka, dead)} == {0, 10, 20}


@pytest.mark.soak
def test_a_topic_that_is_missing_or_a_result_that_cannot_be_written_stops_the_query(kafka, group, stream, tmp_path):
    topic = topic_with(kafka, numbered(3, 1), partitions=1)
    missing = name("missing")
    handled = tmp_path / "handled"
    processor = RecordProcessor(
        lambda record: handled.touch(), options=options(kafka, topic), write_options={"topic": missing}
    )
    with pytest.raises(BrokerError, match=f"topic {missing} does not exist: create it"):
        stream(processor, topic)
    assert not handled.exists()
    results = {
        f"topic {missing} does not exist: create it": ProducerRecord(b"", topic=missing),
        f"{topic}-99: a row names this partition in its column partition": ProducerRecord(b"", b"", topic, (), 99),
        f"{topic}-0: offset 0: the handler .* returned 5, of type int: return None, a ProducerRecord": 5,
    }
    for problem, result in results.items():
        processor = RecordProcessor(lambda record, result=result: result, options=options(kafka, topic))
        with pytest.raises(PySparkException, match=problem):
            stream(processor, topic)
    assert set(committed(kafka, group).values()) <= {0}


def values_of(kafka, topics, isolation_level):
    """Of all records of these topics."""
    return Counter(int(r.value[1:]) for topic in topics for r in everything_in(kafka, topic, isolation_level))


@pytest.fixture
def rows_at_a_time(spark):
    """Has Spark give the sink rows before a task has handled all of its records."""
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "50")
    yield
    spark.conf.set(setting, before)


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
@pytest.mark.soak
def test_what_goes_to_topics_is_published_with_the_batch_though_a_worker_is_killed(
    kafka, group, stream, tmp_path, rows_at_a_time, guarantee
):
    once = guarantee == "exactly-once"
    topic = topic_with(kafka, numbered(3000, 2), partitions=2)
    out = kafka.create_topic(name("out"), partitions=2)
    retry, dead = (kafka.create_topic(f"{topic}-{kind}", partitions=2) for kind in ("retry-3600000", "dlt"))
    going_to = [out, retry, dead]

    def handler(record):
        number = int(record.value[1:])
        if not (tmp_path / "seen").exists():
            time.sleep(0.005)  # the sink gets rows several times meanwhile: what it cannot send yet, it sends then
        if number == 2900 and not (tmp_path / "died").exists():
            while not (tmp_path / "seen").exists():
                time.sleep(0.01)
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        kind = number // 2 % 10  # each partition has all of them, whichever is read first
        if kind == 1:
            raise ValueError(number)
        if kind == 2:
            raise KeyError(number)
        return ProducerRecord(record.value.ljust(5000), record.key)  # a MiB goes to the sink at once

    more = {"retryTopics": "3600000"}
    if once:
        more |= {"kafka.isolation.level": "read_committed", "kafka.transactional.id": name("w")}
    processor = RecordProcessor(
        handler, threads=1, max_local_retries=0, retry_topics=[3_600_000], dead_letter_topic="{topic}-dlt",
        fatal=[KeyError], options=options(kafka, topic, group) | more,
        write_options={"topic": out, "deliveryGuarantee": guarantee, "kafka.linger.ms": 0},
    )  # fmt: skip
    seen = []

    def look():
        try:
            wait_until(lambda: all(everything_in(kafka, one) for one in going_to), within=120)
            seen.append(values_of(kafka, going_to, "read_committed"))
        finally:
            (tmp_path / "seen").touch()  # or the query would wait for ever

    looking = threading.Thread(target=look)
    looking.start()
    with pytest.raises(PySparkException):
        stream(processor, topic, **more)
    looking.join()
    assert bool(seen[0]) != once, "read_committed sees nothing of a transaction that is open"
    assert set(committed(kafka, group).values()) <= {0}
    [result] = stream(processor, topic, **more)
    assert (result.records, result.done, result.retried, result.dead) == (3000, 2400, 300, 300)
    assert sum(committed(kafka, group).values()) == 3000
    by_topic = [values_of(kafka, [one], "read_committed") for one in going_to]
    assert [{number // 2 % 10 for number in values} for values in by_topic] == [{0, 3, 4, 5, 6, 7, 8, 9}, {1}, {2}]
    everything = sum(by_topic, Counter())
    assert set(everything) == set(range(3000))
    assert set(everything.values()) == {1} if once else max(everything.values()) > 1
    assert values_of(kafka, going_to, "read_uncommitted").total() > 3000


@pytest.mark.soak
def test_what_handlers_return_or_refuse_when_a_published_batch_runs_again_is_dropped(kafka, group, stream, tmp_path):
    topic = topic_with(kafka, numbered(30, 3))
    out, retry = kafka.create_topic(name("out")), kafka.create_topic(f"{topic}-retry-3600000")
    again = tmp_path / "again"

    def handler(record):
        if again.exists() and int(record.value[1:]) < 30:
            raise ValueError("not this time")
        return ProducerRecord(record.value)

    more = {"retryTopics": "3600000", "kafka.isolation.level": "read_committed", "kafka.transactional.id": name("w")}
    processor = RecordProcessor(
        handler, max_local_retries=0, retry_topics=[3_600_000], options=options(kafka, topic, group) | more,
        write_options={"topic": out, "deliveryGuarantee": "exactly-once"},
    )  # fmt: skip
    [published] = stream(processor, topic, **more)
    assert (published.records, published.done) == (30, 30)
    for file in (tmp_path / "checkpoint" / "commits").glob("*0*"):  # as if it was killed before Spark had the batch
        file.unlink()
    again.touch()
    produce(kafka, topic, numbered(10, 1, first=30))
    repeated, new = stream(processor, topic, **more)
    assert (repeated.records, repeated.retried, new.done) == (30, 30, 10)
    assert values_of(kafka, [out], "read_committed") == dict.fromkeys(range(40), 1)
    assert values_of(kafka, [retry], "read_uncommitted") == {}
    assert sum(committed(kafka, group).values()) == 40


def test_a_batch_publishes_what_its_handlers_return_or_nothing(spark, kafka, tmp_path):
    topic = topic_with(kafka, numbered(300, 3))
    out = kafka.create_topic(name("out"), partitions=2)

    def handler(record):
        if record.value == b"v299" and not (tmp_path / "mended").exists():
            raise ValueError("not yet")
        return ProducerRecord(record.value)

    processor = RecordProcessor(
        handler, max_local_retries=0, options=options(kafka, topic) | {"kafka.transactional.id": name("w")},
        write_options={"topic": out, "deliveryGuarantee": "exactly-once"},
    )  # fmt: skip
    df = spark.read.format("groupkafka").options(**options(kafka, topic)).load()
    with pytest.raises(PySparkException, match="Set dead_letter_topic"):
        processor.run(df)
    assert values_of(kafka, [out], "read_committed") == {}
    (tmp_path / "mended").touch()
    assert processor.run(df).done == 300
    assert values_of(kafka, [out], "read_committed") == dict.fromkeys(range(300), 1)
