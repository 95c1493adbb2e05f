"""Where a query stands, as batches succeed, rebalances come and topics change."""

import pytest

from spark_kafka_group.driver.positions.standing import Standing
from spark_kafka_group.values.offsets import GroupOffset, TopicPartition

A, B, C = (TopicPartition("orders", n) for n in range(3))
OTHER = TopicPartition("payments", 0)


@pytest.fixture
def standing():
    """After a restart from a checkpoint with A at 10 and B at 20, with C left at 30; A and B are owned."""
    made = Standing.after(GroupOffset({A: 10, B: 20}, "r", 4, 7, topic_ids={"orders": "1"}, left={C: 30}))
    made.take_starts({A: 10, B: 25}, {B: 25}, newer=())
    made.taken()
    return made


def test_a_position_is_the_proven_one_unless_it_was_moved(standing):
    assert standing.starts([A, B, C]) == {A: 10, B: 25}
    assert standing.kept() == {A: 10, B: 25, C: 30}


def test_a_proven_batch_ends_what_was_moved_but_for_owned_partitions_without_records(standing):
    standing.moved |= {OTHER: 5, C: 31}
    standing.prove(GroupOffset({A: 11, B: 26}, "r", 5, 8), owned={A, B, OTHER})
    assert standing.moved == {OTHER: 5}
    assert standing.starts([A, B]) == {A: 11, B: 26}


def test_a_replay_cut_by_its_logs_goes_on_where_they_were_cut(standing):
    standing.truncated_at = {A: 8}
    standing.prove(GroupOffset({A: 12, B: 25}, "r", 5, 8), owned={A, B})
    assert (standing.moved, standing.truncated_at) == ({A: 8}, {})


def test_a_partition_with_a_newer_commit_is_taken_again(standing):
    standing.take_starts({OTHER: 3}, {OTHER: 3}, newer={OTHER})
    assert standing.positioned == {A, B}
    assert OTHER in standing.known


def test_positions_of_a_recreated_topic_are_void_until_partitions_are_taken(standing):
    standing.existing_at_start = {A, B, OTHER}
    standing.recreate(["orders"], owned={A})
    assert standing.positioned == {B}  # which is not owned, so that it is not read either
    assert standing.kept() == {A: 10}
    assert standing.known_before() == set()
    assert standing.existing_at_start == {OTHER}
    standing.take_starts({A: 0}, {A: 0}, newer=())
    standing.taken()
    assert standing.recreated == set()
    assert standing.recreated_unowned == {B, C}


def test_partitions_that_exist_at_the_start_are_known_only_when_positions_have_been_taken():
    standing = Standing.after(GroupOffset(query_id="r"))
    standing.existing_at_start = {A, B}
    assert (standing.is_new_query, standing.known_before()) == (True, set())
    standing.taken()
    assert (standing.is_new_query, standing.is_restart, standing.known_before()) == (False, False, {A, B})


def test_a_generation_is_held_only_with_positions_and_never_goes_back(standing):
    standing.hold(5)
    standing.hold(4)
    assert standing.held_generation == 5
    standing.positioned.clear()
    standing.hold(9)
    assert standing.held_generation == 5


def test_a_checkpoint_of_sparks_own_source_is_no_new_query():
    standing = Standing.after(GroupOffset({A: 10}))
    assert (standing.newer_than_group, standing.is_new_query) == (True, False)


def test_batches_before_the_first_join_leave_positions_to_sparks_own_source():
    assert Standing.after(GroupOffset({A: 10}, "r", batch=0)).newer_than_group
    assert not Standing.after(GroupOffset({A: 10}, "r", batch=0), joins=False).newer_than_group
    assert not Standing.after(GroupOffset({A: 10}, "r", batch=0, topic_ids={"orders": "1"})).newer_than_group
    assert not Standing.after(GroupOffset({A: 10}, "r", 4, 0)).newer_than_group
    assert not Standing.after(GroupOffset({}, "r", batch=0)).newer_than_group
