"""The encoder as a target: both twins make the same batches of the same columns, or refuse them with the same words."""

from __future__ import annotations

import struct
from array import array
from random import Random
from typing import Any

from twins import DisagreementError

from spark_kafka_group.errors import WriteError
from spark_kafka_group.executor.encode import CODECS, Compression, EncodedBatch, Encoder, load
from spark_kafka_group.executor.encode.encoder_contract import BinaryColumn, HeadersColumn

CASE = struct.Struct("<bbBHH")  # rows, headers, flags and codec, batch size, largest request
COLUMN = struct.Struct("<hBBB")  # first row; bytes of validity (255: none), of offsets (255: none), of data
KEY, VALUE, HEADERS = 8, 16, 32
NOW_MS = 1_700_000_000_000


class _Reader:
    """Fields from the begin of some bytes; zeros behind their end."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def take(self, size: int) -> bytes:
        taken, self._data = self._data[:size], self._data[size:]
        return taken

    def fields(self, form: struct.Struct) -> tuple[Any, ...]:
        return form.unpack(self.take(form.size).ljust(form.size, b"\0"))

    def buffer(self, size: int) -> bytes | None:
        return None if size == 255 else self.take(size)

    def column(self) -> BinaryColumn:
        first, validity, ends, data = self.fields(COLUMN)
        return BinaryColumn(first, self.buffer(validity), self.buffer(ends), self.buffer(data))

    def rest(self) -> bytes:
        return self.take(len(self._data))


def encoded(data: bytes) -> None:
    mine, its = (_outcome(load(name), _Reader(data)) for name in ("python", "c"))
    if mine != its:
        raise DisagreementError(f"python gives {mine} and c {its}")


def _outcome(twin: Encoder, reader: _Reader) -> tuple[list[Any], str | None]:
    """Everything that can be seen: batches, partitions, and the error that ended it."""
    count, headers, flags, batch_size, largest = reader.fields(CASE)
    compression = Compression(flags % 8 % len(CODECS))
    seen: list[Any] = []
    try:
        building = twin.BatchBuilder(
            topic="orders", partition=3, batch_size=batch_size, max_request_size=largest, compression=compression
        )
        key = reader.column() if flags & KEY else None
        value = reader.column() if flags & VALUE else None
        rows = twin.Rows(count, key, value, _headers(reader, headers) if flags & HEADERS else None)
        chosen = reader.rest()
        position = 0
        while (position := building.append(rows, chosen, position, NOW_MS)) < len(chosen) // 4:
            seen += _of_batch(twin, building.seal())
        partitions = twin.partitions_of_keys(rows, chosen, max(1, batch_size))
        sorted_rows = twin.rows_by_partition(partitions, max(1, batch_size))
        seen += [bytes(partitions), {partition: places.tolist() for partition, places in sorted_rows.items()}]
        twin.rows_by_partition(chosen, 1 + batch_size)
    except (ValueError, WriteError) as error:
        return seen, f"{type(error).__name__}: {error}"
    if building.records:
        seen += _of_batch(twin, building.seal())
    return seen, None


def _headers(reader: _Reader, count: int) -> HeadersColumn:
    lists, structs = reader.column(), reader.column()
    keys, values = reader.column(), reader.column()
    return HeadersColumn(
        lists.first, lists.validity, lists.ends, count, structs.first, structs.validity, keys, values
    )  # fmt: skip


def _of_batch(twin: Encoder, batch: EncodedBatch) -> list[Any]:
    twin.stamp(batch.data, 7, 1, batch.records, bool(batch.records % 2))
    return [bytes(batch.data), batch.records, [bytes(half.data) for half in twin.split(batch)]]


def generate(rng: Random) -> bytes:
    """Columns that are right, most of them."""
    count, headers = rng.randrange(1, 7), rng.randrange(5)
    case = CASE.pack(count, headers, rng.randrange(64), rng.choice((0, 90, 400, 16384)), rng.choice((80, 300, 65535)))
    flags = case[2]
    parts = [case]
    if flags & KEY:
        parts.append(_column(rng, count, 20))
    if flags & VALUE:
        parts.append(_column(rng, count, 60))
    if flags & HEADERS:
        lists = _column(rng, count, headers, with_data=False)
        parts += [
            lists,
            _column(rng, 0, 0, with_data=False),
            _column(rng, headers, 9, nulls=False),
            _column(rng, headers, 9),
        ]
    parts.append(array("i", [rng.randrange(count) for _ in range(rng.randrange(12))]).tobytes())
    return b"".join(parts)


def _column(rng: Random, count: int, size: int, *, nulls: bool = True, with_data: bool = True) -> bytes:
    first = rng.randrange(3)
    bits = rng.randbytes(2) if nulls and rng.random() < 0.3 else None
    ends = array("i", sorted(rng.randrange(size + 1) for _ in range(first + count + 1))).tobytes()
    data = rng.randbytes(size) if with_data else None
    sizes = [255 if part is None else len(part) for part in (bits, ends, data)]
    return COLUMN.pack(first, *sizes) + b"".join(part or b"" for part in (bits, ends, data))
