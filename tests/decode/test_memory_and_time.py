"""Bytes that are small on the wire, and large or slow to read: both have bounds, and rows leave on the way."""

from __future__ import annotations

import gc
import os
import struct
import subprocess
import sys
import time
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from decoding import ALL, Outcome, builder, decode, decode_in_steps
from record_bytes import (
    CODECS,
    GZIP,
    LOG_APPEND,
    LZ4,
    SNAPPY,
    TRANSACTIONAL,
    ZSTD,
    Rec,
    batch,
    batch_of,
    marker,
    message,
    pack,
    sized,
    varint,
    wrapper,
)
from served import TP, Served, read_all
from support.damage import DAMAGES, damaged

from spark_kafka_group.errors import CorruptRecordError
from spark_kafka_group.executor.decode import Decoder, codecs, load, problems
from spark_kafka_group.executor.decode.contract import HEADER_COST
from spark_kafka_group.executor.reading import fetcher
from spark_kafka_group.executor.reading import read as reading
from spark_kafka_group.executor.reading.damage import search
from spark_kafka_group.options import Options
from spark_kafka_group.values.schema import EVERY, USUAL

MIB = 1 << 20
LEAST = b"\0\0\0\1\1\0"
"""A record without key, value and headers, after its length."""


def processor_time(work: Callable[[], object]) -> float:
    """Seconds, the least of three."""

    def once() -> float:
        began = time.thread_time()
        work()
        return time.thread_time() - began

    return min(once() for _ in range(3))


def peak_of(work: Callable[[], object]) -> int:
    """Bytes of Python's and of Arrow's memory that it took at most, each for itself."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# Unpacking

EMPTY_LZ4 = bytes(pa.compress(b"", codec="lz4", asbytes=True))
EMPTY_ZSTD = bytes.fromhex("28b52ffd2000010000")
SKIPPABLE = struct.pack("<II", 0x184D2A50, 0)


def block(data: bytes) -> bytes:
    packed = bytes(pa.compress(data, codec="snappy", asbytes=True)) if data else b"\0"
    return struct.pack(">i", len(packed)) + packed


XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
SMALL_PIECES = {
    "gzip members of a byte": (GZIP, b"", pack(GZIP, b"x"), 1),
    "gzip members of nothing": (GZIP, b"", pack(GZIP, b""), 0),
    "snappy blocks of a byte": (SNAPPY, XERIAL, block(b"x"), 1),
    "snappy blocks of nothing": (SNAPPY, XERIAL, block(b""), 0),
    "snappy blocks of nothing, written longer": (SNAPPY, XERIAL, struct.pack(">i", 3) + b"\x80\x80\0", 0),
    "lz4 frames of a byte": (LZ4, b"", pack(LZ4, b"x"), 1),
    "lz4 frames of nothing": (LZ4, b"", EMPTY_LZ4, 0),
    "lz4 frames to skip": (LZ4, EMPTY_LZ4, SKIPPABLE, 0),
    "zstd frames of a byte": (ZSTD, b"", pack(ZSTD, b"x"), 1),
    "zstd frames of nothing": (ZSTD, b"", EMPTY_ZSTD, 0),
    "zstd frames to skip": (ZSTD, EMPTY_ZSTD, SKIPPABLE, 0),
}


@pytest.mark.parametrize("name", SMALL_PIECES)
def test_fifty_times_as_many_small_pieces_take_some_fifty_times_as_long(name: str) -> None:
    codec, head, piece, size = SMALL_PIECES[name]

    def unpack(count: int) -> None:
        assert len(codecs.unpack(codec, memoryview(head + count * piece), MIB)) == count * size

    assert processor_time(lambda: unpack(50_000)) < 300 * processor_time(lambda: unpack(1_000))


@pytest.mark.parametrize("name", SMALL_PIECES)
def test_small_pieces_take_no_more_memory_than_their_bytes(name: str) -> None:
    codec, head, piece, size = SMALL_PIECES[name]
    packed = memoryview(head + 20_000 * piece)
    gc.collect()  # of tests before this one
    before = pa.total_allocated_bytes()
    assert peak_of(lambda: codecs.unpack(codec, packed, MIB)) < 10 * 20_000 * size + MIB // 2
    assert pa.total_allocated_bytes() == before


def test_pieces_of_any_size_come_out_in_order() -> None:
    parts = [bytes([at % 251]) * (at * 37 % 1_000 * (at % 7 > 0)) for at in range(1_000)]
    whole = b"".join(parts)
    for codec, packed in (
        (GZIP, b"".join(pack(GZIP, part) for part in parts)),
        (SNAPPY, XERIAL + b"".join(map(block, parts))),
        (LZ4, b"".join(pack(LZ4, part) for part in parts)),
        (ZSTD, b"".join(pack(ZSTD, part) for part in parts)),
    ):
        assert bytes(codecs.unpack(codec, memoryview(packed), len(whole))) == whole
        with pytest.raises(codecs.MalformedError, match=f"to more than {len(whole) - 1} bytes"):
            codecs.unpack(codec, memoryview(packed), len(whole) - 1)
        with pytest.raises(codecs.MalformedError, match="cannot be unpacked"):
            codecs.unpack(codec, memoryview(packed[:-1]), len(whole))


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 1023, 1536, 70_000])
def test_a_later_gzip_member_may_end_anywhere(size: int) -> None:
    stored = zlib.compressobj(0, wbits=31)
    member = stored.compress(bytes(size)) + stored.flush()
    packed = pack(GZIP, b"first") + 3 * member
    assert bytes(codecs.unpack(GZIP, memoryview(packed), MIB)) == b"first" + bytes(3 * size)
    for cut in (1, 8, 9, len(member) - 1):
        with pytest.raises(codecs.MalformedError, match="cannot be unpacked"):
            codecs.unpack(GZIP, memoryview(packed[:-cut]), MIB)
    with pytest.raises(codecs.MalformedError, match="cannot be unpacked"):
        codecs.unpack(GZIP, memoryview(packed + b"rest"), MIB)


# Rows


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_of_many_rows_becomes_several_arrow_batches(twin: Decoder, codec: str) -> None:
    rows, target = 20_000, 100_000
    data = batch_of(pack(CODECS[codec], rows * sized(LEAST)), rows, attributes=CODECS[codec])
    b = builder(twin, columns=EVERY, target_bytes=target)
    position, seen, made = 0, 0, 0
    while position < len(data):
        position = b.append("orders", 3, data, position, 0, ALL)
        assert b.nbytes < target + 100
        arrow = b.finish()
        assert arrow.get_total_buffer_size() < 4 * target + 4 * (1 << 16)  # which columns of bytes begin with
        seen, made = seen + arrow.num_rows, made + 1
    assert (seen, made) == (rows, -(-rows * 46 // target))


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_that_wraps_many_becomes_several_arrow_batches(twin: Decoder, magic: int) -> None:
    rows, target = 5_000, 50_000
    inner = b"".join(message(magic, at, None, None) for at in range(rows))
    data = wrapper(magic, rows - 1, GZIP, inner)
    b = builder(twin, target_bytes=target)
    position, seen = 0, 0

    def read() -> None:
        nonlocal position, seen
        position = b.append("orders", 3, data, position, 0, ALL)
        assert b.nbytes < target + 100
        seen += b.finish().num_rows

    read()  # imports, and what is kept
    assert b.halfway
    assert peak_of(read) < MIB  # not a multiple of the messages
    while position < len(data):
        read()
    assert seen == rows


def outcomes_agree(data: bytes, twin: Decoder, **options: object) -> Outcome:
    """Split after each row, or after some, it is as read at once."""
    whole = decode(twin, data, **options)  # type: ignore[arg-type]
    for target in (1, 47, 100, 250, 1000):
        assert decode_in_steps(twin, data, target, **options) == whole  # type: ignore[arg-type]
    return whole


def mixed() -> bytes:
    """Every format, with gaps, a control batch and an empty batch in between; 40 offsets."""
    five = [Rec(b"k", b"%d" % at, [(b"h", b"v")] * at, delta=2 * at) for at in range(5)]
    inner = b"".join(message(1, at, b"k", b"v%d" % at) for at in range(4))
    absolute = b"".join(message(0, 30 + at, None, b"v") for at in (0, 2, 3))
    return b"".join(
        [
            batch(five, codec=ZSTD, last_delta=9),
            batch([Rec()] * 3, base_offset=10, attributes=LOG_APPEND),
            marker(1, producer_id=5, base_offset=13),
            batch([], base_offset=14, last_delta=4),
            wrapper(1, 22, SNAPPY, inner),
            message(1, 23, b"k", b"plain"),
            batch([Rec(value=b"x" * 300), Rec()], base_offset=24, last_delta=5),
            wrapper(0, 33, GZIP, absolute),
            message(0, 34, None, b"plain"),
            batch([Rec()] * 5, base_offset=35, codec=LZ4),
        ]
    )


def test_split_after_any_row_nothing_is_lost_or_doubled(twin: Decoder) -> None:
    data = mixed()
    whole = outcomes_agree(data, twin)
    assert whole.error is None
    assert whole.offsets == [0, 2, 4, 6, 8, 10, 11, 12, 19, 20, 21, 22, 23, 24, 25, 30, 32, 33, 34, *range(35, 40)]
    for start, end in ((3, 12), (11, 21), (20, 21), (25, 33), (31, 39), (8, 8)):
        part = outcomes_agree(data, twin, start=start, end=end)
        assert part.offsets == [offset for offset in whole.offsets if start <= offset < end]


def test_split_after_any_row_aborted_transactions_stay_hidden(twin: Decoder) -> None:
    def written(at: int, producer_id: int) -> bytes:
        return batch([Rec()] * 3, base_offset=at, attributes=TRANSACTIONAL, producer_id=producer_id, codec=ZSTD)

    data = b"".join(
        [
            written(0, 7), written(3, 8), marker(0, producer_id=7, base_offset=6), written(7, 7), written(10, 8),
            marker(1, producer_id=7, base_offset=13), marker(0, producer_id=8, base_offset=14), written(15, 8),
        ]
    )  # fmt: skip
    assert outcomes_agree(data, twin, aborted=[(7, 0), (8, 10)]).offsets == [3, 4, 5, 7, 8, 9, 15, 16, 17]


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_split_after_any_row_damage_is_said_to_be_at_the_same_offset(twin: Decoder, codec: str) -> None:
    whole = [Rec(value=b"%d" % at) for at in range(4)]
    good = batch(whole, codec=CODECS[codec])
    bad = batch_of(
        pack(CODECS[codec], 3 * sized(LEAST) + varint(-2)), 5, base_offset=4, last_delta=4, attributes=CODECS[codec]
    )
    left_over = batch_of(pack(CODECS[codec], 3 * sized(LEAST) + b"more"), 3, base_offset=4, attributes=CODECS[codec])
    for data in (good + bad, good + left_over, good + batch(whole, base_offset=4, crc=1)):
        assert outcomes_agree(data, twin).error is not None


@pytest.mark.parametrize("magic", [0, 1])
def test_split_after_any_row_damage_in_old_formats_is_said_to_be_at_the_same_offset(twin: Decoder, magic: int) -> None:
    def inside(first: int, crc: int | None = None) -> bytes:
        offsets = [first + at if magic == 0 else at for at in range(4)]
        return wrapper(
            magic,
            first + 3,
            GZIP,
            b"".join(message(magic, at, b"k", b"v", crc=crc if at % 4 == 2 else None) for at in offsets),
        )

    assert "offset 6: " in str(outcomes_agree(inside(0) + inside(4, crc=1), twin).error)
    # Where a compressed message begins is not known; reading has come to where the one before it ends.
    not_packed = message(magic, 9, None, b"not gzip", attributes=GZIP)
    assert "offset 4: " in str(outcomes_agree(inside(0) + not_packed, twin).error)
    assert "offset 5: " in str(outcomes_agree(inside(0) + message(magic, 4, b"k", b"v") + not_packed, twin).error)


# Headers


def with_headers(headers: bytes, count: int) -> bytes:
    return batch_of(sized(LEAST[:-1] + varint(count) + headers), 1)


def test_the_headers_of_a_record_have_a_bound(twin: Decoder) -> None:
    least = varint(0) * 2
    allowed = 1_000
    data = with_headers(least * allowed, allowed)
    assert len(decode(twin, data, unpacked_limit=HEADER_COST * allowed).rows[0]["headers"]) == allowed
    refused = decode(twin, data, unpacked_limit=HEADER_COST * allowed - 1)
    assert refused.rows == []
    assert refused.error == (
        "CorruptRecordError: orders-3: offset 0: record 0 of the batch at offset 0 has headers of more than 7999 bytes"
        ", where each counts as 8 bytes beside its key and value. kafka.fetch.max.bytes bounds that: raise it if the "
        "record is genuine"
    )
    assert decode(twin, data, unpacked_limit=10, columns=USUAL).error is None


@pytest.mark.parametrize("count", [2_000_000, 2**31 - 1])
def test_headers_beyond_the_bound_are_refused_before_they_take_memory(twin: Decoder, count: int) -> None:
    data = with_headers(varint(0) * 2 * 100_000, count)
    before = pa.total_allocated_bytes()
    with pytest.raises(CorruptRecordError, match="has headers of more than 80000 bytes"):
        builder(twin, unpacked_limit=80_000).append("orders", 3, data, 0, 0, ALL)
    assert pa.total_allocated_bytes() == before
    assert peak_of(lambda: decode(twin, data, unpacked_limit=80_000)) < 4 * MIB


def test_a_header_key_that_grows_as_it_becomes_utf8_counts_as_what_it_becomes(twin: Decoder) -> None:
    for size in (100, 3 * problems.LARGE):
        data = with_headers(sized(b"\xff" * size) + varint(-1), 1)
        assert "has headers of more than" in str(decode(twin, data, unpacked_limit=3 * size + 7).error)
        (header,) = decode(twin, data, unpacked_limit=3 * size + 8).rows[0]["headers"]
        assert header == {"key": "\ufffd" * size, "value": None}


def test_a_large_key_is_converted_in_pieces_as_at_once() -> None:
    for at in range(8):
        for odd in ("ü€😀".encode(), b"\xff\xc3\xe2\x82", b"\xf0\x9f\x98"):
            key = b"k" * (problems.LARGE - at) + odd * 3 + b"k" * problems.LARGE + odd
            assert problems.utf8(key, 10 * len(key)) == key.decode("utf-8", "replace").encode()
    assert problems.LARGE < len(problems.utf8(b"\xff" * 50 * problems.LARGE, problems.LARGE)) <= 4 * problems.LARGE


# Tasks

LEFT_OVER = [batch_of(sized(LEAST) + b"more", 1, base_offset=at) for at in range(50)]
"""Record batches of which a row is read before the damage."""


@pytest.mark.parametrize("decoder", ["python", "c"])
def test_rows_before_one_damage_after_the_other_do_not_pile_up(decoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ARROW_BATCH_BYTES", 400)
    log = b"".join(LEFT_OVER) + batch([Rec()], base_offset=50)
    found = read_all(Served(log, 51), decoder)
    assert found.rows == list(range(51))
    assert max(found.batches) == 9


@pytest.mark.parametrize("decoder", ["python", "c"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_with_a_row_in_each_arrow_batch_the_same_is_read_and_left_out(
    damage: str, decoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = b"".join(batch([Rec(value=b"%04d" % at)] * 3, base_offset=at) for at in range(0, 36, 3))
    index = {at + 2: len(log) // 12 * (at // 3) for at in range(0, 36, 3)}
    served = Served(damaged(log, 5, damage), 36, index)
    for policy in ("skip", "fail"):
        monkeypatch.setattr(fetcher, "SILENT_AFTER_S", 0.0)
        whole = read_all(served, decoder, 1, 34, onCorruptRecord=policy)
        with monkeypatch.context() as patch:
            patch.setattr(reading, "ARROW_BATCH_BYTES", 1)
            split = read_all(served, decoder, 1, 34, onCorruptRecord=policy)
        assert set(split.batches) == {1}
        assert (split.rows, split.left_out, split.error) == (whole.rows, whole.left_out, whole.error)


@pytest.mark.parametrize("decoder", ["python", "c"])
def test_a_record_with_too_many_headers_is_left_out_where_these_are_wanted(
    decoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LARGEST_BATCH", 10_000)
    many = batch([Rec(headers=[(b"", b"")] * (1_500 if at == 1 else 1)) for at in range(3)])
    served = Served(many + batch([Rec()], base_offset=3), 4)
    small = {"kafka.fetch.max.bytes": 1024}
    assert read_all(served, decoder, **small).rows == [0, 1, 2, 3]
    found = read_all(served, decoder, includeHeaders="true", **small)
    assert (found.rows, found.left_out, found.error) == ([0, 3], [(1, 2)], None)
    assert "record 1 of the batch at offset 0 has headers of more than 10000 bytes" in found.warnings[0]
    failed = read_all(served, decoder, includeHeaders="true", onCorruptRecord="fail", **small)
    assert failed.rows == [0]
    assert "offset 1: record 1 of the batch at offset 0 has headers of more than" in str(failed.error)


@pytest.mark.parametrize("decoder", ["python", "c"])
def test_a_batch_of_many_rows_is_undamaged_whatever_they_come_to(decoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "ROWS_AT_A_TIME_BYTES", 100)
    options = Options.parse({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": TP.topic})
    looking = search.Search(options, load(decoder), Served(b"", 0).connect, {})  # type: ignore[arg-type]
    good = batch([Rec()] * 20, codec=ZSTD)
    left_over = batch_of(20 * sized(LEAST) + b"more", 20)
    assert [looking.intact(TP, memoryview(data)) for data in (good, left_over)] == [True, False]


# Want of memory

STARVED = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from decoding import ALL, builder
from record_bytes import Rec, batch
from spark_kafka_group.executor.decode import load
from spark_kafka_group.values.schema import EVERY, USUAL

twin = load(sys.argv[2])
small = batch([Rec(b"key", b"value")])
large = bytearray(batch([Rec(b"key", bytes(100 << 20))], base_offset=1))
b = builder(twin, check_crcs=False, target_bytes=1 << 30)
b.append("orders", 3, small, 0, 0, ALL)
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (32 << 20), resource.RLIM_INFINITY))
try:
    b.append("orders", 3, large, 0, 0, ALL)
except MemoryError:
    pass
else:
    sys.exit("there was room")
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
for use in (lambda: b.append("orders", 3, large, 0, 0, ALL), b.finish):
    try:
        use()
    except RuntimeError as error:
        assert "make another one" in str(error), error
    else:
        sys.exit("the builder was used again")
another = builder(twin)
another.append("orders", 3, small, 0, 0, ALL)
assert another.finish().num_rows == 1
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="says how much address space a process has")
def test_a_builder_that_ran_out_of_memory_is_not_used_again(twin: Decoder) -> None:
    name = "python" if twin is load("python") else "c"
    done = subprocess.run(
        [sys.executable, "-c", STARVED, str(Path(__file__).parent), name],
        capture_output=True, text=True, check=False, env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
