"""Two queries in one group that are killed at any step, again and again: each row is written once."""

import contextlib
import random
import threading

import kafka.errors as kafka_errors
import pytest
from exactly_once import ExactlyOnce, rows_of
from support import name, numbered, produce, topic_with

from spark_kafka_group import GroupKafkaError
from spark_kafka_group.testing import wait_until

OPTIONS = {
    "startingOffsets": "group",
    "kafka.auto.offset.reset": "earliest",
    "kafka.metadata.max.age.ms": 300,
    "kafka.heartbeat.interval.ms": 100,
}
PARTITIONS = 4


class KilledError(Exception):
    """The query ends here."""


class Life:
    """A query that is started again each time it ends, in a thread."""

    def __init__(self, query, seed):
        self.query = query
        self.kills = []
        self.failure = None
        self._rng = random.Random(seed)
        self._peace = threading.Event()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self._thread.start()
        return self

    def in_peace(self):
        """Kill it no more."""
        self._peace.set()

    def end(self):
        self._end.set()
        self._thread.join(timeout=120)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure

    def _run(self):
        try:
            while not self._end.is_set():
                self.query.start()
                # A sink, or a source, that has lost its place ends the query, as Spark would.
                with contextlib.suppress(KilledError, GroupKafkaError, kafka_errors.KafkaError):
                    while not self._end.is_set():
                        self._trigger()
                if self._peace.is_set() or self._rng.random() < 0.7:
                    self.query.stop()  # else the next process takes its place
                    self._peace.wait(self._rng.uniform(0, 2))  # meanwhile the other one takes its partitions over
        except Exception as error:  # noqa: BLE001 - reported to the test when it ends
            self.failure = error
        finally:
            self.query.stop()

    def _trigger(self):
        query = self.query
        if query.running is None and not query.plan(limit=self._rng.choice((4, 10, None))):
            self._end.wait(0.02)
            return
        self._maybe_die("plan")
        query.begin()
        self._maybe_die("begin")
        if query.running > query.decided:
            query.add_offsets()
            self._maybe_die("add_offsets")
            query.decide()
        self._maybe_die("decide")
        query.succeeded = query.running

    def _maybe_die(self, step):
        if not self._peace.is_set() and self._rng.random() < 0.12:
            self.kills.append(step)
            raise KilledError


@pytest.mark.parametrize("seed", [1])
@pytest.mark.soak
def test_each_row_is_written_once(kafka, group, driver_of, tmp_path, seed):
    topic, out = topic_with(kafka, [], partitions=PARTITIONS), kafka.create_topic(name("out"), partitions=1)
    decisions = kafka.create_topic(name("decisions"), configs={"cleanup.policy": "compact"})
    lives = []
    for number in range(2):
        shared, one = tmp_path / str(number), name("sink")
        shared.mkdir()

        def drivers(shared=shared, one=one):
            of_sink = {"kafka.transactional.id": one, "decisionTopic": decisions}
            return [driver_of(kafka, topic, group, shared, **OPTIONS, **of_sink)]

        lives.append(Life(ExactlyOnce(kafka, one, out, shared, drivers, decisions), 100 * seed + number).start())
    produced = 0

    def enough():
        nonlocal produced
        produce(kafka, topic, numbered(20, PARTITIONS, first=produced))
        produced += 20
        return all(len(life.kills) >= 10 for life in lives) or any(life.failure for life in lives)

    try:
        wait_until(enough, within=240)
        for life in lives:
            life.in_peace()
        wait_until(lambda: len(lives[0].query.written()) >= produced, within=120)
    finally:
        for life in lives:
            life.end()
            life.query.close()
    assert sorted(lives[0].query.written()) == rows_of(topic, dict.fromkeys(range(PARTITIONS), produced // PARTITIONS))
