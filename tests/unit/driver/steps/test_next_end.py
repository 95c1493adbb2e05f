"""The starts that the end of a batch has to keep, given the ends that Spark has confirmed before."""

from spark_kafka_group.driver.steps.next_end import CheckpointedEnds
from spark_kafka_group.values.offsets import GroupOffset, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
INITIAL = GroupOffset(query_id="r")
ENDS = [GroupOffset({A: 10 * (n + 1), B: 5}, "r", n, batch=n) for n in range(4)]
MOVED = {A: 20, B: 3}
"""Where batch 2 begins: A where batch 1 ended."""


def planned(*confirmed):
    """Two batches have been planned, and between the plans Spark has said this."""
    kept = CheckpointedEnds()
    kept.planned(INITIAL)
    kept.planned(ENDS[0])
    for end in confirmed:
        kept.committed(end)
    return kept


def test_a_batch_keeps_the_starts_that_moved_where_spark_has_confirmed_the_start_of_the_batch_before():
    assert planned(ENDS[0]).starts(ENDS[1], MOVED) == {B: 3}


def test_a_batch_keeps_all_starts_where_spark_has_not_confirmed_the_start_of_the_batch_before():
    assert planned().starts(ENDS[1], MOVED) == MOVED


def test_a_batch_keeps_all_starts_where_spark_has_confirmed_an_earlier_start_only():
    assert planned(INITIAL).starts(ENDS[1], MOVED) == MOVED


def test_batches_after_a_gap_keep_all_starts_whatever_spark_confirms_later():
    kept = planned()
    kept.starts(ENDS[1], MOVED)
    kept.planned(ENDS[1])
    kept.committed(ENDS[1])
    assert kept.starts(ENDS[2], {A: 30, B: 5}) == {A: 30, B: 5}


def test_the_first_batch_of_a_process_keeps_the_starts_that_moved_as_spark_has_shown_its_start():
    assert CheckpointedEnds().starts(ENDS[1], MOVED) == {B: 3}


def test_that_spark_confirms_nothing_of_a_querys_first_batch_is_no_gap():
    kept = CheckpointedEnds()
    kept.planned(INITIAL)
    assert kept.starts(ENDS[0], {A: 10, B: 5}) == {A: 10, B: 5}
    kept.planned(ENDS[0])
    kept.committed(ENDS[0])
    assert kept.starts(ENDS[1], MOVED) == {B: 3}
