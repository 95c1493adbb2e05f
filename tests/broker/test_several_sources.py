"""Several sources of one query in one group: drivers that one thread asks in turn, as Spark does."""

import itertools
import threading
import time
from dataclasses import dataclass, field

import pytest
from running import settled
from support import committed, name, numbered, produce, topic_with

from spark_kafka_group.notes import writer_of
from spark_kafka_group.offsets import TopicPartition
from spark_kafka_group.testing import wait_until
from spark_kafka_group.tools.verify import verify
from spark_kafka_group.tools.events import read_run

QUICK = {"kafka.metadata.max.age.ms": 300, "kafka.heartbeat.interval.ms": 200}
BOTH = QUICK | {"startingOffsets": "group", "kafka.auto.offset.reset": "earliest"}


@dataclass
class Sources:
    """What Spark does with the sources of one query; a batch that a crash cut short stays in the offset log."""

    drivers: list
    logged: list = field(default_factory=list)
    ranges: list = field(default_factory=list)

    def start(self):
        self.logged = [[driver.initial_offset() for driver in self.drivers]]
        return self

    def prepare(self):
        for driver in self.drivers:
            driver.prepare_available_now()
        return self

    def latest(self):
        """The next batch's ends; None when no source has anything new."""
        ends = [driver.latest_offset(start, None) for driver, start in zip(self.drivers, self.logged[-1], strict=True)]
        if ends == self.logged[-1]:
            return None
        self.logged.append(ends)
        return ends

    def run(self):
        """Plan and run the batch logged last; Spark knows that it has succeeded when this returns."""
        starts, ends = self.logged[-2:]
        planned = []
        for driver, start, end in zip(self.drivers, starts, ends, strict=True):
            planned.append([r for task in driver.plan(start, end) for r in task])
        self.ranges += [r for ranges in planned for r in ranges]
        return planned

    def trigger(self):
        return None if self.latest() is None else self.run()

    def drain(self, records, within=60):
        deadline = time.monotonic() + within
        while sum(r.size for r in self.ranges) < records:
            assert time.monotonic() < deadline, self.ranges
            self.trigger()

    def available_now(self):
        self.prepare()
        batches = list(iter(self.trigger, None))
        assert len(batches) < 20
        return batches


def each_once(ranges, topic, partitions, end):
    for partition in range(partitions):
        mine = sorted((r.start, r.end) for r in ranges if r.tp == TopicPartition(topic, partition))
        assert mine[0][0] == 0 and mine[-1][1] == end, (partition, mine)
        assert all(before[1] == after[0] for before, after in itertools.pairwise(mine)), (partition, mine)


def no_marks(kafka, group):
    return all(writer_of(note).without is None for _, note in kafka.committed(group).values())


def verified(*paths):
    run = read_run(paths)
    found = verify(run.events)
    assert not found.violations, found.violations
    return run.events


@pytest.fixture
def logs(tmp_path):
    return [tmp_path / f"{n}.jsonl" for n in range(3)]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_two_topics_in_one_group(kafka, group, driver_of, logs, strategy):
    topics = [topic_with(kafka, numbered(20, 2), partitions=2) for _ in range(2)]
    settings = BOTH | {"kafka.partition.assignment.strategy": strategy}
    sources = Sources(
        [driver_of(kafka, topic, group, eventLog=log, **settings) for topic, log in zip(topics, logs, strict=False)]
    ).start()
    began = time.monotonic()
    first, second = sources.trigger()
    assert time.monotonic() - began < 10
    # Both have all of their topic in the very first batch, under one and the same generation.
    assert [(r.tp.topic, r.start, r.end) for r in first] == [(topics[0], 0, 10)] * 2
    assert [(r.tp.topic, r.start, r.end) for r in second] == [(topics[1], 0, 10)] * 2
    planned = [driver._session.committer.planned.generation for driver in sources.drivers]
    assert planned == [settled(kafka, group, 2) and planned[0]] * 2
    for _ in range(3):
        for topic in topics:
            produce(kafka, topic, numbered(20, 2))
        sources.trigger()
    assert sources.latest() is None
    assert set(committed(kafka, group).values()) == {40} and len(committed(kafka, group)) == 4
    assert no_marks(kafka, group)
    for topic in topics:
        each_once(sources.ranges, topic, 2, 40)
    for driver in sources.drivers:
        driver.stop()
    events = verified(*logs[:2])
    assert {event.generation for event in events if event.kind == "committed"} == {planned[0]}
