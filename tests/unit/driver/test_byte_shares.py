"""Sharing a limit of bytes among partitions, by samples of their logs."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_group.driver import planner
from spark_kafka_group.driver.backlog.log_samples import sample_of
from spark_kafka_group.driver.byte_shares import SizedRange, SizeSample, places, share_bytes
from spark_kafka_group.driver.planner import BYTES_PER_TASK, pack
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition


def sized(partition, size, *samples, otherwise=100.0):
    return SizedRange(OffsetRange(TopicPartition("t", partition), 10, 10 + size), samples, otherwise)


def sizes_of(ranges):
    return [r.size for r in ranges]


def test_a_limit_is_shared_in_proportion_to_bytes():
    large, small = sized(0, 1000, otherwise=1000), sized(1, 1000, otherwise=10)
    assert sizes_of(share_bytes([large, small], 101_000, 0)) == [100, 100]
    assert sizes_of(share_bytes([large, small], 2_000_000, 0)) == [1000, 1000]


def test_the_nearest_sample_gives_the_bytes_of_an_offset():
    r = sized(0, 100, SizeSample(10, 20, 1000), SizeSample(80, 90, 100))  # 100 B up to offset 50, then 10 B
    assert r.bytes == 40 * 100 + 60 * 10
    assert r.bytes_until(52) == 40 * 100 + 2 * 10
    assert r.cut(4005) == OffsetRange(TopicPartition("t", 0), 10, 50)
    assert r.cut(4010).end == 51


def test_one_huge_partition_does_not_starve_small_ones():
    backlog = [sized(0, 1_000_000), *(sized(n, 1) for n in range(1, 6))]
    assert sizes_of(share_bytes(backlog, 10_000, 0)) == [95, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(("partitions", "offsets"), [(4, 2), (6, 4), (5, 2), (3, 7)])
def test_partitions_take_turns_where_offsets_and_bytes_are_limited(partitions, offsets):
    backlog = [OffsetRange(TopicPartition("t", p), 10, 100) for p in range(partitions)]
    served = set()
    for turn in range(partitions * offsets):
        chosen = [SizedRange(r, (), 100.0) for r in planner.share(backlog, offsets, turn)]
        served |= {r.tp.partition for r in share_bytes(chosen, 1, turn // planner.turns(backlog, offsets))}
    assert served == set(range(partitions))


def test_with_too_few_bytes_partitions_take_turns():
    backlog = [sized(n, 9, otherwise=60) for n in range(5)]
    served = [{r.tp.partition for r in share_bytes(backlog, 125, turn)} for turn in range(5)]
    assert served == [{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 0}]


def test_a_record_above_the_limit_is_read_alone():
    backlog = [sized(n, 9, otherwise=1000) for n in range(3)]
    assert [sizes_of(share_bytes(backlog, 1, turn)) for turn in range(3)] == [[1], [1], [1]]


def sample(first, count, size):
    return SizeSample(first, first + count, size)


one_sample = st.builds(sample, st.integers(0, 400), st.integers(1, 200), st.integers(1, 10**6))
samples = st.lists(one_sample, max_size=6).map(sorted)
backlogs = st.lists(st.tuples(st.integers(1, 300), samples, st.floats(0.1, 10**6)), min_size=1, max_size=6)


@given(backlogs, st.integers(1, 10**9), st.integers(0, 50))
def test_shares_keep_to_the_limit_or_are_one_offset(parts, limit, turn):
    ranges = [sized(n, size, *found, otherwise=rate) for n, (size, found, rate) in enumerate(parts)]
    shares = share_bytes(ranges, limit, turn)
    by_partition = {r.range.tp: r for r in ranges}
    for share in shares:
        whole = by_partition[share.tp].range
        assert whole.start == share.start < share.end <= whole.end
    spent = sum(by_partition[share.tp].bytes_until(share.end) for share in shares)
    assert shares
    assert spent <= limit * (1 + 1e-9) or sizes_of(shares) == [1]
    assert turn % len(ranges) in {share.tp.partition for share in shares}


@given(st.integers(1, 300), samples, st.floats(0.1, 10**6), st.floats(0, 10**9))
def test_a_cut_is_the_most_that_the_limit_allows(size, found, rate, limit):
    r = sized(0, size, *found, otherwise=rate)
    cut = r.cut(limit)
    assert cut.size == 1 or r.bytes_until(cut.end) <= limit * (1 + 1e-9) + 1e-6
    assert cut.end == r.range.end or r.bytes_until(cut.end + 1) > limit * (1 - 1e-9) - 1e-6
    assert r.bytes_until(r.range.end) == pytest.approx(r.bytes)


def test_each_part_of_a_range_is_sampled_once():
    assert places(0, 80, [], 4) == [0, 30, 50, 70]
    assert places(0, 80, [SizeSample(15, 25, 1)], 4) == [50, 70]
    assert places(0, 80, [SizeSample(0, 80, 1)], 4) == []
    assert places(7, 9, [], 4) == [7, 8]


def record_batch(base, count, size, magic=2):
    """A record batch's header, and zeros up to its size."""
    header = struct.pack(">qiibihi", base, size - 12, 0, magic, 0, 0, count - 1)
    return header + bytes(size - len(header))


def test_a_sample_has_all_record_batches_also_one_that_is_cut_off():
    records = record_batch(90, 20, 500) + record_batch(110, 10, 300) + record_batch(200, 1, 10_000)
    assert sample_of(memoryview(records[: 500 + 300 + 61]), 100) == SizeSample(90, 201, 10_800)
    assert sample_of(memoryview(records[: 500 + 300 + 20]), 100) == SizeSample(90, 120, 800)
    assert sample_of(memoryview(records), 50) == SizeSample(50, 201, 10_800)  # a gap, as compaction leaves them


@pytest.mark.parametrize(
    "records",
    [
        b"", bytes(26), bytes(1000), b"\xff" * 1000, record_batch(90, 5, 200),
        record_batch(100, 1, 100)[:8] + b"\x7f" + record_batch(100, 1, 100)[9:],
    ],
)  # fmt: skip
def test_bytes_that_are_no_record_batch_are_no_sample(records):
    assert sample_of(memoryview(records), 100) is None


def test_record_batches_of_old_formats_are_sampled():
    records = record_batch(100, 1, 60, magic=1) + record_batch(101, 1, 40, magic=0)
    assert sample_of(memoryview(records), 100) == SizeSample(100, 102, 100)


@given(st.binary(max_size=200), st.integers(0, 2**63 - 1))
def test_a_sample_of_any_bytes_has_offsets_and_bytes(records, position):
    sample = sample_of(memoryview(records), position)
    assert sample is None or (sample.first <= position < sample.next and sample.bytes > 0)


def test_tasks_are_packed_by_bytes_where_they_are_known():
    ranges = [OffsetRange(TopicPartition("t", n), 0, 100) for n in range(4)]
    sizes = {r.tp: BYTES_PER_TASK * size for r, size in zip(ranges, (1.5, 0.5, 0.5, 0.5), strict=True)}
    tasks, _ = pack(ranges, 200_000, None, {}, sizes)
    assert [[r.tp.partition for r in task] for task in tasks] == [[0], [1, 3], [2]]
    assert len(pack(ranges, 200_000, 2, {}, sizes)[0]) == 2
    assert len(pack(ranges, 200_000, None, {})[0]) == 1
