"""Both twins on the same columns, generated and damaged: the same bytes, or the same bytes and the same error."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from encoded import NOW_MS, Row, as_read, encode, read_back, rows_of
from hypothesis import example, given
from hypothesis import strategies as st

from spark_kafka_group.errors import WriteError
from spark_kafka_group.executor.encode import CODECS, Compression, Encoder, load
from spark_kafka_group.executor.encode.encoder_contract import UNCOMPRESSED, BinaryColumn, HeadersColumn

PYTHON, C = load("python"), load("c")

small = st.binary(max_size=20)
blob = st.one_of(st.none(), small, st.builds(bytes, st.integers(0, 9000)))
rows = st.builds(
    Row,
    key=blob,
    value=blob,
    headers=st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=5), blob), max_size=3)),
)
compressions = st.builds(Compression, st.sampled_from(list(CODECS.values())))
limits = st.fixed_dictionaries(
    {"batch_size": st.sampled_from([0, 80, 300, 16384]), "max_request_size": st.sampled_from([100, 400, 1 << 20])}
)
odd_int = st.one_of(st.integers(-2, 9), st.sampled_from([-(2**31), 2**31 - 1]), st.integers(-(2**31), 2**31 - 1))
odd_first = st.sampled_from([-1, 1, 7, 2**62, 2**70])
seldom = st.integers(0, 15).map(lambda chance: not chance)


def int32s(values: list[int]) -> bytes:
    return array("i", values).tobytes()


@st.composite
def columns(draw: st.DrawFn, count: int, limit: int = 6) -> BinaryColumn:
    """A column of so many rows, right or nearly: places in `limit` bytes."""
    first = draw(st.integers(0, 3))
    places = sorted(draw(st.lists(st.integers(0, limit), min_size=first + count + 1, max_size=first + count + 1)))
    if draw(seldom):
        places[draw(st.integers(0, len(places) - 1))] = draw(odd_int)
    bits = draw(st.one_of(st.none(), st.binary(min_size=2, max_size=2)))
    column = BinaryColumn(first, bits, int32s(places), b"abcdef"[:limit])
    if draw(seldom):
        changed: dict[str, st.SearchStrategy[Any]] = {
            "first": odd_first,
            "validity": st.binary(max_size=1),
            "ends": st.one_of(st.none(), st.integers(0, len(column.ends or b"")).map(lambda n: int32s(places)[:n])),
            "data": st.one_of(st.none(), st.binary(max_size=3)),
        }
        name = draw(st.sampled_from(sorted(changed)))
        column = replace(column, **{name: draw(changed[name])})
    return column


@st.composite
def headers_columns(draw: st.DrawFn, count: int) -> HeadersColumn:
    headers = draw(st.integers(0, 4))
    lists = draw(columns(count, headers))
    keys, values = draw(columns(headers)), draw(columns(headers))
    if not draw(seldom):
        keys = replace(keys, validity=None)
    bits = draw(st.one_of(st.none(), st.none(), st.none(), st.binary(min_size=0, max_size=2)))
    struct_first = draw(odd_first if draw(seldom) else st.just(0))
    named = draw(odd_int) if draw(seldom) else headers
    return HeadersColumn(lists.first, lists.validity, lists.ends, named, struct_first, bits, keys, values)


@st.composite
def written_columns(draw: st.DrawFn) -> tuple[tuple[Any, ...], list[int]]:
    """What Rows takes, and indices."""
    count = draw(st.integers(1, 6))
    key, value = (draw(st.one_of(st.none(), columns(count))) for _ in range(2))
    headers = draw(st.one_of(st.none(), headers_columns(count)))
    places = draw(st.lists(st.integers(0, count - 1), max_size=8))
    if draw(seldom):
        places.append(draw(odd_int))
    named = draw(st.sampled_from([-1, 0])) if draw(seldom) else count
    return (named, key, value, headers), places


@example(
    [Row(value=None), Row(value=bytes(4))],
    [0, 1],
    Compression(CODECS["snappy"]),
    [0],
    {"batch_size": 80, "max_request_size": 100},
)
@given(
    st.lists(rows, max_size=12),
    st.lists(st.integers(0, 11), max_size=30),
    compressions,
    st.lists(st.integers(0, 2**45), min_size=1, max_size=3),
    limits,
)
def test_twins_give_the_same_batches_which_are_read_back(
    given_rows: list[Row], places: list[int], compression: Compression, times: list[int], sizes: dict[str, int]
) -> None:
    chosen = [place for place in places if place < len(given_rows)]

    def written(twin: Encoder, compression: Compression) -> Any:
        options = {"topic": "t", "partition": 0, "compression": compression, **sizes}
        return _written(twin, lambda: rows_of(twin, given_rows), array("i", chosen), times, options)

    mine, its = written(PYTHON, compression), written(C, compression)
    assert mine == its
    batches, error = mine
    before_compression, _ = written(C, UNCOMPRESSED)
    assert [batch.records for batch in batches] == [batch.records for batch in before_compression]
    for batch in before_compression:
        assert len(batch.data) <= max(sizes["batch_size"], sizes["max_request_size"]) or batch.records == 1
    if error is None:
        assert read_back(batches) == as_read([given_rows[place] for place in chosen])


@given(written_columns(), limits)
def test_twins_refuse_the_same_columns_with_the_same_words(given_columns: Any, sizes: Any) -> None:
    columns_of_rows, places = given_columns

    def written(twin: Encoder) -> Any:
        options = {"topic": "t", "partition": 0, **sizes}
        return _written(twin, lambda: twin.Rows(*columns_of_rows), array("i", places), [NOW_MS], options)

    assert written(PYTHON) == written(C)


@given(st.lists(blob, max_size=20), st.integers(1, 2**31 - 1))
def test_twins_choose_the_same_partitions(keys: list[bytes | None], count: int) -> None:
    chosen = [twin.partitions_of_keys(rows_of(twin, [Row(key) for key in keys]), None, count) for twin in (PYTHON, C)]
    assert chosen[0] == chosen[1]


@given(st.lists(st.one_of(st.integers(-1, 7), odd_int), max_size=40), st.sampled_from([1, 8, 1000]))
def test_twins_find_the_same_rows_of_each_partition(partitions: list[int], count: int) -> None:
    def found(twin: Encoder) -> Any:
        try:
            sorted_rows = twin.rows_by_partition(array("i", partitions), count)
        except ValueError as error:
            return str(error)
        return [(partition, places.tolist()) for partition, places in sorted_rows.items()]

    assert found(PYTHON) == found(C)


@given(st.lists(rows, min_size=1, max_size=12), compressions)
def test_halves_of_halves_have_the_rows_of_the_whole(given_rows: list[Row], compression: Compression) -> None:
    (batch,) = encode(C, rows_of(C, given_rows), batch_size=1 << 20, compression=compression)
    parts = [quarter for half in C.split(batch) for quarter in C.split(half)]
    assert parts == [quarter for half in PYTHON.split(batch) for quarter in PYTHON.split(half)]
    for part in parts:
        if part is not batch:
            C.stamp(part.data, 1, 1, 1, False)
    assert read_back(parts) == as_read(given_rows)


def _written(
    twin: Encoder, rows: Callable[[], Any], places: array[int], times: list[int], options: dict[str, Any]
) -> tuple[list[Any], str | None]:
    """Batches of each create time in turn, and the error that ended it."""
    batches = []
    error = None
    try:
        building = twin.BatchBuilder(**options)
        made = rows()
        share = -(-len(places) // len(times))
        for turn, timestamp_ms in enumerate(times):
            part = places[turn * share : (turn + 1) * share]
            position = 0
            while (position := building.append(made, part, position, timestamp_ms)) < len(part):
                batches.append(building.seal())
    except (ValueError, WriteError) as raised:
        error = f"{type(raised).__name__}: {raised}"
    if building.records:
        assert building.nbytes > 61
        batches.append(building.seal())
    for batch in batches:
        twin.stamp(batch.data, 1, 2, 3, True)
    return batches, error
