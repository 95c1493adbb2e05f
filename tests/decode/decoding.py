"""Runs a twin to its end and gives back plain rows, and the error that stopped it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_kafka_group.errors import ReadError
from spark_kafka_group.executor.decode import Decoder
from spark_kafka_group.executor.decode.contract import HEADER_COST, ROW_COST, AbortedTransactions
from spark_kafka_group.values.schema import EVERY, arrow_schema

ALL = 2**63 - 1
BIG = 1 << 26


@dataclass(frozen=True)
class Outcome:
    rows: list[dict[str, Any]]
    error: str | None = None
    stopped_at: int | None = None
    nbytes: int = 0

    @property
    def offsets(self) -> list[int]:
        return [row["offset"] for row in self.rows]


def rows_of(batch: pa.RecordBatch, columns: tuple[str, ...] = EVERY) -> list[dict[str, Any]]:
    batch.validate(full=True)
    assert batch.schema.equals(arrow_schema(columns), check_metadata=True)
    if "timestamp" not in columns:
        return batch.to_pylist()
    # as numbers: Python's datetime ends before Arrow's timestamps do
    at = batch.schema.get_field_index("timestamp")
    return batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64())).to_pylist()


def builder(twin: Decoder, **options: Any) -> Any:
    defaults = {"columns": EVERY, "check_crcs": True, "unpacked_limit": BIG, "target_bytes": BIG}
    return twin.RecordBatchBuilder(**{**defaults, **options})


def decode(
    twin: Decoder,
    data: bytes,
    start: int = 0,
    end: int = ALL,
    position: int = 0,
    topic: str = "orders",
    aborted: Iterable[tuple[int, int]] | None = None,
    **options: Any,
) -> Outcome:
    """All of `data` in one call; the error, if any, as its text. `aborted` are producer ids and first offsets."""
    b = builder(twin, **options)
    error = stopped_at = None
    try:
        hidden = None if aborted is None else AbortedTransactions(aborted)
        stopped_at = b.append(topic, 3, data, position, start, end, hidden)
    except ReadError as raised:
        error = f"{type(raised).__name__}: {raised}"
    rows, nbytes = b.rows, b.nbytes
    outcome = Outcome(rows_of(b.finish(), options.get("columns", EVERY)), error, stopped_at, nbytes)
    assert rows == len(outcome.rows)
    assert b.rows == b.nbytes == 0
    return outcome


def decode_in_steps(
    twin: Decoder,
    data: bytes,
    target_bytes: int,
    start: int = 0,
    end: int = ALL,
    aborted: Iterable[tuple[int, int]] | None = None,
    **options: Any,
) -> Outcome:
    """As :func:`decode`, as a task does it: a RecordBatch whenever the builder is full, and on from there.

    Each has rows of less than `target_bytes`, and one row more.
    """
    b = builder(twin, target_bytes=target_bytes, **options)
    hidden = None if aborted is None else AbortedTransactions(aborted)
    rows: list[dict[str, Any]] = []
    error, position, nbytes, going_on = None, 0, 0, True
    while going_on:
        before = position
        try:
            position = b.append("orders", 3, data, position, start, end, hidden)
            going_on = b.full
            assert b.full or not b.halfway
            assert position >= before
        except ReadError as raised:
            error, going_on = f"{type(raised).__name__}: {raised}", False
        assert b.position == position or error
        nbytes += b.nbytes
        made = rows_of(b.finish(), options.get("columns", EVERY))
        assert not going_on or made, "no progress"
        assert sum(cost(row) for row in made[:-1]) < target_bytes
        rows += made
    return Outcome(rows, error, None if error else position, nbytes)


def cost(row: dict[str, Any]) -> int:
    """The bytes of a row in nbytes."""
    headers = row.get("headers") or []
    parts = [row.get("key"), row.get("value"), *(h["value"] for h in headers)]
    text = [row.get("topic", ""), *(h["key"] for h in headers)]
    sizes = [len(part or b"") for part in parts] + [len(name.encode()) for name in text]
    return ROW_COST + HEADER_COST * len(headers) + sum(sizes)
