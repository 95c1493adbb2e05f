"""Bytes no broker should send: an error that names topic, partition and offset; good rows before it are kept."""

from __future__ import annotations

import struct

import pytest
from decoding import ALL, Outcome, builder, decode, decode_in_steps, rows_of
from record_bytes import (
    CODECS,
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    Rec,
    batch,
    batch_of,
    message,
    pack,
    record_v2,
    sized,
    varint,
    wrapper,
    xerial,
)

from spark_kafka_group.errors import CorruptRecordError, ReadError
from spark_kafka_group.executor.decode import Decoder, contract
from spark_kafka_group.values.schema import USUAL

BASE = 1_700_000_000_000
GOOD = [Rec(value=b"good")] * 3


def good(deltas: int) -> bytes:
    return b"".join(record_v2(Rec(value=b"good"), delta, BASE) for delta in range(deltas))


def problem(outcome: Outcome) -> str:
    assert outcome.error is not None
    assert outcome.stopped_at is None
    return outcome.error


def test_a_wrong_crc_names_partition_offset_and_what_to_change(twin: Decoder) -> None:
    outcome = decode(twin, batch(GOOD) + batch(GOOD, base_offset=3, crc=0xBAD))
    assert problem(outcome).startswith(
        "CorruptRecordError: orders-3: offset 3: the batch at offset 3 is damaged: its CRC"
    )
    assert "its header says 0x00000bad. Set kafka.check.crcs=false" in problem(outcome)
    assert outcome.offsets == [0, 1, 2]


def test_a_bad_batch_that_begins_before_start_is_reported_at_start(twin: Decoder) -> None:
    assert "orders-3: offset 1: the batch at offset 0 is damaged" in problem(decode(twin, batch(GOOD, crc=1), start=1))


def test_with_check_crcs_off_a_wrong_crc_is_not_seen(twin: Decoder) -> None:
    outcome = decode(twin, batch(GOOD, crc=0xBAD), check_crcs=False)
    assert (outcome.error, outcome.offsets) == (None, [0, 1, 2])


def test_the_crc_of_a_control_batch_is_checked_too_for_it_may_be_data(twin: Decoder) -> None:
    data = bytearray(batch(GOOD))
    data[22] |= 32  # a bit flips, and the batch says it is a control batch
    assert "is damaged" in problem(decode(twin, bytes(data)))


@pytest.mark.parametrize(
    ("field", "packed", "text"),
    [
        (8, struct.pack(">i", 48), "the batch at offset 7 gives its length as 48"),
        (8, struct.pack(">i", 0), "the batch at offset 7 gives its length as 0"),
        (8, struct.pack(">i", -1), "the batch at offset 7 gives its length as -1"),
        (8, struct.pack(">i", -(2**31)), "the batch at offset 7 gives its length as -2147483648"),
        (16, b"\x03", "has magic 3"),
        (16, b"\xff", "has magic -1"),
        (0, struct.pack(">q", -1), "a batch gives its offset as -1"),
        (0, struct.pack(">q", 2**63 - 1), f"gives its last offset as {2**63 - 1} + 2"),
        (0, struct.pack(">q", 2**63 - 3), f"gives its last offset as {2**63 - 3} + 2"),
        (23, struct.pack(">i", -1), "the batch at offset 7 gives its last offset as 7 + -1"),
        (23, struct.pack(">i", -(2**31)), "the batch at offset 7 gives its last offset as 7 + -2147483648"),
    ],
)
def test_an_impossible_header_is_refused_by_append_and_scan(
    twin: Decoder, field: int, packed: bytes, text: str
) -> None:
    data = bytearray(batch(GOOD, base_offset=7))
    data[field : field + len(packed)] = packed
    outcome = decode(twin, batch(GOOD) + bytes(data))
    assert text in problem(outcome)
    assert outcome.offsets == [0, 1, 2]
    with pytest.raises(CorruptRecordError) as raised:
        twin.scan("orders", 3, batch(GOOD) + bytes(data))
    assert problem(outcome).endswith(str(raised.value))


@pytest.mark.parametrize("length", [2**31 - 1, 2**24])
def test_a_length_beyond_the_bytes_reads_as_a_batch_cut_off(twin: Decoder, length: int) -> None:
    data = bytearray(batch(GOOD))
    data[8:12] = struct.pack(">i", length)
    assert decode(twin, bytes(data)).stopped_at == 0
    assert twin.scan("orders", 3, bytes(data)) == (0, -1)


def test_the_largest_offset_of_all_is_read(twin: Decoder) -> None:
    data = batch(GOOD, base_offset=2**63 - 4)
    assert decode(twin, data).offsets == [2**63 - 4, 2**63 - 3, 2**63 - 2]
    assert twin.scan("orders", 3, data) == (len(data), 2**63 - 1)


BAD_RECORDS = {
    "no_room_for_attributes": (varint(0), "is cut short"),
    "length_past_the_batch": (varint(1000) + b"\0", "is cut short"),
    "negative_length": (varint(-2), "has a negative length"),
    "length_cut_off": (b"\x80", "is cut short"),
    "length_of_six_bytes": (b"\x80\x80\x80\x80\x80\x00", "a variable-length number that is too long"),
    "length_of_33_bits": (b"\x80\x80\x80\x80\x10", "a variable-length number that is too long"),
    "length_of_31_bits": (b"\xfe\xff\xff\xff\x0f", "is cut short"),
    "timestamp_of_eleven_bytes": (sized(b"\0" + b"\x80" * 10 + b"\0"), "a variable-length number that is too long"),
    "timestamp_of_65_bits": (sized(b"\0" + b"\xff" * 9 + b"\x02"), "a variable-length number that is too long"),
    "offset_negative": (sized(b"\0\0" + varint(-1) + b"\1\1\0"), "has an offset outside the batch"),
    "offset_past_the_last": (sized(b"\0\0" + varint(10) + b"\1\1\0"), "has an offset outside the batch"),
    "key_past_the_record": (sized(b"\0\0\6" + varint(9) + b"abc\1\0") + b"x" * 9, "is cut short"),
    "key_below_null": (sized(b"\0\0\6" + varint(-2) + b"\1\0"), "has a negative length"),
    "key_most_negative": (sized(b"\0\0\6" + varint(-(2**31)) + b"\1\0"), "has a negative length"),
    "key_huge": (sized(b"\0\0\6" + varint(2**31 - 1) + b"\1\0"), "is cut short"),
    "value_past_the_record": (sized(b"\0\0\6\1" + varint(9) + b"abc\0") + b"x" * 9, "is cut short"),
    "value_below_null": (sized(b"\0\0\6\1" + varint(-2) + b"\0"), "has a negative length"),
    "value_missing": (sized(b"\0\0\6\1"), "is cut short"),
}
BAD_HEADERS = {
    "count_missing": (sized(b"\0\0\6\1\1"), "is cut short"),
    "count_negative": (sized(b"\0\0\6\1\1" + varint(-1)), "has a negative length"),
    "count_huge": (sized(b"\0\0\6\1\1" + varint(2**31 - 1)), "is cut short"),
    "key_null": (sized(b"\0\0\6\1\1\2" + varint(-1) + b"\1"), "has a negative length"),
    "key_past_the_record": (sized(b"\0\0\6\1\1\2" + varint(5) + b"a"), "is cut short"),
    "value_below_null": (sized(b"\0\0\6\1\1\2" + sized(b"a") + varint(-2)), "has a negative length"),
    "value_past_the_record": (sized(b"\0\0\6\1\1\2" + sized(b"a") + varint(7) + b"b"), "is cut short"),
    "bytes_left_over": (sized(b"\0\0\6\1\1\0" + b"rest"), "has bytes left over at its end"),
}


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("name", [*BAD_RECORDS, *(f"header_{name}" for name in BAD_HEADERS)])
def test_rows_before_a_bad_record_are_kept_and_the_builder_goes_on(twin: Decoder, name: str, codec: str) -> None:
    bad, text = BAD_HEADERS[name.removeprefix("header_")] if name.startswith("header_") else BAD_RECORDS[name]
    payload = pack(CODECS[codec], good(3) + bad)
    data = batch_of(payload, 5, base_offset=50, last_delta=9, attributes=CODECS[codec])
    b = builder(twin)
    with pytest.raises(CorruptRecordError) as raised:
        b.append("orders", 3, batch(GOOD) + data, 0, 0, ALL)
    assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("orders", 3, 53)
    assert raised.value.problem.startswith("record 3 of the batch at offset 50 ")
    assert text in raised.value.problem
    assert b.append("orders", 4, batch(GOOD, base_offset=60), 0, 0, ALL) == len(batch(GOOD))
    rows = rows_of(b.finish())
    assert [row["offset"] for row in rows] == [0, 1, 2, 50, 51, 52, 60, 61, 62]
    assert [row["partition"] for row in rows] == [3] * 6 + [4] * 3
    assert {row["value"] for row in rows} == {b"good"}


@pytest.mark.parametrize("name", BAD_HEADERS)
def test_without_headers_asked_for_bad_ones_are_not_looked_at(twin: Decoder, name: str) -> None:
    data = batch_of(good(3) + BAD_HEADERS[name][0], 4, last_delta=3)
    outcome = decode(twin, data, columns=USUAL)
    assert (outcome.error, outcome.offsets) == (None, [0, 1, 2, 3])


def test_a_bad_record_before_start_is_reported_at_start(twin: Decoder) -> None:
    data = batch_of(good(3) + varint(-2), 5, last_delta=9)
    outcome = decode(twin, data, start=8)
    assert problem(outcome).startswith("CorruptRecordError: orders-3: offset 8: record 3 of the batch at offset 0")
    assert outcome.rows == []


def test_a_count_above_the_records_is_refused(twin: Decoder) -> None:
    assert "offset 3: record 3 of the batch at offset 0 is cut short" in problem(
        decode(twin, batch_of(good(3), 2**31 - 1, last_delta=9))
    )


def test_bytes_after_the_last_record_are_refused(twin: Decoder) -> None:
    outcome = decode(twin, batch_of(good(3) + b"more", 3, last_delta=2))
    assert problem(outcome).endswith("offset 3: the batch at offset 0 has 4 bytes after the last of its 3 records")
    assert outcome.offsets == [0, 1, 2]


def test_a_negative_count_is_refused(twin: Decoder) -> None:
    assert "gives its number of records as -1" in problem(decode(twin, batch_of(b"", -1)))


def with_time_beyond(delta: int, codec: int) -> bytes:
    """Three good records, another at `delta` ms after them, and a good one, from offset 50 on."""
    payload = good(3) + sized(b"\0" + varint(delta) + varint(3) + b"\1\1\0") + record_v2(GOOD[0], 4, BASE)
    return batch_of(pack(codec, payload), 5, base_offset=50, last_delta=4, attributes=codec)


V1 = b"".join(message(1, 50 + i, b"k", b"v", timestamp_ms=2**62 if i == 3 else BASE) for i in range(5))
TIMES_BEYOND = {
    "beyond int64": (with_time_beyond(2**63 - 1, 0), BASE + 2**63 - 1),
    "beyond microseconds": (with_time_beyond(2**55, 0), BASE + 2**55),
    "far before": (with_time_beyond(-(2**63), 0), BASE - 2**63),
    "compressed": (with_time_beyond(2**55, LZ4), BASE + 2**55),
    "v1": (V1, 2**62),
    "compressed v1": (wrapper(1, 54, GZIP, V1), 2**62),
}


@pytest.mark.parametrize(("data", "ms"), TIMES_BEYOND.values(), ids=TIMES_BEYOND)
class TestATimestampBeyondMicroseconds:
    def test_a_timestamp_beyond_microseconds_is_an_error_that_names_its_record(
        self, twin: Decoder, data: bytes, ms: int
    ) -> None:
        outcome = decode(twin, data)
        assert problem(outcome).startswith("ReadError: orders-3: offset 53: its timestamp does not fit Spark's TIMES")
        assert f" {ms} ms. Set onCorruptRecord=skip to read such a timestamp as null, or leave" in problem(outcome)
        assert outcome.offsets == [50, 51, 52]

    def test_a_timestamp_beyond_microseconds_is_null_where_it_is_not_checked(
        self, twin: Decoder, data: bytes, ms: int
    ) -> None:
        for outcome in (
            decode(twin, data, check_timestamps=False),
            decode_in_steps(twin, data, target_bytes=1, check_timestamps=False),
        ):
            assert (outcome.error, outcome.offsets) == (None, [50, 51, 52, 53, 54])
            assert [row["timestamp"] for row in outcome.rows] == [*3 * [BASE * 1000], None, BASE * 1000]

    def test_a_timestamp_beyond_microseconds_stops_no_read_of_other_records_or_columns(
        self, twin: Decoder, data: bytes, ms: int
    ) -> None:
        assert decode(twin, data, columns=("offset", "value")).offsets == [50, 51, 52, 53, 54]
        assert decode(twin, data, end=53).offsets == [50, 51, 52]
        assert decode(twin, data, start=54).offsets == [54]


def test_a_log_append_time_beyond_microseconds_is_that_of_all_its_records(twin: Decoder) -> None:
    data = batch_of(good(2), 2, last_delta=1, attributes=8, max_timestamp=2**62)
    assert problem(decode(twin, data)).startswith("ReadError: orders-3: offset 0: its timestamp does not fit Spark's ")
    rows = decode(twin, data, check_timestamps=False).rows
    assert [(row["timestamp"], row["timestampType"]) for row in rows] == [(None, 1), (None, 1)]


def test_the_farthest_timestamps_that_fit_are_read(twin: Decoder) -> None:
    farthest = (2**63 - 1) // 1000
    data = batch([Rec(timestamp_ms=farthest), Rec(timestamp_ms=-farthest)])
    assert [row["timestamp"] for row in decode(twin, data).rows] == [farthest * 1000, -farthest * 1000]


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused(twin: Decoder, codec: int) -> None:
    data = batch_of(good(1), 1, attributes=codec)
    assert f"offset 0: the batch at offset 0 is compressed with codec {codec}" in problem(decode(twin, data))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_bytes_that_are_damaged_or_cut_off_are_refused(twin: Decoder, codec: str) -> None:
    packed = pack(CODECS[codec], good(100))
    for payload in (b"", b"\xff", packed[: len(packed) // 2], packed[:-1], b"garbage" * 9, packed + b"\0\1\2\3"):
        outcome = decode(twin, batch_of(payload, 100, last_delta=99, attributes=CODECS[codec]))
        assert f"the batch at offset 0 cannot be unpacked with {codec}" in problem(outcome), payload
        assert outcome.rows == []


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_decompression_bomb_is_refused_and_the_limit_named(twin: Decoder, codec: str) -> None:
    data = batch([Rec(value=bytes(3_000_000))], codec=CODECS[codec])
    outcome = decode(twin, data, unpacked_limit=1_000_000)
    assert f"offset 0: the batch at offset 0 unpacks with {codec} to more than 1000000 bytes" in problem(outcome)
    assert "kafka.fetch.max.bytes" in problem(outcome)
    assert decode(twin, data, unpacked_limit=3_100_000).error is None


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_may_unpack_to_exactly_the_limit(twin: Decoder, codec: str) -> None:
    payload = good(50)
    data = batch_of(pack(CODECS[codec], payload), 50, last_delta=49, attributes=CODECS[codec])
    assert decode(twin, data, unpacked_limit=len(payload)).offsets == list(range(50))
    assert "to more than" in problem(decode(twin, data, unpacked_limit=len(payload) - 1))


def test_a_snappy_block_that_lies_about_its_size_allocates_nothing(twin: Decoder) -> None:
    huge = b"\xff\xff\xff\xff\x07"  # 2 GiB
    for payload in (huge + b"x", xerial(good(1)) + struct.pack(">i", 6) + huge + b"x"):
        data = batch_of(payload, 1, attributes=SNAPPY)
        assert "to more than" in problem(decode(twin, data, unpacked_limit=1 << 20))


def test_a_builder_that_would_outgrow_arrow_says_so_and_keeps_what_it_has(
    twin: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = decode(twin, batch(GOOD)).nbytes
    monkeypatch.setattr(contract, "BUILDER_LIMIT", one + one // 3)
    b = builder(twin)
    with pytest.raises(
        ReadError, match="orders-3: offset 11: its rows would make an Arrow batch of more than"
    ) as raised:
        b.append("orders", 3, batch(GOOD) + batch(GOOD, base_offset=10), 0, 0, ALL)
    assert type(raised.value) is ReadError
    assert [row["offset"] for row in rows_of(b.finish())] == [0, 1, 2, 10]


@pytest.mark.parametrize("option", ["unpacked_limit", "target_bytes"])
def test_bounds_must_be_positive(twin: Decoder, option: str) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        builder(twin, **{option: 0})


def test_codecs_of_other_writers_are_read(twin: Decoder) -> None:
    import pyarrow as pa

    payload = good(50)
    half = len(payload) // 2
    for codec, packed in (
        (SNAPPY, pa.compress(payload, codec="snappy", asbytes=True)),  # without xerial's framing
        (SNAPPY, xerial(payload, block=100)),
        (GZIP, pack(GZIP, payload[:half]) + pack(GZIP, payload[half:])),
        (LZ4, pack(LZ4, payload[:half]) + pack(LZ4, payload[half:])),
        (ZSTD, pack(ZSTD, payload[:half]) + pack(ZSTD, payload[half:])),
    ):
        outcome = decode(twin, batch_of(packed, 50, last_delta=49, attributes=codec))
        assert (outcome.error, outcome.offsets) == (None, list(range(50)))
