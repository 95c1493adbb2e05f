"""Both twins hide records of aborted transactions by the fetch response, without a broker."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from decoding import ALL, Outcome, builder, decode, decode_in_steps, rows_of
from hypothesis import given
from hypothesis import strategies as st
from record_bytes import CODECS, CONTROL, TRANSACTIONAL, Rec, batch, batch_of, marker, record_v2, with_right_crcs

from spark_kafka_group.executor.decode import Decoder, load
from spark_kafka_group.executor.decode.contract import AbortedTransactions

ABORT, COMMIT = 0, 1


@dataclass
class Log:
    """A partition's log as a broker writes it, and the broker's state of its transactions."""

    data: list[tuple[int, bytes]] = field(default_factory=list)  # the next offset, and the batch before it
    end: int = 0
    shown: list[int] = field(default_factory=list)  # offsets that a read_committed consumer gets
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer, first offset, that of the marker
    _open: dict[int, list[int]] = field(default_factory=dict)

    def _add(self, data: bytes, count: int) -> Log:
        self.end += count
        self.data.append((self.end, data))
        return self

    def write(self, producer_id: int, count: int = 2, codec: int = 0, transactional: bool = True) -> Log:
        offsets = range(self.end, self.end + count)
        attributes = TRANSACTIONAL if transactional else 0
        data = batch(
            [Rec(value=b"v%d" % offset) for offset in offsets],
            base_offset=self.end,
            codec=codec,
            attributes=attributes,
            producer_id=producer_id,
        )
        if transactional:
            self._open.setdefault(producer_id, []).extend(offsets)
        else:
            self.shown += offsets
        return self._add(data, count)

    def finish(self, producer_id: int, kind: int) -> Log:
        written = self._open.pop(producer_id, [])
        if kind == COMMIT:
            self.shown += written
        elif written:
            self.aborted.append((producer_id, written[0], self.end))
        return self._add(marker(kind, producer_id=producer_id, base_offset=self.end), 1)

    def response(self, start: int, count: int = 1 << 30) -> tuple[bytes, list[tuple[int, int]], int]:
        """At most `count` batches from the one that holds `start` on, aborted transactions that overlap them, and
        the next offset."""
        sent = [(end, data) for end, data in self.data if end > start][:count]
        upper = sent[-1][0]
        overlapping = [(p, first) for p, first, last in self.aborted if last >= start and first < upper]
        return b"".join(data for _, data in sent), overlapping, upper

    def read(self, twin: Decoder, start: int = 0, end: int = ALL, count: int = 1 << 30) -> list[int]:
        """Offsets of the rows of a reader that fetches so many batches at once."""
        found: list[int] = []
        while start < min(end, self.end):
            data, aborted, next_offset = self.response(start, count)
            outcome = decode(twin, data, start, end, aborted=aborted)
            assert outcome.error is None
            found += outcome.offsets
            start = next_offset
        return found

    def expected(self, start: int = 0, end: int = ALL) -> list[int]:
        return sorted(offset for offset in self.shown if start <= offset < end)


def test_committed_records_are_shown_aborted_ones_and_markers_are_not(twin: Decoder) -> None:
    log = Log().write(7).finish(7, COMMIT).write(7).finish(7, ABORT).write(7).finish(7, COMMIT)
    assert log.read(twin) == log.expected() == [0, 1, 6, 7]
    assert decode(twin, log.response(0)[0]).offsets == [0, 1, 3, 4, 6, 7]


@pytest.mark.parametrize("codec", CODECS)
def test_interleaved_producers_are_kept_apart_with_every_codec(twin: Decoder, codec: str) -> None:
    log, packed = Log(), CODECS[codec]
    log.write(1, codec=packed).write(2, codec=packed).write(3, codec=packed).write(-1, transactional=False)
    log.write(1, codec=packed).finish(2, ABORT).write(2, codec=packed).finish(1, ABORT).finish(3, COMMIT)
    log.write(1, codec=packed).finish(2, COMMIT).finish(1, COMMIT)
    assert log.read(twin) == log.expected() == [4, 5, 6, 7, 11, 12, 15, 16]


def test_a_producer_that_is_idempotent_only_is_never_hidden(twin: Decoder) -> None:
    log = Log().write(5).write(5, transactional=False).write(-1, transactional=False).finish(5, ABORT)
    assert log.read(twin) == [2, 3, 4, 5]


def test_markers_may_be_first_last_or_all_there_is(twin: Decoder) -> None:
    log = Log().finish(1, ABORT).finish(2, COMMIT).write(1).finish(1, COMMIT).finish(2, ABORT).finish(3, ABORT)
    assert log.read(twin) == [2, 3]
    assert log.read(twin, 1, 2) == log.read(twin, 4, 7) == log.read(twin, 6) == []
    assert decode(twin, log.response(4)[0], 4, 7, aborted=[(1, 0)]).stopped_at == len(log.response(4)[0])


@pytest.mark.parametrize("per_fetch", [1, 2, 3, 100])
def test_a_range_may_begin_and_end_within_an_aborted_transaction(twin: Decoder, per_fetch: int) -> None:
    log = Log().write(1, 4).write(2, 3).write(1, 4).finish(1, ABORT).write(1, 2).finish(2, ABORT).finish(1, COMMIT)
    for start in range(log.end):
        for end in range(start, log.end + 1):
            assert log.read(twin, start, end, per_fetch) == log.expected(start, end)


def test_what_is_aborted_is_kept_from_call_to_call_over_one_response(twin: Decoder) -> None:
    log = Log().write(1, 10).write(2, 10).finish(1, ABORT).write(1, 10).write(2, 10).finish(2, ABORT).finish(1, COMMIT)
    data, aborted, _ = log.response(0)
    b, hidden, position, offsets = builder(twin, target_bytes=1), AbortedTransactions(aborted), 0, []
    while position < len(data):
        position = b.append("orders", 3, data, position, 0, ALL, hidden)
        offsets += [row["offset"] for row in rows_of(b.finish())]
    assert offsets == log.expected() == list(range(21, 31))


def test_transactions_are_taken_in_the_order_of_their_offsets_whatever_the_order_of_the_response(twin: Decoder) -> None:
    log = Log().write(1).write(2).finish(2, ABORT).finish(1, ABORT).write(2).finish(2, ABORT).write(1).finish(1, COMMIT)
    data, aborted, _ = log.response(0)
    for message in (aborted, aborted[::-1], aborted * 2):
        assert decode(twin, data, aborted=message).offsets == [9, 10]


def test_records_of_an_aborted_transaction_are_not_even_unpacked(twin: Decoder) -> None:
    garbage = batch_of(b"not lz4", 3, attributes=TRANSACTIONAL | CODECS["lz4"], last_delta=2, producer_id=4)
    assert decode(twin, garbage, aborted=[(4, 0)]).offsets == []
    assert "lz4" in str(decode(twin, garbage, aborted=[(5, 0)]).error)
    damaged = bytearray(garbage)
    damaged[-1] ^= 1  # but its checksum is looked at
    assert "is damaged" in str(decode(twin, bytes(damaged), aborted=[(4, 0)]).error)


# What no broker should say


def test_transactions_that_are_not_in_the_records_hide_nothing(twin: Decoder) -> None:
    log = Log().write(1).finish(1, COMMIT).write(-1, transactional=False)
    data, _, _ = log.response(0)
    for lie in ([(2, 0)], [(1, 3)], [(1, 2**63 - 1)], [(-1, 0), (-1, 3)], [(2**63 - 1, -(2**63))]):
        assert decode(twin, data, aborted=lie).offsets == [0, 1, 3, 4]
    # As in Kafka's consumer a transaction that is said to be aborted is hidden although its marker says COMMIT.
    assert decode(twin, data, aborted=[(1, -5)]).offsets == [3, 4]


def odd(key: bytes | None) -> bytes:
    return Log().write(1).data[0][1] + marker(0, producer_id=1, base_offset=2, key=key)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (None, "the control batch at offset 2 must have a key of at least 4 bytes, and has none"),
        (b"\0\0\0", "the control batch at offset 2 must have a key of at least 4 bytes, and has one of 3 bytes"),
        (b"\xff\xff\0\0", "the control batch at offset 2 has a key of version -1, which Kafka does not have"),
    ],
)
def test_a_marker_that_is_none_is_an_error_that_says_where(twin: Decoder, key: bytes | None, text: str) -> None:
    outcome = decode(twin, odd(key), aborted=[(9, 0)])
    assert outcome.error == f"CorruptRecordError: orders-3: offset 2: {text}"
    assert outcome.offsets == [0, 1]
    # Where nothing can be hidden, it does not matter what it is.
    assert decode(twin, odd(key)).error is None


@pytest.mark.parametrize("key", [struct.pack(">hh", 0, 2), struct.pack(">hh", 0, -1), struct.pack(">hh", 3, 1)])
def test_control_records_of_other_types_end_nothing(twin: Decoder, key: bytes) -> None:
    log = Log().write(1)
    log._add(marker(0, producer_id=1, base_offset=2, key=key), 1).write(1).finish(1, ABORT)
    assert decode(twin, log.response(0)[0], aborted=[(1, 0)]).offsets == []


def test_a_marker_of_a_later_version_is_read_as_the_first(twin: Decoder) -> None:
    key = struct.pack(">hh", 7, ABORT) + b"more"
    data = odd(key) + Log(end=3).write(1).data[0][1]
    assert decode(twin, data, aborted=[(1, 0)]).offsets == [3, 4]


def test_a_control_batch_without_records_ends_nothing_and_one_with_a_bad_record_is_an_error(twin: Decoder) -> None:
    first = Log().write(1).data[0][1]
    both = TRANSACTIONAL | CONTROL
    empty = batch([], base_offset=2, attributes=both, producer_id=1)
    assert decode(twin, first + empty, aborted=[(1, 0)]).offsets == []
    short = record_v2(Rec(b"\0\0\0\0", b""), 0, 0)[:-3]
    bad = batch_of(short, 1, base_offset=2, attributes=both, producer_id=1)
    assert "offset 2: record 0 of the batch at offset 2 is cut short" in str(decode(twin, bad, 2, aborted=[]).error)
    negative = batch_of(b"", -1, base_offset=2, attributes=both, producer_id=1)
    assert "gives its number of records as -1" in str(decode(twin, negative, 2, aborted=[]).error)


def test_what_java_wrote_and_a_broker_kept(twin: Decoder) -> None:
    data = (Path(__file__).parent / "captured" / "transactions.bin").read_bytes()
    (producer_id,) = struct.unpack_from(">q", data, 43)
    assert decode(twin, data, topic="transactions", aborted=[(producer_id, 11)]).offsets == [*range(10), *range(22, 32)]


# Both twins, against the log's own bookkeeping

PYTHON, C = load("python"), load("c")


def both(data: bytes, start: int, aborted: Iterable[tuple[int, int]]) -> Outcome:
    result = list(aborted)
    outcome = decode(PYTHON, data, start, aborted=result)
    assert decode(C, data, start, aborted=result) == outcome
    return outcome


steps = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "abort", "commit", "idempotent", "plain"]),
        st.integers(1, 4),
        st.integers(1, 3),
        st.sampled_from(list(CODECS.values())),
    ),
    min_size=1,
    max_size=40,
)


def played(drawn: list[tuple[str, int, int, int]]) -> Log:
    """A log of those steps in which every transaction has ended."""
    log = Log()
    for what, producer_id, count, codec in drawn:
        if what == "write":
            log.write(producer_id, count, codec)
        elif what in ("idempotent", "plain"):
            log.write(producer_id + 10 if what == "idempotent" else -1, count, codec, transactional=False)
        else:
            log.finish(producer_id, ABORT if what == "abort" else COMMIT)
    for producer_id in range(1, 5):
        log.finish(producer_id, ABORT if producer_id % 2 else COMMIT)
    return log


@given(steps, st.integers(0, 60), st.integers(0, 60), st.integers(1, 12))
def test_any_interleaving_fetched_in_any_parts_shows_what_was_committed(
    drawn: list[tuple[str, int, int, int]], start: int, size: int, per_fetch: int
) -> None:
    log = played(drawn)
    for twin in (PYTHON, C):
        assert log.read(twin, start, start + size, per_fetch) == log.expected(start, start + size)
        # Parts of a range that several tasks read for themselves are together what one task reads.
        middle = start + size // 2
        parts = log.read(twin, start, middle, per_fetch) + log.read(twin, middle, start + size, per_fetch)
        assert parts == log.expected(start, start + size)


offset = st.one_of(st.integers(-2, 60), st.integers(-(2**63), 2**63 - 1))
lies = st.lists(st.tuples(st.one_of(st.integers(-1, 5), st.integers(-(2**63), 2**63 - 1)), offset), max_size=6)


@given(
    steps,
    lies,
    st.integers(0, 30),
    st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=4),
    st.sampled_from([1, 100, 300]),
    st.sampled_from([PYTHON, C]),
)
def test_lies_and_mutated_bytes_give_the_same_rows_and_the_same_error(
    drawn: list[tuple[str, int, int, int]],
    message: list[tuple[int, int]],
    start: int,
    flips: list[tuple[int, int]],
    target: int,
    twin: Decoder,
) -> None:
    log = played(drawn)
    data = bytearray(log.response(0)[0])
    for at, byte in flips:
        data[at % len(data)] = byte
    for tried in (bytes(data), with_right_crcs(bytes(data))):
        whole = both(tried, start, message)
        assert decode_in_steps(twin, tried, target, start, aborted=message) == whole
