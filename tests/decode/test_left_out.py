"""Only unreadable record batches are left out: every kind of damage, both twins, on a log in memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from kafka.errors import UnknownError
from record_bytes import CODECS, TRANSACTIONAL, Rec, batch, marker, message, with_right_crcs
from served import DAMAGED, TP, Connection, Result, Served, read_all
from support.damage import DAMAGES, PARTLY_READ, batches, damaged

from spark_kafka_group.errors import BrokerTimeoutError
from spark_kafka_group.executor import decode
from spark_kafka_group.executor.reading import fetcher
from spark_kafka_group.executor.reading import read as reading
from spark_kafka_group.executor.reading.damage.search import Found, first_found
from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition
from spark_kafka_group.wire import FetchedPartition, FetchError
from spark_kafka_group.wire.outage import Client, TaskOutage

TWINS = ["python", "c"]
SMALL = {"kafka.max.partition.fetch.bytes": 1}
"""One record batch a fetch."""
IMPATIENT = {"kafkaConsumer.pollTimeoutMs": 5}
"""For a task that waits in vain, or may do so. A busy machine takes longer than this over one that need not wait."""
BEYOND = {"length beyond the log", "length beyond all batches"}
SILENT_AT_THE_END = BEYOND | {
    "last offset before the first", "length too large", "length of two batches", "magic 1", "magic -1",
}  # fmt: skip
"""Damages to the log's last record batch after which its broker sends neither records nor an error to the log's end."""


@pytest.fixture(autouse=True, scope="module")
def impatient() -> Iterator[None]:
    """Tasks look for damage at once where a broker is silent."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetcher, "SILENT_AFTER_S", 0.0)
        yield


def written(count: int = 6, size: int = 3, codec: str = "none") -> bytes:
    """A log of record batches with so many records each, all of one size."""
    return b"".join(
        batch([Rec(value=b"%04d" % (at + i)) for i in range(size)], base_offset=at, codec=CODECS[codec])
        for at in range(0, count * size, size)
    )


def indexed(log: bytes, every: int = 1) -> dict[int, int]:
    """As a broker does, an entry for the last offset of record batches."""
    return {found.next_offset - 1: found.start for found in batches(log)[::every]}


def whole(log: bytes) -> int:
    return batches(log)[-1].next_offset


def out_of_time(found: Result) -> bool:
    """Whether a task waited for too long; then its requests depend on the machine."""
    return (found.error or "").startswith("BrokerTimeoutError: ")


def waits(found: Result) -> bool:
    """Whether a task waited for a broker that was silent, said so when time was over, and left out nothing there."""
    assert not any("can be read" in message and "no record from" in message for message in found.warnings)
    # A busy machine gets no further than to ask a second time.
    return out_of_time(found) and any(text in (found.error or "") for text in ("neither records nor", "no new record"))


@pytest.mark.parametrize("decoder", TWINS)
@pytest.mark.parametrize("more", [{}, SMALL], ids=["one response", "a batch a response"])
@pytest.mark.parametrize("number", [0, 2, 5], ids=["first", "in between", "last"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_only_the_damaged_batch_is_left_out_where_the_broker_finds_the_next(
    damage: str, number: int, more: dict[str, int], decoder: str
) -> None:
    log = written()
    served = Served(damaged(log, number, damage), 18, indexed(log))
    if (number == 0 and damage in BEYOND) or (number == 5 and damage in SILENT_AT_THE_END):
        # Nothing that the broker sends is from before the damage, or behind it.
        assert waits(read_all(served, decoder, **IMPATIENT, **more))
        return
    found = read_all(served, decoder, **more)
    first = 3 * number + (damage in PARTLY_READ)
    assert found.error is None
    assert found.left_out == [(first, 3 * number + 2)]
    assert found.rows == [offset for offset in range(18) if offset not in found.missing]


@pytest.mark.parametrize("decoder", TWINS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_fail_yields_what_is_before_and_says_where_it_stopped_and_what_to_set(damage: str, decoder: str) -> None:
    log = written()
    for more in ({}, SMALL):
        found = read_all(Served(damaged(log, 2, damage), 18, indexed(log)), decoder, onCorruptRecord="fail", **more)
        first = 6 + (damage in PARTLY_READ)
        assert found.rows == list(range(first))
        assert found.left_out == []
        assert found.error is not None
        assert found.error.startswith(f"CorruptRecordError: orders-3: offset {first}: ")
        assert "Set onCorruptRecord=skip" in found.error


@pytest.mark.parametrize("decoder", TWINS)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_damage_after_the_range_is_no_error(damage: str, decoder: str, policy: str) -> None:
    log = written()
    served = Served(damaged(log, 4, damage), 18, indexed(log))
    found = read_all(served, decoder, end=12, onCorruptRecord=policy)
    assert (found.rows, found.error, found.left_out) == (list(range(12)), None, [])


@pytest.mark.parametrize("decoder", TWINS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_left_out_lies_within_the_range(damage: str, decoder: str) -> None:
    log = written(12)
    served = Served(damaged(log, 5, damage), 36, indexed(log))
    found = read_all(served, decoder, start=16, end=30)
    # Asked for an offset within, the broker takes some batches to end before it, as if there were nothing.
    assert found.left_out == ([] if damage in ("last offset before the first", "magic 1", "magic -1") else [(16, 17)])
    assert found.rows == list(range(18, 30))
    found = read_all(served, decoder, start=3, end=17)
    assert found.left_out == [(16 if damage in PARTLY_READ else 15, 16)]
    assert found.rows == [offset for offset in range(3, 17) if offset not in found.missing]


@pytest.mark.parametrize("decoder", TWINS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_the_broker_cannot_find_is_read_if_it_came_and_left_out_up_to_its_next_index_entry_if_not(
    damage: str, decoder: str
) -> None:
    log = written(40)
    served = Served(damaged(log, 11, damage), 120, indexed(log, every=8))
    for more, farthest in (({}, 35), (SMALL, 47)):  # the entry is for offset 50, the last of the batch from 48 on
        found = read_all(served, decoder, **more)
        assert found.error is None
        ((first, last),) = found.left_out
        assert first == 33 + (damage in PARTLY_READ)
        # Asked for what lies behind it, as it reaches there, the broker says that there is nothing.
        assert 35 <= last <= (47 if damage == "length beyond the log" else farthest)
        assert found.rows == [offset for offset in range(120) if offset not in found.missing]


@pytest.mark.parametrize("decoder", TWINS)
@pytest.mark.parametrize("size", [1, 3, 9])
def test_a_range_right_behind_the_damage_or_up_to_it_is_read_in_full(size: int, decoder: str) -> None:
    log = written(12)
    for damage in DAMAGES:
        served = Served(damaged(log, 3, damage), 36, indexed(log))
        before = read_all(served, decoder, start=9 - size, end=9, **SMALL)
        assert (before.rows, before.left_out) == (list(range(9 - size, 9)), []), damage
        behind = read_all(served, decoder, start=12, end=12 + size, **SMALL)
        passed_over = damage == "length of two batches"  # which the broker does
        assert behind.left_out == [], damage
        assert behind.rows == list(range(15 if passed_over else 12, 12 + size)), damage


@pytest.mark.parametrize("decoder", TWINS)
def test_a_value_that_is_a_record_batch_is_not_taken_for_one(decoder: str) -> None:
    """As dead letters are; it stands where the damaged batch ends, has offsets that fit, and its checksum is right."""
    inside = batch([Rec(value=b"inside")] * 2, base_offset=5)
    parts = [batch([Rec(), Rec(value=b"x" * 40 + inside)], base_offset=3 * at, last_delta=2) for at in range(20)]
    log = b"".join(parts)
    for damage in ("length of 0", "length too small", "magic 9"):
        served = Served(damaged(log, 1, damage), 60, indexed(log, every=8))
        found = read_all(served, decoder)
        assert found.rows == [offset for at in range(20) if at != 1 for offset in (3 * at, 3 * at + 1)], damage
        assert found.left_out == [(3, 5)], damage


@pytest.mark.parametrize("decoder", TWINS)
def test_two_damages_in_one_response_are_left_out_one_by_one(decoder: str) -> None:
    log = written(40)
    for first in ("length of 0", "length too small", "wrong checksum", "magic -1"):
        for second in DAMAGES:
            changed = damaged(log, 11, first)
            mixed = bytearray(changed)
            DAMAGES[second](mixed, batches(log)[30])
            found = read_all(Served(bytes(mixed), 120, indexed(log, every=8)), decoder)
            assert found.error is None
            kept = [offset for offset in range(120) if offset not in found.missing]
            assert found.rows == kept, (first, second)
            assert found.left_out[0] == (33, 35), (first, second)
            assert found.left_out[1][0] == 90 + (second in PARTLY_READ), (first, second)
            assert 92 <= found.left_out[1][1] < 96, (first, second)


@pytest.mark.parametrize("decoder", TWINS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_without_any_way_on_the_rest_of_the_range_is_left_out_and_said_to_be(damage: str, decoder: str) -> None:
    size = 5000
    log = written(2, size)
    served = Served(damaged(log, 1, damage), 2 * size)
    silent = damage in SILENT_AT_THE_END
    found = read_all(served, decoder, **SMALL, **IMPATIENT if silent else {})
    if silent:
        assert waits(found)
        assert found.left_out == []
        return
    ((first, last),) = found.left_out
    assert (first, last) == (size + (damage in PARTLY_READ), 2 * size - 1)
    assert found.rows == list(range(first))
    assert any("no record from offset" in message for message in found.warnings)
    assert len(served.asked) < 60


@pytest.mark.parametrize("decoder", TWINS)
def test_every_batch_damaged_leaves_nothing_and_ends(decoder: str) -> None:
    log = written()
    for damage in DAMAGES:
        every = log
        for number in range(6):
            changed = bytearray(every)
            DAMAGES[damage](changed, batches(log)[number])
            every = bytes(changed)
        served = Served(every, 18, indexed(log))
        silent = damage in SILENT_AT_THE_END | {"length of a header"}
        found = read_all(served, decoder, **IMPATIENT if silent else {})
        if silent:
            assert waits(found), damage
            assert found.rows == []
            continue
        assert len(served.asked) < 300
        kept = list(range(0, 18, 3)) if damage in PARTLY_READ else []
        assert found.rows == kept, damage
        assert sorted(found.missing + kept) == list(range(18)), damage


@pytest.mark.parametrize("decoder", TWINS)
def test_a_bomb_is_left_out(decoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LARGEST_BATCH", 100_000)
    log = written(2)
    log += batch([Rec(value=bytes(1_000_000))], base_offset=6, codec=CODECS["zstd"])
    log += batch([Rec(value=b"good")], base_offset=7)
    found = read_all(Served(log, 8), decoder, **{"kafka.fetch.max.bytes": 1024})
    assert (found.rows, found.left_out) == ([0, 1, 2, 3, 4, 5, 7], [(6, 6)])
    assert "more than 100000 bytes" in found.warnings[0]


@pytest.mark.parametrize("decoder", TWINS)
def test_without_checksums_asked_for_only_what_cannot_be_parsed_is_left_out(decoder: str) -> None:
    log = written()
    unchecked = {"kafka.check.crcs": "false"}
    found = read_all(Served(damaged(log, 2, "wrong checksum"), 18), decoder, **unchecked)
    assert (found.rows, found.left_out) == (list(range(18)), [])
    found = read_all(Served(damaged(log, 2, "length of a record"), 18), decoder, **unchecked)
    assert found.left_out == [(7, 8)]


@pytest.mark.parametrize("decoder", TWINS)
def test_a_gap_of_a_compacted_log_after_the_damaged_batch_is_no_reason_to_leave_out_more(decoder: str) -> None:
    kept = [batch([Rec()] * 3, base_offset=at) for at in (0, 10, 1000, 1010)]
    log = b"".join(kept)
    for damage in ("wrong checksum", "last offset", "length of 0", "length of two batches"):
        served = Served(damaged(log, 1, damage), 1013, indexed(log))
        found = read_all(served, decoder)
        assert found.rows == [0, 1, 2, 1000, 1001, 1002, 1010, 1011, 1012], damage
        assert found.left_out == [(3 if damage == "length of 0" else 10, 999)], damage


@pytest.mark.parametrize("decoder", TWINS)
def test_each_warning_has_the_reason_and_the_total(decoder: str) -> None:
    log = damaged(damaged(written(), 1, "wrong checksum"), 3, "wrong checksum")
    warnings = read_all(Served(log, 18), decoder).warnings
    assert len(warnings) == 2
    assert warnings[0].startswith(
        "orders-3: offsets 3 to 5 left out, as onCorruptRecord is skip: the batch at offset 3 is"
    )
    assert warnings[0].endswith("(so far by this task: 3 offsets in 1 places)")
    assert warnings[1].endswith("(so far by this task: 6 offsets in 2 places)")


@pytest.mark.parametrize("decoder", TWINS)
def test_messages_of_the_old_formats_are_left_out_one_by_one(decoder: str) -> None:
    parts = [message(magic, at, None, b"v%d" % at) for at, magic in enumerate([0, 0, 0, 1, 1, 1])]
    for number in range(6):
        changed = bytearray(b"".join(parts))
        changed[sum(map(len, parts[: number + 1])) - 1] ^= 1
        found = read_all(Served(bytes(changed), 6), decoder)
        assert (found.left_out, found.error) == ([(number, number)], None)
        assert found.rows == [at for at in range(6) if at != number]


@pytest.mark.parametrize("decoder", TWINS)
@pytest.mark.parametrize("more", [{}, SMALL], ids=["one response", "a batch a response"])
def test_a_marker_of_an_aborted_transaction_that_is_left_out_does_not_hide_the_next_one(
    decoder: str, more: dict[str, int]
) -> None:
    def data(at: int) -> bytes:
        return batch([Rec(), Rec()], base_offset=at, attributes=TRANSACTIONAL, producer_id=7)

    def end(at: int, kind: int) -> bytes:
        return marker(kind, producer_id=7, base_offset=at)

    log = b"".join([data(0), end(2, 0), data(3), end(5, 1), data(6), end(8, 0), data(9), end(11, 1)])
    committed = {"kafka.isolation.level": "read_committed", **more}
    aborted = [(7, 0, 2), (7, 6, 8)]
    assert read_all(Served(log, 12, indexed(log), aborted), decoder, **committed).rows == [3, 4, 9, 10]
    for damage in ("wrong checksum", "length of 0", "length too large"):
        served = Served(damaged(log, 1, damage), 12, indexed(log), aborted)
        found = read_all(served, decoder, **committed)
        assert (found.rows, found.left_out) == ([3, 4, 9, 10], [(2, 2)]), damage
        # The first batch of an aborted transaction, and the marker of one that was committed.
        for number, left_out in ((0, [(0, 1)]), (3, [(5, 5)]), (4, [(6, 7)])):
            served = Served(damaged(log, number, damage), 12, indexed(log), aborted)
            found = read_all(served, decoder, **committed)
            assert (found.rows, found.left_out) == ([3, 4, 9, 10], left_out), (damage, number)


@pytest.mark.parametrize("decoder", TWINS)
@pytest.mark.parametrize("damage", ["length of 0", "length too large"])
def test_a_range_that_begins_within_the_batch_before_the_damage_is_read_in_full_behind_a_transaction_that_was_aborted(
    damage: str, decoder: str
) -> None:
    """The broker sends that batch only for an offset before it, where the marker is."""
    written = batch([Rec()] * 12, base_offset=4, attributes=TRANSACTIONAL, producer_id=7)
    aborted = batch([Rec()] * 3, attributes=TRANSACTIONAL, producer_id=7) + marker(0, producer_id=7, base_offset=3)
    log = aborted + written + marker(1, producer_id=7, base_offset=16) + batch([Rec()] * 3, base_offset=17)
    for start in range(4, 16):
        served = Served(damaged(log, 3, damage), 20, {19: batches(log)[4].start}, [(7, 0, 3)])
        found = read_all(served, decoder, start, **{"kafka.isolation.level": "read_committed"})
        assert (found.rows, found.left_out) == ([*range(start, 16), 17, 18, 19], [(16, 16)]), start


def moved(log: bytes, number: int, base_offset: int) -> bytes:
    """A copy of a log, in which a record batch says that it begins elsewhere."""
    changed = bytearray(log)
    struct.pack_into(">q", changed, batches(log)[number].start, base_offset)
    return bytes(changed)


@pytest.mark.parametrize("decoder", TWINS)
@pytest.mark.parametrize("more", [{}, SMALL], ids=["one response", "a batch a response"])
@pytest.mark.parametrize("base_offset", [18, 1000, 2**62])
def test_a_batch_that_says_it_begins_behind_the_log_ends_no_range_early(
    base_offset: int, more: dict[str, int], decoder: str
) -> None:
    """Offsets go up from record batch to record batch. No checksum covers the first one of each."""
    log = written()
    for number in range(6):
        served = Served(moved(log, number, base_offset), 18, indexed(log))
        found = read_all(served, decoder, **more)
        missing = [*range(3 * number, 3 * number + 3)]
        assert (found.rows, found.missing) == ([at for at in range(18) if at not in missing], missing), number
        failing = read_all(served, decoder, **more | {"onCorruptRecord": "fail"})
        assert failing.rows == [*range(3 * number)]
        assert f"orders-3: offset {3 * number}: " in (failing.error or ""), failing.error


@pytest.mark.parametrize("decoder", TWINS)
@pytest.mark.parametrize(
    ("base_offset", "why"),
    [
        (10, "the batch at offset 10 is before one at offset 12"),
        (12, "the batch at offset 12 is before one at offset 12"),
        (15, "the batch at offset 15 is before one at offset 12"),
        (8, "the batch before the one at offset 8 ends at offset 8"),
        (4, "the batch before the one at offset 4 ends at offset 8"),
        (0, "the batch before the one at offset 0 ends at offset 8"),
    ],
)
def test_a_batch_that_says_it_begins_at_offsets_of_others_is_left_out_and_no_offset_is_read_twice(
    base_offset: int, why: str, decoder: str
) -> None:
    log = written()
    served = Served(moved(log, 3, base_offset), 18, indexed(log))
    found = read_all(served, decoder)
    assert (found.rows, found.left_out) == ([*range(9), *range(12, 18)], [(9, 11)])
    assert why in found.warnings[0]
    failing = read_all(served, decoder, onCorruptRecord="fail")
    assert (failing.rows, why in (failing.error or "")) == ([*range(9)], True)


@pytest.mark.parametrize("decoder", TWINS)
@pytest.mark.parametrize("more", [{}, SMALL], ids=["one response", "a batch a response"])
def test_a_batch_that_says_it_begins_elsewhere_hides_no_transaction(decoder: str, more: dict[str, int]) -> None:
    def data(at: int) -> bytes:
        return batch([Rec(), Rec()], base_offset=at, attributes=TRANSACTIONAL, producer_id=7)

    ends = [marker(kind, producer_id=7, base_offset=at) for at, kind in ((2, 0), (5, 1), (8, 0), (11, 1))]
    log = b"".join(data(at) + end for at, end in zip((0, 3, 6, 9), ends, strict=True))
    for number, first in enumerate((0, 2, 3, 5, 6, 8, 9, 11)):
        served = Served(moved(log, number, 2**40), 12, indexed(log), [(7, 0, 2), (7, 6, 8)])
        found = read_all(served, decoder, **more | {"kafka.isolation.level": "read_committed"})
        assert found.rows == [at for at in (3, 4, 9, 10) if not first <= at < first + 2 or number % 2]
        assert found.missing == [first] if number % 2 else [first, first + 1]


def refused(answer: FetchedPartition) -> FetchedPartition:
    return answer._replace(error=DAMAGED, records=memoryview(b""))


@pytest.mark.parametrize("decoder", TWINS)
def test_a_broker_that_changes_its_mind_is_believed(decoder: str) -> None:
    log = written()

    class Moody(Served):
        def fetch(self, offset: int, most: int) -> FetchedPartition:
            answer = super().fetch(offset, most)
            return answer if len(self.asked) > 1 else refused(answer)

    found = read_all(Moody(log, 18), decoder)
    assert (found.rows, found.left_out) == (list(range(18)), [])

    class Contrary(Served):
        """Sends no records to tasks, but answers searches."""

        def fetch(self, offset: int, most: int) -> FetchedPartition:
            answer = super().fetch(offset, most)
            return answer if most == 1 else refused(answer)

    served = Contrary(log, 18)
    found = read_all(served, decoder)
    assert found.rows == []
    assert found.missing == list(range(18))
    assert len(served.asked) < 200


# Searching


@pytest.mark.parametrize("end", [1, 2, 3, 10, 1000, 2**40])
@pytest.mark.parametrize("batch_size", [1, 7, 100])
def test_the_first_batch_that_can_be_found_is_found_with_few_looks(end: int, batch_size: int) -> None:
    for readable in sorted({1, 2, 3, 4, 5, 9, 10, 99, 100, end // 2, end - 1, end}):
        looks = []

        def look(offset: int, readable: int = readable, looks: list[int] = looks) -> Found | None:
            looks.append(offset)
            return None if offset < readable else Found(offset, offset - offset % batch_size, b"")

        found = first_found(1, end, look)
        if readable >= end or end <= 1:
            assert found is None
        else:
            assert found is not None
            at = max(1, readable)
            assert found.start == at - at % batch_size
        assert len(looks) <= 2 * end.bit_length() + 3
        assert all(1 <= offset < end for offset in looks)


def test_a_batch_that_is_passed_over_by_some_offsets_within_it_is_found_by_the_others() -> None:
    def look(offset: int) -> Found | None:
        """Damage at 100; batches of ten offsets, each found by its last one, and from the next one on."""
        if offset < 119:
            return None if offset < 110 else Found(offset, 120, b"")
        return Found(offset, (offset + 1) // 10 * 10 - 10 if offset % 10 == 9 else offset // 10 * 10, b"")

    found = first_found(101, 10_000, look)
    assert found is not None
    assert (found.ask_at, found.start) == (119, 110)

    compacted = first_found(101, 10_000, lambda offset: Found(offset, max(offset // 10 * 10, 5000), b""))
    assert compacted is not None
    assert compacted.start == 5000
    assert first_found(101, 10_000, lambda offset: Found(offset, 20_000, b"")) == Found(101, 20_000, b"")


# Both twins


@st.composite
def mutated(draw: st.DrawFn) -> tuple[bytes, int, dict[int, int]]:
    """A log with damage of any kind, how far it went before, and its index."""
    size, codec = draw(st.integers(1, 5)), draw(st.sampled_from(list(CODECS)))
    log = written(draw(st.integers(1, 9)), size, codec)
    index = indexed(log, draw(st.integers(1, 4)))
    data = bytearray(log)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        how = draw(st.sampled_from(["flip", "flip", "byte", "int32", "remove", "insert", "cut", "header"]))
        if how == "flip" and data:
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "byte" and data:
            data[at] = draw(st.integers(0, 255))
        elif how == "int32":
            number = draw(st.sampled_from([-(2**31), -1, 0, 1, 49, 2**24, 2**31 - 1, len(data)]))
            data[at : at + 4] = struct.pack(">i", number)
        elif how == "remove":
            del data[at : at + draw(st.integers(1, 8))]
        elif how == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=8))
        elif how == "cut":
            del data[at:]
        else:
            start = draw(st.sampled_from([found.start for found in batches(log)]))
            field = start + draw(st.sampled_from([8, 16, 19, 23, 57]))
            data[field : field + 4] = struct.pack(">i", draw(st.sampled_from([-1, 0, 1, 2, 61, 2**31 - 1])))
    bytes_of = with_right_crcs(bytes(data)) if draw(st.booleans()) else bytes(data)
    return bytes_of, whole(log), index


def both(served: Served, **more: object) -> Result:
    results, asked = [], []
    for decoder in TWINS:
        served.asked = []
        results.append(read_all(served, decoder, **IMPATIENT | more))  # type: ignore[arg-type]
        asked.append(served.asked)
    if not any(map(out_of_time, results)):
        assert results[0] == results[1]
        assert asked[0] == asked[1]
    return results[0]


@given(mutated(), st.sampled_from([1, 100, 1 << 20]), st.booleans(), st.integers(0, 5))
def test_both_twins_leave_out_the_same_of_mutated_bytes_and_come_to_an_end(
    made: tuple[bytes, int, dict[int, int]], most: int, crcs: bool, start: int
) -> None:
    data, end, index = made
    served = Served(data, end, index)
    more = {"kafka.max.partition.fetch.bytes": most, "kafka.check.crcs": str(crcs).lower()}
    found = both(served, start=start, **more)
    assert found.error is None or out_of_time(found)
    assert all(start <= offset < end for offset in found.rows + found.missing)
    # Never backwards: what is left out follows what was left out before.
    assert all(first[1] < second[0] for first, second in zip(found.left_out, found.left_out[1:], strict=False))
    assert len(served.asked) < 2000
    failed = both(served, start=start, **more, onCorruptRecord="fail")
    assert failed.left_out == []
    if failed.error is None and found.error is None:
        assert failed.rows == found.rows
    elif found.error is None:
        assert found.rows[: len(failed.rows)] == failed.rows


@given(
    st.integers(0, 2),
    st.lists(st.sampled_from([None, *DAMAGES]), min_size=4, max_size=4),
    st.sampled_from([1, 100, 1 << 20]),
    st.integers(0, 11),
    st.integers(0, 36),
)
def test_every_offset_of_a_damaged_log_is_read_or_left_out_once_and_no_batch_that_is_not_damaged_is_left_out(
    first: int, drawn: list[str | None], most: int, start: int, size: int
) -> None:
    log = written(12)
    changed = bytearray(log)
    damages = [(first + 3 * i, damage) for i, damage in enumerate(drawn) if damage is not None]
    for number, damage in damages:
        DAMAGES[damage](changed, batches(log)[number])
    # A broker asked for the offset behind a length that is too large may pass over what is there.
    assume(start - 1 not in {number for number, _ in damages})
    start, end = 3 * start, min(36, 3 * start + size)
    served = Served(bytes(changed), 36, indexed(log))
    found = both(served, start=start, end=end, **{"kafka.max.partition.fetch.bytes": most})
    bad = {offset for number, _ in damages for offset in range(3 * number, 3 * number + 3)}
    assert set(found.missing) <= bad
    if not out_of_time(found):
        assert found.error is None
        assert sorted(found.rows + found.missing) == list(range(start, end))
        assert found.rows == sorted(found.rows)


# Brokers that are silent


class Tiered(Served):
    """Sends neither records nor an error for the first requests for an offset of `cold`, as a broker with
    tiered storage does when a read takes longer than remote.fetch.max.wait.ms."""

    cold: range = range(0)
    times: float = 0

    def fetch(self, offset: int, most: int) -> FetchedPartition:
        answer = super().fetch(offset, most)
        if offset not in self.cold or self.times <= 0:
            return answer
        self.times -= 1
        return answer._replace(error=None, high_watermark=self.end, aborted=(), records=memoryview(b""))


@pytest.mark.parametrize("decoder", TWINS)
@pytest.mark.parametrize("policy", ["fail", "skip"])
@pytest.mark.parametrize("cold", [range(60), range(30, 60), range(59, 60), range(30, 90)], ids=str)
def test_a_broker_that_is_silent_for_a_while_is_waited_for_and_nothing_is_left_out(
    cold: range, policy: str, decoder: str
) -> None:
    log = written(30)
    for more in ({}, SMALL):
        served = Tiered(log, 90, indexed(log))
        served.cold, served.times = cold, 25
        found = read_all(served, decoder, onCorruptRecord=policy, **more)
        assert (found.rows, found.left_out, found.warnings, found.error) == (list(range(90)), [], [], None)


@pytest.mark.parametrize("decoder", TWINS)
@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_broker_that_stays_silent_is_an_error_that_names_the_offset_and_says_what_to_do(
    policy: str, decoder: str
) -> None:
    log = written(30)
    served = Tiered(log, 90, indexed(log))
    served.cold, served.times = range(60), float("inf")
    found = read_all(served, decoder, start=30, onCorruptRecord=policy, **IMPATIENT)
    assert waits(found)
    assert (found.rows, found.left_out) == ([], [])
    for words in ("orders-3@30 ", "a log that ends at 90", "raise kafkaConsumer.pollTimeoutMs", "kafka-dump-log"):
        assert words in (found.error or "")


class Unreached(Client):
    """Knows no broker."""

    last_failure = None

    def known(self) -> list[str]:
        return []


@pytest.mark.parametrize("decoder", TWINS)
def test_a_broker_that_stays_silent_behind_damage_is_an_error_also_while_another_partition_is_away(
    decoder: str,
) -> None:
    """Its outage cannot end meanwhile, as the task asks for nothing else."""
    options = Options.parse({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"})
    outage = TaskOutage(options, Unreached())

    class Searched(Tiered):
        def connect(self, options: Options) -> Connection:
            outage.missed([TopicPartition("orders", 7)], "refused")
            return super().connect(options)

    log = written(30)
    served = Searched(damaged(log, 9, "length of 0"), 90, indexed(log))
    served.cold, served.times = range(30, 90), float("inf")
    found = read_all(served, decoder, outage=outage, **{"kafkaConsumer.pollTimeoutMs": 100})
    assert outage.away
    assert (found.rows, found.left_out) == ([], [])
    assert "offset 27 cannot be read" in (found.error or "")
    assert waits(found)


@pytest.mark.parametrize("decoder", TWINS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_before_what_a_broker_is_silent_about_is_all_that_is_left_out(damage: str, decoder: str) -> None:
    log = written(30)
    for more in ({}, SMALL):
        served = Tiered(damaged(log, 9, damage), 90, indexed(log))
        served.cold, served.times = range(30, 60), 40
        found = read_all(served, decoder, **more)
        assert found.error is None
        assert found.left_out == [(27 + (damage in PARTLY_READ), 29)], damage
        assert found.rows == [offset for offset in range(90) if offset not in found.missing]


@pytest.mark.parametrize("decoder", TWINS)
def test_an_unknown_error_of_a_broker_is_waited_for_and_then_named(decoder: str) -> None:
    log = written()

    class Unwell(Served):
        left = 5.0

        def fetch(self, offset: int, most: int) -> FetchedPartition:
            answer = super().fetch(offset, most)
            self.left -= offset == 6
            if offset != 6 or self.left < 0:
                return answer
            return answer._replace(
                error=FetchError.from_code(UnknownError.errno, "orders"), high_watermark=-1, records=memoryview(b"")
            )

    for policy in ("fail", "skip"):
        found = read_all(Unwell(log, 18, indexed(log)), decoder, onCorruptRecord=policy, **SMALL)
        assert (found.rows, found.left_out, found.error) == (list(range(18)), [], None)
        served = Unwell(log, 18, indexed(log))
        served.left = float("inf")
        found = read_all(served, decoder, onCorruptRecord=policy, start=6, **SMALL)
        assert found.left_out == []


class Elected(Served):
    """A leader that says first, or always, that its log ends where it is asked; a response takes `takes_s`."""

    def __init__(self, takes_s: float, always: bool) -> None:
        super().__init__(written(), 18)
        self.takes_s, self.always, self.now = takes_s, always, 0.0

    def fetch(self, offset: int, most: int) -> FetchedPartition:
        self.now += self.takes_s
        answer = super().fetch(offset, most)
        if len(self.asked) > 1 and not self.always:
            return answer
        return answer._replace(high_watermark=offset, records=memoryview(b""))

    def read(self) -> list[fetcher.Chunk]:
        """The chunks of a task that waits for 10 s."""
        options = Options.parse({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": TP.topic})
        brokers: Any = self.connect(options)
        ranges, scan = [OffsetRange(TP, 0, 18)], decode.load("c").scan
        return list(fetcher.Fetcher(brokers, ranges, scan, 10.0, False, clock=lambda: self.now).chunks())


def test_a_leader_that_does_not_know_yet_how_far_its_log_is_committed_is_no_lost_data() -> None:
    """Elected after brokers were away for longer than reading may stall, it is asked again: by the next task."""
    back = Elected(takes_s=15, always=False)
    with pytest.raises(BrokerTimeoutError):
        back.read()
    assert len(back.asked) == 1
    assert [(chunk.start, chunk.end) for chunk in Elected(takes_s=1, always=False).read()] == [(0, 18)]


def test_a_leader_that_says_all_the_time_that_its_log_ends_is_believed() -> None:
    ended = Elected(takes_s=1, always=True)
    assert ended.read() == []
    assert len(ended.asked) == 10


@given(
    st.integers(0, 2),
    st.lists(st.sampled_from([None, *DAMAGES]), min_size=4, max_size=4),
    st.integers(0, 35),
    st.integers(1, 20),
    st.integers(0, 30),
    st.sampled_from([1, 100, 1 << 20]),
)
def test_what_a_broker_is_silent_about_is_never_left_out_unless_it_is_damaged(
    first: int, drawn: list[str | None], silent: int, count: int, times: int, most: int
) -> None:
    log = written(12)
    changed = bytearray(log)
    damages = [(first + 3 * i, damage) for i, damage in enumerate(drawn) if damage is not None]
    for number, damage in damages:
        DAMAGES[damage](changed, batches(log)[number])
    served = Tiered(bytes(changed), 36, indexed(log))
    served.cold, served.times = range(silent, silent + count), times or float("inf")
    found = read_all(served, "c", **IMPATIENT, **{"kafka.max.partition.fetch.bytes": most})
    bad = {offset for number, _ in damages for offset in range(3 * number, 3 * number + 3)}
    assert set(found.missing) <= bad
    assert found.error is None or out_of_time(found)
