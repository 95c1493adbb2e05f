"""GroupKafkaListener: commits of batches before the source learns of their success."""

import json
import logging
import threading
from contextlib import contextmanager

import pytest
from kafka import KafkaConsumer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaTopicPartition
from support import commit_for, committed, committed_epochs, members, name, numbered, options, topic_with

from spark_kafka_group import GroupKafkaListener
from spark_kafka_group.errors import CommitError
from spark_kafka_group.listener.commits import Succeeded
from spark_kafka_group.options import Options
from spark_kafka_group.testing import GroupGeneration, KafkaCluster, OffsetCommitted, read_group_log, wait_until
from spark_kafka_group.values.commit_metadata import adopting_metadata, commit_metadata
from spark_kafka_group.values.offsets import GroupOffset, OffsetRange, TopicPartition
from spark_kafka_group.wire import Committed
from spark_kafka_group.wire.group.non_member import NonMemberCommitter

ONCE = {"once": True}
FAR_APART = {"processingTime": "10000 days"}  # Spark triggers at whole multiples: an hour may be over at once
LATER = 3_600_000
THREAD = "groupkafka-listener"


@pytest.fixture
def start(spark, tmp_path):
    """Start a query; all are stopped in the end."""
    queries = []

    def start(settings, trigger, source="groupkafka", during=lambda: None):
        def write(df, batch_id):
            df.count()
            during()

        stream = spark.readStream.format(source).options(**settings).load()
        writer = stream.writeStream.foreachBatch(write).trigger(**trigger)
        queries.append(writer.option("checkpointLocation", str(tmp_path / name("checkpoint"))).start())
        return queries[-1]

    yield start
    for query in queries:
        query.stop()


@contextmanager
def said(caplog):
    """The package's log lines."""
    with caplog.at_level(logging.INFO, logger="spark_kafka_group"):
        yield lambda: [record.getMessage() for record in caplog.records if record.name.startswith("spark_kafka_group")]


def threads():
    return {thread.name for thread in threading.enumerate()}


def end_of(query):
    return json.loads(query.lastProgress.sources[0].endOffset)


def commits_of(kafka, group):
    return [e for e in read_group_log(kafka, group) if isinstance(e, OffsetCommitted) and e.offset is not None]


@pytest.mark.soak
def test_trigger_once_is_committed_and_without_the_listener_it_is_not(spark, kafka, group, start):
    topic = topic_with(kafka, numbered(30, 3))
    start(options(kafka, topic, group), ONCE).awaitTermination()
    assert committed(kafka, group) == {}
    other = name("group")
    with GroupKafkaListener(spark) as listener:
        start(options(kafka, topic, other), ONCE).awaitTermination()
    assert committed(kafka, other) == {(topic, p): 10 for p in range(3)}
    assert committed_epochs(kafka, other) == {0}
    assert (listener.commits, listener.failures) == (1, 0)


def test_a_query_that_is_stopped_right_after_a_batch_is_committed(spark, kafka, group, start):
    topic = topic_with(kafka, numbered(30, 3))
    with GroupKafkaListener(spark, after_ms=LATER):
        query = start(options(kafka, topic, group), FAR_APART)
        wait_until(lambda: query.lastProgress, within=60)
        query.stop()
    assert committed(kafka, group) == {(topic, p): 10 for p in range(3)}


def test_a_listener_that_never_listened_is_closed_without_an_error(spark):
    listener = GroupKafkaListener(spark)
    listener.close()
    assert THREAD not in threads()


def test_while_triggers_are_far_apart_the_batch_is_committed_as_the_member(spark, kafka, group, start):
    topic = topic_with(kafka, numbered(30, 3))
    with GroupKafkaListener(spark) as listener:
        query = start(options(kafka, topic, group), FAR_APART)
        wait_until(lambda: query.lastProgress, within=60)
        before = kafka.group_state(group)
        wait_until(lambda: committed(kafka, group) == {(topic, p): 10 for p in range(3)}, within=30)
        assert committed_epochs(kafka, group) == {0}
        assert kafka.group_state(group) == before
        assert before[0] == "Stable"
    listener.close()  # once more
    assert THREAD not in threads()
    assert query.isActive
    planned = end_of(query)["@group"]
    commits = commits_of(kafka, group)
    assert sorted(c.partition for c in commits) == [0, 1, 2]
    assert {(n["reader"], n["generation"]) for n in (json.loads(c.metadata) for c in commits)} == {
        (planned["reader"], planned["generation"])
    }
    generations = {e.generation for e in read_group_log(kafka, group) if isinstance(e, GroupGeneration) and e.members}
    assert generations == {planned["generation"]}


@pytest.mark.soak
def test_one_listener_serves_queries_of_different_groups_on_the_same_topic(spark, kafka, group, start):
    topic = topic_with(kafka, numbered(30, 3))
    other = name("group")
    with GroupKafkaListener(spark) as listener:
        queries = [start(options(kafka, topic, g), FAR_APART) for g in (group, other, None)]
        wait_until(lambda: all(query.lastProgress for query in queries), within=200)  # three starts at once
        groups = [group, other, "spark-groupkafka-" + end_of(queries[2])["@group"]["reader"]]
        for query in queries:
            query.stop()
    assert listener.commits == 3
    for own, query in zip(groups, queries, strict=True):
        commits = commits_of(kafka, own)
        assert {(c.partition, c.offset) for c in commits} == {(p, 10) for p in range(3)}
        assert {json.loads(c.metadata)["reader"] for c in commits} == {end_of(query)["@group"]["reader"]}


@pytest.mark.soak
def test_each_source_of_a_query_is_committed_in_its_own_group_and_has_its_own_numbers(spark, kafka, group, tmp_path):
    seen = []

    class Watching(GroupKafkaListener):
        def onQueryProgress(self, event):
            super().onQueryProgress(event)
            seen.extend(self.metrics()[str(event.progress.id)])

    groups = [group, name("group")]
    topics = [topic_with(kafka, numbered(10, 1), partitions=1) for _ in groups]
    parts = [
        spark.readStream.format("groupkafka").options(**options(kafka, topic, own)).load()
        for topic, own in zip(topics, groups, strict=True)
    ]
    with Watching(spark):
        query = parts[0].union(parts[1]).writeStream.format("noop").trigger(**ONCE)
        query.option("checkpointLocation", str(tmp_path)).start().awaitTermination()
    assert [committed(kafka, own) for own in groups] == [{(topic, 0): 10} for topic in topics]
    assert [(one.group, set(one.partitions)) for one in seen] == [
        (own, {TopicPartition(topic, 0)}) for topic, own in zip(topics, groups, strict=True)
    ]


def test_a_query_of_another_source_is_ignored(spark, start, caplog):
    with said(caplog) as texts, GroupKafkaListener(spark) as listener:
        query = start({"rowsPerSecond": "100"}, {"processingTime": "100 milliseconds"}, source="rate")
        wait_until(lambda: any(p.numInputRows for p in query.recentProgress), within=60)
        query.stop()
        assert THREAD not in threads()
    assert (listener.commits, listener.failures, texts()) == (0, 0, [])


def test_a_query_that_was_started_before_the_listener_is_served_while_it_runs(spark, kafka, group, start):
    topic = topic_with(kafka, numbered(10, 1), partitions=1)
    attached = threading.Event()
    start(options(kafka, topic, group), FAR_APART, during=attached.wait)
    with GroupKafkaListener(spark):
        attached.set()
        wait_until(lambda: committed(kafka, group) == {(topic, 0): 10}, within=60)


def test_spark_tells_of_a_batch_when_its_commit_log_has_it_and_of_the_end_after_the_last(
    spark, kafka, group, start, tmp_path
):
    heard = []

    class Watching(GroupKafkaListener):
        def onQueryProgress(self, event):
            batch = event.progress.batchId
            heard.append((batch, bool(list(tmp_path.glob(f"checkpoint-*/commits/{batch}")))))
            super().onQueryProgress(event)

        def onQueryTerminated(self, event):
            heard.append("terminated")
            super().onQueryTerminated(event)

    topic = topic_with(kafka, numbered(30, 1), partitions=1)
    with Watching(spark) as listener:
        start(options(kafka, topic, group, maxOffsetsPerTrigger=10), {"availableNow": True}).awaitTermination()
    assert heard == [(0, True), (1, True), (2, True), "terminated"]
    # Triggers came faster than after_ms, so that the source did all commits and no offset was committed twice.
    assert [c.offset for c in commits_of(kafka, group)] == [10, 20, 30]
    assert listener.commits == 0


@pytest.mark.soak
def test_offsets_that_somebody_else_commits_meanwhile_are_left_alone_with_a_warning(spark, kafka, group, start, caplog):
    topic = topic_with(kafka, numbered(40, 4), partitions=4)
    theirs = {(topic, 0): 15, (topic, 1): 5, (topic, 2): 0}

    class Late(GroupKafkaListener):
        def onQueryTerminated(self, event):
            # It has no offsets yet, and these brokers remove a group without members and offsets within a second.
            wait_until(lambda: kafka.group_state(group)[0] in ("Empty", "Dead"), within=30)
            commit_for(kafka, group, theirs)
            super().onQueryTerminated(event)

    with said(caplog) as texts, Late(spark, after_ms=LATER):
        start(options(kafka, topic, group), ONCE).awaitTermination()
    # One ahead of the batch, one set back into it, one where the batch began, and one that no event names.
    assert committed(kafka, group) == theirs | {(topic, 2): 10, (topic, 3): 10}
    (warning,) = [text for text in texts() if "not committed" in text]
    assert f"another program has committed meanwhile: {topic}-0=15 {topic}-1=5." in warning


@pytest.mark.soak
def test_a_broker_that_is_away_is_a_warning_a_count_and_no_error_of_the_query_and_holds_up_no_other(
    spark, kafka, group, start, caplog
):
    other = name("group")
    read = topic_with(kafka, numbered(10, 1), partitions=1)
    first_is_over = threading.Event()
    with KafkaCluster() as own, said(caplog) as texts:
        topic = topic_with(own, numbered(10, 1), partitions=1)
        settings = options(own, topic, group) | {"kafka.request.timeout.ms": "10000"}
        with GroupKafkaListener(spark) as listener:
            start(options(kafka, read, other), FAR_APART, during=first_is_over.wait)
            query = start(settings, FAR_APART, during=own.node(0).kill)
            wait_until(lambda: query.lastProgress, within=60)
            first_is_over.set()
            wait_until(lambda: committed(kafka, other) == {(read, 0): 10}, within=60)
            # That of the first is being tried.
            wait_until(lambda: (listener.commits, listener.failures) == (1, 0), within=60)
            wait_until(lambda: listener.failures, within=60)
            (counted,) = listener.metrics()[query.id]
            assert (counted["commit-total"], counted["failed-commit-total"]) == (0, 1)
            assert counted["last-commit-seconds-ago"] is None
            assert query.isActive
            query.stop()
        assert query.exception() is None
    assert (listener.commits, listener.failures, listener.metrics()) == (1, 1, {})
    (warning,) = [text for text in texts() if "not committed" in text]
    assert f"group {group}: generation 1: batch of {topic}-0[0,10): not committed: connecting to" in warning


def test_a_session_of_spark_connect_is_refused():
    with pytest.raises(TypeError, match="Spark Connect"):
        GroupKafkaListener(object())


def always(offsets):
    """The group's committed offsets."""
    return lambda committed: offsets


def polled(consumer):
    consumer.poll(timeout_ms=1000)
    return consumer


class TestNonMemberCommitter:
    """Commits in the name of a member of another process, here one of kafka-python's own."""

    @pytest.fixture
    def joined(self, kafka, group, topic):
        """Lets a member join; returns it and its generation."""
        made = []

        def join():
            made.append(
                KafkaConsumer(
                    topic, bootstrap_servers=kafka.bootstrap_servers, group_id=group, group_instance_id="theirs",
                    enable_auto_commit=False,
                )
            )  # fmt: skip
            return made[-1], wait_until(lambda: polled(made[-1])._coordinator.generation_if_stable(), within=60)

        yield join
        for consumer in made:
            consumer.close(autocommit=False)

    @pytest.fixture
    def member(self, joined):
        return joined()[1]

    @pytest.fixture
    def outside(self, kafka, group, topic):
        with NonMemberCommitter(Options.parse(options(kafka, topic)), group) as outside:
            yield outside

    def test_a_commit_in_the_members_generation_is_taken(self, kafka, group, topic, member, outside):
        tp = TopicPartition(topic, 1)
        assert outside.commit([tp], always({tp: 7}), "note", member.generation_id, "theirs").offsets == {tp: 7}
        assert kafka.committed(group) == {(topic, 1): (7, "note")}
        assert [m["member_id"] for m in members(kafka, group)] == [member.member_id]

    def test_a_commit_in_a_generation_that_is_over_is_not_taken(self, kafka, group, topic, member, outside):
        tp = TopicPartition(topic, 1)
        assert outside.commit([tp], always({tp: 7}), "note", member.generation_id - 1, "theirs") is None
        assert committed(kafka, group) == {}

    def test_a_commit_for_a_member_that_has_left_others_behind_is_an_error(self, topic, member, outside):
        tp = TopicPartition(topic, 1)
        with pytest.raises(CommitError, match=r"which has other members \(theirs\)"):
            outside.commit([tp], always({tp: 7}), "note", 1, "ours")

    def test_a_commit_for_a_group_without_members_is_taken(self, kafka, group, topic, outside):
        tp = TopicPartition(topic, 1)
        assert outside.commit([tp], always({tp: 7}), "note", 5, "ours").offsets == {tp: 7}
        assert kafka.committed(group) == {(topic, 1): (7, "note")}

    def test_what_is_committed_between_two_tries_is_not_set_back(self, kafka, group, topic, joined, outside):
        tp, seen = TopicPartition(topic, 1), []

        def lacking(found):
            seen.append(dict(found))
            if len(seen) == 1:  # the group has no members yet: what follows is refused with UNKNOWN_MEMBER_ID
                consumer, _ = joined()
                consumer.commit({KafkaTopicPartition(*tp): OffsetAndMetadata(20, "later", -1)})
            return {tp: 10} if found.get(tp, Committed(0, "")).offset < 10 else {}

        generation = 1  # the one that the member is going to be in
        assert outside.commit([tp], lacking, "note", generation, "theirs").offsets == {}
        assert seen == [{}, {tp: Committed(20, "later")}]
        assert kafka.committed(group) == {(topic, 1): (20, "later")}


class TestLacking:
    """Offsets of a batch that the group lacks."""

    TP = TopicPartition("orders", 0)

    @pytest.mark.parametrize(
        ("group", "message"),
        [
            (None, True),
            (Committed(10, commit_metadata("me", 4)), True),
            (Committed(5, commit_metadata("me", 3, 1)), True),
            (Committed(20, commit_metadata("me", 4)), False),
            (Committed(30, commit_metadata("me", 4)), False),
            (Committed(5, commit_metadata("me", 5)), False),
            (Committed(5, commit_metadata("you", 3)), False),
            (Committed(5, ""), False),
            (Committed(10, ""), True),
            (Committed(10, commit_metadata("you", 9)), True),
            (Committed(5, adopting_metadata("you", 3, 0, commit_metadata("me", 3, 1))), False),
            (Committed(10, adopting_metadata("you", 9, 9, commit_metadata("me", 3, 1))), True),
            (Committed(30, ""), False),
            # What the query has reported since: it was made to begin before, or its batch gave way and was resumed.
            (Committed(5, commit_metadata("me", 4, 3)), False),
            (Committed(10, commit_metadata("me", 5, 3)), False),
            (Committed(10, commit_metadata("me", 5, 1)), True),
        ],
    )
    def test_offsets_that_a_group_lacks_are_known_by_offset_and_writer(self, group, message):
        batch = Succeeded(None, GroupOffset({self.TP: 20}, "me", 4, batch=2), (OffsetRange(self.TP, 10, 20),))
        assert batch.lacking({} if group is None else {self.TP: group}) == ({self.TP: 20} if message else {})

    def test_what_the_batch_went_without_is_not_lacking(self):
        batch = Succeeded(None, GroupOffset({self.TP: 20}, "me", 4, batch=2), (OffsetRange(self.TP, 10, 20),))
        assert batch.lacking({self.TP: Committed(10, commit_metadata("me", 4, 1, without=2))}) == {}
        # A later batch was to begin where this one began.
        assert batch.lacking({self.TP: Committed(10, commit_metadata("me", 4, 2, without=3))}) == {}
        # What an earlier one went without this one has read.
        assert batch.lacking({self.TP: Committed(10, commit_metadata("me", 4, 0, without=1))}) == {self.TP: 20}
