"""Messages of magic 0 and 1, as logs from before Kafka 0.11 hold them."""

from __future__ import annotations

import struct

import pytest
from decoding import Outcome, decode
from record_bytes import CODECS, GZIP, LOG_APPEND, LZ4, ZSTD, Rec, batch, message, pack, with_right_crcs, wrapper

from spark_kafka_group.executor.decode import Decoder
from spark_kafka_group.values.schema import USUAL

T = 1_500_000_000_000
OLD_CODECS = ["gzip", "snappy", "lz4"]


def inner(magic: int, offsets: range, **more: int) -> bytes:
    return b"".join(message(magic, at, b"k%d" % i, b"v%d" % i, **more) for i, at in enumerate(offsets))


def seen(outcome: Outcome) -> list[tuple[int, bytes | None, bytes | None, int, int]]:
    assert outcome.error is None
    return [(r["offset"], r["key"], r["value"], r["timestamp"], r["timestampType"]) for r in outcome.rows]


def test_v0_has_no_timestamp(twin: Decoder) -> None:
    data = message(0, 5, b"k", b"v") + message(0, 6, None, None) + message(0, 9, b"", b"")
    assert seen(decode(twin, data)) == [
        (5, b"k", b"v", -1000, -1),
        (6, None, None, -1000, -1),
        (9, b"", b"", -1000, -1),
    ]
    assert twin.scan("orders", 3, data) == (len(data), 10)


def test_v1_has_the_producers_timestamp_or_the_brokers(twin: Decoder) -> None:
    data = message(1, 5, b"k", b"v", timestamp_ms=T) + message(1, 6, b"k", b"v", attributes=LOG_APPEND, timestamp_ms=7)
    assert seen(decode(twin, data)) == [(5, b"k", b"v", T * 1000, 0), (6, b"k", b"v", 7000, 1)]


def test_messages_of_the_old_formats_have_no_headers(twin: Decoder) -> None:
    assert decode(twin, message(1, 0, b"k", b"v")).rows[0]["headers"] is None
    assert "headers" not in decode(twin, message(1, 0, b"k", b"v"), columns=USUAL).rows[0]


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_inside_a_compressed_v0_message_offsets_are_absolute(twin: Decoder, codec: str) -> None:
    data = wrapper(0, 12, CODECS[codec], inner(0, range(10, 13)))
    rows = [(10 + i, b"k%d" % i, b"v%d" % i, -1000, -1) for i in range(3)]
    assert seen(decode(twin, data)) == rows
    assert seen(decode(twin, data, 11, 12)) == rows[1:2]


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_inside_a_compressed_v1_message_offsets_are_relative(twin: Decoder, codec: str) -> None:
    data = wrapper(1, 12, CODECS[codec], inner(1, range(3), timestamp_ms=T))
    rows = [(10 + i, b"k%d" % i, b"v%d" % i, T * 1000, 0) for i in range(3)]
    assert seen(decode(twin, data)) == rows
    assert seen(decode(twin, data, 11, 12)) == rows[1:2]


def test_gaps_that_compaction_left_inside_a_v1_message_are_kept(twin: Decoder) -> None:
    assert decode(twin, wrapper(1, 109, GZIP, inner(1, range(2, 10, 7)))).offsets == [102, 109]


def test_a_v1_message_whose_outer_offset_the_client_left_at_zero_counts_from_zero(twin: Decoder) -> None:
    assert decode(twin, wrapper(1, 0, GZIP, inner(1, range(3)))).offsets == [0, 1, 2]


def test_log_append_time_of_the_outer_message_goes_for_the_inner_ones(twin: Decoder) -> None:
    data = wrapper(1, 2, GZIP, inner(1, range(3), timestamp_ms=T), attributes=LOG_APPEND, timestamp_ms=T + 5)
    assert {(row[3], row[4]) for row in seen(decode(twin, data))} == {((T + 5) * 1000, 1)}


def test_formats_may_be_mixed_in_one_response(twin: Decoder) -> None:
    data = (
        message(0, 0, b"k", b"v")
        + wrapper(1, 3, LZ4, inner(1, range(3)))
        + batch([Rec(), Rec()], base_offset=4, codec=ZSTD)
        + message(1, 6, b"k", b"v")
    )
    assert decode(twin, data).offsets == list(range(7))
    assert twin.scan("orders", 3, data) == (len(data), 7)
    cut = decode(twin, data[:-1])
    assert (cut.error, cut.offsets, cut.stopped_at) == (
        None,
        list(range(6)),
        len(data) - len(message(1, 6, b"k", b"v")),
    )


def test_the_wrong_header_checksum_of_lz4_in_v0_is_overlooked(twin: Decoder) -> None:
    frame = bytearray(pack(LZ4, inner(0, range(10, 13))))
    checksum_at = 4 + 2 + 8 * (frame[4] >> 3 & 1)
    frame[checksum_at] ^= 0x55
    assert decode(twin, message(0, 12, None, bytes(frame), attributes=LZ4)).offsets == [10, 11, 12]
    v1 = decode(twin, message(1, 12, None, bytes(frame), attributes=LZ4))
    assert v1.error == "CorruptRecordError: orders-3: offset 0: the batch at offset 12 cannot be unpacked with lz4"


def test_with_every_header_of_lz4_the_checksum_is_mended() -> None:
    from spark_kafka_group.executor.decode.codecs import mend_lz4_header

    plain = bytes.fromhex("04224d18 6040 82")  # as Java writes it: 64 KB blocks, independent, no content size
    broken = plain[:-1] + b"\0"
    assert mend_lz4_header(memoryview(broken)) == plain
    for cut in range(len(plain)):
        assert mend_lz4_header(memoryview(plain[:cut])) == plain[:cut]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrong_crc_is_an_error_unless_crcs_are_not_checked(twin: Decoder, magic: int) -> None:
    data = message(magic, 4, b"k", b"v") + message(magic, 5, b"k", b"v", crc=1)
    outcome = decode(twin, data)
    assert outcome.offsets == [4]
    assert outcome.error is not None
    assert "orders-3: offset 5: the batch at offset 5 is damaged" in outcome.error
    assert decode(twin, data, check_crcs=False).offsets == [4, 5]
    assert decode(twin, data, end=5).error is None


def test_crcs_inside_a_compressed_message_are_checked_too(twin: Decoder) -> None:
    data = wrapper(1, 11, GZIP, message(1, 0, b"k", b"v") + message(1, 1, b"k", b"v", crc=1))
    outcome = decode(twin, data)
    assert outcome.offsets == [10]
    assert outcome.error is not None
    assert "orders-3: offset 11: the batch at offset 11 is damaged" in outcome.error


GOOD = message(1, 0, b"k", b"v")
LENGTHS_AT = 12 + 4 + 2 + 8


def with_bytes(data: bytes, at: int, new: bytes) -> bytes:
    return with_right_crcs(data[:at] + new + data[at + len(new) :])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (with_bytes(GOOD, LENGTHS_AT, struct.pack(">i", -2)), "has a negative length"),
        (with_bytes(GOOD, LENGTHS_AT, struct.pack(">i", 2**31 - 1)), "is cut short"),
        (with_bytes(GOOD, LENGTHS_AT, struct.pack(">i", 5)), "is cut short"),
        (with_bytes(GOOD, LENGTHS_AT + 5, struct.pack(">i", 0)), "has bytes left over"),
        (message(1, 0, None, None, attributes=GZIP), "is compressed and has no value"),
        (message(1, 0, None, b"", attributes=GZIP), "cannot be unpacked with gzip"),
        (wrapper(1, 0, GZIP, b""), "has no messages inside"),
        (wrapper(1, 0, ZSTD, GOOD), "is compressed with codec 4"),
        (message(1, 0, None, GOOD, attributes=7), "is compressed with codec 7"),
        (wrapper(1, 0, GZIP, GOOD[:-1]), "a message inside the one at offset 0 gives its length as"),
        (wrapper(1, 0, GZIP, GOOD + b"more"), "the messages inside the one at offset 0 are cut short"),
        (wrapper(1, 0, GZIP, batch([Rec()])), "a message inside the one at offset 0 has magic 2"),
        (wrapper(1, 1, GZIP, message(1, 9, b"k", b"v")), "has an impossible offset"),
        (wrapper(1, 1, GZIP, message(1, -9, b"k", b"v") + GOOD), "has an impossible offset"),
        (wrapper(0, 1, GZIP, message(0, -9, b"k", b"v")), "has an impossible offset"),
        (wrapper(1, 0, GZIP, wrapper(1, 0, GZIP, GOOD)), "is compressed inside a compressed one"),
        (message(0, 2**63 - 1, b"k", b"v"), "a message gives its offset as 9223372036854775807"),
    ],
)
def test_impossible_messages_are_refused(twin: Decoder, data: bytes, text: str) -> None:
    outcome = decode(twin, data)
    assert outcome.error is not None
    assert outcome.error.startswith("CorruptRecordError: orders-3: offset ")
    assert text in outcome.error
    assert outcome.rows == []


def test_a_bomb_in_a_compressed_message_is_refused(twin: Decoder) -> None:
    data = wrapper(1, 0, GZIP, message(1, 0, None, bytes(2_000_000)))
    outcome = decode(twin, data, unpacked_limit=1_000_000)
    assert outcome.error is not None
    assert "unpacks with gzip to more than 1000000 bytes. kafka.fetch.max.bytes" in outcome.error


def test_a_compressed_message_that_is_bad_as_a_whole_is_reported_where_reading_stopped(twin: Decoder) -> None:
    outcome = decode(twin, message(1, 4, b"k", b"v") + message(1, 99, None, b"not gzip", attributes=GZIP))
    assert (
        outcome.error == "CorruptRecordError: orders-3: offset 5: the batch at offset 99 cannot be unpacked with gzip"
    )
