"""A query that is started again with other options, or after changes of its topics: it goes on where it was."""

import json

import pytest
from exactly_once import ExactlyOnce
from kafka import ConsumerGroupMetadata, KafkaProducer
from kafka.admin import NewPartitions
from kafka.structs import OffsetAndMetadata
from support import commit_for, committed, name, numbered, options, produce, throw_out, topic_with
from test_older_checkpoints import QUICK, killed

from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.errors import DataLossError, MembershipError, OffsetConflictError, OptionError
from spark_kafka_group.options import Options
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.offsets import TopicPartition

FROM_GROUP = QUICK | {"startingOffsets": "group"}


@pytest.fixture
def topics(kafka):
    """Two, with a partition of 20 records each."""
    return [topic_with(kafka, numbered(20, 1), partitions=1) for _ in range(2)]


@pytest.fixture
def started(kafka):
    """Starts queries by a subscription, and stops them."""
    made = []

    def start(group, subscription, **more):
        settings = options(kafka, "unused", group, **more)
        del settings["subscribe"]
        made.append(StreamDriver(Options.parse(settings | subscription)))
        return made[-1]

    yield start
    for driver in made:
        driver.stop()


def batch(driver, end):
    """Run a batch, if there is one; returns its end, and (topic, partition, start, end) of its ranges."""
    after = driver.latest_offset(end, None)
    tasks = driver.plan(end, after) if after != end else []
    return after, sorted((r.tp.topic, r.tp.partition, r.start, r.end) for task in tasks for r in task)


def batch_and_stop(driver, end):
    """As :func:`batch`; the query commits it, finds nothing new, and ends."""
    end, ranges = batch(driver, end)
    assert batch(driver, end) == (end, [])
    driver.stop()
    return end, ranges


def new(driver):
    """A new query, and its first offset."""
    return driver, driver.initial_offset()


def without_offset(kafka, group, topic, forgotten):
    """A group that has no offset of the topic: this one, which has forgotten it, or another one."""
    if not forgotten:
        return name("other")
    kafka.admin.delete_group_offsets(group, [TopicPartition(topic, 0)])
    return group


class TestGroup:
    def test_the_query_s_own_offset_in_a_group_is_its_own_also_when_it_comes_back_from_another(
        self, kafka, group, started
    ):
        topic = topic_with(kafka, numbered(14, 2), partitions=2)
        subscribed = {"subscribe": topic}
        for _ in range(3):  # of other queries: the group's generations are later than those of the other one
            batch_and_stop(*new(started(group, subscribed, **QUICK)))
        commit_for(kafka, group, {(topic, 0): 4, (topic, 1): 7})
        end, ranges = batch_and_stop(*new(started(group, subscribed, **FROM_GROUP)))
        assert ranges == [(topic, 0, 4, 7)], "partition 1 goes on from another program's offset, and has no record"
        produce(kafka, topic, numbered(20, 2))
        end, ranges = batch_and_stop(started(name("other"), subscribed, **FROM_GROUP), end)
        assert ranges == [(topic, 0, 7, 17), (topic, 1, 7, 17)]
        produce(kafka, topic, numbered(2, 2))
        _, ranges = batch(started(group, subscribed, **FROM_GROUP), end)
        assert ranges == [(topic, 0, 17, 18), (topic, 1, 17, 18)]

    @pytest.mark.parametrize("forgotten", [True, False])
    def test_a_topic_that_is_subscribed_to_again_keeps_its_position(self, kafka, group, started, topics, forgotten):
        one, two = topics
        end, _ = batch_and_stop(*new(started(group, {"subscribe": f"{one},{two}"}, **QUICK)))
        for more in (5, 6):
            produce(kafka, one, numbered(more, 1))
            end, ranges = batch_and_stop(started(group, {"subscribe": one}, **QUICK), end)
            assert [(r[0], r[3] - r[2]) for r in ranges] == [(one, more)]
        produce(kafka, two, numbered(5, 1))
        again = started(without_offset(kafka, group, two, forgotten), {"subscribe": f"{one},{two}"}, **QUICK)
        assert batch(again, end)[1] == [(two, 0, 20, 25)]

    def test_a_topic_that_is_subscribed_to_again_goes_on_where_others_have_read_it_since(
        self, kafka, group, started, topics
    ):
        one, two = topics
        end, _ = batch_and_stop(*new(started(group, {"subscribe": f"{one},{two}"}, **QUICK)))
        produce(kafka, one, numbered(5, 1))
        end, _ = batch_and_stop(started(group, {"subscribe": one}, **QUICK), end)
        produce(kafka, two, numbered(5, 1))
        commit_for(kafka, group, {(two, 0): 22})
        assert batch(started(group, {"subscribe": f"{one},{two}"}, **QUICK), end)[1] == [(two, 0, 22, 25)]

    @pytest.mark.parametrize("forgotten", [True, False])
    def test_a_topic_that_others_have_read_keeps_its_own_position_where_the_group_has_forgotten_theirs(
        self, kafka, group, started, topics, forgotten
    ):
        one, two = topics
        end, _ = batch_and_stop(*new(started(group, {"subscribe": f"{one},{two}"}, **QUICK)))
        produce(kafka, two, numbered(5, 1))
        commit_for(kafka, group, {(two, 0): 22})
        for _ in range(2):
            produce(kafka, one, numbered(5, 1))
            end, _ = batch_and_stop(started(group, {"subscribe": one}, **QUICK), end)
        again = started(without_offset(kafka, group, two, forgotten), {"subscribe": f"{one},{two}"}, **QUICK)
        assert batch(again, end)[1] == [(two, 0, 20, 25)]

    @pytest.mark.parametrize("at", [5, 40])
    def test_another_group_s_offset_of_a_topic_that_is_not_read_there_does_not_move_the_position(
        self, kafka, group, started, topics, at
    ):
        one, two = topics
        both, other = {"subscribe": f"{one},{two}"}, name("other")
        end, _ = batch_and_stop(*new(started(group, both, **QUICK)))
        commit_for(kafka, other, {(two, 0): at})
        produce(kafka, two, numbered(25, 1))
        for _ in range(2):
            produce(kafka, one, numbered(5, 1))
            end, ranges = batch_and_stop(started(other, {"subscribe": one}, **QUICK), end)
            assert [(r[0], r[3] - r[2]) for r in ranges] == [(one, 5)]
        assert batch(started(group, both, **QUICK), end)[1] == [(two, 0, 20, 45)]

    @pytest.mark.parametrize("policy", ["checkpoint", "fail"])
    def test_the_policy_decides_about_an_offset_of_others_once_its_topic_is_subscribed_to_again(
        self, kafka, group, started, topics, policy
    ):
        one, two = topics
        settings = QUICK | {"onOffsetConflict": policy}
        end, _ = batch_and_stop(*new(started(group, {"subscribe": f"{one},{two}"}, **settings)))
        commit_for(kafka, group, {(two, 0): 17})
        for records in (one, two):
            produce(kafka, records, numbered(5, 1))
        end, _ = batch_and_stop(started(group, {"subscribe": one}, **settings), end)
        again = started(group, {"subscribe": f"{one},{two}"}, **settings)
        if policy == "checkpoint":
            assert batch(again, end)[1] == [(two, 0, 20, 25)]
        else:
            with pytest.raises(OffsetConflictError, match=f"{two}-0: the checkpoint says 20"):
                batch(again, end)

    def test_an_open_transaction_on_the_offset_of_a_topic_holds_nobody_up_who_has_left_the_topic(
        self, kafka, group, started, topics
    ):
        one, two = topics
        settings = QUICK | {"kafka.isolation.level": "read_committed"}
        end, _ = batch_and_stop(*new(started(group, {"subscribe": f"{one},{two}"}, **settings)))
        produce(kafka, one, numbered(5, 1))
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=name("open"))
        producer.init_transactions()
        producer.begin_transaction()
        offsets = {TopicPartition(two, 0): OffsetAndMetadata(20, "", -1)}
        producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(group))
        try:
            assert batch(started(group, {"subscribe": one}, **settings), end)[1] == [(one, 0, 20, 25)]
        finally:
            producer.abort_transaction()
            producer.close()

    def test_a_topic_that_is_deleted_after_it_was_left_is_missed_once_it_is_subscribed_to_again(
        self, kafka, group, started, topics
    ):
        one, two = topics
        end, _ = batch_and_stop(*new(started(group, {"subscribe": f"{one},{two}"}, **QUICK)))
        produce(kafka, one, numbered(5, 1))
        end, _ = batch_and_stop(started(group, {"subscribe": one}, **QUICK), end)
        kafka.delete_topic(two)
        with pytest.raises(DataLossError, match=f"{two}-0 .read up to 20."):
            batch(started(group, {"subscribe": f"{one},{two}"}, **QUICK), end)
        pattern = started(group, {"subscribePattern": f"{one}|{two}"}, **QUICK)  # it names no topic
        produce(kafka, one, numbered(5, 1))
        assert batch(pattern, end)[1] == [(one, 0, 25, 30)]


class TestExactlyOnce:
    """The group's own offsets say what the sink has written, and not the checkpoint: but only in the group itself."""

    @pytest.fixture
    def now(self):
        """Topics and group of the run."""
        return {}

    @pytest.fixture
    def query(self, kafka, driver_of, tmp_path, now):
        output, one = kafka.create_topic(name("output"), partitions=1), name("sink")
        decisions = kafka.create_topic(name("decisions"), configs={"cleanup.policy": "compact"})
        settings = FROM_GROUP | {
            "kafka.auto.offset.reset": "earliest", "kafka.transactional.id": one, "decisionTopic": decisions,
        }  # fmt: skip

        def drivers():
            return [driver_of(kafka, now["topics"], now["group"], tmp_path, **settings)]

        query = ExactlyOnce(kafka, one, output, tmp_path, drivers, decisions)
        yield query
        query.close()

    @pytest.fixture
    def runs(self, query, now):
        """Runs an exactly-once query to its end; returns how many rows all runs have written, each of them once."""

        def run(topics, group):
            now.update(topics=topics, group=group)
            query.start()
            wait_until(query.trigger, within=30)
            while query.trigger():
                pass
            query.stop()
            rows = query.written()
            assert len(rows) == len(set(rows))
            return len(rows)

        return run

    def test_the_group_stays_until_a_micro_batch_that_is_not_written_is_done(self, kafka, group, query, now, runs):
        topic = topic_with(kafka, numbered(20, 1), partitions=1)
        assert runs(topic, group) == 20
        produce(kafka, topic, numbered(10, 1))
        query.start()
        wait_until(query.plan, within=30)
        query.begin()
        query.stop()  # before the sink decides
        now["group"] = name("other")
        query.start()
        with pytest.raises(OptionError, match=f"planned in group {group}. Start the query with kafka.group.id={group}"):
            query.begin()
        query.stop()
        assert runs(topic, group) == 30
        produce(kafka, topic, numbered(5, 1))
        assert runs(topic, now["group"]) == 35

    def test_a_query_that_comes_back_to_its_group_reads_each_record_once(self, kafka, group, runs):
        topic = topic_with(kafka, numbered(20, 1), partitions=1)
        assert runs(topic, group) == 20
        produce(kafka, topic, numbered(20, 1))
        assert runs(topic, name("other")) == 40
        produce(kafka, topic, numbered(5, 1))
        assert runs(topic, group) == 45

    @pytest.mark.parametrize("forgotten", [True, False])
    def test_a_topic_that_is_subscribed_to_again_is_read_once(self, kafka, group, runs, topics, forgotten):
        one, two = topics
        assert runs(f"{one},{two}", group) == 40
        for total in (45, 50):
            produce(kafka, one, numbered(5, 1))
            assert runs(one, group) == total
        produce(kafka, two, numbered(5, 1))
        assert runs(f"{one},{two}", without_offset(kafka, group, two, forgotten)) == 55

    def test_a_topic_that_another_group_has_read_on_is_read_once(self, kafka, group, runs, topics):
        one, two = topics
        assert runs(f"{one},{two}", group) == 40
        produce(kafka, two, numbered(10, 1))
        assert runs(f"{one},{two}", name("other")) == 50
        for total in (55, 60):
            produce(kafka, one, numbered(5, 1))
            assert runs(one, group) == total
        produce(kafka, one, numbered(5, 1))
        assert runs(f"{one},{two}", group) == 65


class TestPartitionsOfSparksOwnCheckpoint:
    @pytest.mark.parametrize("policy", ["group", "fail"])
    def test_the_policy_decides_about_a_topic_that_is_subscribed_to_later(self, kafka, group, started, topics, policy):
        one, two = topics
        commit_for(kafka, group, {(one, 0): 15, (two, 0): 15})
        first = started(group, {"subscribe": one}, **FROM_GROUP)
        end, _ = batch_and_stop(first, {one: {"0": 10}, two: {"0": 10}})
        query = started(group, {"subscribe": f"{one},{two}"}, **FROM_GROUP, onOffsetConflict=policy)
        if policy == "group":
            assert batch(query, end)[1] == [(two, 0, 15, 20)]
        else:
            with pytest.raises(OffsetConflictError, match=f"{two}-0: the checkpoint says 10"):
                batch(query, end)

    @pytest.mark.parametrize(("at", "policy"), [(2, "auto"), (15, "auto"), (15, "fail")])
    def test_a_topic_that_is_subscribed_to_later_starts_at_the_checkpoint(
        self, kafka, group, started, topics, at, policy
    ):
        one, two = topics
        commit_for(kafka, group, {(one, 0): at, (two, 0): at})
        end = {one: {"0": 10}, two: {"0": 10}}
        for more, now in ((10, "auto"), (5, policy)):  # also after a run that knows Spark's checkpoint no more
            query = started(group, {"subscribe": one}, **FROM_GROUP, onOffsetConflict=now)
            end, ranges = batch_and_stop(query, end)
            assert [(r[0], r[3] - r[2]) for r in ranges] == [(one, more)]
            produce(kafka, one, numbered(5, 1))
        both = {"subscribe": f"{one},{two}"}
        assert batch(started(group, both, **FROM_GROUP), end)[1] == sorted([(one, 0, 25, 30), (two, 0, 10, 20)])

    def test_partitions_that_assign_names_later_start_at_the_checkpoint(self, kafka, group, started):
        topic = topic_with(kafka, numbered(40, 2), partitions=2)
        commit_for(kafka, group, {(topic, 0): 15, (topic, 1): 15})
        first = started(group, {"assign": json.dumps({topic: [0]})}, **FROM_GROUP)
        end, ranges = batch_and_stop(first, {topic: {"0": 10, "1": 10}})
        assert ranges == [(topic, 0, 10, 20)]
        both = started(group, {"assign": json.dumps({topic: [0, 1]})}, **FROM_GROUP)
        assert batch(both, end)[1] == [(topic, 1, 10, 20)]


def test_a_checkpoint_without_a_right_on_the_group_is_newer_until_positions_have_been_taken(
    kafka, group, driver_of, topics, tmp_path
):
    one, two = topics
    commit_for(kafka, group, {(one, 0): 7})
    settings = FROM_GROUP | {"kafka.auto.offset.reset": "earliest"}
    other = driver_of(kafka, two, group, tmp_path, **settings)  # of the same application
    read, _ = batch(*new(other))  # its batch runs, so the group waits
    end = {
        one: {"0": 4},
        "@group": {"reader": name("reader"), "id": group, "generation": -1, "batch": 0, "unseen": True},
    }
    held_up = driver_of(kafka, one, group, tmp_path, **settings)
    assert batch(held_up, end) == (end, [])
    held_up.stop()
    query, ends = driver_of(kafka, one, group, tmp_path, **settings), [end]
    assert batch(other, read) == (read, [])

    def ranges():
        after, found = batch(query, ends[-1])
        ends.append(after)
        return found

    assert wait_until(ranges, within=30) == [(one, 0, 4, 20)]


def test_a_checkpoint_of_another_group_s_query_is_named_once(kafka, group, started, topics, caplog):
    end, _ = batch_and_stop(*new(started(group, {"subscribe": topics[0]}, **QUICK)))
    of_another = started(name("audit"), {"subscribe": topics[0]}, startingOffsets="earliest", **QUICK)
    for _ in range(2):
        assert batch(of_another, end) == (end, [])
    (named,) = [record.getMessage() for record in caplog.records if "the checkpoint is that of" in record.msg]
    assert f"a query of group {group}. This query goes on at the offsets in it" in named
    of_another.stop()
    caplog.clear()
    assert batch(started(group, {"subscribe": topics[0]}, **QUICK), end) == (end, [])
    assert "the checkpoint is that of" not in caplog.text


def test_a_query_with_a_new_checkpoint_says_which_batches_a_folder_of_files_may_have(
    kafka, group, started, query_of, caplog
):
    warned = "another query of the group has committed batches up to "
    topic = topic_with(kafka, numbered(10, 2), partitions=2)
    first = query_of(kafka, topic, group, **QUICK)
    wait_until(lambda: committed(kafka, group) == {(topic, 0): 5, (topic, 1): 5}, within=30)
    one_more = query_of(kafka, topic, group, **QUICK)
    wait_until(lambda: len(first.owned()) == len(one_more.owned()) == 1, within=30)
    produce(kafka, topic, numbered(10, 2))
    wait_until(lambda: committed(kafka, group) == {(topic, 0): 10, (topic, 1): 10}, within=30)
    for query in (one_more, first):
        query.end()
        query.driver.stop()
    assert warned not in caplog.text, "a member that joins others takes nobody's place"
    assert first.ranges, "it has a batch 1"
    end, _ = batch_and_stop(*new(started(group, {"subscribe": topic}, startingOffsets="earliest", **QUICK)))
    assert caplog.text.count(f"{warned}1. If this one writes files, it needs an output folder of its own") == 1
    assert batch(started(group, {"subscribe": topic}, **QUICK), end) == (end, [])
    assert caplog.text.count(warned) == 1


def test_a_query_that_was_killed_as_a_member_cannot_assign_before_its_session_ends(kafka, group, started):
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    query = started(group, {"subscribe": topic}, **QUICK)
    end, _ = batch(*new(query))
    killed(query)
    former = f"groupkafka-{end['@group']['reader']}"
    assigned = {"assign": json.dumps({topic: [0, 1]})}
    with pytest.raises(MembershipError, match=f"former process as a member .{former}."):
        batch(started(group, assigned, **QUICK), end)
    throw_out(kafka, group)
    assert batch_and_stop(started(group, assigned, **QUICK), end) == (end, [])
    assert committed(kafka, group) == {(topic, 0): 10, (topic, 1): 10}


@pytest.mark.parametrize("first", [0, 4])
@pytest.mark.soak
def test_a_partition_that_was_added_while_the_query_was_away_is_new_when_others_give_it_back(
    kafka, group, started, neighbour_of, first
):
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    end, _ = batch_and_stop(*new(started(group, {"subscribe": topic}, **QUICK)))
    before = neighbour_of(kafka, topic, group, fetch_min_bytes=1_000_000, fetch_max_wait_ms=20_000)  # gets no record
    wait_until(lambda: len(before.assignment()) == 2, within=30)
    kafka.admin.create_partitions({topic: NewPartitions(4)})
    query = started(group, {"subscribe": topic}, **QUICK | {"startingOffsets": "latest"})

    def shared():
        assert batch(query, end) == (end, [])
        owned = query._session and query._session.standing.positioned
        return owned and len(owned) == len(before.assignment()) == 2 and owned

    owned = {tp.partition for tp in wait_until(shared, within=40)}
    added = {2, 3} - owned
    assert added
    for partition in added:
        produce(kafka, topic, [record._replace(partition=partition) for record in numbered(10, 1)])
    kafka.admin.delete_records({TopicPartition(topic, partition): first for partition in added if first})
    assert not committed(kafka, group).keys() & {(topic, partition) for partition in added}
    before.close()
    ranges = wait_until(lambda: batch(query, end)[1], within=30)
    assert ranges == [(topic, partition, first, 10) for partition in sorted(added)]
