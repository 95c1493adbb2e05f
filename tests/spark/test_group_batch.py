"""group_batch: a bounded read that commits when its block ends well."""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support import commit_for, committed, committed_epochs, members, numbered, options, produce, topic_with

from spark_kafka_group import DataLossError, OptionError, group_batch
from spark_kafka_group.driver import batch_read
from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.options import Options
from spark_kafka_group.testing import wait_until

JOINED = """
import json, sys, threading
from spark_kafka_group.assignors import resolve
from spark_kafka_group.options import Options
from spark_kafka_group.wire import GroupClient
options = Options.parse(json.loads(sys.argv[1]))
group = options.group
client = GroupClient(options, group.id, group.instance_id, resolve(group.assignment_strategy))
client.subscribe(options.reading.subscription)
client.partitions(options.reading.subscription)
client.join_first(client.join)
threading.Event().wait()
"""
"""A process that is in the group as group_batch is in its block."""


def test_what_was_read_is_committed_and_the_next_batch_goes_on_there(spark, kafka, group):
    topic = topic_with(kafka, numbered(300, 3))
    settings = options(kafka, topic, group, startingOffsets="group")
    with group_batch(spark, settings) as batch:
        assert batch.df.count() == batch.records == 300
        assert [m["client_id"] for m in members(kafka, group)] == ["groupkafka-driver"]
        assert committed(kafka, group) == {}
    assert committed(kafka, group) == {(topic, p): 100 for p in range(3)}
    assert committed_epochs(kafka, group) == {0}
    assert members(kafka, group) == []
    produce(kafka, topic, numbered(30, 3))
    with group_batch(spark, settings) as batch:
        assert sorted(row.offset for row in batch.df.select("offset").collect()) == sorted([*range(100, 110)] * 3)


def test_the_member_of_a_group_batch_is_a_dynamic_one_whose_id_begins_with_the_client_id(spark, kafka, group):
    settings = options(kafka, topic_with(kafka, numbered(3, 3)), group, **{"kafka.client.id": "invoices"})
    with group_batch(spark, settings):
        (member,) = members(kafka, group)
        assert (member["client_id"], member["group_instance_id"]) == ("invoices-driver", None)
        assert member["member_id"].startswith("invoices-driver-")


@pytest.mark.parametrize(("static", "session_s"), [(False, 3), (True, 60)], ids=["dynamic", "static"])
def test_after_kill_9_the_next_run_waits_for_the_dead_members_session_unless_it_takes_its_place(
    spark, kafka, group, static, session_s
):
    settings = options(kafka, topic_with(kafka, numbered(30, 3)), group, startingOffsets="group") | {
        "kafka.session.timeout.ms": str(1000 * session_s), "kafka.heartbeat.interval.ms": "300",
    } | ({"kafka.group.instance.id": f"{group}-job"} if static else {})  # fmt: skip
    killed = subprocess.Popen([sys.executable, "-c", JOINED, json.dumps(settings)])
    try:
        wait_until(lambda: kafka.group_state(group)[0] == "Stable", within=60)
    finally:
        killed.kill()
        killed.wait()
    killed_s = time.monotonic()
    with group_batch(spark, settings) as batch:
        waited_s = time.monotonic() - killed_s
        assert batch.records == 30
    if static:
        assert waited_s < session_s / 2
    else:
        assert waited_s > session_s - 0.6  # the last heartbeat was up to 0.3 s before


def test_every_action_reads_the_same_records(spark, kafka, group):
    topic = topic_with(kafka, numbered(30, 3))
    static = {"kafka.group.instance.id": f"{group}-1"}
    with group_batch(spark, options(kafka, topic, group, startingOffsets="group", **static)) as batch:
        assert batch.df.count() == 30
        produce(kafka, topic, numbered(30, 3))
        assert batch.df.count() == 30


def test_a_block_that_raises_commits_nothing_and_leaves_the_group(spark, kafka, group):
    topic = topic_with(kafka, numbered(30, 3))
    settings = options(kafka, topic, group, startingOffsets="group")
    with pytest.raises(RuntimeError, match="no disk"), group_batch(spark, settings):
        raise RuntimeError("no disk")
    assert committed(kafka, group) == {}
    assert members(kafka, group) == []
    with group_batch(spark, settings) as batch:
        assert batch.df.count() == 30


def test_an_empty_batch_commits_nothing(spark, kafka, group):
    with group_batch(spark, options(kafka, topic_with(kafka, []), group, startingOffsets="group")) as batch:
        assert batch.records == 0
        assert batch.df.count() == 0
    assert committed(kafka, group) == {}


def test_while_others_are_members_a_group_batch_goes_on_from_the_groups_offset_whatever_starting_offsets_say(
    spark, kafka, group, caplog
):
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    commit_for(kafka, group, {(topic, p): 4 for p in range(2)})
    paused = json.dumps({topic: [0, 1]})
    idle = StreamDriver(Options.parse(options(kafka, topic, group, startingOffsets="group", pausePartitions=paused)))
    try:
        idle.latest_offset(idle.initial_offset())
        with group_batch(spark, options(kafka, topic, group, startingOffsets="earliest")) as batch:
            assert [(r.start, r.end) for r in batch.ranges] == [(4, 10)]
    finally:
        idle.stop()
    assert sorted(committed(kafka, group).values()) == [4, 10]
    assert "startingOffsets says earliest, the group has committed 4 and has other members" in caplog.text


def test_a_group_batch_needs_a_group(spark, kafka):
    with pytest.raises(OptionError, match=r"needs kafka.group.id"), group_batch(spark, options(kafka, "t")):
        pass


def test_a_static_member_that_comes_back_within_its_session_reads_partitions_added_meanwhile(spark, kafka, group):
    topic = topic_with(kafka, numbered(20, 1), partitions=1)
    settings = options(kafka, topic, group, startingOffsets="group", **{"kafka.group.instance.id": f"{group}-job"})
    with group_batch(spark, settings) as batch:
        assert batch.records == 20
    kafka.add_partitions(topic, 3)
    produce(kafka, topic, numbered(30, 3))
    assert len(members(kafka, group)) == 1
    with group_batch(spark, settings) as batch:
        assert batch.records == 30
    assert committed(kafka, group) == {(topic, 0): 30, (topic, 1): 10, (topic, 2): 10}


def test_partitions_added_after_the_join_are_for_the_next_batch(spark, kafka, group):
    topic = topic_with(kafka, numbered(30, 3))
    settings = options(kafka, topic, group, startingOffsets="group")
    with group_batch(spark, settings) as batch:
        kafka.add_partitions(topic, 5)
        produce(kafka, topic, numbered(50, 5))
        assert batch.df.count() == batch.records == 30
    assert committed(kafka, group) == {(topic, p): 10 for p in range(3)}
    with group_batch(spark, settings) as batch:
        assert batch.df.count() == 50
    assert committed(kafka, group) == {(topic, p): 20 if p < 3 else 10 for p in range(5)}


def test_without_partitions_nothing_is_read_and_a_topic_that_does_not_exist_is_an_error(spark, kafka, group):
    settings = options(kafka, "none", group, startingOffsets="group", includeHeaders="true")
    with pytest.raises(OptionError, match="subscribe names none, which"), group_batch(spark, settings):
        pass
    pattern = {"subscribePattern": "^none$"} | {n: value for n, value in settings.items() if n != "subscribe"}
    with group_batch(spark, pattern) as batch:
        assert (batch.ranges, batch.df.count(), "headers" in batch.df.columns) == ((), 0, True)


def test_a_group_that_stands_behind_the_end_of_a_log_is_a_loss_and_goes_on_at_that_end(spark, kafka, group):
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    settings = options(kafka, topic, group, startingOffsets="group")
    commit_for(kafka, group, {(topic, 0): 60, (topic, 1): 5})
    with ThreadPoolExecutor() as pool:  # each doubts for seconds what it sees
        result = pool.submit(batch_read.plan, Options.parse(settings))
        with group_batch(spark, settings | {"failOnDataLoss": "false"}) as read:
            assert read.df.count() == read.records == 5
    assert committed(kafka, group) == {(topic, 0): 10, (topic, 1): 10}
    with pytest.raises(DataLossError, match=f"{topic}-0.* is 60, .* ends at 10.*Set failOnDataLoss=false"):
        result.result()
