"""How minPartitions and maxRecordsPerPartition cut ranges: as Spark's own source does, with its numbers."""

import itertools

import pytest

from spark_kafka_group.driver import planner
from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition

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
