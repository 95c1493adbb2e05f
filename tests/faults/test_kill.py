"""kill -9 of a whole query at five points: nothing is lost, nothing is twice, and the query is back at once."""

import functools
import signal
import sys
import time
from pathlib import Path

import pytest
from support import committed, members, numbered, options, produce, topic_with

from faults import ROOT
from faults.gather import left, rows_in
from faults.judge import judged
from faults.programs.points import POINTS
from faults.running import BareQuery, Query
from spark_kafka_group.testing import wait_until


def values(kafka, topic, group, *directories):
    """The numbers of the records in the sinks of queries that have read all of a topic; the judge finds nothing."""
    run = left(kafka, {topic: 3}, group, *directories)
    assert judged(run) == []
    return sorted(int(row.value[1:]) for row in run.rows)


def is_another(members, before):
    """Whether there is one member, and none of those `before`."""
    return len(members) == 1 and members[0]["member_id"] not in before


def handled(directory):
    """The numbers of the records in a sink."""
    return sorted(int(row.value[1:]) for row in rows_in(directory / "out"))


def settings_of(kafka, topic, group):
    return options(kafka, topic, group, maxOffsetsPerTrigger=30)


def suspended_query(kafka, group, directory, start_query, point):
    """A topic, and a query of it that was stopped (SIGSTOP) at a point of its second batch."""
    topic = topic_with(kafka, numbered(120, 3))
    settings = settings_of(kafka, topic, group)
    query = start_query(settings, "--point", point)
    query.wait_for(lambda: query.at(point))
    query.program.signal_all(signal.SIGSTOP)
    return topic, settings, query


BACK_WITHIN_S = 20
"""So soon a query that was killed is a member again; without static membership it would wait for its session to end."""


def killed_at(kafka, group, directory, start, point):
    topic = topic_with(kafka, numbered(120, 3))
    settings = settings_of(kafka, topic, group)
    first = start(settings, "--point", point)
    first.wait_for(lambda: first.at(point))
    before = {m["member_id"] for m in members(kafka, group)}
    assert len(before) == 1
    first.kill()
    produce(kafka, topic, numbered(30, 3, first=120))

    second = start(settings)
    second.wait_for(second.reads)
    wait_until(lambda: is_another(members(kafka, group), before), within=BACK_WITHIN_S)
    second.wait_for(lambda: committed(kafka, group) == {(topic, p): 50 for p in range(3)})
    second.kill()
    assert values(kafka, topic, group, directory) == list(range(150))


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.soak
def test_a_query_killed_at_any_point_loses_nothing_and_repeats_nothing(kafka, group, tmp_path, start_query, point):
    killed_at(kafka, group, tmp_path, functools.partial(start_query, kind=Query), point)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.soak
def test_a_driver_killed_at_any_point_loses_nothing_and_repeats_nothing(kafka, group, tmp_path, start_query, point):
    killed_at(kafka, group, tmp_path, functools.partial(start_query, kind=BareQuery), point)


@pytest.mark.soak
def test_a_stream_into_plain_parquet_killed_again_and_again_has_every_row_once(
    spark, kafka, group, tmp_path, start_program
):
    topic = topic_with(kafka, numbered(3000, 3))
    for goal in (1000, 2000, 3000):
        query = start_program(
            [
                Path(sys.executable).with_name("spark-submit"), "--master", "local[2]",
                "--conf", "spark.ui.enabled=false", ROOT / "jobs/stream_to_parquet.py",
                "--bootstrap-servers", kafka.bootstrap_servers, "--group", group, "--topics", topic,
                "--output", tmp_path / "out", "--checkpoint", tmp_path / "checkpoint",
                "--trigger", "10 milliseconds", "--option", "maxOffsetsPerTrigger=100",
            ]
        )  # fmt: skip
        query.wait_for(lambda goal=goal: sum(committed(kafka, group).values()) >= goal)
        query.kill()  # at whatever point of whatever batch it is
    rows = spark.read.parquet(str(tmp_path / "out")).select("value").collect()
    assert sorted(int(row.value[1:]) for row in rows) == list(range(3000))


def test_a_driver_killed_before_its_commit_and_never_restarted_has_not_moved_the_group_too_far(
    kafka, group, tmp_path, start_query
):
    topic = topic_with(kafka, numbered(120, 3))
    query = start_query(settings_of(kafka, topic, group), "--point", "sink", kind=BareQuery)
    query.wait_for(lambda: query.at("sink"))
    query.kill()
    assert committed(kafka, group) == {(topic, p): 10 for p in range(3)}


@pytest.mark.parametrize("point", ["before-commit", "tasks"])
@pytest.mark.soak
def test_a_query_that_was_replaced_while_it_was_stopped_can_neither_commit_nor_go_on(
    kafka, group, tmp_path, start_query, point
):
    topic, settings, zombie = suspended_query(kafka, group, tmp_path, start_query, point)
    heir = start_query(settings, "--available-now")
    assert heir.program.ends() == 0
    assert committed(kafka, group) == {(topic, p): 40 for p in range(3)}

    zombie.disarm()
    zombie.program.signal_all(signal.SIGCONT)
    assert zombie.program.ends() != 0
    assert committed(kafka, group) == {(topic, p): 40 for p in range(3)}
    assert values(kafka, topic, group, tmp_path) == list(range(120))


@pytest.mark.soak
def test_a_fenced_query_says_so_and_does_nothing_more(kafka, group, tmp_path, start_query):
    topic, settings, zombie = suspended_query(kafka, group, tmp_path, start_query, "before-commit")
    heir = start_query(settings, directory=tmp_path)
    heir.wait_for(lambda: committed(kafka, group) == {(topic, p): 40 for p in range(3)})
    zombie.disarm()
    zombie.program.signal_all(signal.SIGCONT)
    assert zombie.program.ends() != 0
    assert "another process has joined with this query's group.instance.id" in zombie.log.read_text()
    # The one that replaced it is not disturbed.
    assert heir.running
    produce(kafka, topic, numbered(30, 3, first=120))
    heir.wait_for(lambda: committed(kafka, group) == {(topic, p): 50 for p in range(3)})
    assert values(kafka, topic, group, tmp_path) == list(range(150))


RACE = "CONCURRENT_STREAM_LOG_UPDATE"
"""How Spark ends a query that finds its batch in the checkpoint's log already."""


@pytest.fixture
def two_in_one_batch(kafka, group, tmp_path, start_query):
    """A topic, a query in the middle of its second batch, and one that has taken its place and replays that batch."""
    topic = topic_with(kafka, numbered(120, 3))
    settings = settings_of(kafka, topic, group)

    def make(*arguments):
        older = start_query(settings, "--point", "sink")
        older.wait_for(lambda: older.at("sink"))
        before = {m["member_id"] for m in members(kafka, group)}
        newer = start_query(settings, *arguments)
        newer.wait_for(lambda: {m["member_id"] for m in members(kafka, group)}.isdisjoint(before))
        return topic, settings, older, newer

    return make


@pytest.mark.soak
def test_of_two_live_queries_in_one_batch_the_slower_one_ends_and_the_newer_one_goes_on(
    kafka, group, tmp_path, two_in_one_batch
):
    topic, _, older, newer = two_in_one_batch()
    newer.wait_for(lambda: committed(kafka, group) == {(topic, p): 40 for p in range(3)})
    older.disarm()
    assert older.program.ends() != 0
    assert RACE in older.log.read_text()
    produce(kafka, topic, numbered(30, 3, first=120))
    newer.wait_for(lambda: committed(kafka, group) == {(topic, p): 50 for p in range(3)})
    assert values(kafka, topic, group, tmp_path) == list(range(150))


@pytest.mark.soak
def test_where_the_older_one_is_quicker_both_end_and_the_next_start_goes_on(
    kafka, group, tmp_path, start_query, two_in_one_batch
):
    topic, settings, older, newer = two_in_one_batch("--batch-seconds", 10)
    older.disarm()
    assert older.program.ends() != 0
    output = older.log.read_text()
    assert "another process has joined with this query's group.instance.id" in output
    assert RACE not in output
    assert newer.program.ends() != 0
    assert RACE in newer.log.read_text()
    assert committed(kafka, group) == {(topic, p): 10 for p in range(3)}

    last = start_query(settings)
    last.wait_for(lambda: committed(kafka, group) == {(topic, p): 40 for p in range(3)})
    assert values(kafka, topic, group, tmp_path) == list(range(120))


def test_another_member_has_the_partitions_of_a_killed_query_soon_after_its_session(
    kafka, group, tmp_path, start_query
):
    topic = topic_with(kafka, numbered(4, 4), partitions=4)
    session_s = 2
    short = {"kafka.session.timeout.ms": str(1000 * session_s), "kafka.heartbeat.interval.ms": "200"}
    by_group = {"startingOffsets": "group", "kafka.auto.offset.reset": "earliest"}
    settings = settings_of(kafka, topic, group) | short | by_group
    victim = start_query(settings, "--point", "sink", kind=BareQuery)
    victim.wait_for(lambda: committed(kafka, group) == {(topic, p): 1 for p in range(4)})
    heir = start_query(settings, directory=tmp_path / "heir", kind=BareQuery)
    heir.wait_for(lambda: len(members(kafka, group)) == 2 and kafka.group_state(group)[0] == "Stable")
    produce(kafka, topic, numbered(40, 4, first=4))
    victim.wait_for(lambda: victim.at("sink"))  # a batch of its two partitions, which it never commits
    heir.wait_for(lambda: sorted(committed(kafka, group).values()) == [1, 1, 11, 11])

    victim.kill()
    killed_s = time.monotonic()
    heir.wait_for(lambda: committed(kafka, group) == {(topic, p): 11 for p in range(4)})
    assert time.monotonic() - killed_s < session_s + 5
    heir.kill()
    first, second = handled(tmp_path), handled(tmp_path / "heir")
    assert sorted({*first, *second}) == list(range(44))
    assert judged(left(kafka, {topic: 4}, group, tmp_path, tmp_path / "heir")) == []
    not_committed = {number for number in first if number >= 4}  # the victim's batch, which had some of the 20
    assert not_committed == set(first) & set(second)
    assert 44 + len(not_committed) == len(first) + len(second) > 44


def test_a_query_whose_session_ended_while_it_was_stopped_does_not_set_its_successor_back(
    kafka, group, tmp_path, start_query
):
    topic = topic_with(kafka, numbered(120, 3))
    short = {"kafka.session.timeout.ms": "1000", "kafka.heartbeat.interval.ms": "200"}
    zombie = start_query(settings_of(kafka, topic, group) | short, "--point", "before-commit", kind=BareQuery)
    zombie.wait_for(lambda: zombie.at("before-commit"))
    zombie.program.signal_all(signal.SIGSTOP)
    assert committed(kafka, group) == {(topic, p): 10 for p in range(3)}

    # Another query, so another name: nothing fences the first one but the end of its session.
    group_s = {"startingOffsets": "group", "kafka.auto.offset.reset": "earliest"}
    heir = start_query(settings_of(kafka, topic, group) | short | group_s, directory=tmp_path / "heir", kind=BareQuery)
    heir.wait_for(lambda: committed(kafka, group) == {(topic, p): 40 for p in range(3)})
    zombie.disarm()
    zombie.program.signal_all(signal.SIGCONT)
    zombie.wait_for(lambda: len(members(kafka, group)) == 2 and kafka.group_state(group)[0] == "Stable")
    assert committed(kafka, group) == {(topic, p): 40 for p in range(3)}
    produce(kafka, topic, numbered(30, 3, first=120))
    zombie.wait_for(lambda: committed(kafka, group) == {(topic, p): 50 for p in range(3)})
    assert "not committed" in zombie.log.read_text()
    zombie.kill()
    heir.kill()
    first, second = handled(tmp_path), handled(tmp_path / "heir")
    # The second batch was in a sink and in no commit, so that the heir had to read it again; nothing else.
    assert sorted(first + second) == sorted([*range(150), *range(30, 60)])
    assert set(first) & set(second) == set(range(30, 60))
    assert judged(left(kafka, {topic: 3}, group, tmp_path, tmp_path / "heir")) == []
