"""Which partition a row goes to, and the rows of each partition."""

from __future__ import annotations

from array import array

import pyarrow as pa
import pytest
from encoded import Row, indices, rows_of

from spark_kafka_group.executor.encode import Encoder
from spark_kafka_group.executor.writing.write import binary_column

NAMED_HASHES = {
    b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829, b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}  # fmt: skip
"""Of Kafka's own test, UtilsTest.testMurmur2."""


def numbers(buffer: bytes | bytearray | memoryview) -> list[int]:
    return memoryview(buffer).cast("B").cast("i").tolist()


@pytest.mark.parametrize("partitions", [1, 2, 3, 12, 1000, 2**31 - 1])
def test_a_key_goes_where_javas_producer_puts_it(twin: Encoder, partitions: int) -> None:
    rows = rows_of(twin, [Row(key) for key in NAMED_HASHES])
    expected = [(value & 0x7FFFFFFF) % partitions for value in NAMED_HASHES.values()]
    assert numbers(twin.partitions_of_keys(rows, None, partitions)) == expected


def test_a_row_without_a_key_has_no_partition(twin: Encoder) -> None:
    rows = rows_of(twin, [Row(None), Row(b"abc"), Row(None)])
    assert numbers(twin.partitions_of_keys(rows, None, 7)) == [-1, 479470107 % 7, -1]
    assert numbers(twin.partitions_of_keys(twin.Rows(2, None, None), None, 7)) == [-1, -1]


def test_an_empty_key_is_a_key(twin: Encoder) -> None:
    rows = rows_of(twin, [Row(b"")])
    assert numbers(twin.partitions_of_keys(rows, None, 1000)) == [(275646681 & 0x7FFFFFFF) % 1000]


def test_the_rows_of_indices_alone_are_looked_at(twin: Encoder) -> None:
    rows = rows_of(twin, [Row(key) for key in NAMED_HASHES])
    every = numbers(twin.partitions_of_keys(rows, None, 100))
    assert numbers(twin.partitions_of_keys(rows, indices(5, 0, 5), 100)) == [every[5], every[0], every[5]]
    assert numbers(twin.partitions_of_keys(rows, b"", 100)) == []
    for wrong in (-1, 6):
        with pytest.raises(ValueError, match=f"index {wrong} is outside the 6 rows"):
            twin.partitions_of_keys(rows, indices(0, wrong), 100)


def test_sliced_keys_are_hashed_from_their_first_row(twin: Encoder) -> None:
    keys = pa.array([b"x", *NAMED_HASHES, None], pa.binary())
    rows = twin.Rows(7, binary_column(keys.slice(1)), None)
    expected = [(value & 0x7FFFFFFF) % 12 for value in NAMED_HASHES.values()]
    assert numbers(twin.partitions_of_keys(rows, None, 12)) == [*expected, -1]


def test_the_rows_of_each_partition_are_in_order(twin: Encoder) -> None:
    found = twin.rows_by_partition(indices(3, 0, -1, 3, 0, 9, -1), 10)
    assert list(found) == [-1, 0, 3, 9]
    assert {partition: view.tolist() for partition, view in found.items()} == {
        -1: [2, 6], 0: [1, 4], 3: [0, 3], 9: [5],
    }  # fmt: skip
    assert twin.rows_by_partition(b"", 10) == {}


def test_the_rows_of_a_partition_can_be_appended(twin: Encoder) -> None:
    rows = rows_of(twin, [Row(value=b"%d" % i) for i in range(6)])
    building = twin.BatchBuilder(topic="t", partition=0, batch_size=1000, max_request_size=1000)
    for places in twin.rows_by_partition(array("i", [1, 0, 1, 0, 0, 1]), 2).values():
        assert building.append(rows, places, 0, 0) == len(places) == 3


@pytest.mark.parametrize("wrong", [-2, 10, 2**31 - 1, -(2**31)])
def test_a_partition_that_is_not_there_is_an_error(twin: Encoder, wrong: int) -> None:
    with pytest.raises(ValueError, match=f"row 1 has partition {wrong}, and there are 10"):
        twin.rows_by_partition(indices(3, wrong), 10)


@pytest.mark.parametrize("count", [0, -1])
def test_a_topic_without_partitions_is_an_error(twin: Encoder, count: int) -> None:
    with pytest.raises(ValueError, match=f"partition_count is {count}: it must be above 0"):
        twin.rows_by_partition(indices(0), count)
    with pytest.raises(ValueError, match=f"partition_count is {count}: it must be above 0"):
        twin.partitions_of_keys(rows_of(twin, [Row()]), None, count)
