"""Damage to a log: to one record batch of a segment file, or of a fetch response.

Works on message format v2.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from spark_kafka_group.executor.decode import load

crc32c = load("auto").crc32c  # type: ignore[attr-defined]

LENGTH_AT, MAGIC_AT, CRC_AT, ATTRIBUTES_AT, LAST_DELTA_AT, RECORDS_AT = 8, 16, 17, 21, 23, 61


class Batch(NamedTuple):
    """Where a record batch is in its log."""

    start: int
    end: int
    base_offset: int
    next_offset: int


def batches(log: bytes) -> list[Batch]:
    """The record batches of an undamaged log."""
    found, at = [], 0
    while at < len(log):
        base_offset, length = struct.unpack_from(">qi", log, at)
        (last_delta,) = struct.unpack_from(">i", log, at + LAST_DELTA_AT)
        found.append(Batch(at, at + 12 + length, base_offset, base_offset + last_delta + 1))
        at += 12 + length
    return found


def _number(field: int, code: str, change: Callable[[int], int]) -> Callable[[bytearray, Batch], None]:
    def damage(log: bytearray, batch: Batch) -> None:
        (before,) = struct.unpack_from(code, log, batch.start + field)
        struct.pack_into(code, log, batch.start + field, change(before))

    return damage


def _payload(log: bytearray, batch: Batch) -> None:
    log[batch.end - 3] ^= 0x40


def _with_right_crc(damage: Callable[[bytearray, Batch], None]) -> Callable[[bytearray, Batch], None]:
    def damage_unseen(log: bytearray, batch: Batch) -> None:
        damage(log, batch)
        crc = crc32c(bytes(log[batch.start + ATTRIBUTES_AT : batch.end]))
        struct.pack_into(">I", log, batch.start + CRC_AT, crc)

    return damage_unseen


def _second_record(log: bytearray, batch: Batch) -> None:
    """Records here are shorter than 64 bytes or longer, so that their length has one byte or two."""
    at = batch.start + RECORDS_AT
    value = shift = size = 0
    while True:
        byte = log[at + size]
        value |= (byte & 0x7F) << shift
        shift, size = shift + 7, size + 1
        if byte < 0x80:
            break
    log[at + size + (value >> 1)] = 0x7F  # the length of the next one: -64


DAMAGES: dict[str, Callable[[bytearray, Batch], None]] = {
    "wrong checksum": _payload,
    "length of a record": _with_right_crc(_second_record),
    "a codec that fails": _with_right_crc(_number(ATTRIBUTES_AT, ">h", lambda attributes: attributes | 1)),
    "a codec that is none": _with_right_crc(_number(ATTRIBUTES_AT, ">h", lambda attributes: attributes | 7)),
    "last offset": _number(LAST_DELTA_AT, ">i", lambda delta: delta + 5),
    "last offset before the first": _number(LAST_DELTA_AT, ">i", lambda delta: delta - 2**31),
    "length of 0": _number(LENGTH_AT, ">i", lambda length: 0),
    "length below 0": _number(LENGTH_AT, ">i", lambda length: length - 2**31),
    "length of a header": _number(LENGTH_AT, ">i", lambda length: 49),
    "length too small": _number(LENGTH_AT, ">i", lambda length: length - 7),
    "length too large": _number(LENGTH_AT, ">i", lambda length: length + 7),
    "length of two batches": _number(LENGTH_AT, ">i", lambda length: 2 * length + 12),
    "length beyond the log": _number(LENGTH_AT, ">i", lambda length: length + 2**24),
    "length beyond all batches": _number(LENGTH_AT, ">i", lambda length: length + 2**30),
    "magic 9": _number(MAGIC_AT, ">b", lambda magic: 9),
    "magic 1": _number(MAGIC_AT, ">b", lambda magic: 1),
    "magic -1": _number(MAGIC_AT, ">b", lambda magic: -1),
}
"""Each of them, to a batch that holds three records of one size, as do those around it."""
PARTLY_READ = {"length of a record"}
"""Those that leave the first record of the batch as it was."""


def damaged(log: bytes, number: int, damage: str) -> bytes:
    """A copy of a log, in which a record batch, counted from 0, is damaged."""
    changed = bytearray(log)
    DAMAGES[damage](changed, batches(log)[number])
    return bytes(changed)


def cut_off(segment: Path, at: int) -> int:
    """Drop the record batches of a segment file that begin at this offset or later; returns the log's new end.

    Raises
    ------
    AssertionError
        When there is none.
    """
    log = segment.read_bytes()
    first = next((batch for batch in batches(log) if batch.base_offset >= at), None)
    assert first is not None, f"{segment} has no record batch at {at}"
    segment.write_bytes(log[: first.start])
    return first.base_offset
