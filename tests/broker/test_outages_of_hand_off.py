"""Brokers that are away while tasks hand records on: streams wait for them, and each record is there once.

One outage serves all tests: of the only broker, while several tasks write.
"""

import asyncio
import dataclasses
import logging
import os
import re
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from kafka import KafkaConsumer
from kafka.structs import TopicPartition
from support import name, options

from spark_kafka_group.errors import BrokerTimeoutError
from spark_kafka_group.executor.writing.sink_columns import arrow_batch, sink_columns
from spark_kafka_group.executor.writing.write import write
from spark_kafka_group.options import Options
from spark_kafka_group.options.sink_options import sink_options
from spark_kafka_group.processing.handler_task import HandOff
from spark_kafka_group.processing.processor_settings import Backoff, Settings
from spark_kafka_group.processing.record import Record
from spark_kafka_group.processing.work_queue import WorkQueue
from spark_kafka_group.processing.workers import workers_for
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.wire.writable_topics import LongWait

pytestmark = pytest.mark.soak

COUNT = 2400
BEFORE = COUNT // 2
MEMORY = 20_000
"""Bytes of kafka.buffer.memory: less than the first rows, so that some are acknowledged before brokers go."""
BRIEF = {"kafka.request.timeout.ms": "1500", "kafka.fetch.max.wait.ms": "500", "kafkaConsumer.pollTimeoutMs": "1000"}


class Said(logging.Handler):
    """Warnings about outages."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())

    def __enter__(self):
        logging.getLogger(LongWait.__module__).addHandler(self)
        return self

    def __exit__(self, *_):
        logging.getLogger(LongWait.__module__).removeHandler(self)


def letters_in(kafka, topic):
    """How often each key is in a topic."""
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest", group_id=None)
    try:
        tps = [TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic)]
        consumer.assign(tps)
        ends, found = consumer.end_offsets(tps), Counter()
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            for records in consumer.poll(timeout_ms=500).values():
                found.update(int(record.key) for record in records)
        return found
    finally:
        consumer.close()


class Task:
    """Hands every record on to a dead-letter topic: half of them before brokers go, half while they are away.

    Handlers are asked to fail by threads or coroutines that would be abandoned if a hand-off held them up.
    """

    def __init__(self, kafka, outlives, is_async=False, delivery_ms=None, **more):
        self.topic = name("orders")
        kafka.create_topic(f"{self.topic}-dlt")
        self._settings = Settings(
            "unordered", 4, 5, 10, 5_000, 0, Backoff(1, 2), (), "{topic}-dlt", "connect", (), "", None, "shop:charge"
        )
        self._handler = self._fails_later if is_async else self._fails
        self.gone = threading.Event()
        settings = sink_options(Options.parse(options(kafka, self.topic) | BRIEF | more), outlives)
        own = {"buffer_memory": MEMORY} | ({} if delivery_ms is None else {"delivery_timeout_ms": delivery_ms})
        self._to_brokers = dataclasses.replace(settings, producing=dataclasses.replace(settings.producing, **own))

    def _records(self):
        """Those that wait for the outage come once all before are handled."""
        for number in range(COUNT):
            if number == BEFORE:
                assert self.gone.wait(60)
            yield Record(b"%d" % number, os.urandom(500), self.topic, 0, number, 0, 0)

    def _fails(self, record):
        raise ValueError(record.offset)

    async def _fails_later(self, record):
        await asyncio.sleep(0)
        raise ValueError(record.offset)

    def run(self):
        """Counts, or the error."""
        queue = WorkQueue(self._settings, HandOff(self._settings, 0))
        with workers_for(queue, self._handler, 4, self._settings.stall_timeout_ms).running():
            try:
                write(map(arrow_batch, queue.process(self._records())), self._to_brokers, sink_columns())
            except BrokerTimeoutError as error:
                queue.abort(error)
                return error
        return queue.counts


@pytest.fixture(scope="module")
def outage():
    """What came of each task that was under way when the broker was killed."""
    with KafkaCluster() as kafka, Said() as said, ThreadPoolExecutor(8) as at_once:
        tasks = {
            "threads": Task(kafka, True),
            "coroutines": Task(kafka, True, is_async=True),
            "batch": Task(kafka, False, delivery_ms=2_000),
            "short": Task(kafka, True, maxBrokerOutage="3s"),
        }
        running = {kind: at_once.submit(task.run) for kind, task in tasks.items()}
        for task in tasks.values():
            wait_until(lambda task=task: letters_in(kafka, f"{task.topic}-dlt"), within=60)
        kafka.node(0).kill()
        try:
            for task in tasks.values():
                task.gone.set()
            wait_until(lambda: running["batch"].done() and running["short"].done(), within=60)
            topics = [tasks[kind].topic for kind in ("threads", "coroutines")]
            wait_until(lambda: all(any(t in line for line in said.lines) for t in topics), within=60)
        finally:
            kafka.node(0).start()
        came = {kind: future.result(60) for kind, future in running.items()}
        kafka.wait_until_ready()
        letters = {kind: letters_in(kafka, f"{task.topic}-dlt") for kind, task in tasks.items()}
        yield SimpleNamespace(said=said.lines, tasks=tasks, letters=letters, **came)


@pytest.mark.parametrize("kind", ["threads", "coroutines"])
def test_records_of_a_stream_wait_for_brokers_and_are_there_once(outage, kind):
    counts = getattr(outage, kind)
    assert (counts.records, counts.dead, counts.stalled) == (COUNT, COUNT, 0)
    assert outage.letters[kind] == dict.fromkeys(range(COUNT), 1)


def test_an_outage_is_a_warning_when_it_begins_and_one_when_it_is_over(outage):
    topic = outage.tasks["threads"].topic
    (away,) = [line for line in outage.said if topic in line]
    assert away.startswith(f"{topic}-dlt-0: brokers are away, or do not answer: ")
    assert "ECONNREFUSED" in away
    assert len([line for line in outage.said if line.startswith("brokers answer again, after ")]) == 2


@pytest.mark.parametrize(("kind", "limit_ms"), [("short", 3000), ("batch", 2000)])
def test_maxbrokeroutage_ends_the_wait_of_a_stream_and_the_sink_s_own_limit_that_of_a_batch(outage, kind, limit_ms):
    error = str(getattr(outage, kind))
    assert error.startswith(f"{outage.tasks[kind].topic}-dlt-0: ")
    assert re.search(rf"within kafka\.(delivery\.timeout|max\.block)\.ms \({limit_ms}\): ", error)
    assert "ECONNREFUSED" in error
