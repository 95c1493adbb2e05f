"""Both twins on the same bytes, generated and mutated: the same rows, or the same rows and the same error."""

from __future__ import annotations

import struct
from typing import Any

from decoding import Outcome, decode, decode_in_steps
from hypothesis import given
from hypothesis import strategies as st
from record_bytes import CODECS, CONTROL, GZIP, LOG_APPEND, LZ4, SNAPPY, Rec, batch, message, with_right_crcs, wrapper

from spark_kafka_group.errors import ReadError
from spark_kafka_group.executor.decode import Decoder, load
from spark_kafka_group.values.schema import EVERY, USUAL

PYTHON, C = load("python"), load("c")
LIMIT = 100_000

targets = st.sampled_from([1, 100, 300, 1000])
"""For bytes of an Arrow batch: it ends after each row, or after some."""
twins = st.sampled_from([PYTHON, C])
some_columns = st.lists(st.sampled_from(EVERY), min_size=1, unique=True).map(tuple)
small = st.binary(max_size=20)
blob = st.one_of(st.none(), small, st.builds(bytes, st.integers(0, 300)))
records = st.builds(
    Rec,
    key=blob,
    value=blob,
    headers=st.lists(st.tuples(st.one_of(small, st.text(max_size=5).map(str.encode)), blob), max_size=3),
    timestamp_ms=st.one_of(st.integers(-1, 2**42), st.integers(-(2**53), 2**53)),
)


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[bytes, list[tuple[int, Rec, int, int]]]]:
    """Batches of one partition, each with the rows it stands for: offset, record, timestamp in ms, its type."""
    made = []
    offset = draw(st.sampled_from([0, 0, 1000, 2**40]))
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["v2", "v2", "v2", "v2", "control", "v0", "v1"]))
        held = draw(st.lists(records, max_size=6))
        rows: list[tuple[int, Rec, int, int]] = []
        if kind in ("v2", "control"):
            gaps = draw(st.lists(st.integers(1, 3), min_size=len(held), max_size=len(held)))
            deltas = [sum(gaps[: i + 1]) - 1 for i in range(len(gaps))]
            held = [Rec(r.key, r.value, r.headers, r.timestamp_ms, d) for r, d in zip(held, deltas, strict=True)]
            last_delta = max(deltas, default=0) + draw(st.integers(0, 2))
            log_append = draw(st.booleans())
            attributes = CONTROL * (kind == "control") + LOG_APPEND * log_append
            append_time = draw(st.integers(0, 2**42))
            data = batch(
                held,
                base_offset=offset,
                codec=draw(st.sampled_from(list(CODECS.values()))),
                attributes=attributes,
                last_delta=last_delta,
                max_timestamp=append_time if log_append else None,
            )
            if kind == "v2":
                stamps = [(append_time, 1) if log_append else (r.timestamp_ms, 0) for r in held]
                rows = [(offset + d, r, *s) for d, r, s in zip(deltas, held, stamps, strict=True)]
            offset += last_delta + 1
        else:
            magic = int(kind[1])
            held = [Rec(r.key, r.value, (), r.timestamp_ms) for r in held] or [Rec()]
            codec = draw(st.sampled_from([0, GZIP, SNAPPY, LZ4]))
            offsets = range(offset, offset + len(held))
            inner = b"".join(
                message(magic, at - offset if codec and magic else at, r.key, r.value, timestamp_ms=r.timestamp_ms)
                for at, r in zip(offsets, held, strict=True)
            )
            # An outer offset of 0 would say that the client left it to the broker, which gives the same offset here.
            data = wrapper(magic, offsets[-1], codec, inner) if codec else inner
            rows = [
                (at, r, r.timestamp_ms if magic else -1, 0 if magic else -1)
                for at, r in zip(offsets, held, strict=True)
            ]
            offset += len(held)
        made.append((data, rows))
    return made


def row_of(offset: int, rec: Rec, timestamp_ms: int, timestamp_type: int) -> dict[str, Any]:
    headers = [{"key": key.decode("utf-8", "replace"), "value": value} for key, value in rec.headers]
    return {
        "key": rec.key,
        "value": rec.value,
        "topic": "orders",
        "partition": 3,
        "offset": offset,
        "timestamp": timestamp_ms * 1000,
        "timestampType": timestamp_type,
        "headers": headers or None,
    }


def both(data: bytes, start: int, end: int, **options: Any) -> Outcome:
    outcome = decode(PYTHON, data, start, end, **options)
    assert decode(C, data, start, end, **options) == outcome
    return outcome


def scanned(twin: Decoder, data: bytes, position: int) -> object:
    try:
        return twin.scan("orders", 3, data, position)
    except ReadError as error:
        return str(error)


@given(batches(), st.integers(0, 30), st.integers(0, 40), st.booleans(), targets, twins)
def test_what_is_written_is_read_back(
    made: list[tuple[bytes, list[tuple[int, Rec, int, int]]]],
    skip: int,
    wanted: int,
    headers: bool,
    target: int,
    twin: Decoder,
) -> None:
    data = b"".join(part for part, _ in made)
    rows = [row_of(*row) for _, part in made for row in part]
    first = rows[0]["offset"] if rows else 0
    start, end = first + skip, first + skip + wanted
    expected = [row for row in rows if start <= row["offset"] < end]
    if not headers:
        for row in expected:
            del row["headers"]
    outcome = both(data, start, end, columns=EVERY if headers else USUAL)
    assert (outcome.error, outcome.stopped_at) == (None, len(data))
    assert outcome.rows == expected
    assert scanned(PYTHON, data, 0) == scanned(C, data, 0)
    assert decode_in_steps(twin, data, target, start, end, columns=EVERY if headers else USUAL) == outcome


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    data = bytearray(b"".join(part for part, _ in draw(batches())))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        how = draw(st.sampled_from(["flip", "flip", "byte", "varint", "cut", "remove", "insert", "int32", "header"]))
        if how == "flip" and data:
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "byte" and data:
            data[at] = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF, draw(st.integers(0, 255))]))
        elif how == "varint":
            long = b"\xff" * draw(st.integers(1, 10)) + bytes([draw(st.integers(0, 127))])
            data[at : at + draw(st.sampled_from([0, 1, len(long)]))] = long
        elif how == "cut":
            del data[at:]
        elif how == "remove":
            del data[at : at + draw(st.integers(1, 8))]
        elif how == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=8))
        elif how == "int32":
            number = draw(st.sampled_from([-(2**31), -2, -1, 0, 1, 2**31 - 1, len(data)]))
            data[at : at + 4] = struct.pack(">i", number)
        elif len(data) >= 61:
            # a field of the first header: length, attributes, last offset delta, the timestamps, the count
            field = draw(st.sampled_from([8, 19, 23, 24, 27, 31, 35, 57]))
            number = draw(st.sampled_from([-(2**31), -1, 0, 1, 2, 3, 4, 5, 8, 12, 32, 2**31 - 1, len(data) - 12]))
            data[field : field + 4] = struct.pack(">i", number)
    return with_right_crcs(bytes(data)) if draw(st.booleans()) else bytes(data)


@given(mutated(), st.integers(0, 5), st.booleans(), st.booleans(), st.booleans(), targets, twins)
def test_mutated_bytes_give_the_same_rows_and_the_same_error(
    data: bytes, start: int, headers: bool, crcs: bool, times: bool, target: int, twin: Decoder
) -> None:
    options = {"columns": EVERY if headers else USUAL, "check_crcs": crcs, "unpacked_limit": LIMIT}
    options["check_timestamps"] = times
    whole = both(data, start, 2**63 - 1, **options)
    assert decode_in_steps(twin, data, target, start, 2**63 - 1, **options) == whole
    assert scanned(PYTHON, data, 0) == scanned(C, data, 0)


@given(mutated(), st.integers(0, 5), some_columns, targets, twins)
def test_rows_of_some_columns_are_those_of_all_without_the_other_columns(
    data: bytes, start: int, columns: tuple[str, ...], target: int, twin: Decoder
) -> None:
    looked_at = EVERY if "headers" in columns else USUAL
    every = decode(twin, data, start, columns=looked_at, unpacked_limit=LIMIT, check_timestamps="timestamp" in columns)
    some = both(data, start, 2**63 - 1, columns=columns, unpacked_limit=LIMIT)
    assert (some.error, some.stopped_at) == (every.error, every.stopped_at)
    assert some.rows == [{name: row[name] for name in columns} for row in every.rows]
    assert some.nbytes <= every.nbytes
    assert decode_in_steps(twin, data, target, start, 2**63 - 1, columns=columns, unpacked_limit=LIMIT) == some


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_give_the_same_rows_and_the_same_error(data: bytes, headers: bool) -> None:
    framed = struct.pack(">qiib", 5, 9 + 40 + len(data), 0, 2) + bytes(44) + data
    for tried in (data, with_right_crcs(framed)):
        both(tried, 0, 2**63 - 1, columns=EVERY if headers else USUAL, unpacked_limit=LIMIT)
        assert scanned(PYTHON, tried, 0) == scanned(C, tried, 0)
