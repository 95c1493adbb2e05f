"""Brokers that are away while the tasks of a micro-batch run: it goes on when they are back, or is stopped."""

import contextlib
import os
import threading
import time
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition
from support import numbered, options, produce, topic_with

from spark_kafka_group import Processed, RecordProcessor
from spark_kafka_group.testing import KafkaCluster, wait_until

POLL_TIMEOUT_S = 1.0
BRIEF = {"kafkaConsumer.pollTimeoutMs": str(int(POLL_TIMEOUT_S * 1000)), "kafka.request.timeout.ms": "2000"}
STOPPED_WITHIN_S = 15.0


@pytest.fixture
def lonely():
    """A cluster whose only broker may be killed."""
    with KafkaCluster() as cluster:
        yield cluster


def status_of(pid):
    """The system's state of a process; empty after its end."""
    with contextlib.suppress(OSError):
        output = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        output["forked"] = b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
        return output
    return {}


def workers():
    """Python workers of this test's Spark, each with how often it went to sleep: one without work does so no more."""
    everyone = {path.name: status_of(path.name) for path in Path("/proc").glob("[0-9]*")}

    def ancestors(pid):
        while (pid := everyone.get(pid, {}).get("PPid", "").strip()) in everyone:
            yield pid

    def is_ours(pid):
        above = list(ancestors(pid))
        return everyone[pid].get("forked") and everyone[above[0]].get("forked") and str(os.getpid()) in above

    return {
        pid: int(message["voluntary_ctxt_switches"]) for pid, message in everyone.items() if message and is_ours(pid)
    }


@pytest.mark.soak
def test_a_query_outlives_an_outage_in_the_middle_of_a_batch_and_stops_during_another(spark, lonely, tmp_path):
    topic = topic_with(lonely, numbered(30, 3))
    running, batches = spark.sparkContext.statusTracker(), []
    gone, stopping = threading.Event(), threading.Event()

    def keep(rows, batch_id):
        lonely.node(0).kill()  # planned, and not yet read
        gone.set()
        with contextlib.suppress(*([Exception] if stopping.is_set() else [])):
            batches.append(sorted(bytes(row.value) for row in rows.select("value").collect()))

    stream = spark.readStream.format("groupkafka").options(**options(lonely, topic) | BRIEF).load()
    query = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path)).start()
    try:
        gone.wait(60)
        wait_until(running.getActiveJobsIds, within=30)
        with pytest.raises(TimeoutError):  # longer than tasks wait for brokers that answer
            wait_until(lambda: not query.isActive or batches, within=2 * POLL_TIMEOUT_S)
        gone.clear()
        lonely.node(0).start()
        wait_until(lambda: not query.isActive or batches, within=60)
        assert query.exception() is None
        assert batches == [sorted(b"v%d" % n for n in range(30))]

        lonely.wait_until_ready()
        stopping.set()
        produce(lonely, topic, numbered(3, 3, first=30))
        gone.wait(60)
        wait_until(running.getActiveJobsIds, within=30)
    finally:
        began = time.monotonic()
        query.stop()
    assert time.monotonic() - began < STOPPED_WITHIN_S
    assert len(batches) == 1
    wait_until(lambda: not running.getActiveJobsIds(), within=STOPPED_WITHIN_S)

    def at_rest():
        before = workers()
        time.sleep(1.2)  # a task that waits tries again after a second
        return all(before.get(pid) == switches for pid, switches in workers().items())

    wait_until(at_rest, within=STOPPED_WITHIN_S)


def values_in(kafka, topic):
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest", group_id=None)
    try:
        tps = [TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic)]
        consumer.assign(tps)
        ends, found = consumer.end_offsets(tps), []
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            found += [r.value for records in consumer.poll(timeout_ms=500).values() for r in records]
        return sorted(found)
    finally:
        consumer.close()


@pytest.mark.soak
def test_a_record_processor_outlives_an_outage_between_two_hand_offs_and_stops_during_another(spark, lonely, tmp_path):
    topic = topic_with(lonely, numbered(30, 3))
    lonely.create_topic(f"{topic}-dlt")
    settings = options(lonely, topic, includeHeaders="true") | BRIEF
    asked, gone = tmp_path / "asked", tmp_path / "gone"

    def handler(record):
        if int(record.value[1:]) >= 15:
            asked.touch()
            while not gone.exists():
                time.sleep(0.01)
        raise ValueError(record.value)

    processor = RecordProcessor(
        handler, ordering="unordered", cell_records=1, max_local_retries=0, stall_timeout_ms=6000,
        dead_letter_topic="{topic}-dlt", options=settings,
    )  # fmt: skip
    df = spark.readStream.format("groupkafka").options(**settings).load()
    query = processor.start(df, str(tmp_path / "checkpoint"))
    running = spark.sparkContext.statusTracker()

    def counts():
        result = [Processed.of(p.observedMetrics["processing"]) for p in query.recentProgress if p.numInputRows]
        return [(count.records, count.dead, count.stalled) for count in result]

    try:
        wait_until(asked.exists, within=60)
        lonely.node(0).kill()
        gone.touch()
        with pytest.raises(TimeoutError):  # longer than a batch read waits, and than a handler may take
            wait_until(lambda: not query.isActive, within=12)
        lonely.node(0).start()
        wait_until(lambda: not query.isActive or counts(), within=60)
        assert query.exception() is None
        assert counts() == [(30, 30, 0)]
        lonely.wait_until_ready()
        assert values_in(lonely, f"{topic}-dlt") == sorted(b"v%d" % n for n in range(30))

        asked.unlink()
        gone.unlink()
        produce(lonely, topic, numbered(3, 3, first=30))
        wait_until(asked.exists, within=60)
        lonely.node(0).kill()
        gone.touch()
    finally:
        began = time.monotonic()
        query.stop()
    assert time.monotonic() - began < STOPPED_WITHIN_S
    wait_until(lambda: not running.getActiveJobsIds(), within=STOPPED_WITHIN_S)
