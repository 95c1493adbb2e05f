"""Decoding JSON alone, on one core: this package's twins beside pyarrow.json.

python benchmarks/decoding_json.py
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from random import Random

import pyarrow as pa
import pyarrow.json
from pyspark.sql.types import DataType

from spark_kafka_group.executor.schemas.ddl import schema_of
from spark_kafka_group.executor.values import _json_c, _json_py

SEVEN = "id BIGINT, user STRING, amount DOUBLE, count INT, ok BOOLEAN, kind STRING, at TIMESTAMP"
FORTY = ", ".join(f"field_{at:02} {('BIGINT', 'STRING', 'DOUBLE', 'STRING')[at % 4]}" for at in range(40))
SECONDS = 1.5
ROUNDS = 3


def seven(rng: Random) -> dict[str, object]:
    return {
        "id": rng.randrange(10**6, 10**7),
        "user": f"user{rng.randrange(10**4):04}",
        "amount": round(rng.uniform(1, 1000), 2),
        "count": rng.randrange(100),
        "ok": rng.random() < 0.5,
        "kind": rng.choice(("buy", "sell", "hold")),
        "at": f"2026-01-{rng.randint(1, 28):02}T{rng.randrange(24):02}:00:00Z",
    }


def forty(rng: Random) -> dict[str, object]:
    makers: tuple[Callable[[], object], ...] = (
        lambda: rng.randrange(10**9),
        lambda: f"text{rng.randrange(10**6):06}",
        lambda: round(rng.uniform(0, 10**4), 3),
        lambda: "".join(rng.choices("abcdefghij", k=14)),
    )
    return {f"field_{at:02}": makers[at % 4]() for at in range(40)}


def rate(decode: Callable[[], object], rows: int) -> float:
    """Million rows a second of processor time, the best of some rounds."""
    best = 0.0
    for _ in range(ROUNDS):
        start, done = time.process_time(), 0
        while time.process_time() - start < SECONDS / ROUNDS:
            decode()
            done += rows
        best = max(best, done / (time.process_time() - start) / 1e6)
    return best


def arrow_rate(documents: list[bytes], kind: pa.DataType) -> float:
    block = b"\n".join(documents)
    options = pa.json.ParseOptions(explicit_schema=pa.schema(list(kind)), unexpected_field_behavior="ignore")
    reading = pa.json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    return rate(lambda: pa.json.read_json(io.BytesIO(block), reading, options), len(documents))


def report(
    name: str, spark: DataType, make: Callable[[Random], dict[str, object]], wanted: tuple[str, ...] | None
) -> None:
    rng = Random(1)
    documents = [json.dumps(make(rng), separators=(",", ":")).encode() for _ in range(10_000)]
    values = pa.array(documents, pa.binary())
    compiled = _json_c.JsonDecoder(spark, wanted, False, "UTC")
    exact = _json_py.JsonDecoder(spark, wanted, False, "UTC")
    few = values[:200]
    size = sum(map(len, documents)) / len(documents)
    print(
        f"{name}, {size:.0f} B: compiled {rate(lambda: compiled.decode(values), len(values)):.2f} M rows/s, "
        f"given up {compiled.given_up} of {len(values)}; in Python {rate(lambda: exact.decode(few), len(few)):.3f}; "
        f"pyarrow.json {arrow_rate(documents, compiled.type):.2f}"
    )


if __name__ == "__main__":
    report("7 fields", schema_of(SEVEN), seven, None)
    report("40 fields", schema_of(FORTY), forty, None)
    report("40 fields, 3 wanted", schema_of(FORTY), forty, ("field_00", "field_17", "field_38"))
