"""Sharing a limit among partitions, packing ranges into tasks, and cutting ranges with the numbers of Spark's own."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_group.driver import planner
from spark_kafka_group.driver.planner import divide, pack, share
from spark_kafka_group.options import Options
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


SETTINGS = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t1,t2,t3"}


def cut(ranges, **options):
    """The parts of each range, by topic: `ranges` holds a start and an end for topics t1, t2 and so on."""
    parsed = Options.parse(SETTINGS | {name: str(value) for name, value in options.items()})
    whole = [OffsetRange(TopicPartition(f"t{n}", 1), *bounds) for n, bounds in enumerate(ranges, start=1)]
    tasks, _ = planner.tasks(whole, parsed, {})
    parts = sorted(r for task in tasks for r in task)
    return [[(r.start, r.end) for r in parts if r.tp.topic == f"t{n}"] for n in range(1, len(ranges) + 1)]


def steps(*offsets):
    """Ranges that follow one another."""
    return list(itertools.pairwise(offsets))


@pytest.mark.parametrize("options", [{}, {"minPartitions": 3}, {"minPartitions": 1}])
def test_with_enough_partitions_each_stays_whole(options):
    assert cut([(1, 2), (1, 2), (1, 2)], **options) == [[(1, 2)]] * 3
    assert cut([(1, 5), (1, 21), (1, 3)], **options) == [[(1, 5)], [(1, 21)], [(1, 3)]]


@pytest.mark.parametrize("options", [{}, {"minPartitions": 1}, {"maxRecordsPerPartition": 5}])
def test_an_empty_range_is_left_out(options):
    assert cut([(1, 2), (1, 1)], **options) == [[(1, 2)], []]


@pytest.mark.parametrize(
    ("at_least", "ranges", "parts"),
    [
        (4, [(1, 5)], [steps(1, 2, 3, 4, 5)]),
        (3, [(1, 11)], [steps(1, 4, 7, 11)]),
        (4, [(1, 5), (1, 21)], [[(1, 5)], steps(1, 7, 14, 21)]),
        (4, [(1, 1), (1, 21)], [[], steps(1, 6, 11, 16, 21)]),
        (4, [(1, 2), (1, 1001)], [[(1, 2)], steps(1, 334, 667, 1001)]),
        (1, [(1, 5), (1, 21)], [[(1, 5)], [(1, 21)]]),
        (4, [(1, 5), (1, 21), (1, 1)], [[(1, 5)], steps(1, 7, 14, 21), []]),
        (6, [(0, 10), (0, 10), (0, 1)], [steps(0, 3, 6, 10), steps(0, 3, 6, 10), [(0, 1)]]),
        (
            9,
            [(0, 10_000), (0, 15_000), (0, 20_000)],
            [steps(*range(0, end + 1, 5000)) for end in (10_000, 15_000, 20_000)],
        ),
        (
            6,
            [(0, 500), (0, 12_000), (0, 15_001)],
            [[(0, 500)], steps(0, 6000, 12_000), steps(0, 5000, 10_000, 15_001)],
        ),
        (6, [(0, 1), (0, 1), (0, 10_000)], [[(0, 1)], [(0, 1)], steps(0, 2500, 5000, 7500, 10_000)]),
    ],
)
def test_ranges_are_cut_into_at_least_min_partitions(at_least, ranges, parts):
    assert cut(ranges, minPartitions=at_least) == parts


@pytest.mark.parametrize(
    ("at_most", "ranges", "parts"),
    [
        (4, [(1, 5)], [[(1, 5)]]),
        (4, [(1, 2)], [[(1, 2)]]),
        (4, [(1, 6)], [steps(1, 3, 6)]),
        (20, [(1, 40), (1, 50), (1, 60)], [steps(1, 20, 40), steps(1, 17, 33, 50), steps(1, 20, 40, 60)]),
    ],
)
def test_ranges_are_cut_by_max_records_per_partition(at_most, ranges, parts):
    assert cut(ranges, maxRecordsPerPartition=at_most) == parts


def test_no_task_has_more_than_max_records_per_partition():
    options = Options.parse(SETTINGS | {"maxRecordsPerPartition": "20"})
    whole = [OffsetRange(TopicPartition(f"t{n}", 1), 1, end) for n, end in enumerate((40, 50, 60))]
    tasks, _ = planner.tasks(whole, options, {})
    assert sorted(sum(r.size for r in task) for task in tasks) == [16, 16, 17, 19, 19, 20, 20, 20]


@pytest.mark.parametrize(("at_least", "parts"), [(1, steps(1, 20, 40)), (4, steps(1, 10, 20, 30, 40))])
def test_ranges_are_cut_by_the_finer_of_both_options(at_least, parts):
    assert cut([(1, 40)], minPartitions=at_least, maxRecordsPerPartition=20) == [parts]


def test_with_both_options_a_range_that_is_small_beside_the_others_stays_whole():
    # maxRecordsPerPartition makes 5 + 1 parts; 11 are about the 12 that were asked for.
    cut_in_two = steps(*range(0, 1001, 100))
    assert cut([(0, 1000), (0, 21)], minPartitions=12, maxRecordsPerPartition=200) == [cut_in_two, [(0, 21)]]
