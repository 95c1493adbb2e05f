"""Brokers that are away while tasks hand records on: streams wait for them, and each record is there once.

One outage serves all tests that only need one: of the only broker, while several tasks send.
"""

import asyncio
import logging
import os
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from kafka import KafkaConsumer
from kafka.structs import TopicPartition
from support import name, options

from spark_kafka_group.errors import BrokerError, ProcessingError
from spark_kafka_group.options import Options
from spark_kafka_group.processing.backoff import Backoff
from spark_kafka_group.processing.hand_off import HandOff
from spark_kafka_group.processing.processor_settings import Settings
from spark_kafka_group.processing.record import Record
from spark_kafka_group.processing.work_queue import WorkQueue
from spark_kafka_group.processing.workers import workers_for
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.wire import delivery
from spark_kafka_group.wire.delivery import Delivery
from spark_kafka_group.wire.task_outage import Outage

COUNT = 60
BRIEF = {"kafkaConsumer.pollTimeoutMs": 1000, "kafka.request.timeout.ms": 1500, "kafka.fetch.max.wait.ms": 500}
GIVEN_UP_AFTER_S = 6.0
"""Four times kafka.request.timeout.ms."""


class Said(logging.Handler):
    """Warnings about outages."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())

    def __enter__(self):
        logging.getLogger(Outage.__module__).addHandler(self)
        return self

    def __exit__(self, *_):
        logging.getLogger(Outage.__module__).removeHandler(self)


def parsed(kafka, topic, **more):
    return Options.parse(options(kafka, topic) | {key: str(value) for key, value in (BRIEF | more).items()})


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

    def __init__(self, kafka, outlives, is_async=False, before=COUNT // 2, **more):
        self.topic = name("orders")
        kafka.create_topic(f"{self.topic}-dlt")
        self._outlives, self._before = outlives, before
        self._settings = Settings(
            "unordered", 4, 5, 50, 20_000, 0, Backoff(1, 2), (), "{topic}-dlt", "connect", (),
            parsed(kafka, self.topic, **more), "shop:charge",
        )  # fmt: skip
        self._handler = self._fails_later if is_async else self._fails
        self._acknowledged, self.gone = threading.Event(), threading.Event()
        self._sent = 0

    def _fails(self, record):
        if record.offset >= self._before:
            assert self.gone.wait(60)
        raise ValueError(record.offset)

    async def _fails_later(self, record):
        while record.offset >= self._before and not self.gone.is_set():
            await asyncio.sleep(0.01)
        raise ValueError(record.offset)

    def wait_for_acknowledgements(self):
        if self._before:
            assert self._acknowledged.wait(60)

    def _counting(self, hand_off):
        def hand_on(record, failure, settled):
            def counted(counter, problem):
                settled(counter, problem)
                self._sent += problem is None
                if self._sent >= self._before:
                    self._acknowledged.set()

            hand_off(record, failure, counted)

        return hand_on

    def run(self):
        """Counts, or the error, and how long it took since brokers went."""
        records = [Record(b"%d" % n, b"v", self.topic, 0, n, 0, 0) for n in range(COUNT)]
        with HandOff(self._settings, 0, self._outlives).connected() as hand_off:
            queue = WorkQueue(self._settings, self._counting(hand_off))
            with workers_for(queue, self._handler, 4, self._settings.stall_timeout_ms).running():
                try:
                    queue.put(records)
                except ProcessingError as error:
                    return error
        return queue.counts


@pytest.fixture(scope="module")
def outage():
    """What came of each task that was under way when the broker was killed."""
    with KafkaCluster() as kafka, Said() as said, ThreadPoolExecutor(8) as at_once:
        tasks = {
            "threads": Task(kafka, True),
            "coroutines": Task(kafka, True, is_async=True),
            "first": Task(kafka, True, before=0),
            "batch": Task(kafka, False),
            "short": Task(kafka, True, maxBrokerOutage="3s"),
        }
        running = {kind: at_once.submit(task.run) for kind, task in tasks.items()}
        for task in tasks.values():
            task.wait_for_acknowledgements()
        kafka.node(0).kill()
        try:
            began = time.monotonic()
            for task in tasks.values():
                task.gone.set()
            wait_until(lambda: running["batch"].done() and running["short"].done(), within=60)
            topics = [tasks[kind].topic for kind in ("threads", "coroutines", "first")]
            wait_until(lambda: all(any(t in line for line in said.lines) for t in topics), within=30)
            away_s = time.monotonic() - began
        finally:
            kafka.node(0).start()
        came = {kind: future.result(60) for kind, future in running.items()}
        kafka.wait_until_ready()
        letters = {kind: letters_in(kafka, f"{task.topic}-dlt") for kind, task in tasks.items()}
        yield SimpleNamespace(said=said.lines, tasks=tasks, letters=letters, away_s=away_s, **came)


@pytest.mark.parametrize("kind", ["threads", "coroutines", "first"])
def test_records_of_a_stream_wait_for_brokers_and_are_there_once(outage, kind):
    assert outage.away_s > GIVEN_UP_AFTER_S
    counts = getattr(outage, kind)
    assert (counts.records, counts.dead, counts.stalled) == (COUNT, COUNT, 0)
    assert outage.letters[kind] == dict.fromkeys(range(COUNT), 1)


def test_an_outage_is_a_warning_when_it_begins_and_one_when_it_is_over(outage):
    topic = outage.tasks["threads"].topic
    (away,) = [line for line in outage.said if topic in line]
    assert away.startswith(f"{topic}-dlt-0: brokers are away, or do not answer: ")
    assert "ECONNREFUSED" in away
    assert len([line for line in outage.said if line.startswith("brokers answer again, after ")]) == 3


def test_maxbrokeroutage_ends_a_hand_off_with_brokers_and_times(outage):
    assert "could not be sent on, so nothing is committed: " in str(outage.short)
    assert "and maxBrokerOutage is 3000 ms. The last attempt, at 20" in str(outage.short)


def test_a_batch_gives_a_record_up_after_four_request_timeouts(outage):
    assert "not acknowledged for 6 s (4 x kafka.request.timeout.ms): " in str(outage.batch)
    assert "ECONNREFUSED" in str(outage.batch)


@pytest.fixture
def delivered():
    """Send a record as a stream's task; its error, or None."""
    made = []

    def deliver(kafka, topic, value=b"v", **more):
        settings = parsed(kafka, topic, **more)
        made.append(Delivery(settings, outlives=True))
        settled = []
        made[-1].send(topic, 0, b"1", value, (), settled.append)
        made[-1].flush()
        return settled[0]

    yield deliver
    for one in made:
        one.close()


def test_a_record_that_is_too_large_fails_though_outages_are_outlived(kafka, delivered):
    topic = kafka.create_topic(name("small"), configs={"max.message.bytes": "1000"})
    error = delivered(kafka, topic, os.urandom(2000), **{"kafka.request.timeout.ms": 30_000})
    assert isinstance(error, BrokerError)
    assert f"raise max.message.bytes of topic {topic}" in str(error)


def test_a_topic_that_is_deleted_meanwhile_is_no_outage(kafka, monkeypatch):
    monkeypatch.setattr(delivery, "GONE_AFTER_S", 1.0)
    topic, settled = kafka.create_topic(name("going")), []
    sending = Delivery(parsed(kafka, topic, **{"kafka.request.timeout.ms": 30_000}), outlives=True)
    try:
        sending.send(topic, 0, None, b"before", (), settled.append)
        sending.flush()
        kafka.delete_topic(topic)
        sending.send(topic, 0, None, b"after", (), settled.append)
        sending.flush()
    finally:
        sending.close()
    assert settled[0] is None
    assert f"topic {topic} does not exist: create it" in str(settled[1])


def test_closing_during_an_outage_is_prompt_and_gives_up_what_is_under_way(kafka):
    topic, settled = kafka.create_topic(name("topic")), []
    sending = Delivery(parsed(kafka, topic, **{"kafka.request.timeout.ms": 30_000}), outlives=True)
    sending.send(topic, 0, None, b"v", (), settled.append)
    sending.flush()
    kafka.node(0).pause()
    try:
        sending.send(topic, 0, None, b"v", (), settled.append)
        began = time.monotonic()
        sending.close()
        took_s = time.monotonic() - began
    finally:
        kafka.node(0).resume()
    assert settled[0] is None
    assert isinstance(settled[1], BrokerError)
    assert took_s < 25


@pytest.mark.soak
def test_a_leader_with_too_few_replicas_waits_for_the_others(kafka3):
    topic, settled = kafka3.create_topic(name("topic"), configs={"min.insync.replicas": "3"}), []
    leader = kafka3.leader(topic)
    other = kafka3.node(leader % 3)
    sending = Delivery(parsed(kafka3, topic), outlives=True)
    try:
        sending.send(topic, 0, b"0", b"v", (), settled.append)
        sending.flush()
        other.kill()
        for n in range(1, 10):
            sending.send(topic, 0, b"%d" % n, b"v", (), settled.append)
        with pytest.raises(TimeoutError):
            wait_until(lambda: len(settled) > 1, within=15)
        other.start()
        sending.flush()
        assert settled == [None] * 10
        kafka3.wait_until_ready()
        assert letters_in(kafka3, topic) == dict.fromkeys(range(10), 1)
    finally:
        sending.close()
        if not other.alive:
            other.start()
        kafka3.wait_until_ready()


@pytest.mark.soak
def test_records_are_there_once_where_a_broker_hangs_twice_in_the_middle_of_them(kafka):
    topic, settled = kafka.create_topic(name("topic")), []
    sending = Delivery(parsed(kafka, topic), outlives=True)
    try:
        for n in range(3000):
            sending.send(topic, 0, b"%d" % n, bytes(200), (), settled.append)
            if n in (1000, 2000):
                wait_until(lambda n=n: len(settled) > n - 900, within=30)
                kafka.node(0).pause()
                with pytest.raises(TimeoutError):
                    wait_until(lambda: any(settled), within=3 * GIVEN_UP_AFTER_S)
                kafka.node(0).resume()
        sending.flush()
    finally:
        sending.close()
    assert settled == [None] * 3000
    assert letters_in(kafka, topic) == dict.fromkeys(range(3000), 1)
