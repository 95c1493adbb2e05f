"""Offsets that the sink commits in the transaction of the rows: what is published, and who believes what afterwards."""

import dataclasses
import subprocess
import sys
import threading
import time

import kafka.errors as kafka_errors
import pytest
from exactly_once import ExactlyOnce, Transaction, rows_of
from running import Counted
from support import commit_for, committed, members, name, numbered, produce, throw_out, topic_with
from support.exactly_once_runs import Run, read, transaction_options

from spark_kafka_group import CommitError, MembershipError, OffsetConflictError, OptionError
from spark_kafka_group.errors import BrokerTimeoutError, FencedError, TransactionError
from spark_kafka_group.testing import wait_until
from spark_kafka_group.tools.event_logs import read_run
from spark_kafka_group.tools.verify import verify
from spark_kafka_group.values.commit_metadata import commit_metadata, writer_of
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition
from spark_kafka_group.values.source_offsets import LiveSource, SourceOffsets, live_sources, published
from spark_kafka_group.wire.transactions import offsets_in_transaction
from spark_kafka_group.wire.transactions.offsets_in_transaction import commit_offsets
from spark_kafka_group.wire.transactions.transaction_client import TransactionClient

QUICK = {"kafka.metadata.max.age.ms": 300, "kafka.heartbeat.interval.ms": 100}
BOTH = QUICK | {"startingOffsets": "group", "kafka.auto.offset.reset": "earliest"}


@pytest.fixture
def shared(tmp_path):
    """A directory that the processes of one application share."""
    return tmp_path


@pytest.fixture
def out(kafka):
    """The topic that sinks write to."""
    return kafka.create_topic(name("out"), partitions=1)


@pytest.fixture
def exactly_once(kafka, group, out, driver_of, shared, tmp_path):
    """Makes queries with a source for each topic, all in one group; what they did is checked in the end."""
    made = []

    decisions = kafka.create_topic(name("decisions"), configs={"cleanup.policy": "compact"})

    def make(*topics, transactional_id=None, directory=shared, tells_sources=True, **more):
        one = transactional_id or name("sink")

        def drivers():
            return [
                driver_of(
                    kafka, topic, group, directory, eventLog=tmp_path / f"{one}-{number}.jsonl",
                    **BOTH | {"kafka.transactional.id": one, "decisionTopic": decisions} | more,
                )
                for number, topic in enumerate(topics)
            ]  # fmt: skip

        made.append(ExactlyOnce(kafka, one, out, directory, drivers, decisions, tells_sources))
        return made[-1]

    yield make
    for query in made:
        query.close()
    found = verify(read_run(list(tmp_path.glob("*.jsonl"))).events)
    assert not found.violations, found.violations


@pytest.fixture
def without_one(kafka, group, exactly_once, query_of):
    """Has a query, which was killed, run its batch again without the partition that a neighbour owns by then.

    The neighbour reads nothing. Returns the query, the range that it has, the other partition, and the neighbour.
    """

    def make(**more):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        query = exactly_once(topic, **more).start()
        query.plan()
        query.begin()
        query.stop()
        other = query_of(kafka, topic, group, pausePartitions=f'{{"{topic}": [0, 1]}}', **BOTH)
        wait_until(lambda: len(other.owned()) == 2, within=30)
        query.start()
        (kept,) = query.begin()
        return query, kept, TopicPartition(topic, 1 - kept.tp.partition), other

    return make


@pytest.fixture
def decided_without_one(without_one):
    """The same: the sink has decided the batch, Spark's commit log lacks it, and the neighbour is gone."""

    def make(**more):
        query, kept, left, other = without_one(**more)
        query.add_offsets()
        query.decide()
        query.stop()
        other.end()
        other.driver.stop()
        return query, kept, left

    return make


def span(topic, partition, start, end):
    return OffsetRange(TopicPartition(topic, partition), start, end)


def commit_as_the_sink_does(kafka, transactional_id, source):
    """Commit published offsets in a transaction that has nothing else."""
    options = transaction_options(kafka.bootstrap_servers, transactional_id, limit_ms=15_000)
    with TransactionClient(options.client, "tests", options.limit_ms) as client:
        producer = client.take_id(transactional_id, 60_000)
        commit_offsets(client, transactional_id, producer, source)
        assert client.commit(transactional_id, producer)


class TestPublished:
    def test_a_source_publishes_the_batch_that_runs_its_offsets_and_the_member_that_planned_it(
        self, kafka, group, exactly_once
    ):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        query = exactly_once(topic).start()
        query.plan(limit=10)
        query.begin()
        (source,) = query.published()
        (member,) = members(kafka, group)
        assert source.offsets == {TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 5}
        assert (source.group_id, source.member_id) == (group, member["member_id"])
        assert source.instance_id == member["group_instance_id"]
        assert set(source.leader_epochs.values()) == {0}
        assert source.metadata == commit_metadata(source.query_id, source.generation, 0)
        query.finish()
        query.plan()  # takes it back, and waits for the transaction's marker
        assert committed(kafka, group) == {(topic, 0): 5, (topic, 1): 5}
        query.stop()
        assert list(live_sources(query.shared, query.transactional_id)) == []

    def test_a_source_of_which_a_batch_reads_nothing_publishes_nothing(self, kafka, exactly_once):
        first, second = (topic_with(kafka, numbered(10, 1), partitions=1) for _ in range(2))
        query = exactly_once(first, second).start()
        query.drain(20)
        produce(kafka, first, numbered(5, 1))
        wait_until(query.plan, within=30)
        assert query.begin() == [span(first, 0, 10, 15)]
        (source,) = query.published()
        assert source.offsets == {TopicPartition(first, 0): 15}

    def test_nothing_is_published_of_a_process_that_was_killed(self, shared):
        program = (
            "import sys, time; from pathlib import Path; from spark_kafka_group.values.files import *; "
            "from spark_kafka_group.values.source_offsets import *; directory = Path(sys.argv[1]); "
            "folder = folder_of(directory, 'sink'); make_folder(folder, directory); "
            "offsets = SourceOffsets('g', 1, 'm', None, 'r', 0, '', {}); "
            "file = put(folder / 'r.json', LiveSource('r', 1, running=offsets).to_text()); print(flush=True); "
            "time.sleep(600)"
        )
        process = subprocess.Popen([sys.executable, "-c", program, str(shared)], stdout=subprocess.PIPE)
        try:
            process.stdout.readline()
            assert [source.query_id for source in published(shared, "sink")] == ["r"]
            process.kill()
            process.wait()
            assert published(shared, "sink") == []
        finally:
            process.kill()
            process.stdout.close()
            process.wait()

    def test_what_a_source_has_published_is_read_as_it_was_written(self):
        zero, one = (TopicPartition("orders", partition) for partition in range(2))
        offsets = SourceOffsets("g", 3, "m-1", None, "r", 7, "note", {zero: 5, one: 2**63 - 1}, {zero: 4})
        for source in (LiveSource("a/../b\n", 7, is_asked=True), LiveSource("\u2028", 0, False, True, offsets)):
            assert LiveSource.from_text(source.to_text()) == source


class TestCommittedByTheSink:
    def test_a_batch_that_the_sink_has_committed_is_not_committed_again(self, kafka, group, exactly_once):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        query = exactly_once(topic).start()
        query.trigger(limit=10)
        commits = Counted(query.drivers[0]._session.member.client, "commit")
        query.trigger(limit=6)
        produce(kafka, topic, numbered(20, 2))
        query.drain(40)
        assert query.trigger() is None
        assert commits.calls == 0
        assert committed(kafka, group) == {(topic, 0): 20, (topic, 1): 20}
        assert query.drivers[0]._session.committer.in_group == committed(kafka, group)
        assert sorted(query.written()) == rows_of(topic, {0: 20, 1: 20})

    def test_a_batch_that_the_sink_has_committed_is_not_committed_again_where_the_broker_assigns(
        self, kafka, group, exactly_once, librdkafka_of
    ):
        topic = topic_with(kafka, numbered(40, 4), partitions=4)
        query = exactly_once(topic).start()
        query.trigger(limit=12)
        neighbour = librdkafka_of(kafka, topic, group, **{"isolation.level": "read_committed"})
        member = query.drivers[0]._session.member

        def shared():
            query.trigger(limit=4)
            return member.generation.by_broker and len(member.owned) == 2

        wait_until(shared, within=60)
        produce(kafka, topic, numbered(40, 4, first=40))

        def all_read():
            query.trigger()
            return len(query.written()) + len(neighbour.records) >= 80

        wait_until(all_read, within=60)
        theirs = [f"{topic}-{partition}-{offset}" for partition, offset in neighbour.places()]
        assert sorted(query.written() + theirs) == rows_of(topic, dict.fromkeys(range(4), 20))

    def test_sparks_own_commit_takes_a_batch_that_the_sink_has_committed(self, kafka, exactly_once):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        query = exactly_once(topic).start()
        query.trigger()
        (driver,) = query.drivers
        driver.commit(query.logged[-1][0])
        assert driver._session.committer.planned is None

    def test_a_member_that_waits_for_the_batch_need_not_wait_for_the_next_trigger(
        self, kafka, group, exactly_once, driver_of, query_of
    ):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        query = exactly_once(topic).start()
        query.plan()
        query.begin()
        other = query_of(kafka, topic, group, **BOTH)
        wait_until(query.drivers[0]._session.member.client.rejoin_needed, within=30)
        query.finish()
        wait_until(lambda: len(other.owned()) == 1, within=30)
        assert query.trigger() is None
        assert sorted(query.written()) == rows_of(topic, {0: 10, 1: 10})
        assert other.ranges == []

    def test_a_batch_that_no_sink_has_committed_is_an_error_and_read_again(self, kafka, group, exactly_once):
        topic = topic_with(kafka, numbered(10, 1), partitions=1)
        query = exactly_once(topic).start()
        query.plan()
        query.begin()
        query.succeeded = query.running  # as a sink has it that is at least once, or has another id
        with pytest.raises(CommitError, match=rf"{topic}-0\[0,10\).*no sink|no sink.*{topic}-0\[0,10\)"):
            query.plan()
        assert committed(kafka, group) == {(topic, 0): 0}
        query.stop()
        query.start()
        assert query.trigger() == [span(topic, 0, 0, 10)]
        assert query.trigger() is None
        assert committed(kafka, group) == {(topic, 0): 10}

    def test_a_batch_of_which_spark_needs_no_row_is_committed_by_the_source(self, kafka, group, exactly_once):
        topic = topic_with(kafka, numbered(10, 1), partitions=1)
        query = exactly_once(topic).start()
        query.plan()
        query.succeeded = query.running  # Spark's optimizer has taken the source out of the plan
        assert not query.plan()
        assert committed(kafka, group) == {(topic, 0): 10}


class TestFencing:
    def test_a_driver_that_was_replaced_cannot_publish(self, kafka, group, exactly_once):
        topic = topic_with(kafka, numbered(10, 1), partitions=1)
        query = exactly_once(topic).start()
        query.plan()
        query.begin()
        (before,) = query.published()
        old, transaction = query.drivers[0], query.transaction
        query.start()
        query.begin()
        (after,) = query.published()
        assert (after.query_id, after.offsets) == (before.query_id, before.offsets)
        assert after.member_id != before.member_id
        with pytest.raises(kafka_errors.KafkaError):
            transaction.add_offsets(before)  # its transaction was fenced, too
        other = Transaction(kafka, name("other"))
        query.made.append(other)
        with pytest.raises((kafka_errors.CommitFailedError, kafka_errors.FencedInstanceIdError)):
            other.add_offsets(before)
        query.finish()
        assert sorted(query.written()) == rows_of(topic, {0: 10})
        with pytest.raises(FencedError):
            old.latest_offset(query.logged[-1][0], None)

    def test_a_driver_that_was_replaced_after_its_batch_says_so_once_the_other_has_committed_the_next(
        self, kafka, exactly_once
    ):
        topic = topic_with(kafka, numbered(10, 1), partitions=1)
        query = exactly_once(topic).start()
        query.trigger(limit=5)
        (old,), (end,) = query.drivers, query.logged[-1]
        query.start()
        assert query.trigger() == [span(topic, 0, 5, 10)]
        wait_until(lambda: len(query.written()) == 10, within=30)
        with pytest.raises(FencedError):
            old.latest_offset(end, None)

    def test_a_member_that_was_expelled_cannot_publish(self, kafka, group, exactly_once):
        topic = topic_with(kafka, numbered(10, 1), partitions=1)
        query = exactly_once(topic).start()
        query.plan()
        query.begin()
        throw_out(kafka, group)
        with pytest.raises(kafka_errors.KafkaError):
            query.add_offsets()
        query.stop()  # Spark ends the query
        query.start()
        assert query.trigger() == [span(topic, 0, 0, 10)]
        assert sorted(query.written()) == rows_of(topic, {0: 10})

    @pytest.mark.parametrize("refused", ["generation", "member", "static member"])
    def test_the_sink_does_not_commit_offsets_for_another_member_or_generation(
        self, kafka, group, exactly_once, refused
    ):
        topic = topic_with(kafka, numbered(10, 1), partitions=1)
        query = exactly_once(topic).start()
        query.plan()
        query.begin()
        (source,) = query.published()
        wrong = {
            "generation": {"generation": source.generation - 1},
            "member": {"member_id": "another", "instance_id": None},
            "static member": {"member_id": "another"},
        }[refused]
        with pytest.raises(TransactionError, match="the source's member is not in generation"):
            commit_as_the_sink_does(kafka, name("other"), dataclasses.replace(source, **wrong))
        assert committed(kafka, group) == {(topic, 0): 0}
        commit_as_the_sink_does(kafka, name("other"), source)
        wait_until(lambda: committed(kafka, group) == {(topic, 0): 10}, within=30)

    def test_a_decision_of_a_member_that_was_expelled_publishes_nothing(self, kafka, group, exactly_once):
        topic, output = topic_with(kafka, numbered(10, 1), partitions=1), kafka.create_topic(name("out"), partitions=2)
        query = exactly_once(topic).start()
        query.plan()
        query.begin()
        options = transaction_options(kafka.bootstrap_servers, query.transactional_id, topic=query.decision_topic)
        run = Run(options, output, shared=str(query.shared))
        messages = run.tasks(run.plan(), 0)
        throw_out(kafka, group)
        with pytest.raises(TransactionError, match="the source's member is not in generation"):
            run.commit(messages)
        run.abort(messages)
        assert read(kafka, output) == []
        assert committed(kafka, group) == {(topic, 0): 0}

    def test_a_batch_whose_member_is_lost_before_it_begins_reads_nothing(self, kafka, group, exactly_once):
        topic = topic_with(kafka, numbered(10, 1), partitions=1)
        query = exactly_once(topic).start()
        query.plan()
        throw_out(kafka, group)
        wait_until(query.drivers[0]._session.member.client.lost, within=30)
        assert query.begin() == []
        assert [source.offsets for source in query.published()] == [{}]
        query.finish()
        query.drain(10)
        assert sorted(query.written()) == rows_of(topic, {0: 10})


class TestDeletedTopics:
    def test_offsets_of_deleted_topics_are_left_out_of_the_transaction(self, kafka, group, exactly_once, monkeypatch):
        monkeypatch.setattr(offsets_in_transaction, "GONE_AFTER_S", 0.5)
        kept, gone = (topic_with(kafka, numbered(10, 1), partitions=1) for _ in range(2))
        query = exactly_once(f"{kept},{gone}").start()
        query.plan()
        query.begin()
        (source,) = query.published()
        assert len(source.offsets) == 2
        kafka.delete_topic(gone)
        commit_as_the_sink_does(kafka, query.transactional_id, source)
        wait_until(lambda: committed(kafka, group).get((kept, 0)) == 10, within=30)


class TestTwoQueriesWithOneId:
    def test_the_second_query_with_one_id_is_refused(self, kafka, group, exactly_once, monkeypatch):
        monkeypatch.setattr("spark_kafka_group.driver.steps.sink_transaction.GOES_WITHIN_S", 0.5)
        first, second = (topic_with(kafka, numbered(10, 1), partitions=1) for _ in range(2))
        query = exactly_once(first, transactional_id=group).start()
        query.trigger()
        other = exactly_once(second, transactional_id=group, **{"kafka.group.id": f"{group}-2"}).start()
        with pytest.raises(MembershipError, match="another query of this application"):
            other.plan()
        query.trigger()

    def test_a_query_that_has_begun_at_the_same_time_with_one_id_is_refused(
        self, kafka, group, exactly_once, monkeypatch
    ):
        monkeypatch.setattr("spark_kafka_group.driver.steps.sink_transaction.GOES_WITHIN_S", 0.5)
        first, second = (topic_with(kafka, numbered(10, 1), partitions=1) for _ in range(2))
        query = exactly_once(first, transactional_id=group).start()
        other = exactly_once(second, transactional_id=group, **{"kafka.group.id": f"{group}-2"}).start()
        query.plan()
        other.plan()
        produce(kafka, second, numbered(10, 1))
        other.succeeded = other.running  # nothing of it has begun
        other.plan()
        with pytest.raises(MembershipError, match="another query of this application"):
            query.begin()

    def test_a_query_with_one_id_that_spark_asks_at_the_same_time_is_refused(
        self, kafka, group, exactly_once, query_of, monkeypatch
    ):
        monkeypatch.setattr("spark_kafka_group.driver.steps.sink_transaction.GOES_WITHIN_S", 0.5)
        first, second = (topic_with(kafka, numbered(10, 1), partitions=1) for _ in range(2))
        busy = query_of(kafka, first, group, **BOTH)
        busy.may_finish.clear()
        busy.running.wait(30)
        query = exactly_once(first, transactional_id=group).start()
        other = exactly_once(second, transactional_id=group, **{"kafka.group.id": f"{group}-2"}).start()
        thread = threading.Thread(target=query.plan)
        thread.start()  # the group waits for the busy one
        wait_until(lambda: list(live_sources(query.shared, group)), within=30)
        with pytest.raises(MembershipError, match="another query of this application"):
            other.plan()
        busy.may_finish.set()
        thread.join()

    def test_a_source_of_the_last_run_is_waited_for(self, kafka, exactly_once):
        first, second = (topic_with(kafka, numbered(10, 1), partitions=1) for _ in range(2))
        query = exactly_once(first, second).start()
        query.drain(20)
        old = query.drivers
        query.start()
        old[0].stop()
        timer = threading.Timer(0.5, old[1].stop)
        timer.start()
        assert query.trigger() is None
        timer.join()


class TestReplays:
    @pytest.mark.parametrize("killed", ["before the rows", "with rows", "with offsets", "decided", "in Spark's log"])
    def test_after_a_kill_each_row_is_there_once(self, kafka, group, exactly_once, killed):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        query = exactly_once(topic).start()
        query.trigger(limit=6)
        query.plan(limit=8)
        if killed != "before the rows":
            query.begin()
        if killed in ("with offsets", "decided", "in Spark's log"):
            query.add_offsets()
        if killed in ("decided", "in Spark's log"):
            query.decide()
        if killed == "in Spark's log":
            query.succeeded = query.running
        began = time.monotonic()
        query.start()  # the one before is never told of its end
        if killed != "in Spark's log":
            # Also where the group has its offsets: what Spark aggregates needs the rows.
            assert query.trigger() == [span(topic, 0, 3, 7), span(topic, 1, 3, 7)]
        assert time.monotonic() - began < 30  # nothing waits for the timeout of a transaction
        query.drain(20)
        assert query.trigger() is None
        assert sorted(query.written()) == rows_of(topic, {0: 10, 1: 10})
        assert committed(kafka, group) == {(topic, 0): 10, (topic, 1): 10}

    def test_partitions_that_a_neighbour_owns_are_left_to_it(self, kafka, group, exactly_once, tmp_path):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        query = exactly_once(topic).start()
        query.plan()
        query.begin()
        query.stop()  # killed, and missed by the group
        (tmp_path / "other").mkdir()
        other = exactly_once(topic, directory=tmp_path / "other").start()
        other.plan()  # it owns both now, and has read nothing
        query.start()
        again = []
        thread = threading.Thread(target=lambda: again.append(query.begin()))
        thread.start()  # joins: the neighbour has to finish its batch
        other.begin()
        other.finish()
        wait_until(lambda: other.trigger() or not thread.is_alive(), within=60)
        thread.join()
        assert again == [[]]
        query.finish()
        produce(kafka, topic, numbered(20, 2, first=20))

        def all_written():
            other.trigger()
            query.trigger()
            return len(query.written()) >= 40

        wait_until(all_written, within=60)
        assert sorted(query.written()) == rows_of(topic, {0: 20, 1: 20})

    @pytest.mark.parametrize("crash", [False, True], ids=["", "and the query crashes again"])
    def test_what_the_neighbour_never_wrote_is_read_when_it_comes_back(self, kafka, group, without_one, crash):
        query, kept, left, other = without_one()
        query.finish()
        assert len(query.written()) == 10
        if crash:
            query.stop()
        other.end()
        other.driver.stop()
        if crash:
            query.start()
        query.drain(20)
        assert sorted(query.written()) == rows_of(left.topic, {0: 10, 1: 10})
        assert committed(kafka, group) == {left: 10, kept.tp: 10}
        assert query.trigger() is None

    def test_a_partition_that_was_back_between_two_crashes_is_read_once(self, decided_without_one):
        """The sink has decided the batch without the partition, so it writes none of its rows as that batch's."""
        query, kept, left = decided_without_one()
        query.start()
        assert query.trigger() == [kept]
        query.drain(20)
        assert sorted(query.written()) == rows_of(left.topic, {0: 10, 1: 10})
        assert query.trigger() is None

    def test_the_transactional_id_is_needed_until_an_interrupted_batch_is_done(
        self, kafka, group, decided_without_one, driver_of
    ):
        query, kept, left = decided_without_one()
        without = driver_of(kafka, left.topic, group, **BOTH)
        (start,), (end,) = query.logged
        with pytest.raises(OptionError, match="micro-batch 0 of this query was planned with kafka.transactional.id"):
            without.plan(start, end)
        without.stop()
        query.start()
        assert query.trigger() == [kept]
        query.drain(20)
        query.stop()
        (end,) = query.logged[-1]
        assert driver_of(kafka, left.topic, group, **BOTH).latest_offset(end, None) == end

    @pytest.mark.parametrize("moved", [(0,), (0, 1)], ids=["a partition", "all partitions"])
    def test_a_decided_batch_is_read_again_as_it_was_though_others_have_read_on(
        self, kafka, group, exactly_once, moved
    ):
        """What Spark aggregates needs its rows, and the sink writes none of them."""
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        query = exactly_once(topic).start()
        query.plan(limit=10)
        query.begin()
        query.add_offsets()
        query.decide()
        query.stop()  # before Spark's commit log has it
        commit_for(kafka, group, {(topic, partition): 8 for partition in moved})
        query.start()
        assert query.trigger() == [span(topic, 0, 0, 5), span(topic, 1, 0, 5)]
        query.trigger()
        query.trigger()
        theirs = {f"{topic}-{partition}-{offset}" for partition in moved for offset in (5, 6, 7)}
        assert sorted({*query.written(), *theirs}) == rows_of(topic, {0: 10, 1: 10})
        assert len(query.written()) == 20 - len(theirs)

    @pytest.mark.parametrize("tells", [True, False], ids=["", "decisions of an earlier version"])
    def test_a_batch_that_was_decided_without_a_partition_is_read_again_without_it(
        self, kafka, group, decided_without_one, tells
    ):
        """Others have written its rows, so Spark must not aggregate them. A decision that does not name partitions
        cannot tell."""
        query, _, left = decided_without_one(tells_sources=tells)
        commit_for(kafka, group, {left: 10})
        query.start()
        assert len(query.trigger()) == (1 if tells else 2)
        assert query.trigger() is None
        assert len(query.written()) == 10

    @pytest.mark.parametrize("tells", [True, False], ids=["", "decisions of an earlier version"])
    def test_a_batch_that_was_decided_without_any_partition_is_read_again_without_them(
        self, kafka, group, exactly_once, query_of, tells
    ):
        """The batch has rows of another source, say. The next one has this source's, and Spark aggregates them once."""
        topic = topic_with(kafka, numbered(10, 1), partitions=1)
        to_the_last = {"kafka.partition.assignment.strategy": "recorders:Reverse"}
        query = exactly_once(topic, tells_sources=tells, **{"kafka.group.instance.id": "a"} | to_the_last).start()
        query.plan()
        query.begin()
        query.stop()
        throw_out(kafka, group)  # a member with a name of the user's own stays
        paused = {"pausePartitions": f'{{"{topic}": [0]}}', "kafka.group.instance.id": "b"}
        other = query_of(kafka, topic, group, **BOTH | paused | to_the_last)
        wait_until(lambda: len(other.owned()) == 1, within=30)
        query.start()
        assert query.begin() == []
        query.decide()
        query.stop()
        other.end()
        other.driver.stop()
        throw_out(kafka, group)
        query.start()
        assert query.trigger() == ([] if tells else [span(topic, 0, 0, 10)])
        assert query.written() == []
        query.drain(10)
        assert sorted(query.written()) == rows_of(topic, {0: 10})
        assert query.trigger() is None

    def test_where_a_neighbour_has_gone_on_after_a_crash_is_right(self, kafka, group, exactly_once):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        query = exactly_once(topic).start()
        query.plan()
        query.begin()
        query.stop()
        commit_for(kafka, group, {(topic, 0): 4})
        query.start()
        assert query.trigger() == [span(topic, 1, 0, 10)]
        query.drain(16)
        assert sorted(query.written()) == rows_of(topic, {0: 10, 1: 10})[4:]
        assert query.trigger() is None

    def test_two_sources_in_one_group_write_each_row_once_over_a_crash(self, kafka, group, exactly_once):
        topics = [topic_with(kafka, numbered(20, 2), partitions=2) for _ in range(2)]
        query = exactly_once(*topics).start()
        query.trigger(limit=6)
        query.plan(limit=8)
        query.begin()
        query.stop()
        query.start()
        query.drain(40)
        expected = rows_of(topics[0], {0: 10, 1: 10}) + rows_of(topics[1], {0: 10, 1: 10})
        assert sorted(query.written()) == sorted(expected)
        assert set(committed(kafka, group).values()) == {10}

    @pytest.mark.parametrize("sources", [2, 3])
    def test_all_sources_of_a_query_read_an_undecided_batch_again_as_it_was(self, kafka, group, exactly_once, sources):
        # What Spark aggregates has been stored by the first run of the batch, perhaps as a snapshot, which stays.
        topics = [topic_with(kafka, numbered(20, 2), partitions=2) for _ in range(sources)]
        query = exactly_once(*topics).start()
        query.trigger(limit=6)
        query.plan(limit=8)
        whole = query.begin()
        query.stop()  # so that none is a member when the first one is asked again
        query.start()
        assert query.trigger() == whole
        query.drain(20 * sources)
        assert sorted(query.written()) == sorted(row for topic in topics for row in rows_of(topic, {0: 10, 1: 10}))

    def test_the_group_is_waited_for_while_a_transaction_of_another_holds_its_offsets(
        self, kafka, group, exactly_once, driver_of
    ):
        topic = topic_with(kafka, numbered(10, 1), partitions=1)
        query = exactly_once(topic).start()
        query.plan()
        query.begin()
        query.add_offsets()
        query.stop()
        neighbour = driver_of(
            kafka, topic, group, query.shared, **BOTH,
            **{"kafka.transactional.id": name("neighbour"), "kafka.default.api.timeout.ms": 1000},
        )  # fmt: skip
        start = neighbour.initial_offset()
        with pytest.raises(BrokerTimeoutError, match="UNSTABLE_OFFSET_COMMIT"):
            neighbour.latest_offset(start, None)  # or it would read what the sink is about to write
        query.decide()
        assert neighbour.latest_offset(start, None) == start
        produce(kafka, topic, numbered(5, 1))
        end = wait_until(lambda: (end := neighbour.latest_offset(start, None)) != start and end, within=30)
        assert neighbour.plan(start, end) == [(span(topic, 0, 10, 15),)]


class TestCheckpoints:
    def test_an_older_checkpoint_is_refused(self, kafka, exactly_once):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        query = exactly_once(topic).start()
        query.trigger(limit=6)
        query.trigger(limit=6)
        query.stop()
        del query.logged[2:]
        query.succeeded = 1
        query.start()
        with pytest.raises(OffsetConflictError, match=r"ends with batch 0 and the group has .*batch 1"):
            query.plan()

    def test_the_transactional_id_may_come_and_go(self, kafka, group, exactly_once, driver_of):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        plain = driver_of(kafka, topic, group, **BOTH)
        start = plain.initial_offset()
        end = plain.latest_offset(start, 6)
        plain.plan(start, end)
        plain.stop()  # Spark's commit log has the batch, and the group does not
        query = exactly_once(topic)
        query.logged, query.succeeded, query.decided = [[start], [end]], 1, 1
        query.start()
        assert query.trigger(limit=6) == [span(topic, 0, 3, 6), span(topic, 1, 3, 6)]
        query.stop()
        again = driver_of(kafka, topic, group, **BOTH)
        (start,) = query.logged[-1]
        end = again.latest_offset(start)
        assert again.plan(start, end) == [(span(topic, 0, 6, 10), span(topic, 1, 6, 10))]
        again.latest_offset(end)
        assert committed(kafka, group) == {(topic, 0): 10, (topic, 1): 10}
        assert {writer_of(note).batch for _, note in kafka.committed(group).values()} == {2}
