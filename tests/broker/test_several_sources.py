"""Several sources of one query in one group: drivers that one thread asks in turn, as Spark does."""

import itertools
import time
from dataclasses import dataclass, field

import pytest
from running import settled
from support import commit_for, committed, numbered, produce, topic_with

from spark_kafka_group.testing import wait_until
from spark_kafka_group.tools.event_logs import read_run
from spark_kafka_group.tools.verify import verify
from spark_kafka_group.values.commit_metadata import left_out_of, writer_of
from spark_kafka_group.values.offsets import GroupOffset, OffsetRange, TopicPartition

QUICK = {"kafka.metadata.max.age.ms": 300, "kafka.heartbeat.interval.ms": 200}
BOTH = QUICK | {"startingOffsets": "group", "kafka.auto.offset.reset": "earliest"}


@dataclass
class Sources:
    """Spark's calls to the sources of one query; a batch that a crash ended stays in the offset log."""

    drivers: list
    logged: list = field(default_factory=list)
    ranges: list = field(default_factory=list)
    limit: int | None = None

    def start(self):
        self.logged = [[driver.initial_offset() for driver in self.drivers]]
        return self

    def prepare(self):
        for driver in self.drivers:
            driver.prepare_available_now()
        return self

    def latest(self):
        """The next batch's ends; None when no source has anything new."""
        starts = self.logged[-1]
        ends = [driver.latest_offset(start, self.limit) for driver, start in zip(self.drivers, starts, strict=True)]
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


def each_once(ranges, topic, partitions, end):
    for partition in range(partitions):
        mine = sorted((r.start, r.end) for r in ranges if r.tp == TopicPartition(topic, partition))
        assert (mine[0][0], mine[-1][1]) == (0, end), (partition, mine)
        assert all(before[1] == after[0] for before, after in itertools.pairwise(mine)), (partition, mine)


def no_marks(kafka, group):
    return all(
        (writer_of(note).without, writer_of(note).left_by) == (None, None)
        for _, note in kafka.committed(group).values()
    )


def verified(*paths):
    run = read_run(paths)
    found = verify(run.events)
    assert not found.violations, found.violations
    return run.events


@pytest.fixture
def shared(tmp_path):
    """Values that sources of one application share."""
    return tmp_path


@pytest.fixture
def logs(tmp_path):
    return [tmp_path / f"{n}.jsonl" for n in range(3)]


@pytest.fixture
def drivers_of(kafka, group, driver_of, shared, logs):
    """Makes a source for each topic."""

    def make(topics, **more):
        return [
            driver_of(kafka, topic, group, shared, eventLog=log, **BOTH, **more)
            for topic, log in zip(topics, logs, strict=False)
        ]

    return make


@pytest.fixture
def idle_member_of(kafka, group, driver_of, shared):
    """Makes a source that joins the group, and reads none of its partitions."""

    def make(topic):
        driver = driver_of(kafka, topic, group, shared, pausePartitions=f'{{"{topic}": [0, 1]}}', **BOTH)
        driver.latest_offset(driver.initial_offset(), None)
        return driver

    return make


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_two_topics_in_one_group(kafka, group, drivers_of, logs, strategy):
    topics = [topic_with(kafka, numbered(20, 2), partitions=2) for _ in range(2)]
    sources = Sources(drivers_of(topics, **{"kafka.partition.assignment.strategy": strategy})).start()
    began = time.monotonic()
    first, second = sources.trigger()
    assert time.monotonic() - began < 30
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
    assert committed(kafka, group) == {(topic, p): 40 for topic in topics for p in range(2)}
    assert no_marks(kafka, group)
    for topic in topics:
        each_once(sources.ranges, topic, 2, 40)
    for driver in sources.drivers:
        driver.stop()
    events = verified(*logs[:2])
    assert {event.generation for event in events if event.kind == "committed"} == {planned[0]}


def test_explicit_starting_offsets_are_for_all_sources_of_a_query_alone_in_its_group(kafka, group, driver_of, shared):
    topics = [topic_with(kafka, numbered(20, 2), partitions=2) for _ in range(2)]
    commit_for(kafka, group, {(topic, p): 7 for topic in topics for p in range(2)})
    drivers = [driver_of(kafka, topic, group, shared, **QUICK, startingOffsets="earliest") for topic in topics]
    sources = Sources(drivers).start()
    sources.drain(40)
    assert [(r.start, r.end) for r in sources.ranges] == [(0, 10)] * 4


def test_one_topic_twice_each_source_reads_a_part(kafka, group, driver_of, shared, logs, caplog):
    topic = topic_with(kafka, numbered(40, 4), partitions=4)
    drivers = [driver_of(kafka, topic, group, shared, eventLog=log, **BOTH) for log in logs[:2]]
    sources = Sources(drivers, limit=8).start().prepare()
    sources.latest()
    planned = sources.run()
    assert [len(ranges) for ranges in planned] == [2, 2]
    read = list(sources.ranges)
    assert sources.run() == planned  # Spark may ask twice
    sources.ranges = read
    while sources.trigger() is not None:
        assert len(sources.logged) < 20
    each_once(sources.ranges, topic, 4, 10)
    readers = [driver._session.query_id for driver in drivers]
    (warning,) = [record.message for record in caplog.records if "subscribe to" in record.message]
    assert topic in warning
    assert all(reader in warning for reader in readers)
    assert no_marks(kafka, group)
    assert committed(kafka, group) == {(topic, p): 10 for p in range(4)}
    for driver in drivers:
        driver.stop()
    verified(*logs[:2])


def test_what_a_batch_went_without_is_read_later(kafka, group, drivers_of, idle_member_of):
    topics = [topic_with(kafka, numbered(20, 2), partitions=2) for _ in range(2)]

    sources = Sources(drivers_of(topics)).start()
    sources.latest()
    # A third one joins before the batch has begun, takes a partition of the first topic, and reads nothing.
    third = idle_member_of(topics[0])
    first, second = sources.run()
    assert [[r.size for r in ranges] for ranges in (first, second)] == [[10], [10, 10]]
    (gone,) = {TopicPartition(topics[0], p) for p in range(2)} - {r.tp for r in first}
    assert third._session.member.generation.assignment == {gone}
    offset, note = kafka.committed(group)[gone]
    assert (offset, left_out_of(note, sources.drivers[0]._session.query_id)) == (0, 0)
    # All leave, and no source knows that the batch has succeeded.
    for driver in [third, *sources.drivers]:
        driver.stop()
    again = Sources(drivers_of(topics), sources.logged)
    again.drain(10)
    assert [(r.tp, r.start, r.end) for r in again.ranges] == [(gone, 0, 10)]
    assert again.latest() is None
    assert set(committed(kafka, group).values()) == {10}
    assert no_marks(kafka, group)
    for topic in topics:
        each_once(sources.ranges + again.ranges, topic, 2, 10)
    for driver in again.drivers:
        driver.stop()
    # The other way it could have gone: the batch was cut short, so it is read again, as it was.
    kafka.consumer_groups("--delete", "--group", group)
    earlier = Sources(drivers_of(topics)).start()
    earlier.latest()
    third = idle_member_of(topics[0])
    planned = earlier.run()
    for driver in [third, *earlier.drivers]:
        driver.stop()
    replayed = Sources(drivers_of(topics), earlier.logged)
    assert [[(r.tp, r.start, r.end) for r in ranges] for ranges in replayed.run()] == [
        [(r.tp, r.start, r.end) for r in ranges] for ranges in planned
    ]
    replayed.drain(40)
    for topic in topics:
        each_once(replayed.ranges, topic, 2, 10)


@pytest.mark.parametrize("logged", [True, False])
def test_what_a_batch_went_without_is_not_forgotten_before_the_checkpoint_knows(
    kafka, group, drivers_of, idle_member_of, logged
):
    topics = [topic_with(kafka, numbered(20, 2), partitions=2) for _ in range(2)]

    sources = Sources(drivers_of(topics)).start()
    sources.latest()
    third = idle_member_of(topics[0])
    (read,), _ = sources.run()
    gone = TopicPartition(topics[0], 1 - read.tp.partition)
    third.stop()
    # The next batch reads nothing, and says where the partition is.
    before, end = (GroupOffset.from_json(ends[0]) for ends in [sources.logged[-1], sources.latest()])
    assert before.positions == {read.tp: 10, gone: 10}
    assert end.positions == {read.tp: 10, gone: 0}
    assert end.ranges(before) == []
    assert left_out_of(kafka.committed(group)[gone][1], sources.drivers[0]._session.query_id) == 0
    for driver in sources.drivers:
        driver.stop()
    again = Sources(drivers_of(topics), sources.logged if logged else sources.logged[:-1])
    if logged:
        again.run()
    again.drain(10)
    assert [(r.tp, r.start, r.end) for r in again.ranges] == [(gone, 0, 10)]
    assert again.latest() is None
    assert no_marks(kafka, group)
    for driver in again.drivers:
        driver.stop()


def test_a_reset_is_right_also_after_the_batch_planned_there_has_let_a_rebalance_pass(kafka, group, driver_of, shared):
    topic, other = (topic_with(kafka, numbered(20, 1), partitions=1) for _ in range(2))
    first = driver_of(kafka, topic, group, shared, **BOTH)
    end = first.latest_offset(first.initial_offset(), None)
    assert first.latest_offset(end, None) == end
    first.stop()
    commit_for(kafka, group, {(topic, 0): 7})
    again = driver_of(kafka, topic, group, shared, **BOTH)
    again.latest_offset(end, None)
    generation = again._session.member.generation.id
    # The query fails after its other source has joined, and before Spark has written the batch down.
    second = driver_of(kafka, other, group, shared, **BOTH)
    second.latest_offset(second.initial_offset(), None)

    def resumed():
        at, note = kafka.committed(group)[TopicPartition(topic, 0)]
        assert at == 7
        return writer_of(note).generation > generation and writer_of(note).without is None

    wait_until(resumed, within=30)
    second.stop()
    again.stop()
    third = driver_of(kafka, topic, group, shared, **BOTH)
    following = third.latest_offset(end, None)
    assert following != end
    assert GroupOffset.from_json(following).ranges(GroupOffset.from_json(end)) == [(TopicPartition(topic, 0), 7, 20)]


def test_a_batch_that_both_sources_read_again(kafka, group, driver_of, drivers_of, shared, logs):
    topics = [topic_with(kafka, numbered(20, 2), partitions=2) for _ in range(2)]
    sources = Sources([driver_of(kafka, topic, group, shared, **BOTH) for topic in topics]).start()
    sources.trigger()
    for driver in sources.drivers:
        driver.stop()
    again = Sources(drivers_of(topics), sources.logged)
    began = time.monotonic()
    again.run()
    assert time.monotonic() - began < 20  # the second is not kept out by the first
    assert again.ranges == sources.ranges
    wait_until(lambda: again.latest() is None and list(committed(kafka, group).values()) == [10] * 4, within=30)
    for topic in topics:
        produce(kafka, topic, numbered(20, 2))
    again.drain(80)
    for topic in topics:
        each_once(again.ranges, topic, 2, 20)
    for driver in again.drivers:
        driver.stop()
    verified(*logs[:2])


def test_a_rebalance_while_their_batch_runs(kafka, group, driver_of, shared, query_of):
    topics = [topic_with(kafka, numbered(20, 2), partitions=2) for _ in range(2)]
    other = topic_with(kafka, numbered(10, 1), partitions=1)
    sources = Sources([driver_of(kafka, t, group, shared, **BOTH) for t in topics], limit=8).start().prepare()
    sources.trigger()
    third = query_of(kafka, other, group, **BOTH)
    first = sources.drivers[0]._session.member.client
    wait_until(first.rejoin_needed, within=30)
    assert not third.ranges  # the batch that runs holds it up
    began = time.monotonic()
    assert sources.trigger() is not None  # the first does not wait for the second, and the query does not end
    assert time.monotonic() - began < 20
    while sources.trigger() is not None:
        assert len(sources.logged) < 20
    for topic in topics:
        each_once(sources.ranges, topic, 2, 10)
    wait_until(lambda: list(committed(kafka, group).values()) == [10] * 5, within=30)


@pytest.mark.parametrize("replayed", [False, True], ids=["a new source", "one that reads its batch again"])
def test_a_source_whose_first_join_is_held_up_goes_on_when_it_has_joined(kafka, group, driver_of, shared, replayed):
    mine, other = (topic_with(kafka, numbered(10, 1), partitions=1) for _ in range(2))
    driver = driver_of(kafka, mine, group, shared, **BOTH)
    start = driver.initial_offset()
    if replayed:
        first, start = start, driver.latest_offset(start)
        driver.stop()
    holder = driver_of(kafka, other, group, shared, **BOTH)
    held = holder.latest_offset(holder.initial_offset())
    holder.plan(holder.initial_offset(), held)  # its batch runs, and holds up the group
    if replayed:
        driver = driver_of(kafka, mine, group, shared, **BOTH)
        assert driver.plan(first, start) == [(OffsetRange(TopicPartition(mine, 0), 0, 10),)]
    assert driver.latest_offset(start) == start
    assert holder.latest_offset(held) == held
    end = wait_until(lambda: (end := driver.latest_offset(start)).get(mine) == {"0": 10} and end, within=20)
    if not replayed:
        driver.plan(start, end)
        driver.latest_offset(end)
    assert committed(kafka, group)[mine, 0] == 10


def test_availablenow_waits_for_the_first_join_of_a_source_with_a_checkpoint_of_sparks_own(
    kafka, group, driver_of, shared
):
    mine, other = (topic_with(kafka, numbered(10, 1), partitions=1) for _ in range(2))
    commit_for(kafka, group, {(mine, 0): 7})  # older than the checkpoint: Spark's own source commits nothing
    holder = driver_of(kafka, other, group, shared, **BOTH)
    held = holder.latest_offset(holder.initial_offset())
    holder.plan(holder.initial_offset(), held)  # its batch runs, and holds up the group
    driver = driver_of(kafka, mine, group, shared, **BOTH)
    driver.prepare_available_now()
    start = {mine: {"0": 4}}
    empty = driver.latest_offset(start)
    assert empty != start, "Spark would end the query"
    assert driver.plan(start, empty) == []
    driver.stop()
    driver = driver_of(kafka, mine, group, shared, **BOTH)  # the query is started again before it has joined
    driver.prepare_available_now()
    assert holder.latest_offset(held) == held
    ranges = []
    while (end := driver.latest_offset(empty)) != empty:
        ranges += [r for task in driver.plan(empty, end) for r in task]
        empty = end
    assert ranges == [OffsetRange(TopicPartition(mine, 0), 4, 10)]
    assert committed(kafka, group)[mine, 0] == 10
