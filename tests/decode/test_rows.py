"""Rows of record batches of magic 2."""

from __future__ import annotations

import pyarrow as pa
import pytest
from decoding import ALL, builder, decode, rows_of
from record_bytes import CODECS, CONTROL, LOG_APPEND, LZ4, Rec, batch

from spark_kafka_group.executor.decode import Decoder
from spark_kafka_group.executor.decode.contract import HEADER_COST, ROW_COST
from spark_kafka_group.values.schema import EVERY, USUAL, arrow_schema

TEN = [Rec(value=b"value %d" % i) for i in range(10)]


@pytest.mark.parametrize("codec", CODECS)
def test_a_record_becomes_a_row_of_every_column(twin: Decoder, codec: str) -> None:
    records = [
        Rec(b"key", b"value", [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")], timestamp_ms=1_700_000_000_123),
        Rec(None, None, timestamp_ms=1_699_999_999_000),
        Rec(b"", b"", [(b"", None), ("ü".encode(), b"")], timestamp_ms=-1),
    ]
    outcome = decode(twin, batch(records, base_offset=100, codec=CODECS[codec]))
    assert outcome.error is None
    common = {"topic": "orders", "partition": 3, "timestampType": 0}
    headers = [{"key": "a", "value": b"1"}, {"key": "b", "value": b"2"}, {"key": "a", "value": b"3"}]
    empty = [{"key": "", "value": None}, {"key": "ü", "value": b""}]
    assert outcome.rows == [
        {
            **common,
            "key": b"key",
            "value": b"value",
            "offset": 100,
            "timestamp": 1_700_000_000_123_000,
            "headers": headers,
        },
        {**common, "key": None, "value": None, "offset": 101, "timestamp": 1_699_999_999_000_000, "headers": None},
        {**common, "key": b"", "value": b"", "offset": 102, "timestamp": -1000, "headers": empty},
    ]


def test_without_headers_the_column_is_not_there(twin: Decoder) -> None:
    outcome = decode(twin, batch([Rec(b"k", b"v", [(b"a", b"1")])]), columns=USUAL)
    assert list(outcome.rows[0]) == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def test_bytes_of_a_header_key_that_are_not_utf8_are_replaced(twin: Decoder) -> None:
    outcome = decode(twin, batch([Rec(headers=[(b"a\xff\xed\xa0\x80b", b"1")])]))
    assert [h["key"] for h in outcome.rows[0]["headers"]] == ["a" + 4 * "\ufffd" + "b"]


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8192, 65535, 65536, 200_000])
def test_a_value_of_any_size_is_read(twin: Decoder, size: int, codec: str) -> None:
    value = bytes(i * 7 & 0xFF for i in range(size))
    records = [Rec(b"before", b"x"), Rec(value, value, [(b"h", value)]), Rec(b"after", b"y")]
    rows = decode(twin, batch(records, codec=CODECS[codec])).rows
    assert [row["value"] for row in rows] == [b"x", value, b"y"]
    assert (rows[1]["key"], rows[1]["headers"]) == (value, [{"key": "h", "value": value}])


def test_a_record_of_5_mb_gets_through(twin: Decoder) -> None:
    value = bytes(range(256)) * 20480
    data = batch([Rec(value=value)], codec=CODECS["zstd"]) + batch([Rec(value=value)], base_offset=1)
    rows = decode(twin, data, check_crcs=False, target_bytes=2 * len(value)).rows
    assert [row["value"] == value for row in rows] == [True, True]


@pytest.mark.parametrize("codec", CODECS)
def test_start_and_end_may_lie_inside_a_batch(twin: Decoder, codec: str) -> None:
    data = batch(TEN, base_offset=100, codec=CODECS[codec])
    assert decode(twin, data, 103, 107).offsets == [103, 104, 105, 106]
    assert decode(twin, data, 103, 103).offsets == []


def test_batches_outside_the_range_are_hopped_over_whatever_is_in_them(twin: Decoder) -> None:
    data = batch(TEN, crc=0) + batch(TEN, base_offset=10) + batch(TEN, base_offset=20, crc=0)
    outcome = decode(twin, data, 10, 20)
    assert (outcome.error, outcome.offsets, outcome.stopped_at) == (None, list(range(10, 20)), len(data))


def test_control_batches_are_not_shown_and_their_offset_counts(twin: Decoder) -> None:
    marker = batch([Rec(b"\0\0\0\1", b"\0\0\0\0\0\0")], base_offset=10, attributes=CONTROL | 16)
    data = batch(TEN) + marker + batch(TEN, base_offset=11)
    assert decode(twin, data).offsets == [*range(10), *range(11, 21)]
    assert twin.scan("orders", 3, data[: -len(batch(TEN))]) == (len(batch(TEN) + marker), 11)


def test_compaction_leaves_gaps_and_empty_batches(twin: Decoder) -> None:
    gaps = batch([Rec(delta=2), Rec(delta=7)], last_delta=9)
    empty = batch([], base_offset=10, last_delta=4)
    empty_lz4 = batch([], base_offset=15, last_delta=0, attributes=LZ4)  # a codec, and no bytes at all
    data = gaps + empty + empty_lz4
    assert decode(twin, data).offsets == [2, 7]
    assert twin.scan("orders", 3, data) == (len(data), 16)


def test_a_batch_cut_off_at_the_end_is_ignored_wherever_it_is_cut(twin: Decoder) -> None:
    whole, last = batch(TEN), batch(TEN, base_offset=10)
    for cut in range(len(last)):
        data = whole + last[:cut]
        outcome = decode(twin, data)
        assert (outcome.error, outcome.stopped_at, len(outcome.rows)) == (None, len(whole), 10)
        assert twin.scan("orders", 3, data) == (len(whole), 10)


def test_without_a_complete_batch_scan_stays_where_it_is(twin: Decoder) -> None:
    data = batch(TEN)
    assert twin.scan("orders", 3, b"") == (0, -1)
    assert twin.scan("orders", 3, data[:-1]) == (0, -1)
    assert twin.scan("orders", 3, data, len(data)) == (len(data), -1)


@pytest.mark.parametrize("position", [-1, 4])
def test_a_position_outside_the_records_is_refused(twin: Decoder, position: int) -> None:
    with pytest.raises(ValueError, match=f"position {position} is outside the 3 bytes"):
        twin.scan("orders", 3, b"abc", position)
    with pytest.raises(ValueError, match=f"position {position} is outside the 3 bytes"):
        builder(twin).append("orders", 3, b"abc", position, 0, ALL)


def test_under_log_append_time_all_records_have_the_batchs(twin: Decoder) -> None:
    records = [Rec(timestamp_ms=1), Rec(timestamp_ms=5)]
    rows = decode(twin, batch(records, attributes=LOG_APPEND, max_timestamp=77)).rows
    assert [(row["timestamp"], row["timestampType"]) for row in rows] == [(77_000, 1), (77_000, 1)]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_records_may_be_any_bytes(twin: Decoder, kind: type) -> None:
    data = batch(TEN, codec=LZ4)
    b = builder(twin)
    assert b.append("orders", 3, kind(data), 0, 0, ALL) == len(data)
    assert b.finish().num_rows == 10
    assert twin.scan("orders", 3, kind(data)) == (len(data), 10)


def test_append_stops_after_the_row_that_reaches_the_target_and_goes_on_there(twin: Decoder) -> None:
    batches = [batch(TEN, base_offset=10 * i, codec=LZ4) for i in range(7)]
    data = b"".join(batches)
    one = decode(twin, batch(TEN[:1])).nbytes
    for target in (1, one, one + 1, 7 * one, 10 * one, 33 * one):
        b = builder(twin, target_bytes=target)
        per_call = -(-target // one)
        position, offsets = 0, []
        while position < len(data):
            position = b.append("orders", 3, data, position, 0, ALL)
            seen = len(offsets) + b.rows
            assert b.rows == min(per_call, 70 - len(offsets))
            assert b.full == (b.rows == per_call)
            assert b.halfway == (seen % 10 > 0)
            assert position == b.position == len(b"".join(batches[: seen // 10]))
            offsets += [row["offset"] for row in rows_of(b.finish())]
        assert offsets == list(range(70))


def test_halfway_through_a_batch_the_builder_goes_nowhere_else(twin: Decoder) -> None:
    data = batch(TEN) + batch(TEN, base_offset=10)
    b = builder(twin, target_bytes=1)
    assert b.append("orders", 3, data, 0, 0, ALL) == 0
    b.finish()
    assert b.halfway
    for topic, partition, position in (("orders", 3, len(data) // 2), ("orders", 2, 0), ("other", 3, 0)):
        with pytest.raises(ValueError, match="halfway through the record batch at byte 0 of orders-3"):
            b.append(topic, partition, data, position, 0, ALL)
    b.append("orders", 3, data, 0, 0, ALL)
    assert [row["offset"] for row in rows_of(b.finish())] == [1]


def test_one_arrow_batch_takes_rows_of_several_partitions(twin: Decoder) -> None:
    b = builder(twin)
    pairs = [("a", 0), ("a", 1), ("größe", 0), ("empty", 0), ("a", 0)]
    for n, (topic, partition) in enumerate(pairs):
        data = b"" if topic == "empty" else batch([Rec(value=b"%d" % n)] * (n + 1), base_offset=n)
        b.append(topic, partition, data, 0, 0, ALL)
    rows = rows_of(b.finish())
    assert [(row["topic"], row["partition"], row["value"]) for row in rows] == [
        (topic, partition, b"%d" % n)
        for n, (topic, partition) in enumerate(pairs)
        for _ in range(n + 1)
        if topic != "empty"
    ]


def test_a_builder_is_used_again_and_its_batches_do_not_change(twin: Decoder) -> None:
    b = builder(twin)
    made = []
    for round_ in range(20):
        rows = [Rec(b"%d" % round_, b"%d" % i * round_, [(b"h", None)] * (i % 3)) for i in range(10 * round_)]
        b.append("ab"[round_ % 2], round_, batch(rows, base_offset=round_), 0, 0, ALL)
        made.append((b.finish(), "ab"[round_ % 2], rows))
    for arrow, topic, rows in made:
        got = rows_of(arrow)
        assert [(r["key"], r["value"], r["topic"]) for r in got] == [(rec.key, rec.value, topic) for rec in rows]
        assert [len(r["headers"] or ()) for r in got] == [len(rec.headers) for rec in rows]


def test_an_empty_builder_gives_an_empty_batch_of_the_schema(twin: Decoder) -> None:
    for columns in (EVERY, USUAL, ("offset",)):
        b = builder(twin, columns=columns)
        for _ in range(2):
            arrow = b.finish()
            assert (arrow.num_rows, arrow.schema) == (0, arrow_schema(columns))


def test_batches_go_through_arrow_ipc_as_spark_sends_them(twin: Decoder) -> None:
    b = builder(twin)
    b.append("orders", 3, batch([Rec(b"k", None, [(b"h", b"v")]), Rec()]), 0, 0, ALL)
    made = b.finish()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, made.schema) as writer:
        writer.write_batch(made)
    assert sink.tell() < 4096  # spare room in the builder's memory does not travel
    assert pa.ipc.open_stream(sink.getvalue()).read_next_batch().equals(made)


def test_nbytes_counts_topic_key_value_and_headers_and_a_fixed_cost(twin: Decoder) -> None:
    records = [Rec(b"key", b"value", [(b"abc", b"12"), (b"\xff", None)]), Rec(None, None)]
    fixed = ROW_COST + len("größe".encode())
    with_headers = decode(twin, batch(records), topic="größe")
    assert with_headers.nbytes == 2 * fixed + 8 + 2 * HEADER_COST + 5 + len("\ufffd".encode())
    assert decode(twin, batch(records), topic="größe", columns=USUAL).nbytes == 2 * fixed + 8
