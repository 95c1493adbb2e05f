"""Decoding Avro values alone, on one core: ours, pyruhvro and fastavro on the same bytes, without Spark and brokers.

python benchmarks/decoding_values.py
"""

from __future__ import annotations

import argparse
import io
import json
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa

from spark_kafka_group.executor.values.avro_decoder import AvroDecoder

Schema = dict[str, Any]
SMALL_FIELDS: list[tuple[str, Any]] = [
    ("id", "long"),
    ("user", "string"),
    ("amount", "double"),
    ("time", {"type": "long", "logicalType": "timestamp-millis"}),
    ("paid", "boolean"),
    ("note", ["null", "string"]),
    ("count", "int"),
]
KINDS: tuple[Any, ...] = ("long", "string", "double", ["null", "string"], "int")
WIDE_FIELDS = [(f"field{i}", KINDS[i % len(KINDS)]) for i in range(40)]
WANTED = ("field1", "field7", "field30")


def record(fields: list[tuple[str, Any]]) -> Schema:
    return {"type": "record", "name": "Order", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def value_of(rng: random.Random, kind: Any, size: int) -> Any:
    if isinstance(kind, list):
        return None if rng.random() < 0.5 else value_of(rng, kind[1], size)
    if isinstance(kind, dict):
        return 1_700_000_000_000 + rng.randrange(1 << 32)
    return {
        "long": lambda: rng.randrange(1 << 24),
        "int": lambda: rng.randrange(1 << 14),
        "double": rng.random,
        "boolean": lambda: rng.random() < 0.5,
        "string": lambda: f"{rng.randrange(10**9):0{size}}",
    }[kind]()


def values_of(schema: Schema, size: int, rows: int) -> pa.Array:
    """Random values, from fastavro's writer."""
    rng, parsed, values = random.Random(7), fastavro.parse_schema(schema), []
    for _ in range(rows):
        data = io.BytesIO()
        row = {field["name"]: value_of(rng, field["type"], size) for field in schema["fields"]}
        fastavro.schemaless_writer(data, parsed, row)
        values.append(data.getvalue())
    return pa.array(values, pa.binary())


def rate(decode: Callable[[], Any], rows: int, rounds: int) -> tuple[float, float]:
    """Rows a second of processor time: the median, and how far the slowest and quickest round are apart, in it."""
    rates = []
    for _ in range(rounds + 1):
        began = time.process_time()
        decode()
        rates.append(rows / (time.process_time() - began))
    rates = rates[1:]  # the first one warms
    return statistics.median(rates), (max(rates) - min(rates)) / statistics.median(rates)


def sides(schema: Schema, values: pa.Array, wanted: tuple[str, ...] | None) -> dict[str, Callable[[], Any]]:
    text, parsed = json.dumps(schema), fastavro.parse_schema(schema)
    ours = AvroDecoder(text, wanted, False, {}.__getitem__, "c")
    framed = AvroDecoder(text, wanted, True, lambda schema_id: text, "c")
    with_ids = pa.array([b"\0\0\0\0" + bytes([i % 2]) + value.as_py() for i, value in enumerate(values)], pa.binary())
    found: dict[str, Callable[[], Any]] = {
        "groupkafka": lambda: ours.decode(values),
        "groupkafka, two schema ids in turn": lambda: framed.decode(with_ids),
        "fastavro": lambda: [fastavro.schemaless_reader(io.BytesIO(value), parsed) for value in values.to_pylist()],
    }
    try:
        import pyruhvro
    except ImportError:
        return found
    plain = values.to_pylist()
    return found | {"pyruhvro": lambda: pyruhvro.deserialize_array(plain, text)}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=100_000)
    arguments.add_argument("--rounds", type=int, default=5)
    args = arguments.parse_args()
    cases = (
        ("7 fields", record(SMALL_FIELDS), 8, None),
        ("40 fields", record(WIDE_FIELDS), 20, None),
        ("40 fields, 3 wanted", record(WIDE_FIELDS), 20, WANTED),
    )
    for name, schema, size, wanted in cases:
        values = values_of(schema, size, args.rows)
        each = (values.nbytes - 4 * len(values)) / len(values)
        rates = {}
        for side, decode in sides(schema, values, wanted).items():
            rates[side], spread = rate(decode, args.rows, args.rounds)
            print(f"{name}, {each:.0f} B: {side:36} {rates[side] / 1e6:7.2f} M rows/s, spread {spread:.0%}")
        for other in set(rates) & {"pyruhvro", "fastavro"}:
            print(f"{name}: {rates['groupkafka'] / rates[other]:.1f} times as many as {other}")


if __name__ == "__main__":
    main()
