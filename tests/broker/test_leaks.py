"""Workers and drivers live for weeks: reads and triggers leave no memory behind."""

import gc
import logging
import os
import tracemalloc
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from support import Record, name, numbered, options, topic_with

from spark_kafka_group.executor.reading.read import brokers_for, read
from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import OffsetRange, ReadTask, TopicPartition

SPARE_OBJECTS = 0.2
"""Objects of one type a turn: fewer than this is not a leak of every turn, nor of every fifth."""
SPARE_BYTES = 50
"""Bytes that Python keeps, a turn: less than the smallest object twice. What is counted grows from int to int."""
SPARE_RSS = 8 << 20
LOOKS = 2
"""A leak is in each of them; a table that grows once, or a connection that is replaced, in one."""


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def kept_by(turn, turns, warm_up):
    """What `turns` turns leave behind in this process after some to warm up.

    Returns
    -------
    dict
        Objects by type, those with as many as turns only; bytes a turn that Python allocated; bytes of Arrow's, open
        files, and resident bytes, in all.
    """

    def look():
        gc.collect()
        objects = Counter(f"{type(thing).__module__}.{type(thing).__qualname__}" for thing in gc.get_objects())
        return objects, pa.total_allocated_bytes(), len(os.listdir("/proc/self/fd")), resident()

    look()  # Python notes which classes are no mappings, when a Counter is made for the first time
    for _ in range(warm_up):
        turn()
    before = look()
    for _ in range(turns):
        turn()
    after = look()
    # Tracing makes everything slower, and memory larger, so it has turns of its own.
    tracemalloc.start()
    logging.disable()  # pytest keeps what is logged, as kafka-python's warning that a busy machine is slow
    try:
        for _ in range(warm_up):
            turn()
        traced = min(_traced(turn, turns) for _ in range(LOOKS))
    finally:
        logging.disable(logging.NOTSET)
        tracemalloc.stop()
    arrow, files, rss = (new - old for new, old in zip(after[1:], before[1:], strict=True))
    grown = {kind: count for kind, count in (after[0] - before[0]).items() if count > SPARE_OBJECTS * turns}
    return {"objects": grown, "bytes": traced / turns, "arrow": arrow, "files": files, "rss": rss}


def _traced(turn, turns):
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(turns):
        turn()
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before


def assert_nothing_is_kept(kept):
    assert kept["objects"] == {}
    assert kept["arrow"] <= 0
    assert kept["files"] <= 0
    assert kept["bytes"] < SPARE_BYTES
    assert kept["rss"] < SPARE_RSS


@pytest.mark.parametrize("codec", [None, "lz4"])
@pytest.mark.soak
def test_a_worker_keeps_nothing_of_the_tasks_it_read(kafka, codec):
    records = [Record(n % 2, None, b"v" * 1000) for n in range(2000)]
    topic = topic_with(kafka, records, partitions=2, compression=codec)
    settings = Options.parse(options(kafka, topic))
    whole = ReadTask(tuple(OffsetRange(TopicPartition(topic, p), 0, 1000) for p in range(2)))

    def turn():
        assert sum(batch.num_rows for batch in read(whole, settings)) == 2000

    try:
        assert_nothing_is_kept(kept_by(turn, turns=200, warm_up=20))
    finally:
        brokers_for(settings).close()


def test_a_worker_keeps_nothing_of_tasks_that_were_cancelled(kafka):
    topic = topic_with(kafka, [Record(0, None, b"v" * 100_000) for _ in range(100)], partitions=1)
    settings = Options.parse(options(kafka, topic))

    def turn():
        batches = read(ReadTask((OffsetRange(TopicPartition(topic, 0), 0, 100),)), settings)
        next(batches)
        batches.close()

    try:
        assert_nothing_is_kept(kept_by(turn, turns=30, warm_up=5))
    finally:
        brokers_for(settings).close()


@pytest.mark.soak
def test_a_driver_keeps_nothing_of_triggers_and_batches(kafka, driver_of):
    topic = topic_with(kafka, numbered(2000, 2), partitions=2)
    driver = driver_of(kafka, topic, name("group"))
    offset = driver.initial_offset()

    def batch():
        nonlocal offset
        end = driver.latest_offset(offset, 1)
        assert end != offset
        assert sum(r.size for task in driver.plan(offset, end) for r in task) == 1
        driver.report_latest_offset()
        offset = end

    kept = kept_by(batch, turns=80, warm_up=60)
    assert_nothing_is_kept(kept)
    while (end := driver.latest_offset(offset)) != offset:
        driver.plan(offset, end)
        offset = end

    def empty():
        assert driver.latest_offset(offset) == offset
        driver.report_latest_offset()

    assert_nothing_is_kept(kept_by(empty, turns=150, warm_up=60))
