"""Two queries in turn in one group, with resets in between, at random: each batch starts where a model says.

The model knows the group's offset of each partition, and which queries have gone on from it, after which of their
batches. The checkpoint of a query is right about a partition when its last batch is later than that. In all other cases
the group is right.
"""

import random

import pytest
from support import commit_for, committed, numbered, produce, topic_with

from spark_kafka_group.values.offsets import GroupOffset, TopicPartition

GROUP = {
    "kafka.metadata.max.age.ms": 300,
    "kafka.heartbeat.interval.ms": 100,
    "startingOffsets": "group",
    "kafka.auto.offset.reset": "earliest",
}
PARTITIONS = 2
COMMITTED = -2  # a batch number before all others: the offset is this query's own commit


class Checkpoint:
    """A query between its runs."""

    def __init__(self, name):
        self.name = name
        self.offsets = []  # Spark's log of offsets, the initial one first
        self.succeeded = 0  # batches in Spark's log of commits
        self.positions = {}

    def logged(self):
        """What its newest offset says."""
        return GroupOffset.from_json(self.offsets[-1])

    def forget_positions(self):
        """Positions are those of the checkpoint again."""
        self.positions = {tp.partition: at for tp, at in self.logged().positions.items()}


class Walk:
    """Runs at most one query at a time, and keeps the model beside it."""

    def __init__(self, kafka, group, driver_of, seed):
        self.kafka, self.group, self.driver_of = kafka, group, driver_of
        self.random = random.Random(seed)
        self.topic = topic_with(kafka, numbered(6 * PARTITIONS, PARTITIONS), partitions=PARTITIONS)
        self.ends = dict.fromkeys(range(PARTITIONS), 6)
        self.in_group = dict.fromkeys(range(PARTITIONS), 0)
        # by partition: the queries that have gone on from the group's offset, each with its last batch before that
        self.gone_on = {partition: {} for partition in range(PARTITIONS)}
        commit_for(kafka, group, {(self.topic, partition): 0 for partition in range(PARTITIONS)})
        self.checkpoints = [Checkpoint("A"), Checkpoint("B")]
        self.running = None
        self.driver = None
        self.takes_positions = True
        self.uncommitted = {}
        self.trail = []

    def step(self):
        choice = self.random.random()
        if choice < 0.35:
            partition, count = self.random.randrange(PARTITIONS), self.random.randint(1, 4)
            produce(self.kafka, self.topic, [r._replace(partition=partition) for r in numbered(count, 1)])
            self.ends[partition] += count
        if self.running is not None:
            self.trigger(self.running)
        elif choice > 0.6:
            self.reset()
        else:
            self.start(self.random.choice(self.checkpoints))

    def reset(self):
        partition = self.random.randrange(PARTITIONS)
        anywhere = self.random.randint(0, self.ends[partition])
        known = [query.positions.get(partition, 0) for query in self.checkpoints]
        at = self.random.choice([anywhere, self.in_group[partition], *known])
        self.trail.append(f"reset {partition} to {at}")
        commit_for(self.kafka, self.group, {(self.topic, partition): at})
        self.in_group[partition], self.gone_on[partition] = at, {}

    def start(self, query):
        self.trail.append(f"start {query.name}")
        self.running, self.driver = query, self.driver_of(self.kafka, self.topic, self.group, **GROUP)
        self.takes_positions, self.uncommitted = True, {}
        if not query.offsets:
            query.offsets = [self.driver.initial_offset()]
        query.forget_positions()
        if query.succeeded < len(query.offsets) - 1:
            self.replay(query)

    def replay(self, query):
        start, end = query.offsets[-2:]
        if len(query.offsets) == 2:  # Spark keeps no initial offset
            start = self.driver.initial_offset()
        ranges = self.planned(start, end)
        self.trail.append(f"  again {ranges}")
        assert ranges == GroupOffset.from_json(end).ranges(GroupOffset.from_json(start))
        if self.random.random() < 0.25:
            self.stop("in the batch that is read again")
            return
        batch = query.logged().batch
        self.uncommitted = {
            r.tp.partition: r.end
            for r in ranges
            if self.in_group[r.tp.partition] == r.start or self.follows(query, r.tp.partition, batch)
        }
        query.succeeded += 1

    def trigger(self, query):
        start_json, limit = query.offsets[-1], self.random.choice([None, 1, 3, 5])
        start = GroupOffset.from_json(start_json)
        end_json = self.driver.latest_offset(start_json, limit)
        for partition, end in self.uncommitted.items():
            self.in_group[partition], self.gone_on[partition] = end, {query.name: COMMITTED}
        self.uncommitted = {}
        if self.takes_positions:
            self.take_positions(query, start.batch)
        if end_json == start_json:
            if self.random.random() < 0.5:
                self.stop("without data")
            return
        end = GroupOffset.from_json(end_json)
        ranges = end.ranges(start)
        self.trail.append(f"  batch {end.batch} of {query.name}: {ranges}")
        assert {r.tp.partition: r.start for r in ranges}.items() <= query.positions.items()
        self.run(query, start_json, end_json, ranges)

    def run(self, query, start_json, end_json, ranges):
        """Spark's part, to its end or to one of the points where a query may be killed."""
        ended = self.random.random()
        if ended < 0.12:
            self.stop("before Spark wrote the batch down")
            return
        query.offsets.append(end_json)
        query.positions = {p: query.logged().positions[TopicPartition(self.topic, p)] for p in range(PARTITIONS)}
        if ended < 0.24:
            self.stop("before the batch was planned")
            return
        assert self.planned(start_json, end_json) == ranges
        if ended < 0.4:
            self.stop("in the batch")
            return
        self.uncommitted = {r.tp.partition: r.end for r in ranges}
        query.succeeded += 1
        if ended < 0.75:
            self.stop("after the batch")

    def planned(self, start_json, end_json):
        return sorted(r for task in self.driver.plan(start_json, end_json) for r in task)

    def take_positions(self, query, batch):
        self.takes_positions = False
        for partition, offset in self.in_group.items():
            at = query.positions.get(partition)
            if at is not None and at != offset and self.follows(query, partition, batch):
                self.in_group[partition], self.gone_on[partition] = at, {query.name: COMMITTED}
            else:
                query.positions[partition] = offset
                went_on = self.gone_on[partition]
                went_on[query.name] = min(batch, went_on.get(query.name, batch))

    def follows(self, query, partition, batch):
        """Whether the query had gone on from the group's offset before it planned `batch`."""
        went_on = self.gone_on[partition].get(query.name)
        return went_on is not None and went_on < batch

    def stop(self, when):
        self.trail.append(f"stop {when}")
        self.running = None
        self.driver.stop()
        found = committed(self.kafka, self.group)
        assert {partition: found[self.topic, partition] for partition in self.in_group} == self.in_group


def walk(kafka, group, driver_of, seed, steps):
    walked = Walk(kafka, group, driver_of, seed)
    try:
        for _ in range(steps):
            walked.step()
    except AssertionError:
        print(f"seed {seed}", *walked.trail[-40:], sep="\n")
        raise


def test_queries_that_end_anywhere_between_resets_read_each_record_once(kafka, group, driver_of):
    walk(kafka, group, driver_of, seed=4, steps=120)


@pytest.mark.parametrize("seed", range(1, 11))
@pytest.mark.soak
def test_queries_that_end_anywhere_between_resets_read_each_record_once_for_long(kafka, group, driver_of, seed):
    walk(kafka, group, driver_of, seed, steps=500)
