"""Rows to record batches by a twin, and back by the decoder."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from spark_kafka_group.executor import decode
from spark_kafka_group.executor.encode import CODECS, Compression, EncodedBatch, Encoder
from spark_kafka_group.executor.writing.write import binary_column, headers_column

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOW_MS = 1_700_000_000_000
EVERY_COMPRESSION = [
    *(Compression(codec) for codec in CODECS.values()),
    Compression(CODECS["gzip"], 1),
    Compression(CODECS["gzip"], 9),
    Compression(CODECS["lz4"], 1),
    Compression(CODECS["lz4"], 9),
    Compression(CODECS["lz4"], 17),
    Compression(CODECS["zstd"], -7),
    Compression(CODECS["zstd"], 19),
]
"""Every codec, and the ends of its levels or nearly."""


@dataclass(frozen=True)
class Row:
    key: bytes | None = None
    value: bytes | None = b"v"
    headers: Sequence[tuple[str, bytes | None]] | None = field(default=None)


def indices(*places: int) -> bytes:
    return array("i", places).tobytes()


def rows_of(twin: Encoder, rows: Sequence[Row]) -> Any:
    """As a twin takes them."""
    headers = [None if row.headers is None else [{"key": k, "value": v} for k, v in row.headers] for row in rows]
    return twin.Rows(
        len(rows),
        binary_column(pa.array([row.key for row in rows], pa.binary())),
        binary_column(pa.array([row.value for row in rows], pa.binary())),
        headers_column(pa.array(headers, HEADERS)),
    )


def builder(twin: Encoder, **options: Any) -> Any:
    defaults = {"topic": "orders", "partition": 3, "batch_size": 16384, "max_request_size": 1 << 20}
    return twin.BatchBuilder(**{**defaults, **options})


def encode(
    twin: Encoder, rows: Any, places: Iterable[int] | None = None, timestamp_ms: int = NOW_MS, **options: Any
) -> list[EncodedBatch]:
    """All rows, or those of some places, in as many record batches as it takes; stamped."""
    chosen = array("i", range(rows.count) if places is None else places)
    building = builder(twin, **options)
    position, batches = 0, []
    while (position := building.append(rows, chosen, position, timestamp_ms)) < len(chosen):
        batches.append(building.seal())
    if building.records:
        batches.append(building.seal())
    for batch in batches:
        twin.stamp(batch.data, 7, 1, 0, False)
    return batches


def read_back(batches: Iterable[EncodedBatch]) -> list[Row]:
    """What the decoder makes of record batches, one after another; offsets as a broker would give them."""
    found = []
    for batch in batches:
        table = _decoded(bytes(batch.data))
        offsets, timestamps = table.column("offset").to_pylist(), table.column("timestamp").cast(pa.int64()).to_pylist()
        assert offsets == list(range(batch.records))
        assert max(timestamps) == 1000 * batch.max_timestamp_ms
        found += [
            Row(row["key"], row["value"], row["headers"] and [(h["key"], h["value"]) for h in row["headers"]])
            for row in table.select(["key", "value", "headers"]).to_pylist()
        ]
    return found


def _decoded(data: bytes) -> pa.RecordBatch:
    reading = decode.load("auto").RecordBatchBuilder(
        columns=("key", "value", "offset", "timestamp", "headers"),
        check_crcs=True,
        unpacked_limit=1 << 30,
        target_bytes=1 << 30,
    )
    assert reading.append("orders", 3, data, 0, 0, 2**62) == len(data)
    return reading.finish()


def as_read(rows: Iterable[Row]) -> list[Row]:
    """Rows as they come back: a record without headers has null headers."""
    return [Row(row.key, row.value, list(row.headers) if row.headers else None) for row in rows]
