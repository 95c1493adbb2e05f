"""Sharing a limit among partitions, and packing ranges into tasks."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_group.driver.planner import divide, pack, share
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition


def backlog(*sizes):
    return [OffsetRange(TopicPartition("t", n), 10, 10 + size) for n, size in enumerate(sizes)]


def sizes_of(ranges):
    return [r.size for r in ranges]


def test_without_a_limit_everything_is_read():
    assert sizes_of(share(backlog(5, 7), None, 0)) == [5, 7]


def test_a_limit_is_shared_in_proportion_to_the_backlog():
    assert sizes_of(share(backlog(100, 300), 40, 0)) == [10, 30]


def test_shares_are_rounded_down_as_in_sparks_source():
    assert sizes_of(share(backlog(10, 10, 10), 8, 0)) == [2, 2, 2]
    assert sizes_of(share(backlog(21, 11, 1), 20, 0)) == [12, 6, 1]
    assert sizes_of(share(backlog(17, 15, 1), 20, 0)) == [10, 9, 1]


def test_one_huge_partition_does_not_starve_small_ones():
    assert sizes_of(share(backlog(1_000_000, 1, 2, 3, 4, 5), 100, 0)) == [95, 1, 1, 1, 1, 1]


def test_with_fewer_offsets_than_partitions_they_take_turns():
    served = [{r.tp.partition for r in share(backlog(9, 9, 9, 9, 9), 2, turn)} for turn in range(5)]
    assert all(len(one) == 2 for one in served)
    assert set.union(*served) == {0, 1, 2, 3, 4}


def test_a_partition_is_not_given_more_than_it_has():
    assert sizes_of(share(backlog(1, 2, 2), 4, 0)) == [1, 1, 1]


sizes_small_or_large = st.lists(st.integers(0, 5) | st.integers(0, 10_000), min_size=1, max_size=30)


@given(sizes_small_or_large, st.integers(1, 30) | st.integers(1, 20_000), st.integers(0, 100))
def test_a_share_is_never_more_than_the_limit_or_the_backlog_and_never_nothing(sizes, limit, turn):
    ranges = backlog(*sizes)
    shared = share(ranges, limit, turn)
    whole = min(limit, sum(sizes))
    assert whole - len(shared) <= sum(sizes_of(shared)) <= whole
    available = {r.tp: r for r in ranges}
    assert all(r.start == available[r.tp].start and 0 < r.size <= available[r.tp].size for r in shared)
    if limit >= len([size for size in sizes if size]):
        assert {r.tp for r in shared} == {r.tp for r in ranges if r.size}


def test_a_small_batch_is_one_task():
    tasks, _ = pack(backlog(250, 250, 250, 250), 200_000, None, {})
    assert len(tasks) == 1


def test_a_large_batch_has_a_task_per_partition_and_no_more_than_allowed():
    ranges = backlog(*[1_000_000] * 4)
    assert len(pack(ranges, 200_000, None, {})[0]) == 4
    assert len(pack(ranges, 200_000, 3, {})[0]) == 3


def test_empty_ranges_need_no_task():
    assert pack(backlog(0, 0), 100, None, {}) == ([], {})


def test_tasks_are_about_equally_large():
    tasks, _ = pack(backlog(80, 70, 60, 50, 40, 30, 20, 10), 120, 3, {})
    assert max(sum(sizes_of(task)) for task in tasks) <= 1.25 * 120


def test_a_partition_stays_in_its_task_from_batch_to_batch():
    _, slots = pack(backlog(100, 90, 80, 70, 60, 50), 150, 3, {})
    _, again = pack(backlog(95, 96, 75, 74, 55, 56), 150, 3, slots)
    assert again == slots


def test_a_partition_moves_when_its_task_became_much_larger_than_the_others():
    _, slots = pack(backlog(100, 100, 100, 100), 200, 2, {})
    tasks, _ = pack(backlog(*[1000 if slots[TopicPartition("t", n)] == 0 else 10 for n in range(4)]), 200, 2, slots)
    assert max(sum(sizes_of(task)) for task in tasks) <= 1020


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=20), st.integers(1, 500), st.integers(1, 8))
def test_every_range_is_in_exactly_one_task(sizes, records_per_task, max_tasks):
    ranges = backlog(*sizes)
    tasks, _ = pack(ranges, records_per_task, max_tasks, {})
    assert sorted(r for task in tasks for r in task) == sorted(r for r in ranges if r.size)
    assert len(tasks) <= max_tasks
    assert all(tasks)


@pytest.mark.parametrize("turn", range(3))
def test_sharing_is_the_same_for_the_same_turn(turn):
    assert share(backlog(9, 9, 9), 2, turn) == share(backlog(9, 9, 9), 2, turn)


@pytest.mark.parametrize(
    ("sizes", "at_least", "parts"),
    [
        ((1000,), 4, [250, 250, 250, 250]),
        ((5,), 3, [1, 2, 2]),
        ((100, 100), 2, [100, 100]),
        ((100, 100), 1, [100, 100]),
        ((1, 10_000), 4, [1, 3333, 3333, 3334]),
        ((0, 6), 3, [2, 2, 2]),
        ((2,), 5, [1, 1]),
    ],
)
def test_large_ranges_are_cut_into_equal_parts_and_small_ones_stay_whole(sizes, at_least, parts):
    assert sizes_of(divide(backlog(*sizes), at_least)) == parts


@given(sizes=sizes_small_or_large, at_least=st.integers(1, 60))
def test_cut_ranges_cover_the_backlog_without_gap_or_overlap(sizes, at_least):
    whole = backlog(*sizes)
    cut = divide(whole, at_least)
    for r in whole:
        mine = [part for part in cut if part.tp == r.tp]
        assert sum(part.size for part in mine) == r.size
        assert all(before.end == after.start for before, after in itertools.pairwise(mine))
        assert all(part.size > 0 for part in mine)
